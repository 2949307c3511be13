/* SPDX-License-Identifier: Apache-2.0 */
/* The guest program: one static binary with three roles. It knows nothing of Python and is single-
 * threaded in every role.
 *   init    PID 1 of a sandbox: takes calls from the host and forks a handler for each
 *   run     on the host: runs one program and kills all of its tree when told to
 *   launch  on the host: prepares user namespace, mounts and control groups, then becomes
 * bubblewrap */
#ifndef SN_GUEST_GUEST_H
#define SN_GUEST_GUEST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/guest_wire.h"

/* Roles. Each returns the exit status of the process. */
int sn_init_main(void);
int sn_run_main(void);
int sn_launch_main(int argc, char **argv);

/* runner.c: handle one SN_GUEST_RUN: read the request from `call`, run the command with `out` and
 * `err` as its output, report, and outlive it while its output has to be drained. Takes the
 * descriptors over. `config` is NULL for a program that keeps its own identity and limits. Returns
 * the exit status of the handler: 0 when everything was reported. */
int sn_runner(const struct sn_guest_config *config, int call, int out, int err);

/* files.c: handle one call on a file. Same contract. */
int sn_files_open(const struct sn_guest_config *config, int call, int for_writing);
int sn_files_list(const struct sn_guest_config *config, int call);

/* identity.c: become the user that commands run as; 0, or -1 with errno. Cannot be undone. */
int sn_identity_drop(const struct sn_guest_config *config);
int sn_identity_limits(const struct sn_guest_limits *limits);
void sn_identity_default_signals(void);

/* tree.c: SIGKILL every descendant of `root` except those in the subtrees of the `spared` pids.
 * Returns how many living ones were found, or -1 when /proc cannot be read. */
int sn_tree_kill(pid_t root, const pid_t *spared, size_t nspared);

/* wire.c */
struct sn_received {
    struct sn_guest_request head;
    char *env;  /* env_bytes, NUL-ended strings */
    char *cwd;  /* NULL: stay */
    char *text; /* text_bytes, and a NUL behind */
};
/* Reads and checks a request; its memory lives as long as the process. 0, or -1 with errno. */
int sn_wire_request(int call, struct sn_received *out);
/* Splits `bytes` of NUL-ended strings into a NULL-ended vector. NULL when out of memory. */
char **sn_wire_vector(char *strings, size_t bytes);
/* Sends one reply with at most one descriptor (-1: none). 0, or -1 with errno. */
int sn_wire_reply(int call, enum sn_guest_reply_kind kind, int value, unsigned detail, int fd);
int sn_wire_write_all(int fd, const void *data, size_t len);

#endif
