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

#endif
