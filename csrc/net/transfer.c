/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transfer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "net/lane.h"

#define TICK_NS (SN_NS_PER_S / 5)
/* Longest single wait, so that a clock or wake-up gone wrong cannot hold a call for ever. */
#define MAX_WAIT_MS 10000
/* What may still come after an answer's meaning is complete, for its connection to be kept. */
#define DRAIN_NS (5 * SN_NS_PER_S)
#define DRAIN_BYTES ((size_t)64 * 1024)
#define LARGE_BODY ((int64_t)64 * 1024)
#define UPLOAD_BUFFER (512L * 1024)
/* CURLE_TOO_LARGE, since 8.6.0: over a cap of libcurl's own. */
#define CODE_TOO_LARGE 100

struct sn_transfer {
    struct sn_lane *lane;
    struct sn_net_request *request;
    const struct sn_sink *sink;
    struct sn_answer *answer;
    struct sn_net_outcome *outcome;
    int64_t body_len;
    int64_t progress_ns; /* when a byte last moved; 0 before the connection stands */
    int64_t tick_ns;
    bool paused;
    bool enough; /* ended early, and well */
    bool done;   /* the sink said so */
};

void sn_answer_clear(struct sn_answer *answer)
{
    sn_http_head_clear(&answer->head);
    sn_free(answer->error);
    answer->error = NULL;
    answer->error_len = 0;
}

/* ---- libcurl's callbacks; `ctx` is the lane ---- */

/* The connection stands and the request is about to be written. */
static int on_before_request(void *ctx, char *peer, char *local, int peer_port, int local_port)
{
    struct sn_lane *lane = ctx;

    (void)peer;
    (void)local;
    (void)peer_port;
    (void)local_port;
    if (lane->transfer != NULL) {
        lane->transfer->outcome->sent = true;
        lane->transfer->progress_ns = sn_clock_now();
    }
    return CURL_PREREQFUNC_OK;
}

static size_t on_read(char *out, size_t size, size_t count, void *ctx)
{
    struct sn_lane *lane = ctx;
    struct sn_transfer *transfer = lane->transfer;
    enum sn_status status;
    size_t got = 0;

    if (transfer == NULL) {
        return CURL_READFUNC_ABORT;
    }
    status = sn_body_read(&transfer->request->body, out, size * count, &got);
    if (status != SN_OK) {
        transfer->outcome->os_error = status == SN_SYSTEM ? errno : 0;
        sn_net_fail(transfer->outcome, SN_NET_SOURCE,
                    status == SN_SYSTEM ? "the file to send could not be read"
                                        : "the file to send is shorter than it was");
        return CURL_READFUNC_ABORT;
    }
    transfer->progress_ns = sn_clock_now();
    return got;
}

/* libcurl goes back to the start when a kept connection died under a request. */
static int on_seek(void *ctx, curl_off_t offset, int origin)
{
    struct sn_lane *lane = ctx;
    struct sn_transfer *transfer = lane->transfer;

    if (transfer == NULL || offset != 0 || origin != SEEK_SET || !transfer->request->idempotent) {
        return CURL_SEEKFUNC_FAIL;
    }
    sn_body_rewind(&transfer->request->body);
    return CURL_SEEKFUNC_OK;
}

static bool is_success(const struct sn_answer *answer)
{
    return answer->head.status >= 200 && answer->head.status < 300;
}

static size_t on_header(char *line, size_t size, size_t count, void *ctx)
{
    struct sn_lane *lane = ctx;
    struct sn_transfer *transfer = lane->transfer;
    size_t len = size * count;
    enum sn_status status;
    bool was_complete;

    if (transfer == NULL) {
        return len;
    }
    transfer->progress_ns = sn_clock_now();
    was_complete = transfer->answer->head.complete;
    status = sn_http_head_line(&transfer->answer->head, line, len);
    if (status != SN_OK) {
        sn_net_fail(transfer->outcome,
                    status == SN_TOO_LARGE ? SN_NET_HEAD_TOO_LARGE : SN_NET_MEMORY,
                    "the head of the answer is over the cap");
        return 0;
    }
    if (transfer->answer->head.complete && !was_complete && is_success(transfer->answer) &&
        transfer->sink->head != NULL &&
        !transfer->sink->head(transfer->sink->ctx, &transfer->answer->head, transfer->outcome)) {
        return 0;
    }
    return len;
}

