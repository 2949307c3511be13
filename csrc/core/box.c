/* SPDX-License-Identifier: Apache-2.0 */
#include "core/box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/fdpass.h"
#include "core/seccomp.h"
#include "core/spawn.h"

struct sn_box {
    pid_t owner;
    int control;
    ino_t inode; /* of the control socket: in a child the number may have become something else */
    unsigned command_uid;
    /* The end of the sandbox is waited for once, by whoever ends it first. */
    pthread_mutex_t ending;
    struct sn_child monitor;
};

struct start {
    int control[2];
    int errors[2];
    int worker;
    int files[SN_BOX_MAX_DATA + 1]; /* the filter, then the data */
    size_t nfiles;
};

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* A file without a name that holds `bytes`, positioned at its start. */
static int make_file(const void *bytes, size_t len)
{
    int fd = memfd_create("sandbox", MFD_CLOEXEC);
    const char *at = bytes;
    size_t left = len;

    if (fd < 0) {
        return -1;
    }
    while (left > 0) {
        ssize_t put = write(fd, at, left);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            close(fd);
            return -1;
        }
        at += put;
        left -= (size_t)put;
    }
    if (lseek(fd, 0, SEEK_SET) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void release_start(struct start *start)
{
    for (int i = 0; i < 2; i++) {
        close_fd(&start->control[i]);
        close_fd(&start->errors[i]);
    }
    close_fd(&start->worker);
    while (start->nfiles > 0) {
        close_fd(&start->files[--start->nfiles]);
    }
}

static enum sn_status prepare(const struct sn_box_options *options, struct start *start)
{
    char filter[8192];
    size_t filter_len;
    enum sn_status status = sn_seccomp_build(
        filter, sizeof filter, options->refuse_sysv_ipc ? SN_SECCOMP_NO_SYSV_IPC : 0, &filter_len);

    if (status != SN_OK) {
        return status;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, start->control) < 0 ||
        pipe2(start->errors, O_CLOEXEC) < 0 || fcntl(start->errors[0], F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(start->control[0], F_SETFL, O_NONBLOCK) < 0) {
        return SN_SYSTEM;
    }
    start->worker = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (start->worker < 0) {
        return SN_SYSTEM;
    }
    for (size_t i = 0; i <= options->ndata; i++) {
        int fd = i == 0 ? make_file(filter, filter_len)
                        : make_file(options->data[i - 1].bytes, options->data[i - 1].len);
        if (fd < 0) {
            return SN_SYSTEM;
        }
        start->files[start->nfiles++] = fd;
    }
    return sn_fdpass_send(start->control[0], &options->config, sizeof options->config, NULL, 0, 0);
}

static enum sn_status launch(const struct sn_box_options *options, const struct start *start,
                             struct sn_child *child)
{
    static char *const no_env[] = {NULL};
    struct sn_spawn_fd fds[SN_SPAWN_MAX_FDS] = {{start->errors[1], 2},
                                                {start->files[0], SN_FD_SECCOMP},
                                                {start->control[1], SN_FD_CONTROL},
                                                {start->worker, SN_FD_WORKER},
                                                {options->program_fd, SN_FD_PROGRAM}};
    size_t count = 5;
    int next = SN_FD_FIRST_DATA;
    size_t argc = 0;

    for (size_t i = 0; i < options->ndata; i++) {
        fds[count++] = (struct sn_spawn_fd){start->files[i + 1], next++};
    }
    for (size_t i = 0; i < options->ngroups; i++) {
        fds[count++] = (struct sn_spawn_fd){options->groups[i], next++};
    }
    while (options->argv[argc] != NULL) {
        argc++;
    }
    char **argv = sn_calloc(argc + 3, sizeof *argv);
    if (argv == NULL) {
        return SN_NO_MEMORY;
    }
    static char name[] = "sandbox-native", role[] = "launch";
    argv[0] = name;
    argv[1] = role;
    memcpy(argv + 2, options->argv, argc * sizeof *argv);
    struct sn_spawn what = {
        .program_fd = options->program_fd, .argv = argv, .env = no_env, .fds = fds, .nfds = count};
    enum sn_status status = sn_spawn(&what, child);
    int saved = errno;
    sn_free(argv);
    errno = saved;
    return status;
}

/* Waits for SN_REPLY_READY; SN_CLOSED when the start failed. */
static enum sn_status wait_ready(const struct sn_box_options *options, int control, int monitor)
{
    for (;;) {
        struct pollfd watch[3] = {{.fd = control, .events = POLLIN},
                                  {.fd = monitor, .events = POLLIN},
                                  {.fd = options->cancel, .events = POLLIN}};
        struct sn_guest_reply reply;
        size_t nfds;
        int left = sn_clock_left_ms(options->deadline);
        int every = options->tick.every_ms;
        int ready = poll(watch, 3, every > 0 && (left < 0 || left > every) ? every : left);

        if (ready < 0 && errno != EINTR) {
            return SN_SYSTEM;
        }
        if (ready <= 0 && every > 0 && options->tick.call(options->tick.context) != 0) {
            return SN_CANCELLED;
        }
        if (ready < 0) {
            continue;
        }
        if (watch[0].revents != 0) {
            enum sn_status status =
                sn_fdpass_receive(control, &reply, sizeof reply, 0, NULL, 0, &nfds);
            return status == SN_OK && reply.kind != SN_REPLY_READY ? SN_CLOSED : status;
        }
        if (watch[1].revents != 0) {
            return SN_CLOSED;
        }
        if (watch[2].revents != 0) {
            return SN_CANCELLED;
        }
        if (sn_clock_left_ms(options->deadline) == 0) {
            return SN_TIMED_OUT;
        }
    }
}

static int socket_inode(int fd, ino_t *inode)
{
    struct stat info;

    if (fstat(fd, &info) < 0 || !S_ISSOCK(info.st_mode)) {
        return -1;
    }
    *inode = info.st_ino;
    return 0;
}

static void read_error(int fd, char error[SN_BOX_ERROR_MAX])
{
    ssize_t got = read(fd, error, SN_BOX_ERROR_MAX - 1);

    error[got > 0 ? got : 0] = '\0';
}

enum sn_status sn_box_create(const struct sn_box_options *options, struct sn_box **out,
                             char error[SN_BOX_ERROR_MAX])
{
    struct start start = {.control = {-1, -1}, .errors = {-1, -1}, .worker = -1};
    struct sn_child child = {.pid = -1, .pidfd = -1};
    struct sn_box *box = NULL;
    enum sn_status status;
    int saved;

    *out = NULL;
    error[0] = '\0';
    if (options->ndata > SN_BOX_MAX_DATA || options->ngroups > SN_BOX_MAX_GROUPS) {
        return SN_INVALID;
    }
    box = sn_calloc(1, sizeof *box);
    if (box == NULL) {
        return SN_NO_MEMORY;
    }
    box->owner = getpid();
    status = prepare(options, &start);
    if (status != SN_OK) {
        goto done;
    }
    status = launch(options, &start, &child);
    if (status != SN_OK) {
        goto done;
    }
    /* Ours must go, or the end of the conversation would never be seen. */
    close_fd(&start.control[1]);
    status = wait_ready(options, start.control[0], child.pidfd);
    if (getpid() != box->owner) {
        /* A child that the tick forked: the sandbox is its parent's. */
        close_fd(&child.pidfd);
        status = SN_CANCELLED;
        goto done;
    }
    if (status == SN_OK) {
        status = socket_inode(start.control[0], &box->inode) == 0 ? SN_OK : SN_SYSTEM;
    }
    if (status != SN_OK) {
        saved = errno;
        (void)shutdown(start.control[0], SHUT_RDWR);
        /* bubblewrap's inner process follows the outer one only once that has told it to go on;
         * until it is a session of its own, it is in the group. */
        (void)sn_child_end_group(&child, status == SN_CLOSED ? 2000 : 0);
        read_error(start.errors[0], error);
        errno = saved;
        goto done;
    }
    box->control = start.control[0];
    box->command_uid = options->command_uid;
    box->monitor = child;
    (void)pthread_mutex_init(&box->ending, NULL);
    start.control[0] = -1;
    *out = box;
    box = NULL;
done:
    saved = errno;
    release_start(&start);
    sn_free(box);
    errno = saved;
    return status;
}

int sn_box_is_mine(const struct sn_box *box)
{
    return box->owner == getpid();
}

int sn_box_is_gone(const struct sn_box *box, int wait_ms)
{
    struct pollfd watch = {.fd = box->control, .events = POLLRDHUP};

    return poll(&watch, 1, wait_ms) > 0 && (watch.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* Hands one call to PID 1. */
static enum sn_status place(struct sn_box *box, enum sn_guest_op op, struct sn_call_ends *ends,
                            const struct sn_watch *watch)
{
    struct sn_guest_call call = {.op = op};
    int fds[3] = {ends->sock, ends->out, ends->err};
    size_t nfds = ends->out >= 0 ? 3 : 1;

    for (;;) {
        enum sn_status status =
            sn_fdpass_send(box->control, &call, sizeof call, fds, nfds, MSG_DONTWAIT);
        if (status != SN_SYSTEM || (errno != EAGAIN && errno != ETOOMANYREFS)) {
            return status;
        }
        /* Too many descriptors under way is no matter of this socket's room. */
        status = sn_watch_for(watch, errno == EAGAIN ? box->control : -1, POLLOUT, 50);
        if (status != SN_OK) {
            return status;
        }
    }
}

static enum sn_status begin(struct sn_box *box, enum sn_guest_op op,
                            const struct sn_request *request, const struct sn_watch *watch,
                            struct sn_call *call)
{
    struct sn_call_ends ends;
    enum sn_status status = sn_call_make(op == SN_GUEST_RUN, box->command_uid, &ends);

    if (status != SN_OK) {
        return status;
    }
    status = place(box, op, &ends, watch);
    sn_call_sent(&ends);
    if (status == SN_OK && request != NULL) {
        status = sn_call_request(&ends.host, request, watch);
    }
    if (status != SN_OK) {
        sn_call_close(&ends.host);
        return status;
    }
    *call = ends.host;
    return SN_OK;
}

/* The runner did not answer: PID 1 kills every command of the sandbox; failing that, the sandbox.
 */
static int kill_all(void *context)
{
    struct sn_box *box = context;
    struct sn_watch watch = {.cancel = -1,
                             .deadline = sn_clock_now() + (int64_t)SN_KILL_WAIT_MS * 1000000};
    struct sn_guest_reply reply;
    struct sn_call call;
    size_t nfds;
    int killed = 0;

    if (begin(box, SN_GUEST_KILL_ALL, NULL, &watch, &call) == SN_OK) {
        killed = sn_watch_for(&watch, call.sock, POLLIN, -1) == SN_OK &&
                 sn_fdpass_receive(call.sock, &reply, sizeof reply, 0, NULL, 0, &nfds) == SN_OK &&
                 reply.kind == SN_REPLY_KILLED;
        sn_call_close(&call);
    }
    if (!killed) {
        (void)sn_box_end(box);
    }
    return killed;
}

enum sn_status sn_box_run(struct sn_box *box, const struct sn_request *request,
                          struct sn_drain *drain, struct sn_outcome *out)
{
    struct sn_last_resort last = {.call = kill_all, .context = box};
    struct sn_watch watch = {drain->cancel, drain->deadline, drain->tick};
    struct sn_call call;
    enum sn_status status = begin(box, SN_GUEST_RUN, request, &watch, &call);

    *out = (struct sn_outcome){.ending = SN_ENDED_LOST};
    if (status != SN_OK) {
        return status;
    }
    status = sn_call_run(&call, drain, last, out);
    sn_call_close(&call);
    return status;
}

enum sn_status sn_box_open(struct sn_box *box, enum sn_guest_op op,
                           const struct sn_request *request, const struct sn_watch *watch,
                           struct sn_guest_reply *reply, int *fd)
{
    struct sn_call call;
    enum sn_status status = begin(box, op, request, watch, &call);
    size_t nfds = 0;

    *fd = -1;
    if (status != SN_OK) {
        return status;
    }
    status = sn_watch_for(watch, call.sock, POLLIN, -1);
    if (status == SN_OK) {
        status = sn_fdpass_receive(call.sock, reply, sizeof *reply, 0, fd, 1, &nfds);
    }
    if (status == SN_OK && reply->kind == SN_REPLY_LISTING && nfds == 0) {
        *fd = call.sock;
        call.sock = -1;
    } else if (status == SN_OK && (reply->kind == SN_REPLY_OPENED) != (nfds == 1)) {
        status = SN_INVALID;
    }
    if (status != SN_OK) {
        close_fd(fd);
    }
    sn_call_close(&call);
    return status;
}

int sn_box_end(struct sn_box *box)
{
    int gone;

    (void)shutdown(box->control, SHUT_RDWR);
    (void)pthread_mutex_lock(&box->ending);
    gone = sn_child_end(&box->monitor, 2000);
    (void)pthread_mutex_unlock(&box->ending);
    return gone;
}

void sn_box_free(struct sn_box *box)
{
    ino_t inode;

    if (box == NULL) {
        return;
    }
    if (sn_box_is_mine(box)) {
        (void)shutdown(box->control, SHUT_RDWR);
        sn_child_abandon(&box->monitor);
        (void)pthread_mutex_destroy(&box->ending);
        close_fd(&box->control);
    } else if (socket_inode(box->control, &inode) == 0 && inode == box->inode) {
        /* The parent's sandbox lives on. A child that closed everything may have given the numbers
         * to files of its own. */
        close_fd(&box->monitor.pidfd);
        close_fd(&box->control);
    }
    sn_free(box);
}
