/* SPDX-License-Identifier: Apache-2.0 */
#include "net/download.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"

/* libcurl hands a body over in pieces of 16 KiB; writing each of them costs the kernel half as much
 * time again. Small enough to stay in the cache. */
#define GATHER ((size_t)64 * 1024)

/* No file is this large: file systems end at 8 EiB, and some servers announce INT64_MAX for a
 * folder. */
#define ABSURD_SIZE (INT64_C(1) << 60)

enum sn_status sn_download_check(const struct sn_download *download, const char **what)
{
    struct stat info;

    *what = "range";
    if (download->first < 0 || download->last < -1 ||
        (download->last >= 0 && download->last < download->first) ||
        (!download->ranged && (download->first != 0 || download->last != -1))) {
        return SN_INVALID;
    }
    *what = "size or cap";
    if (download->size < -1 || download->max_bytes < 0) {
        return SN_INVALID;
    }
    *what = "destination: a descriptor of a regular file is needed";
    if (download->ring == NULL && (fstat(download->fd, &info) != 0 || !S_ISREG(info.st_mode))) {
        return SN_INVALID;
    }
    *what = NULL;
    return SN_OK;
}

void sn_download_range(const struct sn_download *download, char out[SN_RANGE_SIZE])
{
    if (download->last >= 0) {
        (void)snprintf(out, SN_RANGE_SIZE, "bytes=%" PRId64 "-%" PRId64, download->first,
                       download->last);
    } else {
        (void)snprintf(out, SN_RANGE_SIZE, "bytes=%" PRId64 "-", download->first);
    }
}

static bool fail(struct sn_net_outcome *outcome, enum sn_net_kind kind, int64_t announced,
                 const char *detail)
{
    outcome->announced = announced;
    sn_net_fail(outcome, kind, detail);
    return false;
}

/* *length is -1 when the head names none. */
static bool read_length(const struct sn_http_head *head, int64_t *length,
                        struct sn_net_outcome *outcome)
{
    const char *value;
    size_t len;
    unsigned count = sn_http_head_find(head, "content-length", &value, &len);

    *length = -1;
    if (count == 0) {
        return true;
    }
    if (count > 1 || sn_http_parse_number(value, len, length) == SN_INVALID) {
        return fail(outcome, SN_NET_LENGTH, -1, "the answer's Content-Length is not one number");
    }
    if (*length >= ABSURD_SIZE) {
        return fail(outcome, SN_NET_LENGTH, *length, "the answer announces an absurd length");
    }
    return true;
}

/* 206: the answer has to be the very range that was asked for. */
static bool check_partial(struct sn_download *download, const struct sn_http_head *head,
                          int64_t length, struct sn_net_outcome *outcome)
{
    const char *value;
    size_t len;
    int64_t first, last, whole_last;

    if (!download->ranged) {
        return fail(outcome, SN_NET_RANGE, -1, "a partial answer to a request for the whole");
    }
    if (sn_http_head_find(head, "content-range", &value, &len) != 1 ||
        sn_http_parse_content_range(value, len, &first, &last, &download->total) != SN_OK) {
        return fail(outcome, SN_NET_RANGE, -1, "the partial answer does not say which part it is");
    }
    if (download->total >= ABSURD_SIZE) {
        return fail(outcome, SN_NET_LENGTH, download->total, "the answer announces an absurd size");
    }
    if (download->size >= 0 && download->total >= 0 && download->total != download->size) {
        return fail(outcome, SN_NET_LENGTH, download->total,
                    "the file has another size than before");
    }
    whole_last = (download->total >= 0 ? download->total : download->size) - 1; /* -2: unknown */
    if (whole_last < 0 && download->last < 0) {
        return fail(outcome, SN_NET_LENGTH, -1,
                    "the partial answer does not say how large the file is");
    }
    if (whole_last < 0 || (download->last >= 0 && download->last < whole_last)) {
        whole_last = download->last;
    }
    if (first != download->first || last != whole_last) {
        return fail(outcome, SN_NET_RANGE, -1, "the answer is another range than was asked for");
    }
    download->expected = last - first + 1;
    if (length >= 0 && length != download->expected) {
        return fail(outcome, SN_NET_LENGTH, length, "the answer's length is not that of its range");
    }
    return true;
}

/* 200: the whole file, which serves for a range that starts at its first byte and goes to its end.
 */
static bool check_whole(struct sn_download *download, const struct sn_http_head *head,
                        int64_t length, struct sn_net_outcome *outcome)
{
    const char *value;
    size_t len;
    bool is_chunked = sn_http_head_find(head, "transfer-encoding", &value, &len) > 0;

    if (download->first > 0) {
        return fail(outcome, SN_NET_RANGE, -1, "the range was ignored");
    }
    if (!is_chunked && length < 0 && download->size < 0) {
        return fail(outcome, SN_NET_LENGTH, -1,
                    "the answer has no length, so its end cannot be told from a cut");
    }
    download->total = is_chunked ? -1 : length;
    if (download->size >= 0 && download->total >= 0 && download->total != download->size) {
        return fail(outcome, SN_NET_LENGTH, download->total,
                    "the file has another size than before");
    }
    download->expected = download->total >= 0 ? download->total : download->size;
    if (download->last >= 0 &&
        (download->expected < 0 || download->expected - 1 > download->last)) {
        return fail(outcome, SN_NET_RANGE, download->expected, "the range was ignored");
    }
    return true;
}

