/* SPDX-License-Identifier: Apache-2.0 */
/* The filter's program, run by an interpreter of the few instructions it uses. */
#include "core/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include "harness.h"

#if defined __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define REFUSED(error) (SECCOMP_RET_ERRNO | (uint32_t)(error))

static struct sock_filter program[1024];
static size_t count;

/* What the kernel would answer; 0xffffffff for a program that is wrong. */
static uint32_t judge(const struct seccomp_data *data)
{
    uint32_t a = 0;

    for (size_t pc = 0; pc < count; pc++) {
        const struct sock_filter *i = &program[pc];
        int taken;
        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (i->k % 4 != 0 || i->k + 4 > sizeof *data) {
                return 0xffffffff;
            }
            memcpy(&a, (const char *)data + i->k, sizeof a);
            continue;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_JMP | BPF_JEQ | BPF_K:
            taken = a == i->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            taken = a > i->k;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            taken = (a & i->k) != 0;
            break;
        default:
            return 0xffffffff;
        }
        pc += taken ? i->jt : i->jf;
    }
    return 0xffffffff;
}

static uint32_t call(long number, uint64_t a, uint64_t b, uint64_t c)
{
    struct seccomp_data data = {.nr = (int)number, .arch = ARCH, .args = {a, b, c}};

    return judge(&data);
}

static bool build_with(unsigned flags)
{
    size_t len = 0;
    bool fine = sn_seccomp_build(program, sizeof program, flags, &len) == SN_OK;

    count = len / sizeof program[0];
    return fine && len % sizeof program[0] == 0 && len <= 8192;
}

static bool build(void)
{
    return build_with(0);
}

TEST(seccomp_judges_every_number_and_any_argument)
{
    CHECK(build());
    for (int n = -2; n < 2000; n++) {
        for (int round = 0; round < 20; round++) {
            uint64_t a = harness_random(), b = harness_random(), c = harness_random();
            uint32_t verdict = call(n, a << harness_below(33), b, c);
            CHECK(verdict != 0xffffffff && verdict != SECCOMP_RET_KILL_PROCESS);
            CHECK(n >= 0 && n <= 466 ? true : verdict == REFUSED(ENOSYS));
        }
    }
}

TEST(seccomp_ends_another_architecture)
{
    CHECK(build());
    const uint32_t others[] = {AUDIT_ARCH_I386, AUDIT_ARCH_ARM, AUDIT_ARCH_S390X, 0, ARCH ^ 1};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct seccomp_data data = {.nr = SYS_read, .arch = others[i]};
        CHECK(judge(&data) == SECCOMP_RET_KILL_PROCESS);
    }
}

TEST(seccomp_lets_ordinary_calls_through)
{
    const long allowed[] = {SYS_read,   SYS_write,     SYS_openat, SYS_mmap,    SYS_execve,
                            SYS_exit,   SYS_wait4,     SYS_kill,   SYS_futex,   SYS_ptrace,
                            SYS_getpid, SYS_setresuid, SYS_fchmod, SYS_connect, SYS_memfd_create};
    CHECK(build());
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        CHECK(call(allowed[i], ~0ULL, ~0ULL, ~0ULL) == SECCOMP_RET_ALLOW);
    }
}

TEST(seccomp_looks_at_each_namespace_flag)
{
    CHECK(build());
    CHECK(call(SYS_clone, 17, 0, 0) == SECCOMP_RET_ALLOW);
    CHECK(call(SYS_unshare, 0x400, 0, 0) == SECCOMP_RET_ALLOW); /* CLONE_FILES */
    const uint64_t flags[] = {0x20000,    0x2000000,  0x4000000, 0x8000000,
                              0x10000000, 0x20000000, 0x40000000};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        CHECK(call(SYS_clone, flags[i] | 17, 0, 0) == REFUSED(EPERM));
        CHECK(call(SYS_unshare, flags[i] | 0x400, 0, 0) == REFUSED(EPERM));
    }
    CHECK(call(SYS_clone3, 0, 0, 0) == REFUSED(ENOSYS));
}

