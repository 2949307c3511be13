/* SPDX-License-Identifier: Apache-2.0 */
#include "core/drain.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/fdpass.h"

int sn_clock_left_ms(int64_t deadline)
{
    if (deadline == SN_NO_DEADLINE) {
        return -1;
    }
    int64_t now = sn_clock_now();
    if (now >= deadline) {
        return 0;
    }
    int64_t left = (deadline - now + 999999) / 1000000;
    return left < INT32_MAX ? (int)left : INT32_MAX;
}

enum sn_status sn_watch_for(const struct sn_watch *self, int fd, short events, int most_ms)
{
    int64_t until = most_ms < 0 ? SN_NO_DEADLINE : sn_clock_now() + (int64_t)most_ms * 1000000;
    int every = self->tick.every_ms;

    for (;;) {
        struct pollfd watch[2] = {{.fd = fd, .events = events},
                                  {.fd = self->cancel, .events = POLLIN}};
        int left = sn_clock_left_ms(until < self->deadline ? until : self->deadline);
        int ready = poll(watch, 2, every > 0 && (left < 0 || left > every) ? every : left);

        if (ready < 0 && errno != EINTR) {
            return SN_SYSTEM;
        }
        if (ready <= 0 && every > 0 && self->tick.call(self->tick.context) != 0) {
            return SN_CANCELLED;
        }
        if (ready > 0) {
            return watch[0].revents != 0 ? SN_OK : SN_CANCELLED;
        }
        if (sn_clock_left_ms(self->deadline) == 0) {
            return SN_TIMED_OUT;
        }
        if (sn_clock_left_ms(until) == 0) {
            return SN_OK;
        }
    }
}

/* When the wait is over, whatever happens. */
static int64_t last_moment(const struct sn_drain *self)
{
    const struct sn_drain_sink *sink = self->sink;

    return sink != NULL && sink->stall_ns > 0 && sink->stall_at < self->deadline ? sink->stall_at
                                                                                 : self->deadline;
}

static int wait_ms(const struct sn_drain *self)
{
    int left = sn_clock_left_ms(last_moment(self));

    if (self->tick.every_ms > 0 && (left < 0 || left > self->tick.every_ms)) {
        return self->tick.every_ms;
    }
    return left;
}

static int ticks(struct sn_drain *self)
{
    if (self->tick.every_ms > 0 && self->tick.call(self->tick.context) != 0) {
        self->ticked = 1;
        return 1;
    }
    return 0;
}

/* A pipe that poll calls writable takes this much without blocking. */
#define PIPE_TAKES 4096U

/* Waits until `fd` can be written to. */
static enum sn_status wait_writable(struct sn_drain *self, int fd)
{
    bool is_hurried = self->readers_until > 0 && self->readers_until < self->deadline;
    int64_t until = is_hurried ? self->readers_until : self->deadline;

    for (;;) {
        struct pollfd watch[2] = {{.fd = fd, .events = POLLOUT},
                                  {.fd = self->cancel, .events = POLLIN}};
        int ready = poll(watch, 2, is_hurried ? sn_clock_left_ms(until) : wait_ms(self));

        if (ready < 0 && errno != EINTR) {
            return SN_SYSTEM;
        }
        if ((ready <= 0 && ticks(self)) || (ready > 0 && watch[1].revents != 0)) {
            return SN_CANCELLED;
        }
        if (ready > 0 && watch[0].revents != 0) {
            return SN_OK;
        }
        if (sn_clock_left_ms(until) == 0) {
            return SN_TIMED_OUT;
        }
    }
}

/* Writes the first `len` bytes of the buffer to *to, which becomes -1 when that cannot be finished.
 */
static enum sn_status pass_on(struct sn_drain *self, int *to, size_t len)
{
    enum sn_status status = SN_OK;
    size_t done = 0;

    while (done < len && status == SN_OK) {
        status = wait_writable(self, *to);
        if (status != SN_OK) {
            break;
        }
        ssize_t count =
            write(*to, self->buffer + done, len - done < PIPE_TAKES ? len - done : PIPE_TAKES);
        if (count >= 0) {
            done += (size_t)count;
        } else if (errno == EINTR) {
            status = ticks(self) ? SN_CANCELLED : SN_OK;
        } else if (errno != EAGAIN) {
            status = SN_SYSTEM;
        }
    }
    if (status != SN_OK) {
        *to = -1;
        self->withheld = 1;
    }
    return self->readers_until > 0 ? SN_OK : status;
}

/* The clock of the sink starts anew. */
static void progress(struct sn_drain_sink *sink)
{
    if (sink != NULL && sink->stall_ns > 0) {
        sink->stall_at = sn_clock_now() + sink->stall_ns;
    }
}

