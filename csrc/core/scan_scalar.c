/* SPDX-License-Identifier: Apache-2.0 */
#include "core/scan_internal.h"

#include "core/utf8.h"

static size_t count_byte(const uint8_t *p, size_t len, uint8_t byte)
{
    size_t count = 0;

    for (size_t i = 0; i < len; i++) {
        count += p[i] == byte;
    }
    return count;
}

static size_t count_at_most(const uint8_t *p, size_t len, uint8_t limit)
{
    size_t count = 0;

    for (size_t i = 0; i < len; i++) {
        count += p[i] <= limit;
    }
    return count;
}

static bool is_ascii_end(uint8_t byte)
{
    return (byte >= '\n' && byte <= '\r') || (byte >= 0x1C && byte <= 0x1E);
}

static size_t count_line_ends(const uint8_t *p, size_t len, size_t avail)
{
    size_t count = 0;

    for (size_t i = 0; i < len; i++) {
        /* One unsigned comparison sends most text on its way. */
        if (p[i] >= ' ' && p[i] < 0xC2) {
            continue;
        }
        /* The 2 of \r\n is left to its \n. */
        count += p[i] == '\r' ? !(i + 1 < avail && p[i + 1] == '\n')
                              : sn_line_end_length(p + i, avail - i) != 0;
    }
    return count;
}

static size_t next_candidate(const uint8_t *p, size_t len)
{
    size_t i = 0;

    while (i < len && !is_ascii_end(p[i]) && p[i] != 0xC2 && p[i] != 0xE2) {
        i++;
    }
    return i;
}

static size_t after_last_ascii_end(const uint8_t *p, size_t len)
{
    while (len > 0 && !is_ascii_end(p[len - 1])) {
        len--;
    }
    return len;
}

static bool valid_utf8(const uint8_t *p, size_t len)
{
    bool valid = true;

    while (len > 0 && valid) {
        size_t step = sn_utf8_step(p, len, &valid);

        p += step;
        len -= step;
    }
    return valid;
}

const struct sn_scan_width sn_scan_scalar = {
    .name = "scalar",
    .count_byte = count_byte,
    .count_at_most = count_at_most,
    .count_line_ends = count_line_ends,
    .next_candidate = next_candidate,
    .after_last_ascii_end = after_last_ascii_end,
    .valid_utf8 = valid_utf8,
};