/* Keeps the start of an error's body. Nothing of it goes to the sink. */
static size_t keep_error(struct sn_transfer *transfer, const char *data, size_t len)
{
    struct sn_answer *answer = transfer->answer;
    size_t room = transfer->request->max_error - answer->error_len;
    size_t kept = len < room ? len : room;

    if (kept > 0) {
        char *grown = sn_realloc(answer->error, answer->error_len + kept);

        if (grown == NULL) {
            sn_net_fail(transfer->outcome, SN_NET_MEMORY, "out of memory");
            return 0;
        }
        memcpy(grown + answer->error_len, data, kept);
        answer->error = grown;
        answer->error_len += kept;
    }
    if (kept < len) {
        answer->error_cut = true;
        transfer->enough = true;
        return 0;
    }
    return len;
}

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
    struct sn_lane *lane = ctx;
    struct sn_transfer *transfer = lane->transfer;
    size_t len = size * count;

    if (transfer == NULL) {
        if (len > lane->drain_left) {
            return 0;
        }
        lane->drain_left -= len;
        return len;
    }
    transfer->progress_ns = sn_clock_now();
    if (transfer->done) {
        return len;
    }
    if (!is_success(transfer->answer)) {
        transfer->outcome->received += len;
        return keep_error(transfer, data, len);
    }
    switch (transfer->sink->body(transfer->sink->ctx, data, len, transfer->outcome)) {
    case SN_TAKE_ALL:
        transfer->outcome->received += len;
        transfer->progress_ns = sn_clock_now(); /* the sink may have waited */
        return len;
    case SN_TAKE_PAUSE:
        transfer->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    case SN_TAKE_ENOUGH:
        transfer->enough = true;
        return 0;
    case SN_TAKE_FAILED:
        break;
    }
    return 0;
}

/* ---- setting up ---- */

static enum sn_status set_options(struct sn_transfer *transfer)
{
    struct sn_lane *lane = transfer->lane;
    const struct sn_net_request *request = transfer->request;
    CURL *easy = lane->easy;
    bool ok = true;
#define SET(option, value) ok = ok && lane->curl->easy_setopt(easy, option, value) == CURLE_OK

    SET(CURLOPT_URL, request->url);
    SET(CURLOPT_PROXY, request->proxy != NULL ? request->proxy : "");
    SET(CURLOPT_HTTPHEADER, lane->headers);
    SET(CURLOPT_PREREQFUNCTION, on_before_request);
    SET(CURLOPT_PREREQDATA, lane);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, lane);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, lane);
    SET(CURLOPT_READFUNCTION, on_read);
    SET(CURLOPT_READDATA, lane);
    SET(CURLOPT_SEEKFUNCTION, on_seek);
    SET(CURLOPT_SEEKDATA, lane);
    if (request->buffer_size > 0) {
        /* Refused while a transfer that failed early has left its buffer behind: the usual size
         * then. */
        (void)lane->curl->easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)request->buffer_size);
    }
    if (request->compressed) {
        SET(CURLOPT_ACCEPT_ENCODING, "gzip, deflate");
    }
    if (strcmp(request->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (request->has_body) {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)transfer->body_len);
        SET(CURLOPT_CUSTOMREQUEST, request->method);
        if (transfer->body_len > LARGE_BODY) {
            SET(CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER);
        }
    } else {
        SET(CURLOPT_HTTPGET, 1L);
        SET(CURLOPT_CUSTOMREQUEST, request->method);
    }
    /* libcurl sends a request again when the kept connection it was sent on dies unanswered. With a
     * body the seek callback prevents that; without one only a connection of its own does. One that
     * is known to be dead is not tried. */
    if (!request->idempotent && (transfer->body_len == 0 || sn_lane_has_closed_connection(lane))) {
        SET(CURLOPT_FRESH_CONNECT, 1L);
    }
#undef SET
    return ok ? SN_OK : SN_NO_MEMORY;
}

static bool speaks_tls(const struct sn_net_request *request)
{
    return strncasecmp(request->url, "https:", 6) == 0 ||
           (request->proxy != NULL && strncasecmp(request->proxy, "https:", 6) == 0);
}

static enum sn_status start(struct sn_transfer *transfer)
{
    struct sn_lane *lane = transfer->lane;
    enum sn_status status;

    lane->error[0] = '\0';
    status = sn_body_check(&transfer->request->body, &transfer->body_len);
    if (status == SN_OK) {
        status = sn_lane_set_common(lane, speaks_tls(transfer->request));
    }
    if (status == SN_OK) {
        status = sn_lane_make_headers(lane, transfer->request);
    }
    if (status == SN_OK) {
        status = set_options(transfer);
    }
    if (status == SN_OK && lane->curl->multi_add_handle(lane->multi, lane->easy) != CURLM_OK) {
        status = SN_NO_MEMORY;
    }
    if (status != SN_OK) {
        sn_net_fail(transfer->outcome, SN_NET_MEMORY, "the request could not be set up");
    }
    return status;
}

/* ---- ending ---- */

/* libcurl's own words where they speak of names, addresses and certificates, else its fixed ones.
 */
