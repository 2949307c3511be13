/* SPDX-License-Identifier: Apache-2.0 */
#include "core/text.h"

#include <stdio.h>
#include <string.h>

#include "core/scan.h"
#include "core/utf8.h"

static uint32_t code_point(const void *text, size_t size, size_t i)
{
    return size == 1 ? ((const uint8_t *)text)[i] : ((const uint32_t *)text)[i];
}

void sn_show_head(const void *text, size_t size, size_t len, size_t max_lines, size_t max_bytes,
                  struct sn_head *head)
{
    size_t used = 0;
    size_t at = 0;
    bool changed = false;

    *head = (struct sn_head){0};
    for (size_t lines = 0; at < len && lines < max_lines; lines++) {
        used += lines > 0;
        while (at < len && code_point(text, size, at) != '\n') {
            uint32_t c = code_point(text, size, at);

            used += sn_utf8_size(c);
            changed = changed || sn_is_surrogate(c);
            at++;
            if (used > max_bytes) {
                return;
            }
        }
        if (used > max_bytes) {
            return;
        }
        head->end = at;
        head->changed = changed;
        at += at < len;
        head->next = at;
    }
}

size_t sn_text_write(const uint8_t *p, size_t len, uint8_t *out, size_t room)
{
    const struct sn_scan_width *scan = sn_scan();
    size_t written = 0;
    size_t at = 0;

    while (at < len) {
        size_t end_len;
        size_t line = sn_next_line_end(scan, p + at, len - at, &end_len);

        written += sn_utf8_repair(p + at, line, out + written, room - written);
        at += line + end_len;
        if (end_len != 0 && written < room) {
            out[written++] = '\n';
        }
    }
    return written;
}

size_t sn_text_write_block(const uint32_t *block, size_t count, bool *after_cr, uint8_t *out)
{
    size_t written = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t c = block[i];

        switch (c) {
        case '\n':
            if (*after_cr) {
                *after_cr = false;
                continue;
            }
            break;
        case '\v':
        case '\f':
        case '\r':
        case 0x1C:
        case 0x1D:
        case 0x1E:
        case 0x85:
        case 0x2028:
        case 0x2029:
            *after_cr = c == '\r';
            out[written++] = '\n';
            continue;
        default:
            break;
        }
        *after_cr = false;
        written += sn_utf8_put(c, out + written);
    }
    return written;
}

size_t sn_format_size(uint64_t size, char out[SN_SIZE_TEXT])
{
    const unsigned shift = size >= 1024 * 1024 ? 20 : 10;
    unsigned __int128 tenths;
    uint64_t whole;
    uint64_t rest;
    uint64_t half = (uint64_t)1 << (shift - 1);
    int len;

    if (size < 1024) {
        len = snprintf(out, SN_SIZE_TEXT, "%lluB", (unsigned long long)size);
        return (size_t)len;
    }
    /* A power of two divides a double exactly, so the quotient is what the double nearest to `size`
     * is of it, and integers can round it without the locale that printf would ask. */
    tenths = (unsigned __int128)(double)size * 10;
    whole = (uint64_t)(tenths >> shift);
    rest = (uint64_t)tenths & (((uint64_t)1 << shift) - 1);
    if (rest > half || (rest == half && (whole & 1) != 0)) {
        whole++;
    }
    len = snprintf(out, SN_SIZE_TEXT, "%llu.%llu%s", (unsigned long long)(whole / 10),
                   (unsigned long long)(whole % 10), shift == 20 ? "MB" : "KB");
    return (size_t)len;
}
