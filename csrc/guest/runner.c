/* SPDX-License-Identifier: Apache-2.0 */
/* One command: its runner is the subreaper of everything the command starts, so "all of it is gone"
 * is waitpid saying ECHILD, setsid children and double forks included. */
#include "guest/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fdpass.h"

/* The kernel's limit for one argument (MAX_ARG_STRLEN): 32 pages of 4 KiB. */
#define LONGEST_ARGUMENT (32U * 4096U - 1U)

struct runner {
    int call;
    int signals;
    pid_t command;
    int exited; /* the command ended; status is valid */
    int status; /* as waitpid gives it */
};

static int exit_value(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* -- the command's side: between clone and exec it shares the runner's memory, which waits ---- */

struct start {
    const struct sn_guest_config *config;
    struct sn_received *request;
    char **env, **argv; /* argv is NULL for a shell command */
    int out, err;
    int stage, error; /* what failed */
};

static void fail_start(struct start *start, int stage)
{
    start->stage = stage;
    start->error = errno;
    _exit(127);
}

static void set_output(int from, int to)
{
    /* `from` is above 2: PID 1 keeps 0 to 2 open. */
    while (dup2(from, to) < 0 && errno == EINTR) {
    }
}

/* A command too long for one argument is read by the shell from a file without a name. */
static char *as_sourced(const char *text, size_t len)
{
    static char source[64];
    int fd = memfd_create("command", 0);
    size_t done = 0;

    if (fd < 0) {
        return NULL;
    }
    while (done < len) {
        ssize_t put = write(fd, text + done, len - done);
        if (put < 0 && errno != EINTR) {
            return NULL;
        }
        done += put > 0 ? (size_t)put : 0;
    }
    snprintf(source, sizeof source, ". /proc/self/fd/%d", fd);
    return source;
}

static void exec_command(struct start *start, char *text)
{
    if (start->argv != NULL) {
        environ = start->env; /* where execvp looks for PATH */
        (void)execvp(start->argv[0], start->argv);
        fail_start(start, SN_STAGE_EXEC);
    }
    char *bash[] = {"bash", "-c", text, NULL};
    (void)execve("/bin/bash", bash, start->env);
    if (errno == ENOENT || errno == EACCES) {
        char *sh[] = {"sh", "-c", text, NULL};
        (void)execve("/bin/sh", sh, start->env);
    }
    fail_start(start, SN_STAGE_EXEC);
}

/* A command that made its own working directory inaccessible needs another one to mend that. On the
 * host the directory is the caller's choice, so there it counts. */
static void enter(struct start *start, const char *directory)
{
    char note[256];

    if (chdir(directory) == 0) {
        return;
    }
    int error = errno;
    if (start->config == NULL || chdir("/") < 0) {
        errno = error;
        fail_start(start, SN_STAGE_CWD);
    }
    int len = snprintf(note, sizeof note, "sandbox: %.100s cannot be entered (%s); running in /\n",
                       directory, strerror(error));
    (void)!write(2, note, (size_t)len);
}

static int become_command(void *argument)
{
    struct start *start = argument;
    const struct sn_guest_config *config = start->config;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char *text = start->request->text;

    if (null < 0) {
        fail_start(start, SN_STAGE_IDENTITY);
    }
    if (config != NULL) {
        set_output(null, 0); /* on the host it is what the caller made it */
    }
    set_output(start->out, 1);
    set_output(start->err, 2);
    (void)setsid();
    sn_identity_default_signals();
    /* Before the limit on the size of a file, which is not meant for the command's text. */
    if (start->argv == NULL && start->request->head.text_bytes > LONGEST_ARGUMENT) {
        text = as_sourced(text, start->request->head.text_bytes);
        if (text == NULL) {
            fail_start(start, SN_STAGE_EXEC);
        }
    }
    if (config != NULL &&
        (sn_identity_limits(&config->limits) < 0 || sn_identity_drop(config) < 0)) {
        fail_start(start, SN_STAGE_IDENTITY);
    }
    /* After the change of identity, which clears it. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (start->request->cwd != NULL) {
        enter(start, start->request->cwd);
    }
    exec_command(start, text);
    return 127;
}

/* -- the runner's side -------------------------------------------------------------------- */

/* Starts the command; 0, or -1 with stage and error filled. */
static int start_command(struct runner *self, struct start *start)
{
    static char stack[128 * 1024] __attribute__((aligned(16)));
    struct sn_received *request = start->request;

    start->stage = SN_STAGE_FORK;
    start->env = sn_wire_vector(request->env, request->head.env_bytes);
    if (request->head.flags & SN_REQUEST_ARGV) {
        start->argv = sn_wire_vector(request->text, request->head.text_bytes);
    }
    if (start->env == NULL || (request->head.flags & SN_REQUEST_ARGV &&
                               (start->argv == NULL || start->argv[0] == NULL))) {
        start->error = start->env == NULL || start->argv == NULL ? ENOMEM : EINVAL;
        return -1;
    }
    self->command =
        clone(become_command, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, start);
    if (self->command < 0) {
        start->error = errno;
    }
    return start->error != 0 ? -1 : 0;
}

/* Reaps what has ended. Returns 0 while there are children, -1 when there are none. */
static int reap(struct runner *self)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0) {
            return 0;
        }
        if (pid < 0) {
            return -1;
        }
        if (pid == self->command) {
            self->exited = 1;
            self->status = status;
        }
    }
}

