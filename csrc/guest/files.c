/* SPDX-License-Identifier: Apache-2.0 */
/* Paths are resolved in here, as the user that commands run as, never on the host. The host gets a
 * descriptor and checks what it is. */
#include "guest/guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads the request and changes identity; NULL when the failure has been reported. */
static char *prepare(const struct sn_guest_config *config, int call, struct sn_received *request)
{
    if (sn_wire_request(call, request) < 0) {
        (void)sn_wire_reply(call, SN_REPLY_FAILED, errno, SN_STAGE_REQUEST, -1);
        return NULL;
    }
    if (sn_identity_drop(config) < 0) {
        (void)sn_wire_reply(call, SN_REPLY_FAILED, errno, SN_STAGE_IDENTITY, -1);
        return NULL;
    }
    /* An absolute path does not need it. */
    if (request->cwd != NULL && chdir(request->cwd) < 0 && request->text[0] != '/') {
        (void)sn_wire_reply(call, SN_REPLY_FAILED, errno, SN_STAGE_CWD, -1);
        return NULL;
    }
    return request->text;
}

/* Makes the missing parents of `path`; 0, or -1 with errno. The path is restored. */
static int make_parents(char *path)
{
    char *end = strrchr(path, '/');

    if (end == NULL || end == path) {
        return 0;
    }
    *end = '\0';
    struct stat info;
    int result = 0;
    if (stat(path, &info) == 0) {
        if (!S_ISDIR(info.st_mode)) {
            errno = ENOTDIR;
            result = -1;
        }
    } else if (errno != ENOENT) {
        result = -1;
    } else {
        /* A trailing slash or "." makes mkdir say EEXIST although stat said ENOENT before. */
        result = make_parents(path);
        if (result == 0 && mkdir(path, 0777) < 0 && errno != EEXIST) {
            result = -1;
        }
    }
    *end = '/';
    return result;
}

int sn_files_open(const struct sn_guest_config *config, int call, int for_writing)
{
    struct sn_received request;
    char *path = prepare(config, call, &request);
    int flags = O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd;

    if (path == NULL) {
        return 0;
    }
    if (for_writing) {
        if (make_parents(path) < 0) {
            (void)sn_wire_reply(call, SN_REPLY_FAILED, errno, SN_STAGE_PARENT, -1);
            return 0;
        }
        flags |= O_WRONLY | O_CREAT;
    }
    fd = open(path, flags, 0666);
    if (fd < 0) {
        (void)sn_wire_reply(call, SN_REPLY_FAILED, errno, SN_STAGE_PATH, -1);
        return 0;
    }
    (void)sn_wire_reply(call, SN_REPLY_OPENED, 0, 0, fd);
    return 0;
}

static int is_directory(int dir, const struct dirent *entry)
{
    struct stat info;

    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN) {
        return entry->d_type == DT_DIR;
    }
    /* A link to a directory can be listed and entered, so it is shown as one. */
    return fstatat(dir, entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode);
}

int sn_files_list(const struct sn_guest_config *config, int call)
{
    static char buffer[65536];
    struct sn_received request;
    char *path = prepare(config, call, &request);
    struct dirent *entry;
    size_t used = 0;

    if (path == NULL) {
        return 0;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        (void)sn_wire_reply(call, SN_REPLY_FAILED, errno, SN_STAGE_PATH, -1);
        return 0;
    }
    if (sn_wire_reply(call, SN_REPLY_LISTING, 0, 0, -1) < 0) {
        return 0;
    }
    errno = 0;
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        size_t len = strlen(entry->d_name);
        if (used + len + 2 > sizeof buffer) {
            if (sn_wire_write_all(call, buffer, used) < 0) {
                return 0;
            }
            used = 0;
        }
        buffer[used++] = is_directory(fd, entry) ? 'd' : 'f';
        memcpy(buffer + used, entry->d_name, len + 1);
        used += len + 1;
        errno = 0;
    }
    if (errno == 0 && used < sizeof buffer) {
        /* The empty record says that nothing is missing. */
        buffer[used++] = '\0';
    }
    (void)sn_wire_write_all(call, buffer, used);
    return 0;
}
