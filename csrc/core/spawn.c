/* SPDX-License-Identifier: Apache-2.0 */
#include "core/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_STACK (64U * 1024U)
#define MAX_ABANDONED 256

/* waitid on a pidfd cannot take another child that got the same number. */
#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static void reap(const struct sn_child *child)
{
    siginfo_t ignored;

    (void)waitid((idtype_t)P_PIDFD, (id_t)child->pidfd, &ignored, WEXITED | WNOHANG);
}

struct job {
    const struct sn_spawn *what;
    struct sn_child child;
    int error;
    int done;
    struct job *next;
};

/* One per process: found again by its pid, never freed, because the thread uses it for ever and a
 * fork can happen while its lock is held. */
struct spawner {
    pid_t owner;
    int wake[2];
    pthread_mutex_t lock;
    pthread_cond_t finished;
    struct job *first;
    struct sn_child abandoned[MAX_ABANDONED];
    size_t nabandoned;
};

static _Atomic(struct spawner *) current;

/* -- the child, between clone and exec: shares the worker's memory, so raw system calls and its own
 *    stack only ------------------------------------------------------------------------------ */

/* The child leaves its stack by exec, never by return, so AddressSanitizer's marks of its variables
 * would stay behind on memory that is used again. */
#define ON_CHILD_STACK __attribute__((no_sanitize_address))

struct child_start {
    const struct sn_spawn *what;
    int error;
};

ON_CHILD_STACK static int place_descriptors(const struct sn_spawn *what, int *program)
{
    int high[SN_SPAWN_MAX_FDS];
    int last = 2, floor = 3;

    for (size_t i = 0; i < what->nfds; i++) {
        last = what->fds[i].to > last ? what->fds[i].to : last;
    }
    floor = last + 2;
    for (size_t i = 0; i < what->nfds; i++) {
        high[i] = fcntl(what->fds[i].from, F_DUPFD_CLOEXEC, floor);
        if (high[i] < 0) {
            return -1;
        }
    }
    int spare = what->program_fd < 0 ? -1 : fcntl(what->program_fd, F_DUPFD_CLOEXEC, floor);
    if (what->program_fd >= 0 && spare < 0) {
        return -1;
    }
    for (int fd = 0; fd <= 2; fd++) {
        close(fd);
        if (open("/dev/null", O_RDWR) != fd) {
            return -1;
        }
    }
    if (syscall(SYS_close_range, 3U, (unsigned)floor - 1U, 0U) < 0) {
        return -1;
    }
    for (size_t i = 0; i < what->nfds; i++) {
        if (dup2(high[i], what->fds[i].to) < 0) {
            return -1;
        }
    }
    if (spare >= 0) {
        if (dup3(spare, last + 1, O_CLOEXEC) < 0) {
            return -1;
        }
        *program = last + 1;
    }
    return (int)syscall(SYS_close_range, (unsigned)(last + (spare >= 0 ? 2 : 1)), ~0U, 0U);
}

ON_CHILD_STACK static int child_main(void *arg)
{
    struct child_start *start = arg;
    const struct sn_spawn *what = start->what;
    /* The kernel's own struct, all zero: the C library would refuse its two private signals. */
    static const unsigned long default_action[4];
    sigset_t none;
    int program = -1;

    for (int number = 1; number < NSIG; number++) {
        (void)syscall(SYS_rt_sigaction, number, default_action, NULL, sizeof(uint64_t));
    }
    if (setpgid(0, 0) < 0 || place_descriptors(what, &program) < 0) {
        start->error = errno;
        _exit(127);
    }
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (program >= 0) {
        (void)syscall(SYS_execveat, program, "", what->argv, what->env, AT_EMPTY_PATH);
    } else {
        (void)execve(what->argv[0], what->argv, what->env);
    }
    start->error = errno;
    _exit(127);
}

/* -- the permanent thread ----------------------------------------------------------------- */

