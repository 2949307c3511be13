/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a request: pieces of memory and pieces of regular files, one after another, of known
 * length. Reading does not move a file's position, so going back to the start always gives the same
 * bytes or an error. */
#ifndef SN_NET_BODY_H
#define SN_NET_BODY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/status.h"

struct sn_body_piece {
    const char *data; /* NULL for a piece of the file `fd` */
    int fd;
    int64_t offset; /* in the file */
    int64_t len;
};

/* The pieces and what they refer to are the caller's and stay valid and unchanged during the
 * transfer. */
struct sn_body {
    const struct sn_body_piece *pieces;
    size_t count;
    size_t at;    /* the piece being read */
    int64_t done; /* bytes of it that were read */
};

/* Checks the pieces: lengths that add up, descriptors of regular files (SN_INVALID, or SN_SYSTEM
 * with errno). *total is the length of the whole. */
SN_WARN_UNUSED enum sn_status sn_body_check(const struct sn_body *body, int64_t *total);

/* Reads up to `room` bytes; *got is 0 at the end. Blocks as reading a file does: no GIL.
 *   SN_SYSTEM  a read failed, errno says why
 *   SN_CLOSED  the file is shorter than the piece */
SN_WARN_UNUSED enum sn_status sn_body_read(struct sn_body *body, char *out, size_t room,
                                           size_t *got);

/* Back to the start. */
void sn_body_rewind(struct sn_body *body);

#endif
