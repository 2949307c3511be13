/* SPDX-License-Identifier: Apache-2.0 */
/* Scans over bytes, as wide as the CPU has it (AVX2, SSE2), chosen at each call. Nothing here
 * allocates or keeps pointers; all may be called without the GIL, from any thread. */
#ifndef SN_CORE_SCAN_H
#define SN_CORE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Line ends are those of Python's str.splitlines: \n \v \f \r \x1c \x1d \x1e, U+0085, U+2028,
 * U+2029, and \r\n as one. In UTF-8 the bytes C2 and E2 always begin something, so C2 85, E2 80 A8
 * and E2 80 A9 are line ends wherever they stand, also in text that is broken elsewhere. */

/* One width of every scan. All widths give the same answers; tests compare them. */
struct sn_scan_width {
    const char *name;
    /* How often `byte` is among the `len` bytes at `p`. */
    size_t (*count_byte)(const uint8_t *p, size_t len, uint8_t byte);
    /* How many of the `len` bytes at `p` are at most `limit`. */
    size_t (*count_at_most)(const uint8_t *p, size_t len, uint8_t limit);
    /* How many line ends begin in the `len` bytes at `p`, where `avail` >= `len` bytes may be
     * looked at; \r\n begins at its \n. So the counts of neighbouring parts add up to that of the
     * whole. */
    size_t (*count_line_ends)(const uint8_t *p, size_t len, size_t avail);
    /* The index of the first byte that may begin a line end: one of the seven ASCII ones, C2 or E2.
     * `len` when there is none. */
    size_t (*next_candidate)(const uint8_t *p, size_t len);
    /* The index after the last of the seven ASCII line ends; 0 when there is none. */
    size_t (*after_last_ascii_end)(const uint8_t *p, size_t len);
    /* Whether the `len` bytes at `p` are UTF-8 from a character to the end of one. */
    bool (*valid_utf8)(const uint8_t *p, size_t len);
};

/* The widest this CPU has. The answer never changes in the life of a process. */
const struct sn_scan_width *sn_scan(void);

/* The widths this CPU has, widest first; the last is the scalar one. Fills `out`, returns how many.
 */
#define SN_SCAN_WIDTHS 3
size_t sn_scan_widths(const struct sn_scan_width *out[SN_SCAN_WIDTHS]);

/* Length of the line end at `p`, 0 when there is none; \r\n is 2. */
size_t sn_line_end_length(const uint8_t *p, size_t len);

/* The first line end in the `len` bytes at `p`: its index, and its length in *end_len; `len` and 0
 * when there is none. */
size_t sn_next_line_end(const struct sn_scan_width *scan, const uint8_t *p, size_t len,
                        size_t *end_len);

#endif
