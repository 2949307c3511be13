/* SPDX-License-Identifier: Apache-2.0 */
/* The system call filter of a local sandbox, as classic BPF for seccomp. */
#ifndef SN_CORE_SECCOMP_H
#define SN_CORE_SECCOMP_H

#include <stddef.h>

#include "core/status.h"

/* No System V shared memory, queues and semaphores: they outlive every process of the sandbox and
 * count as nobody's memory. ENOSYS, as from a kernel that was built without them. */
#define SN_SECCOMP_NO_SYSV_IPC 1U

/* Writes the program (struct sock_filter[]) to `out`, which has room for `room` bytes, and its size
 * in bytes to `len`. SN_TOO_LARGE when it does not fit (8 KiB always do), SN_INVALID on an
 * architecture there is no table for. `flags` are SN_SECCOMP_*. Pure; any thread. */
SN_WARN_UNUSED enum sn_status sn_seccomp_build(void *out, size_t room, unsigned flags, size_t *len);

#endif
