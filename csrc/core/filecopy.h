/* SPDX-License-Identifier: Apache-2.0 */
/* Regular files by descriptor: what one is, and its bytes. No path is resolved here. */
#ifndef SN_CORE_FILECOPY_H
#define SN_CORE_FILECOPY_H

#include <stddef.h>
#include <stdint.h>

#include "core/drain.h"
#include "core/status.h"

enum sn_file_kind {
    SN_FILE_REGULAR,
    SN_FILE_DIRECTORY,
    SN_FILE_SPECIAL, /* fifo, socket, device */
    SN_FILE_KERNEL,  /* on procfs and the like: regular by name, but without a size to promise */
    SN_FILE_FORGED,  /* not opened as asked: the other side is not what it should be */
};

struct sn_file_stamp {
    int64_t size;
    int64_t mtime_ns;
};

/* What a descriptor received from a sandbox is. `for_writing` says how it was asked for. */
SN_WARN_UNUSED enum sn_status sn_file_check(int fd, int for_writing, enum sn_file_kind *kind,
                                            struct sn_file_stamp *stamp);

/* Size and time of last change, now. */
SN_WARN_UNUSED enum sn_status sn_file_stamp(int fd, struct sn_file_stamp *stamp);

/* The same once nobody has changed the file for SN_SETTLED_MS, which is longer than a tick of the
 * clock that stamps it: a later change then shows in the stamp. SN_TIMED_OUT when it does not come
 * to rest within a second. */
SN_WARN_UNUSED enum sn_status sn_file_settled(int fd, struct sn_file_stamp *stamp);

#define SN_SETTLED_MS 20

/* Reads up to `room` bytes from the position on; *got says how many. */
SN_WARN_UNUSED enum sn_status sn_file_read(int fd, char *data, size_t room, size_t *got);

/* Replaces the content of the file by `len` bytes. Space is asked for before the old content is
 * dropped, so a full file system leaves the file as it was where it can tell. */
SN_WARN_UNUSED enum sn_status sn_file_replace(int fd, const char *data, size_t len);

/* Copies between regular files, from the positions of both, `most` bytes at most, without passing
 * them through this process where the kernel can. *copied is valid on failure, too. SN_TIMED_OUT,
 * SN_CANCELLED. */
SN_WARN_UNUSED enum sn_status sn_file_copy(int from, int to, uint64_t most,
                                           const struct sn_watch *watch, uint64_t *copied);

#endif
