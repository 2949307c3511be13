/* SPDX-License-Identifier: Apache-2.0 */
/* One standing local sandbox: bubblewrap around the guest program, and the calls it takes. */
#ifndef SN_CORE_BOX_H
#define SN_CORE_BOX_H

#include <stddef.h>
#include <stdint.h>

#include "core/call.h"
#include "core/guest_wire.h"
#include "core/status.h"

struct sn_box;

struct sn_box_data {
    const void *bytes;
    size_t len;
};

struct sn_box_options {
    int program_fd;                 /* the guest program, open to read; not taken over */
    char *const *argv;              /* the launcher's arguments after the role, NULL-ended */
    const struct sn_box_data *data; /* files for bubblewrap, at SN_FD_FIRST_DATA and on */
    size_t ndata;
    const int *groups; /* open cgroup.procs files, after the data */
    size_t ngroups;
    struct sn_guest_config config;
    unsigned command_uid; /* host uid of commands where the worker may give files to it, else -1 */
    int refuse_sysv_ipc;  /* for where its objects would be memory that nothing limits */
    int64_t deadline;
    int cancel; /* readable: give up; -1: none */
    struct sn_tick tick;
};

#define SN_BOX_MAX_DATA 12
#define SN_BOX_MAX_GROUPS 4
#define SN_BOX_ERROR_MAX 2048

/* Starts a sandbox and waits until it takes calls. On SN_CLOSED it ended before that, and `error`
 * holds what was printed on standard error, cut to SN_BOX_ERROR_MAX - 1 bytes and NUL-ended; on any
 * failure nothing is left. In a child that the tick has forked it is SN_CANCELLED, and the start
 * goes on in its parent. The caller ends *out with sn_box_free. No GIL. */
SN_WARN_UNUSED enum sn_status sn_box_create(const struct sn_box_options *options,
                                            struct sn_box **out, char error[SN_BOX_ERROR_MAX]);

/* Whether this process made the box and may talk to it. False after fork in the child. */
int sn_box_is_mine(const struct sn_box *box);

/* Whether the sandbox can no longer take calls. Waits up to `wait_ms` for that to become true. */
int sn_box_is_gone(const struct sn_box *box, int wait_ms);

/* Runs a command; see sn_call_run. `drain` comes with tails, buffer, deadline, cancel and tick. On
 * unkilled the box has been ended. SN_CLOSED: the sandbox does not take calls. Any thread, several
 * at once. No GIL. */
SN_WARN_UNUSED enum sn_status sn_box_run(struct sn_box *box, const struct sn_request *request,
                                         struct sn_drain *drain, struct sn_outcome *out);

/* Opens a file inside (op is SN_GUEST_READ, SN_GUEST_WRITE or SN_GUEST_LIST) and waits for the
 * reply. With SN_REPLY_OPENED *fd is the descriptor, unchecked; with SN_REPLY_LISTING it is the
 * socket on which the records come; otherwise -1. The caller owns it. No GIL. */
SN_WARN_UNUSED enum sn_status sn_box_open(struct sn_box *box, enum sn_guest_op op,
                                          const struct sn_request *request,
                                          const struct sn_watch *watch,
                                          struct sn_guest_reply *reply, int *fd);

/* Ends the sandbox and everything in it, and waits. Idempotent; other threads' calls end. 1 when it
 * is known to be gone. No GIL. */
int sn_box_end(struct sn_box *box);

/* Releases the box; a sandbox that still stands is killed, without waiting. In a forked child only
 * descriptors are closed. NULL is allowed. No other call may be running. */
void sn_box_free(struct sn_box *box);

#endif
