/* SPDX-License-Identifier: Apache-2.0 */
/* Reading away what a command prints while waiting for the report of its end: one loop for commands
 * in a sandbox and for programs on the host. Only tails of the output are kept. */
#ifndef SN_CORE_DRAIN_H
#define SN_CORE_DRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "core/clock.h"
#include "core/guest_wire.h"
#include "core/status.h"
#include "core/tail.h"

/* Called now and then while the loop waits, and at once when a signal interrupted it; anything but
 * 0 ends the wait. It runs on the thread that called in. */
struct sn_tick {
    int (*call)(void *context);
    void *context;
    int every_ms; /* 0: never */
};

/* What ends a wait early. */
struct sn_watch {
    int cancel; /* readable means cancelled; -1: none */
    int64_t deadline;
    struct sn_tick tick;
};

/* Takes standard output whole, in the place of its tail. */
struct sn_drain_sink {
    /* Takes all `len` bytes (up to SN_DRAIN_BUFFER); what it returns, other than SN_OK, ends the
     * wait. It runs on the thread that called in. */
    enum sn_status (*write)(void *context, const char *data, size_t len);
    void *context;
    uint64_t room;    /* bytes it is given at most; one more ends the wait with SN_TOO_LARGE */
    uint64_t taken;   /* bytes it was given */
    int64_t stall_ns; /* the wait ends with SN_TIMED_OUT when none come for so long; 0: never */
    int64_t stall_at; /* set by sn_drain_reply: when that is */
};

struct sn_drain {
    int out, err; /* non-blocking read ends; -1 when closed or not there */
    struct sn_tail *out_tail, *err_tail;
    int call;         /* call socket */
    int cancel;       /* readable means cancelled; -1: none */
    int64_t deadline; /* sn_clock_now() at which to stop; SN_NO_DEADLINE: never */
    struct sn_tick tick;
    int out_to, err_to;    /* what is read is written there, too, as it comes; -1: nowhere */
    int64_t readers_until; /* 0: its readers may take as long as the wait. Else they are only waited
                              for until then, and one that fails is forgotten, not an error */
    struct sn_drain_sink *sink; /* NULL: standard output goes to its tail */
    char *buffer;               /* SN_DRAIN_BUFFER bytes */
    int ticked;                 /* the tick ended the wait */
    int withheld;               /* a reader did not get all that it should have */
};

/* The two descriptors may be blocking ones and shared with other programs, a terminal say. A reader
 * that does not read holds the command up, not the deadline, the cancel descriptor or the tick;
 * after one of these it gets no more than it takes in a moment. One that left is SN_SYSTEM with
 * EPIPE where SIGPIPE is ignored, as it is in a Python program. */
#define SN_DRAIN_BUFFER (256U * 1024U)
#define SN_NO_DEADLINE INT64_MAX

/* Milliseconds until `deadline` for poll: 0 when it passed, -1 without one, rounded up. */
int sn_clock_left_ms(int64_t deadline);

/* Waits until `fd` (-1: none) has one of `events` or hung up, `most_ms` at most (-1: as long as it
 * takes): SN_OK for both. SN_TIMED_OUT, SN_CANCELLED as `self` says. No GIL. */
SN_WARN_UNUSED enum sn_status sn_watch_for(const struct sn_watch *self, int fd, short events,
                                           int most_ms);

/* Waits for one reply on the call socket, reading both pipes meanwhile. Neither pipe is waited for:
 * a background process that holds one open does not hold the call.
 *   SN_OK         `reply` is filled
 *   SN_TIMED_OUT  the deadline passed
 *   SN_CANCELLED  the cancel descriptor is readable, or the tick said so (then `ticked` is set)
 *   SN_CLOSED     the other side is gone without a reply
 *   SN_TOO_LARGE  more came than the sink has room for
 * May be called again after any of these. No GIL. */
SN_WARN_UNUSED enum sn_status sn_drain_reply(struct sn_drain *self, struct sn_guest_reply *reply);

/* After the report of the end: takes what is in the pipes now and no more, however fast a
 * background process fills them. Closes a pipe that has no writer left and sets it to -1. */
SN_WARN_UNUSED enum sn_status sn_drain_rest(struct sn_drain *self);

#endif
