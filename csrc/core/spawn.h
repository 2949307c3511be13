/* SPDX-License-Identifier: Apache-2.0 */
/* Starting processes from one permanent thread of the worker. A parent-death signal follows the
 * thread that started a process, not its process, so a thread that lives as long as the worker
 * starts them all. The thread is pure C, has every signal blocked, and is made anew after fork. */
#ifndef SN_CORE_SPAWN_H
#define SN_CORE_SPAWN_H

#include <stddef.h>
#include <sys/types.h>

#include "core/status.h"

/* Descriptor `from` of this process becomes `to` (0 or more) in the child. */
struct sn_spawn_fd {
    int from, to;
};

struct sn_spawn {
    int program_fd;    /* executed by descriptor, or -1 for argv[0] as a path */
    char *const *argv; /* NULL-ended */
    char *const *env;  /* NULL-ended */
    const struct sn_spawn_fd *fds;
    size_t nfds; /* up to SN_SPAWN_MAX_FDS; those not named as 0, 1, 2 are /dev/null there */
};

#define SN_SPAWN_MAX_FDS 32

struct sn_child {
    pid_t pid;
    int pidfd;
};

/* Starts the program in a process group of its own, with default signal handling, no signal blocked
 * and no descriptor that is not named. Returns when the program has been executed; SN_SYSTEM with
 * errno when it could not be. The memory of the worker is neither copied nor shared on. Blocks for
 * about a millisecond; any thread, GIL not needed. The caller ends `out` with sn_child_end. */
SN_WARN_UNUSED enum sn_status sn_spawn(const struct sn_spawn *what, struct sn_child *out);

/* Waits up to `wait_ms` for the child's end, then kills it (never its descendants) and waits
 * again, reaps it, closes the pidfd. Returns 1 when it is gone. Tolerates a child reaped by others.
 */
int sn_child_end(struct sn_child *child, int wait_ms);

/* The same, and whatever is left of the process group that the child was started in is killed, too,
 * when the child ended by itself as well. */
int sn_child_end_group(struct sn_child *child, int wait_ms);

/* Waits up to `wait_ms` for the child's end and leaves it to the thread to be reaped after that. */
void sn_child_release(struct sn_child *child, int wait_ms);

/* Like sn_child_end for code that may not block: kills at once and leaves the reaping to the
 * thread. */
void sn_child_abandon(struct sn_child *child);

#endif
