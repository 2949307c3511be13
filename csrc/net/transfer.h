/* SPDX-License-Identifier: Apache-2.0 */
/* One request and its answer, driven to the end on the calling thread. */
#ifndef SN_NET_TRANSFER_H
#define SN_NET_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/http_head.h"
#include "core/status.h"
#include "net/body.h"
#include "net/client.h"
#include "net/outcome.h"

struct sn_header {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
};

/* What to ask. Everything it points to is the caller's and stays valid during the transfer. */
struct sn_net_request {
    const char *method;
    const char *url;
    size_t url_len;
    const struct sn_header *headers;
    size_t header_count;
    struct sn_body body;
    bool has_body;       /* send a body, an empty one included */
    bool idempotent;     /* may be sent again when a kept connection turns out to be dead */
    bool compressed;     /* offer content encodings and decode them */
    const char *proxy;   /* URL of the proxy, NULL for none; the environment is not read */
    int64_t deadline_ns; /* absolute, of the monotonic clock */
    int64_t stall_ns; /* longest time without a byte in either direction once connected; 0: any */
    int cancel_fd;    /* ends the transfer when it becomes readable; -1 for none */
    atomic_bool
        *stop;        /* ends the transfer when set and sn_transfer_wake is called; NULL for none */
    size_t max_head;  /* of the answer, in bytes, at least 1 */
    size_t max_error; /* bytes kept of the body of an answer that is not 2xx */
    size_t buffer_size; /* of the receive buffer; 0 for the usual 16 KiB */
    /* Called about every 0.2 s while it waits; nonzero ends the transfer (STOPPED). NULL for none.
     */
    int (*tick)(void *ctx);
    void *tick_ctx;
};

/* How many bytes a body chunk moved the sink on. */
enum sn_take {
    SN_TAKE_ALL,    /* taken */
    SN_TAKE_PAUSE,  /* not taken: come again after `between` */
    SN_TAKE_ENOUGH, /* nothing more is wanted: the transfer ends well, the chunk is the sink's
                       matter */
    SN_TAKE_FAILED, /* sn_net_fail was called */
};

enum sn_flow {
    SN_FLOW_ON,
    SN_FLOW_DONE,  /* the answer's meaning is complete: what follows does not matter */
    SN_FLOW_ABORT, /* the hook failed and knows why (STOPPED) */
};

/* Takes the body of a 2xx answer. All but `body` may be NULL. Called on the transfer's thread,
 * without the GIL; only `between` may take it, and only there may anything block. */
struct sn_sink {
    void *ctx;
    /* The head is complete and 2xx. False: sn_net_fail was called, no body is taken. */
    bool (*head)(void *ctx, const struct sn_http_head *head, struct sn_net_outcome *outcome);
    enum sn_take (*body)(void *ctx, const char *data, size_t len, struct sn_net_outcome *outcome);
    /* The body is complete. False: sn_net_fail was called. */
    bool (*end)(void *ctx, struct sn_net_outcome *outcome);
    enum sn_flow (*between)(void *ctx);
};

/* What came, apart from what the sink took. Zeroed by the caller, ended with sn_answer_clear. */
struct sn_answer {
    struct sn_http_head head;
    char *error; /* the start of the body of an answer that is not 2xx */
    size_t error_len;
    bool error_cut; /* there was more of it, or its end is not known */
};

void sn_answer_clear(struct sn_answer *answer);

/* Checks what a request would put on the wire, the sizes and the descriptors. SN_OK, or SN_INVALID
 * or SN_SYSTEM and *what (static) completes "invalid ...". Never blocks. */
SN_WARN_UNUSED enum sn_status sn_net_check(const struct sn_net_request *request, const char **what);

/* Runs a checked request in a lane the caller took, and fills *outcome and *answer. An answer with
 * another status than 2xx is an answer (OK), its body kept up to the cap, never given to the sink.
 * Blocks until the end, the deadline, a stall or a cancel: no GIL. Does not change signal handlers;
 * a SIGPIPE of its own is swallowed. When the sink says DONE, the rest of the answer may be left to
 * run out in the lane, so that its connection can serve again. */
void sn_transfer(struct sn_lane *lane, struct sn_net_request *request, const struct sn_sink *sink,
                 struct sn_answer *answer, struct sn_net_outcome *outcome);

/* Makes a transfer on another thread look at its `stop` at once. */
void sn_transfer_wake(struct sn_lane *lane);

#endif
