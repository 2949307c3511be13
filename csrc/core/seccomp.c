/* SPDX-License-Identifier: Apache-2.0 */
/* A deny list, in this order: another architecture's calls end the process; calls newer than this
 * list are said not to exist, so a kernel feature is not open before somebody looked at it; whole
 * calls; then calls whose arguments decide. The namespaces keep the sandbox in; this keeps the
 * parts of the kernel that were most often broken out of reach, and protects PID 1 from commands
 * that run under its own uid (where the worker is an ordinary user). */
#include "core/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

#if defined __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#endif

/* removexattrat; the number is the same on both architectures. */
#define LAST_KNOWN_CALL 466U

/* Families of sockets. Others reach the hypervisor (vsock), the kernel's crypto (alg) or hardware,
 * and most are not cut off by a network namespace. */
#define FAMILY_UNIX 1U
#define FAMILY_INET 2U
#define FAMILY_INET6 10U
#define FAMILY_NETLINK 16U

#ifdef NATIVE_ARCH

/* clang-format off */
static const uint32_t refused[] = {
    /* mounts and file systems */
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_swapon, SYS_swapoff, SYS_quotactl,
    SYS_open_by_handle_at, SYS_nfsservctl, SYS_lookup_dcookie,
    428 /* open_tree */, 429 /* move_mount */, 430 /* fsopen */, 431 /* fsconfig */, 432 /* fsmount */,
    433 /* fspick */, 442 /* mount_setattr */, 443 /* quotactl_fd */, 457 /* statmount */, 458 /* listmount */,
    /* namespaces */
    SYS_setns,
    /* kernel code and its instruments */
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_kexec_load, SYS_init_module, SYS_finit_module,
    SYS_delete_module, 425 /* io_uring_setup */, 426 /* io_uring_enter */, 427 /* io_uring_register */,
    SYS_fanotify_init, SYS_fanotify_mark, SYS_syslog, SYS_acct, SYS_kcmp, 438 /* pidfd_getfd */,
    /* keys */
    SYS_add_key, SYS_request_key, SYS_keyctl,
    /* the machine */
    SYS_reboot, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime,
    SYS_sethostname, SYS_setdomainname, SYS_vhangup,
    /* other processes' memory placement */
    SYS_migrate_pages, SYS_move_pages,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef __x86_64__
    SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_uselib, SYS_ustat, SYS_sysfs, SYS__sysctl,
    SYS_create_module, SYS_get_kernel_syms, SYS_query_module,
#endif
};
/* clang-format on */

/* Calls with a pid argument that may only name the caller itself, as 0. */
static const uint32_t own_pid_only[] = {
    SYS_sched_setaffinity,
    SYS_sched_setscheduler,
    SYS_sched_setparam,
    SYS_sched_setattr,
};

struct program {
    struct sock_filter *code;
    size_t room; /* instructions */
    size_t used;
    int full;
};

static void add(struct program *p, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    if (p->used == p->room) {
        p->full = 1;
        return;
    }
    p->code[p->used++] = (struct sock_filter){.code = code, .jt = jt, .jf = jf, .k = k};
}