TEST(seccomp_protects_other_processes_limits)
{
    CHECK(build());
    CHECK(call(SYS_prlimit64, 1, 7, 0) == SECCOMP_RET_ALLOW);      /* reads */
    CHECK(call(SYS_prlimit64, 0, 7, 0x1000) == SECCOMP_RET_ALLOW); /* its own */
    CHECK(call(SYS_prlimit64, 1, 7, 0x1000) == REFUSED(EPERM));
    CHECK(call(SYS_prlimit64, 1, 7, 0x100000000) ==
          REFUSED(EPERM)); /* a pointer without low half */
    CHECK(call(SYS_setpriority, 0, 0, 5) == SECCOMP_RET_ALLOW);
    CHECK(call(SYS_setpriority, 0, 1, 5) == REFUSED(EPERM));
    CHECK(call(SYS_setpriority, 2, 0, 5) == REFUSED(EPERM));
    CHECK(call(SYS_sched_setaffinity, 0, 8, 1) == SECCOMP_RET_ALLOW);
    CHECK(call(SYS_sched_setaffinity, 7, 8, 1) == REFUSED(EPERM));
    CHECK(call(SYS_ioprio_set, 1, 0, 0) == SECCOMP_RET_ALLOW);
    CHECK(call(SYS_ioprio_set, 3, 1000, 0) == REFUSED(EPERM));
}

TEST(seccomp_looks_at_the_low_half_of_an_ioctl)
{
    CHECK(build());
    CHECK(call(SYS_ioctl, 0, 0x5401, 0) == SECCOMP_RET_ALLOW);
    CHECK(call(SYS_ioctl, 0, 0x5412, 0) == REFUSED(EPERM));
    CHECK(call(SYS_ioctl, 0, 0x100005412, 0) == REFUSED(EPERM));
    CHECK(call(SYS_ioctl, 0, 0x541C, 0) == REFUSED(EPERM));
}

TEST(seccomp_knows_which_sockets_a_namespace_holds)
{
    CHECK(build());
    for (uint64_t family = 0; family < 64; family++) {
        bool held = family == 1 || family == 2 || family == 10 || family == 16;
        CHECK(call(SYS_socket, family, 1, 0) == (held ? SECCOMP_RET_ALLOW : REFUSED(EAFNOSUPPORT)));
    }
    CHECK(call(SYS_socket, 16, 3, 9) == REFUSED(EAFNOSUPPORT)); /* netlink, but not routes */
    CHECK(call(SYS_socket, 2, 1, 6) == SECCOMP_RET_ALLOW);
    for (uint64_t family = 0; family < 64; family++) {
        bool held = family == 1;
        CHECK(call(SYS_socketpair, family, 1, 0) ==
              (held ? SECCOMP_RET_ALLOW : REFUSED(EAFNOSUPPORT)));
        CHECK(call(SYS_socketpair, family | 0x100000000, 1, 0) ==
              (held ? SECCOMP_RET_ALLOW : REFUSED(EAFNOSUPPORT)));
    }
}

TEST(seccomp_refuses_system_v_objects_where_asked_to)
{
    const long makers[] = {SYS_shmget, SYS_msgget, SYS_semget};

    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        CHECK(build());
        CHECK(call(makers[i], 0, 4096, 0x3ff) == SECCOMP_RET_ALLOW);
        CHECK(build_with(SN_SECCOMP_NO_SYSV_IPC));
        CHECK(call(makers[i], 0, 4096, 0x3ff) == REFUSED(ENOSYS));
        CHECK(call(SYS_memfd_create, 0, 0, 0) == SECCOMP_RET_ALLOW);
    }
}

TEST(seccomp_needs_room)
{
    size_t len;

    CHECK(build_with(SN_SECCOMP_NO_SYSV_IPC));
    size_t needed = count * sizeof program[0];
    for (size_t room = 0; room < needed; room += sizeof program[0]) {
        CHECK(sn_seccomp_build(program, room, SN_SECCOMP_NO_SYSV_IPC, &len) == SN_TOO_LARGE);
    }
    CHECK(sn_seccomp_build(program, needed, SN_SECCOMP_NO_SYSV_IPC, &len) == SN_OK);
}
