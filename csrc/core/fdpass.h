/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with descriptors over Unix sockets. Used by the host and by the guest program; async-
 * signal-safe, any thread, no Python. */
#ifndef SN_CORE_FDPASS_H
#define SN_CORE_FDPASS_H

#include <stddef.h>

#include "core/status.h"

#define SN_FDPASS_MAX 4

/* Sends `len` (at least 1) bytes in one message with `nfds` (up to SN_FDPASS_MAX) descriptors,
 * which stay the caller's. `flags` as for sendmsg; MSG_NOSIGNAL is added. A short send is
 * SN_INVALID. */
SN_WARN_UNUSED enum sn_status sn_fdpass_send(int sock, const void *data, size_t len, const int *fds,
                                             size_t nfds, int flags);

/* Receives one message of exactly `len` bytes. Up to `max_fds` descriptors go to `fds` with
 * close-on- exec, owned by the caller; more than that, or a cut message, is SN_INVALID and
 * everything received is closed. End of the conversation is SN_CLOSED. `flags` as for recvmsg. */
SN_WARN_UNUSED enum sn_status sn_fdpass_receive(int sock, void *data, size_t len, int flags,
                                                int *fds, size_t max_fds, size_t *nfds);

#endif
