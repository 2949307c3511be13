/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the last bytes of a stream of any length in memory bounded by a cap. Not thread-safe: one
 * owner at a time. No function blocks; all may be called without the GIL. */
#ifndef SN_CORE_TAIL_H
#define SN_CORE_TAIL_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

struct sn_tail;

/* Makes a keeper of at most `max_bytes` (at least 1). Memory grows with what was fed, up to about
 * the cap. The caller owns *out and ends it with sn_tail_free. */
SN_WARN_UNUSED enum sn_status sn_tail_new(size_t max_bytes, struct sn_tail **out);

/* NULL is allowed. */
void sn_tail_free(struct sn_tail *tail);

/* Takes `len` bytes in. `data` is only read during the call. */
SN_WARN_UNUSED enum sn_status sn_tail_feed(struct sn_tail *tail, const char *data, size_t len);

/* Bytes and line ends ('\n') fed so far. */
uint64_t sn_tail_total_bytes(const struct sn_tail *tail);
uint64_t sn_tail_total_lines(const struct sn_tail *tail);

/* How many bytes are kept; less than the total when something was dropped. */
size_t sn_tail_kept(const struct sn_tail *tail);

/* Copies the kept bytes, oldest first, to `out`, which has room for sn_tail_kept() bytes. */
void sn_tail_copy(const struct sn_tail *tail, char *out);

/* Copies the newest `len` of the kept bytes, oldest first. */
void sn_tail_copy_last(const struct sn_tail *tail, size_t len, char *out);

/* How many of the kept bytes, from the oldest, belong to a UTF-8 character whose first byte was
 * dropped (0 to 3; 0 when nothing was dropped). Without them the rest decodes to exactly the end of
 * what the whole stream decodes to, U+FFFD for bad bytes included. */
size_t sn_tail_cut_char(const struct sn_tail *tail);

/* How many of the kept bytes, from the oldest, to leave out so that only whole lines are shown: up
 * to the first kept '\n' when the oldest line lost its beginning. Where that would leave nothing
 * (one line longer than the cap, ended or not) it is sn_tail_cut_char: the end of the line is
 * shown. */
size_t sn_tail_cut_line(const struct sn_tail *tail);

/* Line ends ('\n') among the newest `len` of the kept bytes. */
uint64_t sn_tail_lines_in_last(const struct sn_tail *tail, size_t len);

#endif
