/* SPDX-License-Identifier: Apache-2.0 */
#include "core/utf8.h"

#include <string.h>

static bool continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t sn_utf8_step(const uint8_t *p, size_t len, bool *valid)
{
    uint8_t lead = p[0];
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    size_t want;

    *valid = false;
    if (lead < 0x80) {
        *valid = true;
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return 1;
    }
    if (lead < 0xE0) {
        want = 2;
    } else if (lead < 0xF0) {
        want = 3;
        low = lead == 0xE0 ? 0xA0 : 0x80;  /* below: an overlong form */
        high = lead == 0xED ? 0x9F : 0xBF; /* above: a surrogate */
    } else {
        want = 4;
        low = lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xF4 ? 0x8F : 0xBF; /* above: beyond U+10FFFF */
    }
    if (len < 2 || p[1] < low || p[1] > high) {
        return 1;
    }
    for (size_t i = 2; i < want; i++) {
        if (i == len || !continues(p[i])) {
            return i;
        }
    }
    *valid = true;
    return want;
}

size_t sn_utf8_straddle(const uint8_t *p, size_t cut, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= cut; back++) {
        size_t begin = cut - back;

        if (!continues(p[begin])) {
            bool valid;
            size_t end = begin + sn_utf8_step(p + begin, len - begin, &valid);

            return end > cut ? end - cut : 0;
        }
    }
    return 0;
}

/* How many of the first bytes are ASCII, eight at a time. */
static size_t ascii_run(const uint8_t *p, size_t len)
{
    size_t i = 0;

    for (; len - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, p + i, sizeof word);
        if ((word & 0x8080808080808080U) != 0) {
            break;
        }
    }
    while (i < len && p[i] < 0x80) {
        i++;
    }
    return i;
}

size_t sn_utf8_repaired_size(const uint8_t *p, size_t len, size_t limit)
{
    size_t size = 0;
    size_t i = 0;

    while (i < len && size <= limit) {
        bool valid = true;
        size_t step =
            p[i] < 0x80 ? ascii_run(p + i, len - i) : sn_utf8_step(p + i, len - i, &valid);

        size += valid ? step : SN_UTF8_REPLACEMENT_SIZE;
        i += step;
    }
    return size;
}

size_t sn_utf8_repair(const uint8_t *p, size_t len, uint8_t *out, size_t room)
{
    static const uint8_t replacement[SN_UTF8_REPLACEMENT_SIZE] = {0xEF, 0xBF, 0xBD};
    size_t written = 0;
    size_t i = 0;

    while (i < len) {
        bool valid = true;
        size_t step =
            p[i] < 0x80 ? ascii_run(p + i, len - i) : sn_utf8_step(p + i, len - i, &valid);
        size_t size = valid ? step : SN_UTF8_REPLACEMENT_SIZE;

        if (size > room - written) {
            break;
        }
        memcpy(out + written, valid ? p + i : replacement, size);
        written += size;
        i += step;
    }
    return written;
}

size_t sn_utf8_put(uint32_t c, uint8_t *out)
{
    if (sn_is_surrogate(c)) {
        c = 0xFFFD;
    }
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | (c >> 6));
        out[1] = (uint8_t)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xE0 | (c >> 12));
        out[1] = (uint8_t)(0x80 | ((c >> 6) & 0x3F));
        out[2] = (uint8_t)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | (c >> 18));
    out[1] = (uint8_t)(0x80 | ((c >> 12) & 0x3F));
    out[2] = (uint8_t)(0x80 | ((c >> 6) & 0x3F));
    out[3] = (uint8_t)(0x80 | (c & 0x3F));
    return 4;
}
