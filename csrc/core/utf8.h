/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 that may be broken, with the rule of Unicode 15 section 3.9 (table 3-7 and "maximal
 * subparts"), which is also what CPython's errors="replace" does: each longest run of bytes that
 * begins a character but cannot become one counts as one U+FFFD, every other bad byte as one.
 * Nothing here allocates or keeps pointers; all may be called without the GIL. */
#ifndef SN_CORE_UTF8_H
#define SN_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of U+FFFD in UTF-8. */
#define SN_UTF8_REPLACEMENT_SIZE 3

/* Length of the character or of the bad part that begins at `p` (`len` >= 1 bytes are there), and
 * whether it is a character. */
size_t sn_utf8_step(const uint8_t *p, size_t len, bool *valid);

/* Of `len` bytes cut at `cut`: how many of those after the cut belong to a character or bad part
 * that began before it. At least the 3 bytes on each side of the cut, where there are so many, must
 * be given. */
size_t sn_utf8_straddle(const uint8_t *p, size_t cut, size_t len);

/* What `len` bytes at `p` take after every bad part is replaced by U+FFFD; never less than `len`.
 * Stops counting once that is over `limit`.
 */
size_t sn_utf8_repaired_size(const uint8_t *p, size_t len, size_t limit);

/* Copies `len` bytes at `p`, every bad part replaced by U+FFFD, to `out`. Stops before the first
 * part that does not fit in `room`. Returns how many bytes were written, which are always valid
 * UTF-8. */
size_t sn_utf8_repair(const uint8_t *p, size_t len, uint8_t *out, size_t room);

/* UTF-8 bytes of one code point; a lone surrogate has those of U+FFFD, also 3. */
static inline size_t sn_utf8_size(uint32_t c)
{
    return 1U + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
}

static inline bool sn_is_surrogate(uint32_t c)
{
    return (c & 0xFFFFF800U) == 0xD800;
}

/* Writes one code point, a lone surrogate as U+FFFD, to `out`, which has room for 4 bytes. Returns
 * how many were written. */
size_t sn_utf8_put(uint32_t c, uint8_t *out);

#endif
