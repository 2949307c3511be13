/* SPDX-License-Identifier: Apache-2.0 */
#include "core/scan.h"

#include "core/scan_internal.h"

/* __builtin_cpu_supports reads one variable that libgcc fills when the program is loaded, so
 * choosing at each call needs no state of our own. */
static const struct sn_scan_width *widest(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") ? &sn_scan_avx2 : &sn_scan_sse2;
#else
    return &sn_scan_scalar;
#endif
}

size_t sn_scan_count_byte(const uint8_t *p, size_t len, uint8_t byte)
{
    return widest()->count_byte(p, len, byte);
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
