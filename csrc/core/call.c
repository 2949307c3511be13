/* SPDX-License-Identifier: Apache-2.0 */
#include "core/call.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/fdpass.h"

/* A large pipe lets a talkative command run on while the host is busy. The kernel may refuse it to
 * an ordinary user who has many; then it keeps its size. */
#define PIPE_BYTES (1 << 20)
/* How long those who are shown the output are waited for once the command is being ended. */
#define LAST_WORDS_MS 500

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void sn_call_close(struct sn_call *call)
{
    close_fd(&call->sock);
    close_fd(&call->out);
    close_fd(&call->err);
}

void sn_call_sent(struct sn_call_ends *ends)
{
    close_fd(&ends->sock);
    close_fd(&ends->out);
    close_fd(&ends->err);
}

static int make_pipe(unsigned owner, int *read_end, int *write_end)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0) {
        return -1;
    }
    *read_end = ends[0];
    *write_end = ends[1];
    (void)fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES);
    /* The flag belongs to the open file, so only this end becomes non-blocking. */
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0) {
        return -1;
    }
    return owner == (unsigned)-1 ? 0 : fchown(ends[1], owner, owner);
}

enum sn_status sn_call_make(int pipes, unsigned owner, struct sn_call_ends *out)
{
    int pair[2];
    int saved;

    *out = (struct sn_call_ends){{-1, -1, -1}, -1, -1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        return SN_SYSTEM;
    }
    out->host.sock = pair[0];
    out->sock = pair[1];
    if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0) {
        goto failed;
    }
    if (pipes && (make_pipe(owner, &out->host.out, &out->out) < 0 ||
                  make_pipe(owner, &out->host.err, &out->err) < 0)) {
        goto failed;
    }
    return SN_OK;
failed:
    saved = errno;
    sn_call_sent(out);
    sn_call_close(&out->host);
    errno = saved;
    return SN_SYSTEM;
}

static enum sn_status send_all(int sock, struct iovec *parts, size_t count,
                               const struct sn_watch *watch)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};

    while (message.msg_iovlen > 0) {
        ssize_t sent = sendmsg(sock, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            enum sn_status status = sn_watch_for(watch, sock, POLLOUT, -1);
            if (status != SN_OK) {
                return status;
            }
            continue;
        }
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return errno == EPIPE || errno == ECONNRESET ? SN_CLOSED : SN_SYSTEM;
        }
        size_t done = (size_t)sent;
        while (message.msg_iovlen > 0 && done >= message.msg_iov->iov_len) {
            done -= message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + done;
            message.msg_iov->iov_len -= done;
        }
    }
    return SN_OK;
}

enum sn_status sn_call_request(const struct sn_call *call, const struct sn_request *request,
                               const struct sn_watch *watch)
{
    size_t cwd_bytes = request->cwd == NULL ? 0 : strlen(request->cwd) + 1;

    if (request->env_bytes > SN_REQUEST_MAX_ENV || cwd_bytes > SN_REQUEST_MAX_CWD ||
        request->text_bytes > SN_REQUEST_MAX_TEXT) {
        return SN_TOO_LARGE;
    }
    struct sn_guest_request head = {.version = SN_GUEST_VERSION,
                                    .flags = request->flags,
                                    .env_bytes = (uint32_t)request->env_bytes,
                                    .cwd_bytes = (uint32_t)cwd_bytes,
                                    .text_bytes = (uint32_t)request->text_bytes};
    struct iovec parts[4] = {{&head, sizeof head},
                             {(void *)(size_t)request->env, request->env_bytes},
                             {(void *)(size_t)request->cwd, cwd_bytes},
                             {(void *)(size_t)request->text, request->text_bytes}};
    return send_all(call->sock, parts, 4, watch);
}

/* Have the tree killed and wait for it. What is printed until then still counts. */
static enum sn_status stop(struct sn_drain *drain, struct sn_last_resort last,
                           struct sn_outcome *out)
{
    struct sn_guest_order order = {.kind = SN_ORDER_KILL};
    struct sn_guest_reply reply = {0};
    enum sn_status status;

