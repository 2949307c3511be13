/* SPDX-License-Identifier: Apache-2.0 */
/* Running a program on the host to its end, with the same runner and the same loop as a command in
 * a sandbox. */
#ifndef SN_CORE_PROCESS_H
#define SN_CORE_PROCESS_H

#include "core/call.h"
#include "core/status.h"

/* Runs the argument list in `request` (SN_REQUEST_ARGV) under the guest program at `program_fd`:
 * standard input is `input`, which stays the caller's (-1: /dev/null), no other descriptor of this
 * process is inherited, its own session; its whole tree is killed on a timeout, cancel or tick.
 * `drain` and `out` as for sn_call_run. No GIL; any thread. */
SN_WARN_UNUSED enum sn_status sn_process_run(int program_fd, int input,
                                             const struct sn_request *request,
                                             struct sn_drain *drain, struct sn_outcome *out);

#endif
