/* SPDX-License-Identifier: Apache-2.0 */
/* Decompressing gzip (RFC 1952) that comes in pieces, one or several members, up to a cap. May be
 * called without the GIL; one thread at a time. */
#ifndef SN_CORE_GUNZIP_H
#define SN_CORE_GUNZIP_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* Takes bytes in their order; what it returns, other than SN_OK, ends the work. */
struct sn_sink_bytes {
    enum sn_status (*write)(void *context, const uint8_t *data, size_t len);
    void *context;
};

struct sn_gunzip;

/* What comes out goes to `sink`, `most` bytes at most. The caller ends *out with sn_gunzip_free.
 * SN_CLOSED when this machine has no zlib. */
SN_WARN_UNUSED enum sn_status sn_gunzip_new(struct sn_sink_bytes sink, uint64_t most,
                                            struct sn_gunzip **out);

/* NULL is allowed. */
void sn_gunzip_free(struct sn_gunzip *self);

/* SN_INVALID: not gzip, damaged, or something else after a member; the checksum and size that each
 * member ends with are compared. SN_TOO_LARGE: more than `most` bytes come out; no more than those
 * were made. Or what the sink returned. Not to be used on after a failure. */
SN_WARN_UNUSED enum sn_status sn_gunzip_feed(struct sn_gunzip *self, const uint8_t *data,
                                             size_t len);

/* SN_INVALID when it ended inside of a member, or there was none. */
SN_WARN_UNUSED enum sn_status sn_gunzip_finish(const struct sn_gunzip *self);

/* What is wrong, after SN_INVALID: completes "the compressed data ...". */
const char *sn_gunzip_problem(const struct sn_gunzip *self);

#endif
