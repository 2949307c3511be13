/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of a sandbox's start, in a process of its own: the worker may be large and threaded,
 * and a change of uid in a process that shares its memory would change the worker, too.
 *
 * Arguments: BASE GROUPFD NGROUPS NSTAGED STAGED... BWRAP ARGS...
 *   BASE     first of SN_UIDS host ids that the sandbox's user namespace maps, or "-" for an
 *            ordinary user, whose namespace bubblewrap makes itself
 *   GROUPFD  first of NGROUPS open cgroup.procs files to join
 *   STAGED   NSTAGED paths to be bound below /tmp of a private mount namespace, named by position
 */
#include "guest/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/capability.h>

#define SN_UIDS 2000U

static int fail(const char *what, const char *name)
{
    int saved = errno;

    dprintf(2, "sandbox-native: could not %s%s%s: %s\n", what, *name ? " " : "", name,
            strerror(saved));
    return -1;
}

static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t put = write(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    errno = saved;
    return put == (ssize_t)strlen(text) ? 0 : -1;
}

static int become(unsigned base)
{
    return setgroups(0, NULL) < 0 || setresgid(base, base, base) < 0 ||
                   setresuid(base, base, base) < 0
               ? -1
               : 0;
}

/* The holder of the new user namespace: owned by BASE, so that bubblewrap as BASE may enter it. It
 * lives until the other end of `hold` is closed, by whatever ends this program. (A parent-death
 * signal would be forgotten at each change of identity.) */
static void hold_namespace(unsigned base, int ready, int hold)
{
    int error = 0;
    ssize_t ignored;

    if (become(base) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0 || unshare(CLONE_NEWUSER) < 0) {
        error = errno;
    }
    ignored = write(ready, &error, sizeof error);
    close(ready);
    while (error == 0 && (ignored = read(hold, &error, sizeof error)) < 0 && errno == EINTR) {
    }
    _exit(0);
}

/* Writes both maps of the holder's namespace. It has to be done by the namespace's owner, who may
 * do everything in it, with the right to set ids here: so this process needs no more than
 * CAP_SETUID and CAP_SETGID. */
static int map_namespace(pid_t holder, unsigned base)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    char path[64], map[64];

    data[0].effective = data[0].permitted = 1U << CAP_SETUID | 1U << CAP_SETGID;
    if (prctl(PR_SET_KEEPCAPS, 1) < 0 || become(base) < 0 ||
        syscall(SYS_capset, &header, data) < 0) {
        return fail("change to an unused user id", "");
    }
    snprintf(map, sizeof map, "0 %u %u\n", base, SN_UIDS);
    snprintf(path, sizeof path, "/proc/%d/uid_map", (int)holder);
    if (write_file(path, map) < 0) {
        return fail("write", path);
    }
    snprintf(path, sizeof path, "/proc/%d/gid_map", (int)holder);
    if (write_file(path, map) < 0) {
        return fail("write", path);
    }
    return 0;
}

/* The outcome of a child: its exit status, or -1. */
static int outcome_of(pid_t child)
{
    int status = -1;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Makes the namespace; its holder, or -1. */
static pid_t make_namespace(unsigned base)
{
    int ready[2], hold[2], error = 0;
    pid_t holder, mapper;

    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(hold, O_CLOEXEC) < 0) {
        return fail("make a pipe", "");
    }
    holder = fork();
    if (holder == 0) {
        close(ready[0]);
        close(hold[1]);
        hold_namespace(base, ready[1], hold[0]);
    }
    close(ready[1]);
    close(hold[0]);
    ssize_t got = holder < 0 ? -1 : read(ready[0], &error, sizeof error);
    close(ready[0]);
    if (got != (ssize_t)sizeof error || error != 0) {
        errno = got == (ssize_t)sizeof error ? error : ECHILD;
        return fail("make a user namespace", "");
    }
    mapper = fork();
    if (mapper == 0) {
        _exit(map_namespace(holder, base) < 0);
    }
    return mapper > 0 && outcome_of(mapper) == 0 ? holder : -1;
}

/* Opens the holder's namespace for bubblewrap, as its owner, and lets the holder go. */
static int take_namespace(pid_t holder)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)holder);
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        return fail("open", path);
    }
    /* The number is free in this process, so open may have returned it already. */
    if (fd != SN_FD_USERNS) {
        if (dup2(fd, SN_FD_USERNS) < 0) {
            return fail("keep the user namespace", "");
        }
        close(fd);
    }
    kill(holder, SIGKILL);
    (void)outcome_of(holder);
    return 0;
}

/* Binds each path at /tmp/<position> of a mount namespace nobody else sees, because the uid that
 * bubblewrap runs as may not be able to walk to it. The sources are opened before /tmp is covered.
 */
static int stage(char **paths, int count)
{
    char source[64], target[64];

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return fail("make a mount namespace", "");
    }
    int *fds = calloc((size_t)count, sizeof *fds);
    if (fds == NULL) {
        return fail("stage", "paths");
    }
    for (int i = 0; i < count; i++) {
        fds[i] = open(paths[i], O_PATH | O_CLOEXEC);
        if (fds[i] < 0) {
            return fail("open", paths[i]);
        }
    }
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") < 0) {
        return fail("mount a staging place on", "/tmp");
    }
    for (int i = 0; i < count; i++) {
        struct stat info;
        snprintf(source, sizeof source, "/proc/self/fd/%d", fds[i]);
        snprintf(target, sizeof target, "/tmp/%d", i);
        if (fstat(fds[i], &info) < 0) {
            return fail("stat", paths[i]);
        }
        int made = S_ISDIR(info.st_mode)
                       ? mkdir(target, 0755)
                       : close(open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        if (made < 0 || mount(source, target, NULL, MS_BIND | MS_REC, NULL) < 0) {
            return fail("bind", paths[i]);
        }
        close(fds[i]);
    }
    free(fds);
    return 0;
}

/* The control groups' cgroup.procs files come last among the descriptors. */
static int join_groups(int first, int count)
{
    for (int fd = first; fd < first + count; fd++) {
        if (write(fd, "0", 1) != 1) {
            return fail("join a control group", "");
        }
        close(fd);
    }
    return 0;
}

int sn_launch_main(int argc, char **argv)
{
    static char *const no_env[] = {NULL};

    if (argc < 5) {
        return 64;
    }
    const char *base_text = argv[0];
    int first_group = (int)strtol(argv[1], NULL, 10), ngroups = (int)strtol(argv[2], NULL, 10);
    int nstaged = (int)strtol(argv[3], NULL, 10);
    if (nstaged < 0 || argc < 5 + nstaged) {
        return 64;
    }
    if (join_groups(first_group, ngroups) < 0) {
        return 125;
    }
    if (*base_text != '-') {
        unsigned base = (unsigned)strtoul(base_text, NULL, 10);
        pid_t holder = base == 0 ? -1 : make_namespace(base);
        if (holder < 0 || (nstaged > 0 && stage(argv + 4, nstaged) < 0)) {
            return 125;
        }
        if (become(base) < 0) {
            (void)fail("change to an unused user id", base_text);
            return 125;
        }
        if (take_namespace(holder) < 0) {
            return 125;
        }
    }
    if (chdir("/") < 0) {
        (void)fail("change to", "/");
        return 125;
    }
    char **program = argv + 4 + nstaged;
    (void)execve(program[0], program, no_env);
    (void)fail("run", program[0]);
    return 125;
}
