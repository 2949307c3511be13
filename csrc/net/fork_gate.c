/* SPDX-License-Identifier: Apache-2.0 */
#include "net/fork_gate.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* How long a fork or an exit waits at most, in seconds. */
#define LONGEST_WAIT 5

static pthread_rwlock_t gate;
static bool closed; /* by the fork under way; only its thread looks at it */

static void make_gate(void)
{
    pthread_rwlockattr_t attributes;

    (void)pthread_rwlockattr_init(&attributes);
    /* Else threads that come and go would keep a fork waiting. */
    (void)pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    (void)pthread_rwlock_init(&gate, &attributes);
    (void)pthread_rwlockattr_destroy(&attributes);
}

/* Waits until nobody is inside, and keeps it so. False when that took too long. */
static bool close_gate(void)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONGEST_WAIT;
    return pthread_rwlock_timedwrlock(&gate, &until) == 0;
}

static void before_fork(void)
{
    closed = close_gate();
}

static void at_exit(void)
{
    (void)close_gate();
}

static void after_fork_in_parent(void)
{
    if (closed) {
        closed = false;
        (void)pthread_rwlock_unlock(&gate);
    }
}

static void after_fork_in_child(void)
{
    /* The lock knows its holder by a thread id that is not ours any more. */
    closed = false;
    make_gate();
}

static void install(void)
{
    make_gate();
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void sn_fork_gate_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, install);
}

void sn_fork_gate_close_at_exit(void)
{
    (void)atexit(at_exit);
}

void sn_fork_gate_enter(void)
{
    (void)pthread_rwlock_rdlock(&gate);
}

void sn_fork_gate_leave(void)
{
    (void)pthread_rwlock_unlock(&gate);
}
