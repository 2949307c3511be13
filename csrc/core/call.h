/* SPDX-License-Identifier: Apache-2.0 */
/* One conversation with a handler of the guest program: a request, then a command's life or a file.
 */
#ifndef SN_CORE_CALL_H
#define SN_CORE_CALL_H

#include <stddef.h>
#include <stdint.h>

#include "core/drain.h"
#include "core/guest_wire.h"
#include "core/status.h"

struct sn_request {
    unsigned flags;  /* SN_REQUEST_ARGV */
    const char *env; /* NAME=VALUE strings, each ended by NUL */
    size_t env_bytes;
    const char *cwd; /* NUL-ended, or NULL */
    const char *text;
    size_t text_bytes;
};

/* The host's ends of one call. -1 where there is none. */
struct sn_call {
    int sock;
    int out, err;
};

/* Both ends. The handler's are closed by sn_call_sent once they are handed over. */
struct sn_call_ends {
    struct sn_call host;
    int sock, out, err;
};

/* Makes the socket pair and, with `pipes`, the two pipes; the write ends are given to `owner` where
 * that is not (uid_t)-1, so that a command may reopen /dev/stdout. On failure nothing is left. */
SN_WARN_UNUSED enum sn_status sn_call_make(int pipes, unsigned owner, struct sn_call_ends *out);
void sn_call_sent(struct sn_call_ends *ends);
void sn_call_close(struct sn_call *call);

/* Sends the request. SN_TIMED_OUT, SN_CANCELLED, SN_CLOSED. SN_TOO_LARGE when it is over the caps
 * of the wire. */
SN_WARN_UNUSED enum sn_status sn_call_request(const struct sn_call *call,
                                              const struct sn_request *request,
                                              const struct sn_watch *watch);

enum sn_ending {
    SN_ENDED_EXIT,    /* the command ended by itself; value is its exit status */
    SN_ENDED_TIMEOUT, /* killed at the deadline, or its readers had not taken all of it by then */
    SN_ENDED_CANCEL,  /* the same because of the cancel descriptor or the tick */
    SN_ENDED_FAILED,  /* it was never started; value is an errno, stage an enum sn_guest_stage */
    SN_ENDED_LOST,    /* the handler vanished without a word */
};

struct sn_outcome {
    enum sn_ending ending;
    int value;
    unsigned stage;
    int unkilled; /* after a timeout or cancel: not confirmed that the tree is gone */
};

/* How to end a command whose runner does not answer. Returns 1 when that is confirmed. */
struct sn_last_resort {
    int (*call)(void *context);
    void *context;
};

/* Sees a command through to its end: reads its output into the tails of `drain` (whose pipes and
 * sockets are those of `call`, taken over), has its tree killed on a timeout, cancel or tick and
 * waits for that, SN_KILL_WAIT_MS each for the runner and for the last resort; hands the pipes to
 * the runner when background processes still write. A status other than SN_OK is a failure of this
 * side; closing the call socket then makes the runner kill the tree. In a child that the tick or
 * the sink has forked it is SN_CANCELLED, and the command goes on. No GIL. */
SN_WARN_UNUSED enum sn_status sn_call_run(struct sn_call *call, struct sn_drain *drain,
                                          struct sn_last_resort last, struct sn_outcome *out);

#define SN_KILL_WAIT_MS 5000

#endif
