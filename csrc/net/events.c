/* SPDX-License-Identifier: Apache-2.0 */
#include "net/events.h"

#include <string.h>

#include "core/alloc.h"
#include "core/sse.h"

/* A batch of this many bytes or events is handed over before more is taken. */
#define BATCH_BYTES ((size_t)256 * 1024)
#define BATCH_EVENTS ((size_t)4096)
/* A buffer beyond this is given back when its batch was handed over. */
#define KEEP_BYTES (2 * BATCH_BYTES)

struct sn_events {
    struct sn_sse *sse;
    sn_take_events take;
    void *ctx;
    char *bytes;
    size_t len, capacity;
    struct sn_event *events;
    size_t count, room;
};

enum sn_status sn_events_new(size_t max_frame, sn_take_events take, void *ctx,
                             struct sn_events **out)
{
    struct sn_events *events = sn_calloc(1, sizeof *events);
    enum sn_status status = SN_NO_MEMORY;

    *out = NULL;
    if (events != NULL) {
        status = sn_sse_new(max_frame, &events->sse);
    }
    if (status != SN_OK) {
        sn_free(events);
        return status;
    }
    events->take = take;
    events->ctx = ctx;
    *out = events;
    return SN_OK;
}

void sn_events_free(struct sn_events *events)
{
    if (events != NULL) {
        sn_sse_free(events->sse);
        sn_free(events->bytes);
        sn_free(events->events);
        sn_free(events);
    }
}

static enum sn_status reserve(struct sn_events *events, size_t more)
{
    if (events->count == events->room) {
        size_t room = events->room > 0 ? events->room * 2 : 64;
        struct sn_event *grown = sn_realloc(events->events, room * sizeof *grown);

        if (grown == NULL) {
            return SN_NO_MEMORY;
        }
        events->events = grown;
        events->room = room;
    }
    if (more > events->capacity - events->len) {
        size_t capacity = events->capacity > 0 ? events->capacity : 4096;
        char *grown;

        if (more > SIZE_MAX / 2 - events->len) {
            return SN_NO_MEMORY;
        }
        while (capacity - events->len < more) {
            capacity *= 2;
        }
        grown = sn_realloc(events->bytes, capacity);
        if (grown == NULL) {
            return SN_NO_MEMORY;
        }
        events->bytes = grown;
        events->capacity = capacity;
    }
    return SN_OK;
}

static size_t put(struct sn_events *events, const char *data, size_t len)
{
    size_t at = events->len;

    if (len > 0) {
        memcpy(events->bytes + at, data, len);
        events->len += len;
    }
    return at;
}

static enum sn_status add_frame(void *ctx, const struct sn_sse_frame *frame)
{
    struct sn_events *events = ctx;
    struct sn_event *event;
    enum sn_status status = reserve(events, frame->event_len + frame->data_len);

    if (status != SN_OK) {
        return status;
    }
    event = &events->events[events->count++];
    event->event_len = frame->event_len;
    event->event_at = put(events, frame->event, frame->event_len);
    event->data_len = frame->data_len;
    event->data_at = put(events, frame->data, frame->data_len);
    event->total = frame->total;
    return SN_OK;
}

static enum sn_take take_body(void *ctx, const char *data, size_t len,
                              struct sn_net_outcome *outcome)
{
    struct sn_events *events = ctx;

    if (events->len >= BATCH_BYTES || events->count >= BATCH_EVENTS) {
        return SN_TAKE_PAUSE;
    }
    if (sn_sse_feed(events->sse, data, len, add_frame, events) != SN_OK) {
        sn_net_fail(outcome, SN_NET_MEMORY, "out of memory");
        return SN_TAKE_FAILED;
    }
    return SN_TAKE_ALL;
}

static bool take_end(void *ctx, struct sn_net_outcome *outcome)
{
    struct sn_events *events = ctx;

    if (sn_sse_end(events->sse, add_frame, events) != SN_OK) {
        sn_net_fail(outcome, SN_NET_MEMORY, "out of memory");
        return false;
    }
    return true;
}

static enum sn_flow hand_over(void *ctx)
{
    struct sn_events *events = ctx;
    struct sn_event_batch batch = {events->bytes, events->events, events->count};
    enum sn_flow flow;

    if (events->count == 0) {
        return SN_FLOW_ON;
    }
    flow = events->take(events->ctx, &batch);
    events->len = 0;
    events->count = 0;
    if (events->capacity > KEEP_BYTES) {
        sn_free(events->bytes);
        events->bytes = NULL;
        events->capacity = 0;
    }
    return flow;
}

struct sn_sink sn_events_sink(struct sn_events *events)
{
    struct sn_sink sink = {.ctx = events, .body = take_body, .end = take_end, .between = hand_over};

    return sink;
}