static void perform(struct job *job)
{
    struct child_start start = {.what = job->what};
    int pidfd = -1;
    char *stack = mmap(NULL, CHILD_STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

    if (stack == MAP_FAILED) {
        job->error = errno;
        return;
    }
    int pid = clone(child_main, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
                    &start, &pidfd);
    job->error = pid < 0 ? errno : start.error;
    munmap(stack, CHILD_STACK);
    if (pid >= 0 && job->error != 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        close(pidfd);
        return;
    }
    job->child.pid = pid;
    job->child.pidfd = pidfd;
}

static void reap_abandoned(struct spawner *self, const struct pollfd *watch, size_t count)
{
    (void)pthread_mutex_lock(&self->lock);
    for (size_t i = count; i-- > 0;) {
        if (watch[i].revents != 0) {
            reap(&self->abandoned[i]);
            close(self->abandoned[i].pidfd);
            self->abandoned[i] = self->abandoned[--self->nabandoned];
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
}

static void *thread_main(void *arg)
{
    struct spawner *self = arg;
    struct pollfd watch[MAX_ABANDONED + 1];

    for (;;) {
        (void)pthread_mutex_lock(&self->lock);
        struct job *job = self->first;
        if (job != NULL) {
            self->first = job->next;
        }
        size_t count = self->nabandoned;
        for (size_t i = 0; i < count; i++) {
            watch[i] = (struct pollfd){.fd = self->abandoned[i].pidfd, .events = POLLIN};
        }
        (void)pthread_mutex_unlock(&self->lock);
        if (job != NULL) {
            perform(job);
            (void)pthread_mutex_lock(&self->lock);
            job->done = 1;
            (void)pthread_cond_broadcast(&self->finished);
            (void)pthread_mutex_unlock(&self->lock);
            continue;
        }
        watch[count] = (struct pollfd){.fd = self->wake[0], .events = POLLIN};
        if (poll(watch, count + 1, -1) > 0) {
            char drop[64];
            ssize_t ignored =
                watch[count].revents != 0 ? read(self->wake[0], drop, sizeof drop) : 0;
            (void)ignored;
            reap_abandoned(self, watch, count);
        }
    }
    return NULL;
}

static struct spawner *make_spawner(void)
{
    struct spawner *self = calloc(1, sizeof *self);
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int error;

    if (self == NULL) {
        return NULL;
    }
    self->owner = getpid();
    if (pipe2(self->wake, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(self);
        return NULL;
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->finished, NULL);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, 256U * 1024U);
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, thread_main, self);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (error != 0) {
        close(self->wake[0]);
        close(self->wake[1]);
        free(self);
        errno = error;
        return NULL;
    }
    return self;
}

/* The spawner of this process. After a fork the parent's is left alone: its thread is not here. */
static struct spawner *the_spawner(void)
{
    struct spawner *known = atomic_load(&current);

    if (known != NULL && known->owner == getpid()) {
        return known;
    }
    struct spawner *made = make_spawner();
    if (made == NULL) {
        return NULL;
    }
    if (!atomic_compare_exchange_strong(&current, &known, made)) {
        /* Another thread was first. This one's thread idles until the process ends. */
        return known;
    }
    return made;
}

static void wake(struct spawner *self)
{
    ssize_t ignored = write(self->wake[1], "", 1);

    (void)ignored;
}

enum sn_status sn_spawn(const struct sn_spawn *what, struct sn_child *out)
{
    struct spawner *self;
    struct job job = {.what = what, .child = {.pid = -1, .pidfd = -1}};

    *out = job.child;
    if (what->nfds > SN_SPAWN_MAX_FDS) {
        return SN_INVALID;
    }
    self = the_spawner();
    if (self == NULL) {
        return SN_SYSTEM;
    }
    (void)pthread_mutex_lock(&self->lock);
    struct job **end = &self->first;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = &job;
    wake(self);
    while (!job.done) {
        (void)pthread_cond_wait(&self->finished, &self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
    if (job.error != 0) {
        errno = job.error;
        return SN_SYSTEM;
    }
    *out = job.child;
    return SN_OK;
}

static int wait_gone(int pidfd, int wait_ms)
{
    struct pollfd watch = {.fd = pidfd, .events = POLLIN};
    int ready;

    do {
        ready = poll(&watch, 1, wait_ms);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

int sn_child_end(struct sn_child *child, int wait_ms)
{
    if (child->pidfd < 0) {
        return 1;
    }
    int gone = wait_gone(child->pidfd, wait_ms);
    if (!gone) {
        (void)syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
        gone = wait_gone(child->pidfd, 5000);
    }
    if (!gone) {
        sn_child_abandon(child);
        return 0;
    }
    reap(child);
    close(child->pidfd);
    child->pid = child->pidfd = -1;
    return 1;
}

int sn_child_end_group(struct sn_child *child, int wait_ms)
{
    if (child->pidfd < 0) {
        return 1;
    }
    (void)wait_gone(child->pidfd, wait_ms);
    /* A child that was not reaped keeps the number of its group, even as a zombie. */
    if (syscall(SYS_pidfd_send_signal, child->pidfd, 0, NULL, 0) == 0) {
        (void)kill(-child->pid, SIGKILL);
    }
    return sn_child_end(child, 0);
}

/* Leaves the reaping to the thread; without one, or with too many, to the end of the process. */
static void leave(struct sn_child *child)
{
    struct spawner *self = atomic_load(&current);

    if (self != NULL && self->owner == getpid()) {
        (void)pthread_mutex_lock(&self->lock);
        if (self->nabandoned < MAX_ABANDONED) {
            self->abandoned[self->nabandoned++] = *child;
            child->pidfd = -1;
        }
        (void)pthread_mutex_unlock(&self->lock);
        wake(self);
    }
    if (child->pidfd >= 0) {
        reap(child);
        close(child->pidfd);
    }
    child->pid = child->pidfd = -1;
}

void sn_child_release(struct sn_child *child, int wait_ms)
{
    if (child->pidfd < 0) {
        return;
    }
    if (wait_gone(child->pidfd, wait_ms)) {
        reap(child);
        close(child->pidfd);
        child->pid = child->pidfd = -1;
    } else {
        leave(child);
    }
}

void sn_child_abandon(struct sn_child *child)
{
    if (child->pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
        leave(child);
    }
}
