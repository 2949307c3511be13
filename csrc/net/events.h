/* SPDX-License-Identifier: Apache-2.0 */
/* A sink that takes a body apart into server-sent events and hands them over in batches, outside of
 * libcurl, on the thread of the transfer. Memory: one frame up to its cap, and a batch. */
#ifndef SN_NET_EVENTS_H
#define SN_NET_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "net/transfer.h"

/* One event of a batch, in the batch's memory. */
struct sn_event {
    size_t event_at, event_len;
    size_t data_at, data_len;
    uint64_t total; /* more than data_len: the frame was over the cap */
};

struct sn_event_batch {
    const char *bytes;
    const struct sn_event *events;
    size_t count;
};

/* Takes a batch of at least one event. */
typedef enum sn_flow (*sn_take_events)(void *ctx, const struct sn_event_batch *batch);

struct sn_events;

/* The caller owns *out and ends it with sn_events_free. `max_frame` is the cap of one event's data.
 */
SN_WARN_UNUSED enum sn_status sn_events_new(size_t max_frame, sn_take_events take, void *ctx,
                                            struct sn_events **out);
void sn_events_free(struct sn_events *events);

struct sn_sink sn_events_sink(struct sn_events *events);

#endif
