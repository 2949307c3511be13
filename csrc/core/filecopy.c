/* SPDX-License-Identifier: Apache-2.0 */
#include "core/filecopy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>
#include <linux/magic.h>

#include "core/alloc.h"

_Static_assert(sizeof(off_t) == 8, "files may be larger than 2 GiB: _FILE_OFFSET_BITS=64");

/* Between two looks at deadline and cancel. */
#define STEP (8U << 20)

static int is_kernel_filesystem(int fd)
{
    struct statfs info;

    if (fstatfs(fd, &info) < 0) {
        return 1;
    }
    switch ((unsigned long)info.f_type) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case DEVPTS_SUPER_MAGIC:
    case PIPEFS_MAGIC:
    case SOCKFS_MAGIC:
    case NSFS_MAGIC:
    case ANON_INODE_FS_MAGIC:
    case BPF_FS_MAGIC:
    case PSTOREFS_MAGIC:
    case EFIVARFS_MAGIC:
    case SELINUX_MAGIC:
    case 0x19800202UL: /* mqueue */
    case 0x62656570UL: /* configfs */
    case 0x65735543UL: /* fusectl */
    case 0x42494e4dUL: /* binfmt_misc */
        return 1;
    default:
        return 0;
    }
}

static void fill(struct sn_file_stamp *stamp, const struct stat *info)
{
    stamp->size = info->st_size;
    stamp->mtime_ns = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

enum sn_status sn_file_check(int fd, int for_writing, enum sn_file_kind *kind,
                             struct sn_file_stamp *stamp)
{
    struct stat info;
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fstat(fd, &info) < 0) {
        return SN_SYSTEM;
    }
    fill(stamp, &info);
    if (S_ISDIR(info.st_mode)) {
        *kind = SN_FILE_DIRECTORY;
    } else if (!S_ISREG(info.st_mode)) {
        *kind = SN_FILE_SPECIAL;
    } else if ((flags & O_ACCMODE) != (for_writing ? O_WRONLY : O_RDONLY) ||
               (flags & ~(O_ACCMODE | O_NONBLOCK | O_LARGEFILE |
                          0100000 /* O_LARGEFILE of the kernel */)) != 0) {
        *kind = SN_FILE_FORGED;
    } else {
        *kind = is_kernel_filesystem(fd) ? SN_FILE_KERNEL : SN_FILE_REGULAR;
    }
    return SN_OK;
}

enum sn_status sn_file_stamp(int fd, struct sn_file_stamp *stamp)
{
    struct stat info;

    if (fstat(fd, &info) < 0) {
        return SN_SYSTEM;
    }
    fill(stamp, &info);
    return SN_OK;
}

enum sn_status sn_file_settled(int fd, struct sn_file_stamp *stamp)
{
    const int64_t rest = (int64_t)SN_SETTLED_MS * 1000000;

    for (int look = 0; look < 1000 / SN_SETTLED_MS; look++) {
        struct timespec now;
        if (sn_file_stamp(fd, stamp) != SN_OK) {
            return SN_SYSTEM;
        }
        (void)clock_gettime(CLOCK_REALTIME, &now);
        int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - stamp->mtime_ns;
        /* A time in the future was set by hand; the next change sets it back to now. */
        if (age < 0 || age > rest) {
            return SN_OK;
        }
        struct timespec pause = {.tv_nsec = rest - age + 1000000};
        (void)nanosleep(&pause, NULL);
    }
    return SN_TIMED_OUT;
}

enum sn_status sn_file_read(int fd, char *data, size_t room, size_t *got)
{
    *got = 0;
    while (*got < room) {
        ssize_t count = read(fd, data + *got, room - *got);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return SN_SYSTEM;
        }
        if (count == 0) {
            break;
        }
        *got += (size_t)count;
    }
    return SN_OK;
}

enum sn_status sn_file_replace(int fd, const char *data, size_t len)
{
    if (len > 0 && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)len) < 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS && errno != EINVAL && errno != EINTR) {
        return SN_SYSTEM;
    }
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0) {
        return SN_SYSTEM;
    }
    while (len > 0) {
        ssize_t put = write(fd, data, len < STEP ? len : STEP);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return SN_SYSTEM;
        }
        data += put;
        len -= (size_t)put;
    }
    return SN_OK;
}

/* Ways to move bytes, best first; each says "not between these two" by one of a few errors. */
static ssize_t by_range(int from, int to, char *unused, size_t len)
{
    (void)unused;
    return copy_file_range(from, NULL, to, NULL, len, 0);
}

static ssize_t by_sendfile(int from, int to, char *unused, size_t len)
{
    (void)unused;
    return sendfile(to, from, NULL, len);
}

static ssize_t by_buffer(int from, int to, char *buffer, size_t len)
{
    ssize_t got = read(from, buffer, len < SN_DRAIN_BUFFER ? len : SN_DRAIN_BUFFER);
    ssize_t done = 0;

    while (done < got) {
        ssize_t put = write(to, buffer + done, (size_t)(got - done));
        if (put < 0 && errno != EINTR) {
            return -1;
        }
        done += put > 0 ? put : 0;
    }
    return got;
}

static int is_unsupported(int error)
{
    return error == EXDEV || error == EINVAL || error == ENOSYS || error == EOPNOTSUPP ||
           error == EBADF || error == EPERM || error == ETXTBSY;
}

static enum sn_status look(const struct sn_watch *watch)
{
    struct pollfd cancel = {.fd = watch->cancel, .events = POLLIN};

    if (poll(&cancel, 1, 0) > 0) {
        return SN_CANCELLED;
    }
    if (watch->tick.every_ms > 0 && watch->tick.call(watch->tick.context) != 0) {
        return SN_CANCELLED;
    }
    return sn_clock_left_ms(watch->deadline) == 0 ? SN_TIMED_OUT : SN_OK;
}

enum sn_status sn_file_copy(int from, int to, uint64_t most, const struct sn_watch *watch,
                            uint64_t *copied)
{
    static ssize_t (*const ways[])(int, int, char *, size_t) = {by_range, by_sendfile, by_buffer};
    const size_t last = sizeof ways / sizeof ways[0] - 1;
    size_t way = 0;
    char *buffer = NULL;
    enum sn_status status = SN_OK;

    *copied = 0;
    while (*copied < most) {
        status = look(watch);
        if (status != SN_OK) {
            break;
        }
        uint64_t left = most - *copied;
        if (way == last && buffer == NULL) {
            buffer = sn_malloc(SN_DRAIN_BUFFER);
            if (buffer == NULL) {
                status = SN_NO_MEMORY;
                break;
            }
        }
        ssize_t moved = ways[way](from, to, buffer, left < STEP ? (size_t)left : STEP);
        if (moved > 0) {
            *copied += (uint64_t)moved;
        } else if (moved == 0 && (way == last || *copied > 0)) {
            break;
        } else if (moved == 0) {
            /* Some file systems answer 0 here for files that have content. */
            way++;
        } else if (errno == EINTR || errno == EAGAIN) {
            struct pollfd ready = {.fd = to, .events = POLLOUT};
            (void)poll(&ready, 1, 100);
        } else if (way < last && is_unsupported(errno)) {
            way++;
        } else {
            status = SN_SYSTEM;
            break;
        }
    }
    int saved = errno;
    sn_free(buffer);
    errno = saved;
    return status;
}
