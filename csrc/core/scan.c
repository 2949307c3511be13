/* SPDX-License-Identifier: Apache-2.0 */
#include "core/scan.h"

#include "core/scan_internal.h"

/* __builtin_cpu_supports reads one variable that libgcc fills when the program is loaded, so
 * choosing at each call needs no state of our own. */
const struct sn_scan_width *sn_scan(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") ? &sn_scan_avx2 : &sn_scan_sse2;
#else
    return &sn_scan_scalar;
#endif
}

size_t sn_scan_widths(const struct sn_scan_width *out[SN_SCAN_WIDTHS])
{
    size_t count = 0;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        out[count++] = &sn_scan_avx2;
    }
    out[count++] = &sn_scan_sse2;
#endif
    out[count++] = &sn_scan_scalar;
    return count;
}

size_t sn_line_end_length(const uint8_t *p, size_t len)
{
    if (len == 0) {
        return 0;
    }
    switch (p[0]) {
    case '\r':
        return len > 1 && p[1] == '\n' ? 2 : 1;
    case '\n':
    case '\v':
    case '\f':
    case 0x1C:
    case 0x1D:
    case 0x1E:
        return 1;
    case 0xC2:
        return len > 1 && p[1] == 0x85 ? 2 : 0;
    case 0xE2:
        return len > 2 && p[1] == 0x80 && (p[2] | 1) == 0xA9 ? 3 : 0;
    default:
        return 0;
    }
}

size_t sn_next_line_end(const struct sn_scan_width *scan, const uint8_t *p, size_t len,
                        size_t *end_len)
{
    size_t at = 0;

    while (at < len) {
        at += scan->next_candidate(p + at, len - at);
        *end_len = sn_line_end_length(p + at, len - at);
        if (*end_len != 0) {
            return at;
        }
        at++;
    }
    *end_len = 0;
    return len;
}