static void empty_signals(struct runner *self)
{
    struct signalfd_siginfo info[8];

    while (read(self->signals, info, sizeof info) > 0) {
    }
}

static void kill_tree(struct runner *self)
{
    struct pollfd wake = {.fd = self->signals, .events = POLLIN};

    while (reap(self) == 0) {
        (void)sn_tree_kill(getpid(), NULL, 0);
        if (reap(self) < 0) {
            return;
        }
        (void)poll(&wake, 1, 5);
        empty_signals(self);
    }
}

/* Waits for the command's end, or for the host to have it killed. Returns 1 when it ended. */
static int wait_command(struct runner *self)
{
    struct pollfd watch[2] = {{.fd = self->signals, .events = POLLIN},
                              {.fd = self->call, .events = POLLIN}};

    for (;;) {
        (void)reap(self);
        if (self->exited) {
            return 1;
        }
        if (poll(watch, 2, -1) < 0 && errno != EINTR) {
            return 0;
        }
        empty_signals(self);
        if (watch[1].revents != 0) {
            (void)reap(self);
            return self->exited;
        }
    }
}

/* After the command ended: background children may still write. The host either goes away (nothing
 * more to read) or hands its read ends over, which are then read until every writer is gone. */
static void outlive(struct runner *self)
{
    struct sn_guest_order order;
    int pipes[2];
    size_t count = 0;
    static char waste[65536];

    do {
        if (sn_fdpass_receive(self->call, &order, sizeof order, 0, pipes, 2, &count) != SN_OK) {
            return;
        }
    } while (order.kind != SN_ORDER_DRAIN);
    close(self->call);
    struct pollfd watch[3] = {{.fd = count > 0 ? pipes[0] : -1, .events = POLLIN},
                              {.fd = count > 1 ? pipes[1] : -1, .events = POLLIN},
                              {.fd = self->signals, .events = POLLIN}};
    while (watch[0].fd >= 0 || watch[1].fd >= 0) {
        if (poll(watch, 3, -1) < 0 && errno != EINTR) {
            return;
        }
        empty_signals(self);
        (void)reap(self);
        for (int i = 0; i < 2; i++) {
            if (watch[i].fd >= 0 && watch[i].revents != 0) {
                ssize_t got = read(watch[i].fd, waste, sizeof waste);
                if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
                    close(watch[i].fd);
                    watch[i].fd = -1;
                }
            }
        }
    }
}

int sn_runner(const struct sn_guest_config *config, int call, int out, int err)
{
    struct runner self = {.call = call};
    struct sn_received request;
    struct start start = {.config = config, .request = &request, .out = out, .err = err};
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &child, NULL);
    self.signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (self.signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        (void)sn_wire_reply(call, SN_REPLY_FAILED, errno, SN_STAGE_FORK, -1);
        return 0;
    }
    if (sn_wire_request(call, &request) < 0) {
        (void)sn_wire_reply(call, SN_REPLY_FAILED, errno, SN_STAGE_REQUEST, -1);
        return 0;
    }
    if (start_command(&self, &start) < 0) {
        kill_tree(&self);
        (void)sn_wire_reply(call, SN_REPLY_FAILED, start.error, (unsigned)start.stage, -1);
        return 0;
    }
    close(out);
    close(err);
    if (wait_command(&self)) {
        if (sn_wire_reply(call, SN_REPLY_EXITED, exit_value(self.status), 0, -1) == 0) {
            outlive(&self);
        }
        return 0;
    }
    kill_tree(&self);
    (void)sn_wire_reply(call, SN_REPLY_KILLED, 0, 0, -1);
    return 0;
}

/* On the host the runner is a program of its own: descriptors are where the caller put them. */
int sn_run_main(void)
{
    int out = fcntl(1, F_DUPFD_CLOEXEC, 4), err = fcntl(2, F_DUPFD_CLOEXEC, 4);

    if (out < 0 || err < 0 || fcntl(SN_FD_CALL, F_SETFD, FD_CLOEXEC) < 0) {
        return 1;
    }
    set_output(0, 1);
    set_output(0, 2);
    return sn_runner(NULL, SN_FD_CALL, out, err);
}