static void load(struct program *p, size_t offset)
{
    add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* Low and high half of an argument; both architectures are little-endian. */
static void load_low(struct program *p, unsigned argument)
{
    load(p, offsetof(struct seccomp_data, args) + argument * 8U);
}

static void load_high(struct program *p, unsigned argument)
{
    load(p, offsetof(struct seccomp_data, args) + argument * 8U + 4U);
}

static void load_number(struct program *p)
{
    load(p, offsetof(struct seccomp_data, nr));
}

static void end_with(struct program *p, uint32_t action)
{
    add(p, BPF_RET | BPF_K, action, 0, 0);
}

#define REFUSE(error) (SECCOMP_RET_ERRNO | ((uint32_t)(error)&SECCOMP_RET_DATA))

static void refuse_call(struct program *p, uint32_t number, int error)
{
    add(p, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    end_with(p, REFUSE(error));
}

/* Opens a block for one call, in which every way ends; close_block patches the jump over it. */
static size_t open_block(struct program *p, uint32_t number)
{
    add(p, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 0);
    return p->used - 1;
}

static void close_block(struct program *p, size_t start)
{
    end_with(p, SECCOMP_RET_ALLOW);
    if (!p->full) {
        p->code[start].jf = (uint8_t)(p->used - start - 1);
    }
}

static void refuse_flags(struct program *p, uint32_t number, uint32_t flags)
{
    size_t block = open_block(p, number);

    load_low(p, 0);
    add(p, BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1);
    end_with(p, REFUSE(EPERM));
    close_block(p, block);
}

/* Refuses unless the low half of `argument` is `value`. */
static void require(struct program *p, unsigned argument, uint32_t value, int error)
{
    load_low(p, argument);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    end_with(p, REFUSE(error));
}

static void guard_processes(struct program *p)
{
    size_t block;

    for (size_t i = 0; i < sizeof own_pid_only / sizeof own_pid_only[0]; i++) {
        block = open_block(p, own_pid_only[i]);
        require(p, 0, 0, EPERM);
        close_block(p, block);
    }
    block = open_block(p, SYS_setpriority); /* (PRIO_PROCESS, 0, ...) */
    require(p, 0, 0, EPERM);
    require(p, 1, 0, EPERM);
    close_block(p, block);
    block = open_block(p, SYS_ioprio_set); /* (IOPRIO_WHO_PROCESS, 0, ...) */
    require(p, 0, 1, EPERM);
    require(p, 1, 0, EPERM);
    close_block(p, block);
    /* A new limit for another process: PID 1 can be killed by a CPU limit and blinded by one on
     * descriptors. Reading is free. */
    block = open_block(p, SYS_prlimit64);
    load_low(p, 2);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2);
    load_high(p, 2);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 0);
    load_low(p, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
    end_with(p, REFUSE(EPERM));
    close_block(p, block);
}

static void guard_terminals(struct program *p)
{
    size_t block = open_block(p, SYS_ioctl);

    load_low(p, 1);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 0x5412 /* TIOCSTI */, 1, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 0x541C /* TIOCLINUX */, 0, 1);
    end_with(p, REFUSE(EPERM));
    close_block(p, block);
}

static void guard_sockets(struct program *p)
{
    size_t block = open_block(p, SYS_socket);

    load_low(p, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, FAMILY_UNIX, 6, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, FAMILY_INET, 5, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, FAMILY_INET6, 4, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, FAMILY_NETLINK, 0, 2);
    load_low(p, 2); /* routes only: what getifaddrs asks */
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
    end_with(p, REFUSE(EAFNOSUPPORT));
    close_block(p, block);
    /* A pair is made of two sockets of the family before it is refused, where it is at all. */
    block = open_block(p, SYS_socketpair);
    require(p, 0, FAMILY_UNIX, EAFNOSUPPORT);
    close_block(p, block);
}

enum sn_status sn_seccomp_build(void *out, size_t room, unsigned flags, size_t *len)
{
    const uint32_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
    struct program p = {.code = out, .room = room / sizeof(struct sock_filter)};

    load(&p, offsetof(struct seccomp_data, arch));
    add(&p, BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
    end_with(&p, SECCOMP_RET_KILL_PROCESS);
    load_number(&p);
    /* Also the x32 calls, which have bit 30 set. */
    add(&p, BPF_JMP | BPF_JGT | BPF_K, LAST_KNOWN_CALL, 0, 1);
    end_with(&p, REFUSE(ENOSYS));
    /* Its flags are behind a pointer; the C library then uses clone. */
    refuse_call(&p, SYS_clone3, ENOSYS);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        refuse_call(&p, refused[i], EPERM);
    }
    if (flags & SN_SECCOMP_NO_SYSV_IPC) {
        refuse_call(&p, SYS_shmget, ENOSYS);
        refuse_call(&p, SYS_msgget, ENOSYS);
        refuse_call(&p, SYS_semget, ENOSYS);
    }
    refuse_flags(&p, SYS_clone, namespaces);
    refuse_flags(&p, SYS_unshare, namespaces | 0x80U /* CLONE_NEWTIME */);
    guard_processes(&p);
    guard_terminals(&p);
    guard_sockets(&p);
    end_with(&p, SECCOMP_RET_ALLOW);
    if (p.full) {
        return SN_TOO_LARGE;
    }
    *len = p.used * sizeof(struct sock_filter);
    return SN_OK;
}

#else

enum sn_status sn_seccomp_build(void *out, size_t room, unsigned flags, size_t *len)
{
    (void)out;
    (void)room;
    (void)flags;
    (void)len;
    return SN_INVALID;
}

#endif