static bool take_head(void *ctx, const struct sn_http_head *head, struct sn_net_outcome *outcome)
{
    struct sn_download *download = ctx;
    const char *value;
    size_t len;
    int64_t length;
    bool ok;

    if (sn_http_head_find(head, "content-encoding", &value, &len) > 0 &&
        !(len == 8 && strncasecmp(value, "identity", 8) == 0)) {
        return fail(outcome, SN_NET_ENCODING, -1,
                    "the answer is encoded though plain bytes were asked for");
    }
    if (head->status != 200 && head->status != 206) {
        return fail(outcome, SN_NET_PROTOCOL, -1,
                    "the answer to a download has neither status 200 nor 206");
    }
    if (!read_length(head, &length, outcome)) {
        return false;
    }
    ok = head->status == 206 ? check_partial(download, head, length, outcome)
                             : check_whole(download, head, length, outcome);
    if (ok && download->expected > download->max_bytes) {
        return fail(outcome, SN_NET_TOO_LARGE, download->expected, "the file is over the cap");
    }
    return ok;
}

static bool write_all(int fd, const char *data, size_t len, struct sn_net_outcome *outcome)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            outcome->os_error = n < 0 ? errno : EIO;
            sn_net_fail(outcome, SN_NET_SINK, "the destination could not be written");
            return false;
        }
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static bool flush(struct sn_download *download, struct sn_net_outcome *outcome)
{
    size_t len = download->gathered_len;

    download->gathered_len = 0;
    return len == 0 || write_all(download->fd, download->gathered, len, outcome);
}

static bool gather(struct sn_download *download, const char *data, size_t len,
                   struct sn_net_outcome *outcome)
{
    if (download->gathered == NULL) {
        download->gathered = sn_malloc(GATHER);
    }
    if (download->gathered == NULL) {
        return write_all(download->fd, data, len, outcome);
    }
    if (len > GATHER - download->gathered_len && !flush(download, outcome)) {
        return false;
    }
    if (len > GATHER) {
        return write_all(download->fd, data, len, outcome);
    }
    memcpy(download->gathered + download->gathered_len, data, len);
    download->gathered_len += len;
    return true;
}

static enum sn_take take_body(void *ctx, const char *data, size_t len,
                              struct sn_net_outcome *outcome)
{
    struct sn_download *download = ctx;
    int64_t most = download->expected >= 0 ? download->expected : download->max_bytes;

    if ((int64_t)len > most - download->taken) {
        if (download->expected >= 0) {
            (void)fail(outcome, SN_NET_LENGTH, -1, "more bytes came than were announced");
        } else {
            (void)fail(outcome, SN_NET_TOO_LARGE, -1, "the file is over the cap");
        }
        return SN_TAKE_FAILED;
    }
    if (download->ring != NULL) {
        if (!sn_ring_has_room(download->ring, len)) {
            download->waiting = len;
            return SN_TAKE_PAUSE; /* waiting is for `between` */
        }
        if (sn_ring_write(download->ring, data, len) != SN_OK) {
            (void)fail(outcome, SN_NET_STOPPED, -1, "stopped");
            return SN_TAKE_FAILED;
        }
    } else if (!gather(download, data, len, outcome)) {
        return SN_TAKE_FAILED;
    }
    download->taken += (int64_t)len;
    return SN_TAKE_ALL;
}

static bool take_end(void *ctx, struct sn_net_outcome *outcome)
{
    const struct sn_download *download = ctx;

    if (download->expected >= 0 && download->taken != download->expected) {
        return fail(outcome, SN_NET_LENGTH, download->expected,
                    "fewer bytes came than were announced");
    }
    return true;
}

/* Holds the transfer while the consumer is slower than the network. */
static enum sn_flow wait_for_consumer(void *ctx)
{
    struct sn_download *download = ctx;
    size_t len = download->waiting;

    download->waiting = 0;
    if (len > 0 && sn_ring_wait_room(download->ring, len) != SN_OK) {
        return SN_FLOW_ABORT;
    }
    return SN_FLOW_ON;
}

struct sn_sink sn_download_sink(struct sn_download *download)
{
    struct sn_sink sink = {.ctx = download,
                           .head = take_head,
                           .body = take_body,
                           .end = take_end,
                           .between = wait_for_consumer};

    download->expected = -1;
    download->total = -1;
    download->taken = 0;
    download->waiting = 0;
    download->gathered = NULL;
    download->gathered_len = 0;
    return sink;
}

void sn_download_finish(struct sn_download *download, struct sn_net_outcome *outcome)
{
    if (outcome->kind != SN_NET_FORKED && outcome->kind != SN_NET_SINK) {
        (void)flush(download, outcome);
    }
    sn_free(download->gathered);
    download->gathered = NULL;
    download->gathered_len = 0;
}

/* ---- the producer ---- */

static void *produce(void *ctx)
{
    struct sn_producer *producer = ctx;
    struct sn_sink sink = sn_download_sink(producer->download);

    sn_transfer(producer->lane, producer->request, &sink, &producer->answer, &producer->outcome);
    sn_ring_finish(producer->download->ring);
    return NULL;
}

enum sn_status sn_producer_start(struct sn_producer *producer)
{
    sigset_t all, before;
    int error;

    producer->request->stop = &producer->stop;
    /* Signals are for the threads that know what to do with them. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    error = pthread_create(&producer->thread, NULL, produce, producer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        errno = error;
        return SN_SYSTEM;
    }
    return SN_OK;
}

void sn_producer_stop(struct sn_producer *producer)
{
    atomic_store(&producer->stop, true);
    sn_ring_stop(producer->download->ring);
    sn_transfer_wake(producer->lane);
}

void sn_producer_join(struct sn_producer *producer)
{
    (void)pthread_join(producer->thread, NULL);
}
