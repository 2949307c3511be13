/* SPDX-License-Identifier: Apache-2.0 */
/* A sink that keeps the body in memory up to a cap. One owner; no GIL needed. */
#ifndef SN_NET_COLLECT_H
#define SN_NET_COLLECT_H

#include <stdbool.h>
#include <stddef.h>

#include "net/transfer.h"

struct sn_collect {
    size_t max;   /* bytes of the decoded body to keep */
    bool may_cut; /* a longer body is cut at the cap and `cut` is set; else it is TOO_LARGE */
    char *data;
    size_t len, capacity;
    bool cut;
};

/* The sink of `collect`, which the caller set up and ends with sn_collect_clear. */
struct sn_sink sn_collect_sink(struct sn_collect *collect);

void sn_collect_clear(struct sn_collect *collect);

#endif