static void fail_by_curl(struct sn_transfer *transfer, CURLcode code)
{
    struct sn_lane *lane = transfer->lane;
    enum sn_net_kind kind = sn_net_kind_of_curl((int)code);
    const char *text = lane->curl->easy_strerror(code);
    long tunnel = 0;
    bool own_words;

    if (!transfer->outcome->sent && transfer->request->proxy != NULL &&
        (kind == SN_NET_RECEIVE || kind == SN_NET_SEND || kind == SN_NET_PROTOCOL)) {
        kind = SN_NET_PROXY; /* before the request is sent, only a proxy is talked to */
    }
    if (kind == SN_NET_CONNECT && !transfer->outcome->sent && transfer->request->proxy != NULL &&
        lane->curl->easy_getinfo(lane->easy, CURLINFO_HTTP_CONNECTCODE, &tunnel) == CURLE_OK &&
        tunnel >= 300) {
        kind = SN_NET_PROXY; /* it was reached, and refused to go on */
    }
    if ((int)code == CODE_TOO_LARGE) {
        kind = transfer->outcome->sent ? SN_NET_HEAD_TOO_LARGE : SN_NET_LIBRARY;
    }
    own_words = kind == SN_NET_RESOLVE || kind == SN_NET_CONNECT || kind == SN_NET_TLS ||
                kind == SN_NET_PROXY || kind == SN_NET_CONNECT_TIMEOUT;

    if (own_words && lane->error[0] != '\0') {
        text = lane->error;
    }
    if (kind == SN_NET_MEMORY && transfer->outcome->sent && !transfer->answer->head.complete) {
        kind = SN_NET_HEAD_TOO_LARGE; /* a line beyond what libcurl itself allows */
    }
    if (kind == SN_NET_HEAD_TOO_LARGE) {
        text = "the head of the answer is over the cap";
    }
    if (code == CURLE_SEND_FAIL_REWIND) {
        text = "the connection ended before the answer; the request is not sent twice";
    }
    sn_net_fail(transfer->outcome, kind, text);
    for (char *c = transfer->outcome->detail; *c != '\0'; c++) {
        if (*c < 0x20 || *c > 0x7e) {
            *c = '?';
        }
    }
}

/* libcurl is through with the request. */
static void finish(struct sn_transfer *transfer, CURLcode code)
{
    struct sn_net_outcome *outcome = transfer->outcome;
    enum sn_net_kind kind;

    if (transfer->enough || transfer->done || outcome->kind != SN_NET_OK) {
        return; /* what a callback decided counts, not how libcurl calls it */
    }
    if (code == CURLE_OK) {
        if (!transfer->answer->head.complete) {
            sn_net_fail(outcome, SN_NET_RECEIVE,
                        "the connection ended within the head of the answer");
        } else if (is_success(transfer->answer) && transfer->sink->end != NULL) {
            (void)transfer->sink->end(transfer->sink->ctx, outcome);
        }
        return;
    }
    kind = sn_net_kind_of_curl((int)code);
    if (transfer->answer->head.complete && !is_success(transfer->answer) &&
        (kind == SN_NET_RECEIVE || kind == SN_NET_SEND || kind == SN_NET_PROTOCOL)) {
        transfer->answer->error_cut =
            true; /* the status is known; how its body ended is not news */
        return;
    }
    fail_by_curl(transfer, code);
}

static bool is_readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return fd >= 0 && poll(&wait, 1, 0) > 0;
}

/* Fails the transfer if something outside of it ends it now. */
static bool is_interrupted(struct sn_transfer *transfer, int64_t now)
{
    const struct sn_net_request *request = transfer->request;

    if ((request->stop != NULL && atomic_load(request->stop)) || is_readable(request->cancel_fd)) {
        sn_net_fail(transfer->outcome, SN_NET_CANCELLED, "the request was cancelled");
        return true;
    }
    if (now >= request->deadline_ns) {
        sn_net_fail(transfer->outcome, SN_NET_DEADLINE, "the deadline passed");
        return true;
    }
    if (request->stall_ns > 0 && transfer->progress_ns > 0 &&
        now >= sn_clock_after(transfer->progress_ns, request->stall_ns)) {
        sn_net_fail(transfer->outcome, SN_NET_STALLED, "the connection moved no byte for too long");
        return true;
    }
    if (request->tick != NULL && now >= transfer->tick_ns) {
        transfer->tick_ns = sn_clock_after(now, TICK_NS);
        if (request->tick(request->tick_ctx) != 0) {
            sn_net_fail(transfer->outcome, SN_NET_STOPPED, "stopped");
            return true;
        }
    }
    return false;
}

