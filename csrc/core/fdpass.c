/* SPDX-License-Identifier: Apache-2.0 */
#include "core/fdpass.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    struct cmsghdr align;
    char space[CMSG_SPACE(SN_FDPASS_MAX * sizeof(int))];
};

enum sn_status sn_fdpass_send(int sock, const void *data, size_t len, const int *fds, size_t nfds,
                              int flags)
{
    union control control;
    struct iovec part = {.iov_base = (void *)(size_t)data, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    if (nfds > SN_FDPASS_MAX) {
        return SN_INVALID;
    }
    if (nfds > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.space;
        message.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, nfds * sizeof(int));
    }
    do {
        sent = sendmsg(sock, &message, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        return errno == EPIPE || errno == ECONNRESET ? SN_CLOSED : SN_SYSTEM;
    }
    return (size_t)sent == len ? SN_OK : SN_INVALID;
}

static size_t collect(struct msghdr *message, int *out)
{
    size_t count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t bytes = header->cmsg_len - CMSG_LEN(0);
        for (size_t i = 0; i < bytes / sizeof(int) && count < SN_FDPASS_MAX; i++) {
            memcpy(&out[count++], CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        }
    }
    return count;
}

enum sn_status sn_fdpass_receive(int sock, void *data, size_t len, int flags, int *fds,
                                 size_t max_fds, size_t *nfds)
{
    union control control;
    struct iovec part = {.iov_base = data, .iov_len = len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    int received[SN_FDPASS_MAX];
    size_t count;
    ssize_t got;

    *nfds = 0;
    do {
        got = recvmsg(sock, &message, flags | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return errno == ECONNRESET ? SN_CLOSED : SN_SYSTEM;
    }
    count = collect(&message, received);
    if ((size_t)got == len && (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0 &&
        count <= max_fds) {
        if (count > 0) {
            memcpy(fds, received, count * sizeof(int));
        }
        *nfds = count;
        return SN_OK;
    }
    for (size_t i = 0; i < count; i++) {
        close(received[i]);
    }
    return got == 0 ? SN_CLOSED : SN_INVALID;
}
