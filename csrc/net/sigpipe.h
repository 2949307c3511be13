/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a SIGPIPE that this thread's own writes raise from reaching the process. libcurl is told
 * not to touch signals, TLS libraries write without MSG_NOSIGNAL, and not every process ignores
 * SIGPIPE. */
#ifndef SN_NET_SIGPIPE_H
#define SN_NET_SIGPIPE_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

struct sn_sigpipe {
    bool is_needed; /* no: the process ignores SIGPIPE, as Python does unless told otherwise */
    sigset_t before;
    bool was_pending;
};

static inline void sn_sigpipe_set(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGPIPE);
}

static inline void sn_sigpipe_block(struct sn_sigpipe *guard)
{
    sigset_t pipe_only, pending;
    struct sigaction action;

    guard->is_needed = sigaction(SIGPIPE, NULL, &action) != 0 || action.sa_handler != SIG_IGN;
    if (!guard->is_needed) {
        return;
    }
    sn_sigpipe_set(&pipe_only);
    (void)sigpending(&pending);
    guard->was_pending = sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, &guard->before);
}

/* On the same thread. Leaves errno alone. */
static inline void sn_sigpipe_restore(const struct sn_sigpipe *guard)
{
    static const struct timespec at_once = {0, 0};
    int saved = errno;
    sigset_t pipe_only, pending;

    if (!guard->is_needed) {
        return;
    }
    sn_sigpipe_set(&pipe_only);
    (void)sigpending(&pending);
    if (!guard->was_pending && sigismember(&pending, SIGPIPE) == 1) {
        (void)sigtimedwait(&pipe_only, NULL, &at_once);
    }
    (void)pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
    errno = saved;
}

#endif