static enum sn_status sink_take(struct sn_drain_sink *sink, const char *data, size_t len)
{
    enum sn_status status;

    if (len > sink->room - sink->taken) {
        return SN_TOO_LARGE;
    }
    status = sink->write(sink->context, data, len);
    if (status == SN_OK) {
        sink->taken += len;
    }
    progress(sink);
    return status;
}

/* One read of at most `most` bytes. *got is 0 when there was nothing; the pipe is closed at its
 * end. */
static enum sn_status take(struct sn_drain *self, int *pipe, struct sn_tail *tail, int *to,
                           size_t most, size_t *got)
{
    ssize_t count;

    *got = 0;
    do {
        count = read(*pipe, self->buffer, most < SN_DRAIN_BUFFER ? most : SN_DRAIN_BUFFER);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN) {
        return SN_OK;
    }
    if (count <= 0) {
        close(*pipe);
        *pipe = -1;
        return SN_OK;
    }
    *got = (size_t)count;
    if (self->sink != NULL && pipe == &self->out) {
        return sink_take(self->sink, self->buffer, *got);
    }
    enum sn_status status = sn_tail_feed(tail, self->buffer, *got);
    return status == SN_OK && *to >= 0 ? pass_on(self, to, *got) : status;
}

static enum sn_status receive(struct sn_drain *self, struct sn_guest_reply *reply)
{
    size_t nfds;
    enum sn_status status = sn_fdpass_receive(self->call, reply, sizeof *reply, 0, NULL, 0, &nfds);

    return status == SN_SYSTEM && errno == EAGAIN ? SN_TIMED_OUT : status;
}

enum sn_status sn_drain_reply(struct sn_drain *self, struct sn_guest_reply *reply)
{
    int64_t next_tick = sn_clock_now() + (int64_t)self->tick.every_ms * 1000000;

    progress(self->sink);
    for (;;) {
        struct pollfd watch[4] = {{.fd = self->call, .events = POLLIN},
                                  {.fd = self->out, .events = POLLIN},
                                  {.fd = self->err, .events = POLLIN},
                                  {.fd = self->cancel, .events = POLLIN}};
        enum sn_status status = SN_OK;
        size_t got;
        int ready = poll(watch, 4, wait_ms(self));

        if (ready < 0 && errno != EINTR) {
            return SN_SYSTEM;
        }
        /* A command that never pauses must not keep the deadline or a signal from being seen. */
        if (ready <= 0 || (self->tick.every_ms > 0 && sn_clock_now() >= next_tick)) {
            next_tick = sn_clock_now() + (int64_t)self->tick.every_ms * 1000000;
            if (ticks(self)) {
                return SN_CANCELLED;
            }
            if (ready < 0) {
                continue;
            }
        }
        if (watch[0].revents != 0) {
            status = receive(self, reply);
            if (status != SN_TIMED_OUT) {
                return status;
            }
            status = SN_OK;
        }
        if (watch[3].revents != 0) {
            return SN_CANCELLED;
        }
        /* What has come is progress, however long it lay while the sink was busy. */
        if (sn_clock_left_ms(watch[1].revents != 0 ? self->deadline : last_moment(self)) == 0) {
            return SN_TIMED_OUT;
        }
        if (watch[1].revents != 0) {
            status = take(self, &self->out, self->out_tail, &self->out_to, SN_DRAIN_BUFFER, &got);
        }
        if (status == SN_OK && watch[2].revents != 0) {
            status = take(self, &self->err, self->err_tail, &self->err_to, SN_DRAIN_BUFFER, &got);
        }
        if (status != SN_OK) {
            return status;
        }
    }
}

static enum sn_status rest_of(struct sn_drain *self, int *pipe, struct sn_tail *tail, int *to)
{
    int there = 0;
    size_t left, got;

    if (*pipe < 0) {
        return SN_OK;
    }
    left = ioctl(*pipe, FIONREAD, &there) < 0 || there < 0 ? 0 : (size_t)there;
    while (left > 0 && *pipe >= 0) {
        enum sn_status status = take(self, pipe, tail, to, left, &got);
        if (status != SN_OK) {
            return status;
        }
        if (got == 0) {
            break;
        }
        left -= got;
    }
    struct pollfd watch = {.fd = *pipe, .events = POLLIN};
    if (*pipe >= 0 && poll(&watch, 1, 0) > 0 && (watch.revents & POLLIN) == 0) {
        close(*pipe); /* hung up and empty */
        *pipe = -1;
    }
    return SN_OK;
}

enum sn_status sn_drain_rest(struct sn_drain *self)
{
    enum sn_status status = rest_of(self, &self->out, self->out_tail, &self->out_to);

    return status == SN_OK ? rest_of(self, &self->err, self->err_tail, &self->err_to) : status;
}
