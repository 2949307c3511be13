/* SPDX-License-Identifier: Apache-2.0 */
#include "net/body.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum sn_status sn_body_check(const struct sn_body *body, int64_t *total)
{
    int64_t sum = 0;

    *total = 0;
    for (size_t i = 0; i < body->count; i++) {
        const struct sn_body_piece *piece = &body->pieces[i];

        if (piece->len < 0 || piece->offset < 0 || piece->len > INT64_MAX - sum ||
            piece->offset > INT64_MAX - piece->len) {
            return SN_INVALID;
        }
        sum += piece->len;
        if (piece->data == NULL) {
            struct stat info;

            if (fstat(piece->fd, &info) != 0) {
                return SN_SYSTEM;
            }
            if (!S_ISREG(info.st_mode)) {
                return SN_INVALID;
            }
        }
    }
    *total = sum;
    return SN_OK;
}

/* Fills `room` from the file; fewer bytes only where the file ends. */
static enum sn_status read_file(const struct sn_body_piece *piece, int64_t done, char *out,
                                size_t room)
{
    while (room > 0) {
        ssize_t n = pread(piece->fd, out, room, (off_t)(piece->offset + done));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return SN_SYSTEM;
        }
        if (n == 0) {
            return SN_CLOSED;
        }
        out += n;
        room -= (size_t)n;
        done += n;
    }
    return SN_OK;
}

enum sn_status sn_body_read(struct sn_body *body, char *out, size_t room, size_t *got)
{
    *got = 0;
    while (room > 0 && body->at < body->count) {
        const struct sn_body_piece *piece = &body->pieces[body->at];
        int64_t left = piece->len - body->done;
        size_t part = left < (int64_t)room ? (size_t)left : room;

        if (piece->data != NULL) {
            memcpy(out, piece->data + body->done, part);
        } else if (part > 0) {
            enum sn_status status = read_file(piece, body->done, out, part);

            if (status != SN_OK) {
                return status;
            }
        }
        out += part;
        room -= part;
        *got += part;
        body->done += (int64_t)part;
        if (body->done == piece->len) {
            body->at++;
            body->done = 0;
        }
    }
    return SN_OK;
}

void sn_body_rewind(struct sn_body *body)
{
    body->at = 0;
    body->done = 0;
}
