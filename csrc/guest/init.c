/* SPDX-License-Identifier: Apache-2.0 */
/* PID 1. It never blocks on anything but its one poll, and ends (and the kernel ends the sandbox
 * with it) when the host closes the control socket, when the host process dies, or when poll fails.
 */
#include "guest/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/capability.h>

#include "core/fdpass.h"

#define MAX_HANDLERS 4096

struct init {
    struct sn_guest_config config;
    int signals;
    pid_t handlers[MAX_HANDLERS];
    size_t nhandlers;
    int purge; /* a handler died unreported: what it supervised is to be killed */
};

static void reap(struct init *self)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (size_t i = 0; i < self->nhandlers; i++) {
            if (self->handlers[i] == pid) {
                self->handlers[i] = self->handlers[--self->nhandlers];
                self->purge |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
                break;
            }
        }
    }
}

/* With one uid, kill(-1) takes the handlers along and all that is left comes to PID 1 to be reaped.
 * Dying takes milliseconds; the bound is for what cannot die. */
static void wait_for_nobody(struct init *self)
{
    struct pollfd wake = {.fd = self->signals, .events = POLLIN};

    for (int turn = 0; turn < 200; turn++) {
        siginfo_t unused;
        reap(self);
        if (waitid(P_ALL, 0, &unused, WEXITED | WNOHANG | WNOWAIT) < 0) {
            return; /* no child is left */
        }
        (void)poll(&wake, 1, 10);
    }
}

/* Kills every command of the sandbox and answers when it is done. With two uids a child does it
 * under the uid of the commands, so the runners live on and report. kill(-1) spares the caller and
 * is atomic: no fork gets around it. */
static void kill_all(struct init *self, int call)
{
    if (!self->config.two_uids) {
        (void)kill(-1, SIGKILL);
        wait_for_nobody(self);
        (void)sn_wire_reply(call, SN_REPLY_KILLED, 0, 0, -1);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (sn_identity_drop(&self->config) == 0) {
            (void)kill(-1, SIGKILL);
            (void)sn_wire_reply(call, SN_REPLY_KILLED, 0, 0, -1);
        }
        _exit(0);
    }
}

static int handle(struct init *self, const struct sn_guest_call *call, int *fds, size_t nfds)
{
    switch (call->op) {
    case SN_GUEST_RUN:
        return nfds == 3 ? sn_runner(&self->config, fds[0], fds[1], fds[2]) : 1;
    case SN_GUEST_READ:
    case SN_GUEST_WRITE:
        return sn_files_open(&self->config, fds[0], call->op == SN_GUEST_WRITE);
    case SN_GUEST_LIST:
        return sn_files_list(&self->config, fds[0]);
    default:
        return 1;
    }
}

/* Returns -1 when the host is gone. */
static int take_call(struct init *self)
{
    struct sn_guest_call call;
    int fds[3];
    size_t nfds = 0;
    enum sn_status status =
        sn_fdpass_receive(SN_FD_CONTROL, &call, sizeof call, MSG_DONTWAIT, fds, 3, &nfds);

    if (status == SN_SYSTEM && (errno == EAGAIN || errno == EMFILE)) {
        return 0;
    }
    if (status != SN_OK) {
        return status == SN_INVALID ? 0 : -1;
    }
    if (call.op == SN_GUEST_KILL_ALL && nfds == 1) {
        kill_all(self, fds[0]);
    } else if (nfds > 0) {
        pid_t pid = self->nhandlers < MAX_HANDLERS ? fork() : -1;
        if (pid == 0) {
            close(SN_FD_CONTROL);
            close(SN_FD_WORKER);
            close(self->signals);
            _exit(handle(self, &call, fds, nfds));
        }
        if (pid < 0) {
            (void)sn_wire_reply(fds[0], SN_REPLY_FAILED, EAGAIN, SN_STAGE_FORK, -1);
        } else {
            self->handlers[self->nhandlers++] = pid;
        }
    }
    for (size_t i = 0; i < nfds; i++) {
        close(fds[i]);
    }
    return 0;
}

static int receive_config(struct init *self)
{
    size_t nfds;

    if (sn_fdpass_receive(SN_FD_CONTROL, &self->config, sizeof self->config, 0, NULL, 0, &nfds) !=
            SN_OK ||
        self->config.version != SN_GUEST_VERSION) {
        return -1;
    }
    return 0;
}

/* The workspace is made by bubblewrap as uid 0 of the namespace. Its owner has to be the user of
 * the commands (git refuses a repository of somebody else); the capability for that is then
 * dropped. */
static int own_workspace(const struct sn_guest_config *config)
{
    if (!config->two_uids) {
        return 0;
    }
    if (chown("/workspace", config->uid, config->gid) < 0) {
        return -1;
    }
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0) {
        return -1;
    }
    data[0].permitted &= ~(1U << CAP_CHOWN);
    data[0].effective &= ~(1U << CAP_CHOWN);
    data[0].inheritable = data[1].inheritable = 0;
    return (int)syscall(SYS_capset, &header, data);
}

static int set_up(struct init *self)
{
    sigset_t child;

    /* First of all: nothing inside may look into this process or its handlers. */
    if (prctl(PR_SET_DUMPABLE, 0) < 0) {
        return -1;
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) {
        return -1;
    }
    for (int fd = 0; fd <= 2; fd++) {
        if (dup2(null, fd) < 0) {
            return -1;
        }
    }
    (void)syscall(SYS_close_range, 3U, (unsigned)SN_FD_CONTROL - 1U, 0U);
    (void)syscall(SYS_close_range, (unsigned)SN_FD_WORKER + 1U, ~0U, 0U);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_SETMASK, &child, NULL);
    self->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (self->signals < 0 || fcntl(SN_FD_CONTROL, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(SN_FD_WORKER, F_SETFD, FD_CLOEXEC) < 0 || receive_config(self) < 0) {
        return -1;
    }
    return own_workspace(&self->config);
}

int sn_init_main(void)
{
    static struct init self;

    if (set_up(&self) < 0 || sn_wire_reply(SN_FD_CONTROL, SN_REPLY_READY, 0, 0, -1) < 0) {
        return 1;
    }
    struct pollfd watch[3] = {{.fd = SN_FD_CONTROL, .events = POLLIN},
                              {.fd = SN_FD_WORKER, .events = POLLIN},
                              {.fd = self.signals, .events = POLLIN}};
    for (;;) {
        if (poll(watch, 3, -1) < 0) {
            if (errno == EINTR) {
                continue;
            }
            return 1;
        }
        if (watch[1].revents != 0) {
            return 0;
        }
        if (watch[2].revents != 0) {
            struct signalfd_siginfo info[16];
            while (read(self.signals, info, sizeof info) > 0) {
            }
            reap(&self);
        }
        if (watch[0].revents != 0 && take_call(&self) < 0) {
            return 0;
        }
        if (self.purge) {
            /* Each death among them wakes the loop again, so nothing is waited for here. */
            self.purge = sn_tree_kill(getpid(), self.handlers, self.nhandlers) > 0;
        }
    }
}
