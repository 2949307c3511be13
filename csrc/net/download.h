/* SPDX-License-Identifier: Apache-2.0 */
/* A file, or a range of one, to a descriptor or a ring. What the answer says of itself is checked
 * before a byte reaches the destination, what came is checked against it at the end: a part of a
 * file is never taken for the whole. */
#ifndef SN_NET_DOWNLOAD_H
#define SN_NET_DOWNLOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/ring.h"
#include "net/transfer.h"

struct sn_download {
    /* asked for */
    bool ranged;       /* a Range header is sent */
    int64_t first;     /* its first byte; 0 without a range */
    int64_t last;      /* its last byte, -1 for the file's */
    int64_t size;      /* of the whole file when it is known, else -1: another size is an error */
    int64_t max_bytes; /* at most so many are taken; an answer that announces more is TOO_LARGE */
    /* the destination: one of them */
    int fd;               /* a regular file, written at its position; -1 for none */
    struct sn_ring *ring; /* NULL for none */
    /* found */
    int64_t expected; /* bytes the body has to have; -1 when only its framing ends it */
    int64_t total;    /* of the file, as the answer says; -1 unknown */
    int64_t taken;
    size_t waiting; /* bytes that wait for room in the ring */
    char *gathered; /* bytes on their way to the descriptor */
    size_t gathered_len;
};

#define SN_RANGE_SIZE 64

/* Checks what is asked; SN_INVALID and *what completes "invalid ...". */
SN_WARN_UNUSED enum sn_status sn_download_check(const struct sn_download *download,
                                                const char **what);

/* The value of the Range header, for download->ranged. */
void sn_download_range(const struct sn_download *download, char out[SN_RANGE_SIZE]);

/* Writing to the descriptor happens on the transfer's thread. */
struct sn_sink sn_download_sink(struct sn_download *download);

/* After the transfer, however it ended: writes what is still on its way, so that the destination
 * holds the `taken` bytes, and releases what the sink used. May fail a transfer that went well. No
 * GIL. */
void sn_download_finish(struct sn_download *download, struct sn_net_outcome *outcome);

/* A transfer on a thread of its own, for a ring. It calls no Python. */
struct sn_producer {
    struct sn_lane *lane;
    struct sn_net_request *request; /* without tick */
    struct sn_download *download;
    struct sn_answer answer;
    struct sn_net_outcome outcome;
    atomic_bool stop;
    pthread_t thread;
};

/* Starts the thread, which owns lane, request and download until sn_producer_join. SN_SYSTEM with
 * errno. */
SN_WARN_UNUSED enum sn_status sn_producer_start(struct sn_producer *producer);

/* The consumer wants no more: the transfer ends at once. */
void sn_producer_stop(struct sn_producer *producer);

/* Waits for the thread, which has finished the ring or was told to stop. No GIL. */
void sn_producer_join(struct sn_producer *producer);

#endif
