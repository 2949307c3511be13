/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/fdpass.h"

static int read_all(int fd, void *data, size_t len)
{
    char *at = data;

    while (len > 0) {
        ssize_t got = read(fd, at, len);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            if (got == 0) {
                errno = EPIPE;
            }
            return -1;
        }
        at += got;
        len -= (size_t)got;
    }
    return 0;
}

int sn_wire_write_all(int fd, const void *data, size_t len)
{
    const char *at = data;

    while (len > 0) {
        ssize_t put = send(fd, at, len, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return -1;
        }
        at += put;
        len -= (size_t)put;
    }
    return 0;
}

int sn_wire_request(int call, struct sn_received *out)
{
    struct sn_guest_request *head = &out->head;
    char *payload;

    if (read_all(call, head, sizeof *head) < 0) {
        return -1;
    }
    if (head->version != SN_GUEST_VERSION || head->env_bytes > SN_REQUEST_MAX_ENV ||
        head->cwd_bytes > SN_REQUEST_MAX_CWD || head->text_bytes > SN_REQUEST_MAX_TEXT) {
        errno = EPROTO;
        return -1;
    }
    size_t total = (size_t)head->env_bytes + head->cwd_bytes + head->text_bytes;
    payload = malloc(total + 1);
    if (payload == NULL || read_all(call, payload, total) < 0) {
        return -1;
    }
    payload[total] = '\0';
    out->env = payload;
    out->cwd = head->cwd_bytes > 0 ? payload + head->env_bytes : NULL;
    out->text = payload + head->env_bytes + head->cwd_bytes;
    if ((head->env_bytes > 0 && out->env[head->env_bytes - 1] != '\0') ||
        (out->cwd != NULL && out->cwd[head->cwd_bytes - 1] != '\0')) {
        errno = EPROTO;
        return -1;
    }
    return 0;
}

char **sn_wire_vector(char *strings, size_t bytes)
{
    size_t count = 0;
    char **vector;

    for (size_t i = 0; i < bytes; i++) {
        count += strings[i] == '\0';
    }
    vector = calloc(count + 1, sizeof *vector);
    if (vector == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        vector[i] = strings;
        strings += strlen(strings) + 1;
    }
    return vector;
}

int sn_wire_reply(int call, enum sn_guest_reply_kind kind, int value, unsigned detail, int fd)
{
    struct sn_guest_reply reply = {.kind = kind, .value = value, .detail = detail};

    return sn_fdpass_send(call, &reply, sizeof reply, &fd, fd >= 0 ? 1 : 0, 0) == SN_OK ? 0 : -1;
}