    drain->cancel = -1;
    drain->tick.every_ms = 0;
    drain->sink = NULL;
    drain->deadline = sn_clock_now() + (int64_t)SN_KILL_WAIT_MS * 1000000;
    drain->readers_until = sn_clock_now() + (int64_t)LAST_WORDS_MS * 1000000;
    status = sn_fdpass_send(drain->call, &order, sizeof order, NULL, 0, 0);
    if (status == SN_OK) {
        status = sn_drain_reply(drain, &reply);
    }
    if (status == SN_OK && reply.kind == SN_REPLY_EXITED && out->ending == SN_ENDED_TIMEOUT &&
        !drain->withheld) {
        /* It ended while the order was on its way. */
        out->ending = SN_ENDED_EXIT;
        out->value = reply.value;
        return SN_OK;
    }
    if (status == SN_OK && (reply.kind == SN_REPLY_KILLED || reply.kind == SN_REPLY_EXITED ||
                            reply.kind == SN_REPLY_FAILED)) {
        return SN_OK;
    }
    out->unkilled = !last.call(last.context);
    if (!out->unkilled) {
        /* All are dying. The runner, where it lives, says when they are gone. */
        drain->deadline = sn_clock_now() + (int64_t)SN_KILL_WAIT_MS * 1000000;
        (void)!sn_drain_reply(drain, &reply);
    }
    return SN_OK;
}

/* Background processes of the command hold a pipe: their output is nobody's, but a closed pipe
 * would kill them. */
static void hand_over(struct sn_drain *drain)
{
    struct sn_guest_order order = {.kind = SN_ORDER_DRAIN};
    int pipes[2];
    size_t count = 0;

    if (drain->out >= 0) {
        pipes[count++] = drain->out;
    }
    if (drain->err >= 0) {
        pipes[count++] = drain->err;
    }
    if (count > 0) {
        (void)!sn_fdpass_send(drain->call, &order, sizeof order, pipes, count, 0);
    }
}

enum sn_status sn_call_run(struct sn_call *call, struct sn_drain *drain, struct sn_last_resort last,
                           struct sn_outcome *out)
{
    struct sn_guest_reply reply = {0};
    pid_t caller = getpid();
    enum sn_status status;

    *out = (struct sn_outcome){.ending = SN_ENDED_LOST};
    drain->call = call->sock;
    drain->out = call->out;
    drain->err = call->err;
    call->out = call->err = -1;
    status = sn_drain_reply(drain, &reply);
    if (getpid() != caller) {
        /* A child that the tick or the sink forked: the command is its parent's. */
        status = SN_CANCELLED;
    } else if (status == SN_TIMED_OUT || status == SN_CANCELLED) {
        out->ending = status == SN_TIMED_OUT ? SN_ENDED_TIMEOUT : SN_ENDED_CANCEL;
        status = stop(drain, last, out);
    } else if (status == SN_OK) {
        out->ending = reply.kind == SN_REPLY_EXITED ? SN_ENDED_EXIT : SN_ENDED_FAILED;
        out->value = reply.value;
        out->stage = reply.detail;
    } else if (status == SN_CLOSED) {
        status = SN_OK;
    }
    if (status == SN_OK) {
        status = sn_drain_rest(drain);
    }
    if (out->ending == SN_ENDED_EXIT && (status == SN_TIMED_OUT || status == SN_CANCELLED) &&
        getpid() == caller) {
        /* It ended in time, but a reader did not take the end of its output. */
        out->ending = status == SN_TIMED_OUT ? SN_ENDED_TIMEOUT : SN_ENDED_CANCEL;
        drain->readers_until = sn_clock_now();
        drain->tick.every_ms = 0;
        drain->sink = NULL;
        status = sn_drain_rest(drain);
    }
    if (status == SN_OK && out->ending == SN_ENDED_EXIT) {
        hand_over(drain);
    }
    close_fd(&drain->out);
    close_fd(&drain->err);
    return status;
}
