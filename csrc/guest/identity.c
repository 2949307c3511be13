/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int sn_identity_drop(const struct sn_guest_config *config)
{
    umask(022);
    if (config->two_uids) {
        if (setgroups(0, NULL) < 0 || setresgid(config->gid, config->gid, config->gid) < 0 ||
            setresuid(config->uid, config->uid, config->uid) < 0) {
            return -1;
        }
        /* A process that could go back would be PID 1's equal. */
        if (setuid(0) == 0) {
            errno = EPERM;
            return -1;
        }
    }
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int limit(int resource, uint64_t value)
{
    struct rlimit now, wanted;

    if (value == 0) {
        return 0;
    }
    if (getrlimit(resource, &now) < 0) {
        return -1;
    }
    wanted.rlim_cur = wanted.rlim_max = value < now.rlim_max ? (rlim_t)value : now.rlim_max;
    return setrlimit(resource, &wanted);
}

int sn_identity_limits(const struct sn_guest_limits *limits)
{
    /* The kernel kills in this order when the sandbox's memory group is full: commands, never
     * PID 1. */
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0) {
        ssize_t ignored = write(score, "800", 3);
        (void)ignored;
        close(score);
    }
    struct rlimit no_core = {0, 0};
    if (setrlimit(RLIMIT_CORE, &no_core) < 0 || limit(RLIMIT_AS, limits->memory_bytes) < 0 ||
        limit(RLIMIT_FSIZE, limits->file_bytes) < 0 || limit(RLIMIT_CPU, limits->cpu_seconds) < 0 ||
        limit(RLIMIT_NPROC, limits->processes) < 0 ||
        limit(RLIMIT_NOFILE, limits->open_files) < 0) {
        return -1;
    }
    return 0;
}

void sn_identity_default_signals(void)
{
    /* The kernel's own struct, all zero. The C library refuses its two private signals, which may
     * be ignored all the same, and would stay so. */
    static const unsigned long default_action[4];
    sigset_t none;

    for (int number = 1; number < NSIG; number++) {
        (void)syscall(SYS_rt_sigaction, number, default_action, NULL, sizeof(uint64_t));
    }
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}
