/* SPDX-License-Identifier: Apache-2.0 */
/* What the host and the guest program say to each other. Both are built from the same tree for the
 * same machine, so plain structs travel.
 *
 * Control socket (SOCK_SEQPACKET, host <-> PID 1 of a sandbox):
 *   host: one struct sn_guest_config, then any number of struct sn_guest_call, each with the
 *         descriptors {call socket} or, for SN_GUEST_RUN, {call socket, stdout, stderr}
 *   guest: one struct sn_guest_reply SN_REPLY_READY
 * Call socket (SOCK_STREAM, host <-> the process that handles the call):
 *   host: one struct sn_guest_request and its payload; later at most one struct sn_guest_order
 *   guest: struct sn_guest_reply, as each kind says
 * A call socket that ends before SN_REPLY_EXITED tells the guest to kill the command's tree. */
#ifndef SN_CORE_GUEST_WIRE_H
#define SN_CORE_GUEST_WIRE_H

#include <stdint.h>

#define SN_GUEST_VERSION 1U

/* Descriptors of a sandbox's PID 1 when it starts, and of the program that launches it. */
enum sn_guest_fd {
    SN_FD_SECCOMP = 3,   /* the filter, for bubblewrap */
    SN_FD_USERNS = 4,    /* the user namespace, made by the launcher, for bubblewrap */
    SN_FD_CONTROL = 5,   /* control socket */
    SN_FD_WORKER = 6,    /* pidfd of the host process */
    SN_FD_PROGRAM = 7,   /* the guest program */
    SN_FD_FIRST_DATA = 8 /* files bubblewrap is to make, then cgroup.procs files for the launcher */
};

/* Descriptor of the call socket in a program started as `run` on the host; 1 and 2 are the
 * command's output. */
#define SN_FD_CALL 3

/* Zero means no limit. */
struct sn_guest_limits {
    uint64_t memory_bytes; /* address space of each process (RLIMIT_AS) */
    uint64_t file_bytes;   /* size of a file a process writes (RLIMIT_FSIZE) */
    uint64_t cpu_seconds;  /* CPU time of each process (RLIMIT_CPU) */
    uint64_t processes;    /* processes and threads of the sandbox (RLIMIT_NPROC) */
    uint64_t open_files;   /* descriptors of each process (RLIMIT_NOFILE) */
};

struct sn_guest_config {
    uint32_t version;
    uint32_t two_uids; /* PID 1 is uid 0 of its namespace and changes to `uid` for commands */
    uint32_t uid, gid; /* of commands, inside */
    struct sn_guest_limits limits;
};

enum sn_guest_op {
    SN_GUEST_RUN = 1,  /* run a command */
    SN_GUEST_READ,     /* open a file to read */
    SN_GUEST_WRITE,    /* open a file to write, make it and its parents */
    SN_GUEST_LIST,     /* stream the names in a directory */
    SN_GUEST_KILL_ALL, /* kill every command of the sandbox */
};

struct sn_guest_call {
    uint32_t op;
    uint32_t unused;
};

#define SN_REQUEST_ARGV 1U /* text is an argument list, each ended by NUL, not a shell command */

/* Followed by env_bytes of NAME=VALUE each ended by NUL, cwd_bytes (ended by NUL; 0: stay) and
 * text_bytes (a command or a path without NUL, or an argument list). */
struct sn_guest_request {
    uint32_t version;
    uint32_t flags;
    uint32_t env_bytes;
    uint32_t cwd_bytes;
    uint32_t text_bytes;
    uint32_t unused;
};

/* Caps of a request; the host refuses more before it sends. */
#define SN_REQUEST_MAX_ENV (1U << 20)
#define SN_REQUEST_MAX_CWD 4096U
#define SN_REQUEST_MAX_TEXT (64U << 20)

enum sn_guest_order_kind {
    SN_ORDER_KILL = 1, /* kill the command's tree and answer SN_REPLY_KILLED */
    SN_ORDER_DRAIN,    /* after SN_REPLY_EXITED: with the read ends of both pipes, read them away */
};

struct sn_guest_order {
    uint32_t kind;
    uint32_t unused;
};

enum sn_guest_reply_kind {
    SN_REPLY_READY = 1, /* PID 1 takes calls */
    SN_REPLY_EXITED,    /* the command ended; value is its exit status, 128+N for signal N */
    SN_REPLY_KILLED,    /* the command's tree is gone */
    SN_REPLY_FAILED,    /* value is an errno; detail a enum sn_guest_stage */
    SN_REPLY_OPENED,    /* with one descriptor */
    SN_REPLY_LISTING,   /* then records "<d or f><name>\0", ended by an empty record "\0" */
};

enum sn_guest_stage {
    SN_STAGE_REQUEST = 1, /* the request could not be read */
    SN_STAGE_FORK,        /* no process could be made */
    SN_STAGE_IDENTITY,    /* uid, limits or signals could not be set */
    SN_STAGE_CWD,         /* the working directory */
    SN_STAGE_EXEC,        /* the shell or program */
    SN_STAGE_PARENT,      /* a parent directory of the path */
    SN_STAGE_PATH,        /* the path itself */
};

struct sn_guest_reply {
    uint32_t kind;
    int32_t value;
    uint32_t detail;
    uint32_t unused;
};

#endif