static void wait_for_more(struct sn_transfer *transfer, int64_t now)
{
    const struct sn_net_request *request = transfer->request;
    struct curl_waitfd extra = {.fd = request->cancel_fd, .events = CURL_WAIT_POLLIN};
    int64_t until = request->deadline_ns;
    int64_t stall = sn_clock_after(transfer->progress_ns, request->stall_ns);

    if (request->stall_ns > 0 && transfer->progress_ns > 0 && stall < until) {
        until = stall;
    }
    if (request->tick != NULL && transfer->tick_ns < until) {
        until = transfer->tick_ns;
    }
    (void)transfer->lane->curl->multi_poll(transfer->lane->multi, &extra,
                                           request->cancel_fd >= 0 ? 1 : 0,
                                           sn_clock_ms_until(now, until, MAX_WAIT_MS), NULL);
}

/* After Python ran: this may be a child it forked, which must leave the lane alone. */
static bool is_forked(struct sn_transfer *transfer)
{
    if (getpid() == transfer->lane->pid) {
        return false;
    }
    transfer->outcome->kind = SN_NET_OK;
    sn_net_fail(transfer->outcome, SN_NET_FORKED, "forked in the middle of a request");
    return true;
}

/* Lets the sink do what may block, outside of libcurl. False when the transfer is over by that. */
static bool run_between(struct sn_transfer *transfer)
{
    enum sn_flow flow = SN_FLOW_ON;

    if (transfer->sink->between != NULL && !transfer->done) {
        int64_t before = sn_clock_now();

        flow = transfer->sink->between(transfer->sink->ctx);
        if (is_forked(transfer)) {
            return false;
        }
        if (transfer->progress_ns > 0) { /* the peer cannot be blamed for this time */
            transfer->progress_ns += sn_clock_now() - before;
        }
    }
    if (flow == SN_FLOW_DONE) {
        transfer->done = true;
        /* Its meaning is complete, so nothing that went wrong since matters. */
        transfer->outcome->kind = SN_NET_OK;
        transfer->outcome->detail[0] = '\0';
    } else if (flow == SN_FLOW_ABORT) {
        transfer->outcome->kind = SN_NET_OK;
        sn_net_fail(transfer->outcome, SN_NET_STOPPED, "stopped");
    }
    return flow == SN_FLOW_ON;
}

/* Until libcurl, the sink or something outside ends it. True when libcurl still has the rest. */
static bool drive(struct sn_transfer *transfer)
{
    struct sn_lane *lane = transfer->lane;

    for (;;) {
        int running = 0, left;
        CURLMcode code = sn_lane_perform(lane, &running);
        int64_t now;
        bool is_over;

        if (code != CURLM_OK) {
            sn_net_fail(transfer->outcome,
                        code == CURLM_OUT_OF_MEMORY ? SN_NET_MEMORY : SN_NET_LIBRARY,
                        "libcurl failed");
        } else if (running == 0) {
            const CURLMsg *message = lane->curl->multi_info_read(lane->multi, &left);

            finish(transfer, message != NULL ? message->data.result : CURLE_RECV_ERROR);
        }
        if (!run_between(transfer) || code != CURLM_OK || running == 0) {
            return code == CURLM_OK && running > 0;
        }
        if (transfer->paused) {
            transfer->paused = false;
            sn_lane_unpause(lane);
            continue;
        }
        now = sn_clock_now();
        is_over = is_interrupted(transfer, now);
        if (is_forked(transfer) || is_over) {
            return true;
        }
        wait_for_more(transfer, now);
    }
}

void sn_transfer(struct sn_lane *lane, struct sn_net_request *request, const struct sn_sink *sink,
                 struct sn_answer *answer, struct sn_net_outcome *outcome)
{
    struct sn_transfer transfer = {
        .lane = lane,
        .request = request,
        .sink = sink,
        .answer = answer,
        .outcome = outcome,
    };
    bool unfinished;

    memset(outcome, 0, sizeof *outcome);
    outcome->announced = -1;
    sn_http_head_init(&answer->head, request->max_head);
    sn_body_rewind(&request->body);
    lane->transfer = &transfer;
    transfer.tick_ns = sn_clock_after(sn_clock_now(), TICK_NS);
    if (!is_interrupted(&transfer, sn_clock_now()) && start(&transfer) == SN_OK) {
        unfinished = drive(&transfer);
        if (outcome->kind == SN_NET_FORKED) {
            return; /* nothing of the parent's is touched */
        }
        if (unfinished && transfer.done) {
            lane->transfer = NULL;
            lane->draining = true;
            lane->drain_left = DRAIN_BYTES;
            lane->drain_until_ns = sn_clock_after(sn_clock_now(), DRAIN_NS);
        } else {
            sn_lane_detach(lane);
        }
    } else {
        sn_lane_detach(lane);
    }
    lane->transfer = NULL;
}

void sn_transfer_wake(struct sn_lane *lane)
{
    (void)lane->curl->multi_wakeup(lane->multi);
}
