/* SPDX-License-Identifier: Apache-2.0 */
/* Scans over bytes, as wide as the CPU has it (AVX2, SSE2), chosen at each call. Nothing here
 * allocates or keeps pointers; all may be called without the GIL, from any thread. */
#ifndef SN_CORE_SCAN_H
#define SN_CORE_SCAN_H

#include <stddef.h>
#include <stdint.h>

/* How often `byte` is among the `len` bytes at `p`. */
size_t sn_scan_count_byte(const uint8_t *p, size_t len, uint8_t byte);

/* One width of every scan. All give the same answers; tests compare them. */
struct sn_scan_width {
    const char *name;
    size_t (*count_byte)(const uint8_t *p, size_t len, uint8_t byte);
};

/* The widths this CPU has, widest first; the last is the scalar one. Fills `out`, returns how many.
 */
#define SN_SCAN_WIDTHS 3
size_t sn_scan_widths(const struct sn_scan_width *out[SN_SCAN_WIDTHS]);

#endif
