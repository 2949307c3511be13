# SPDX-License-Identifier: Apache-2.0
"""System calls a command in a local sandbox may not make, each tried for real."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest

from local_tools import Sandbox, sandbox

ARM = platform.machine() == "aarch64"

# Name -> number on x86_64 and aarch64.
NUMBERS = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "quotactl_fd": (443, 443),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "syslog": (103, 116),
    "acct": (163, 89),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "reboot": (169, 142),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}

PROBE = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    args = [a if isinstance(a, bytes) else ctypes.c_long(a) for a in args]
    value = libc.syscall(ctypes.c_long(number), *args)
    return errno.errorcode[ctypes.get_errno()] if value == -1 else "done"
print(eval(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as it:
        it.write("probe.py", PROBE.encode())
        yield it


def probe(box: Sandbox, expression: str) -> str:
    result = box.run(f"python3 probe.py '{expression}'")
    assert result.exit_code == 0, result
    return result.stdout.strip()


def number(name: str) -> int:
    return NUMBERS[name][ARM]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_refused_call(box: Sandbox, name: str) -> None:
    assert probe(box, f"call({number(name)}, 0, 0, 0, 0, 0)") == "EPERM"


NAMESPACES = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "time": 0x80,
}


@pytest.mark.parametrize("name", NAMESPACES)
def test_no_namespace_can_be_made_by_unshare(box: Sandbox, name: str) -> None:
    assert probe(box, f"call({97 if ARM else 272}, {NAMESPACES[name]})") == "EPERM"


@pytest.mark.parametrize("name", [name for name in NAMESPACES if name != "time"])
def test_no_namespace_can_be_made_by_clone(box: Sandbox, name: str) -> None:
    assert probe(box, f"call({220 if ARM else 56}, {NAMESPACES[name] | 17}, 0, 0, 0, 0)") == "EPERM"


def test_the_unshare_program_gets_nowhere(box: Sandbox) -> None:
    for options in ("-U", "-r", "-m", "-n", "-p -f", "-i", "-u", "-C"):
        assert box.run(f"unshare {options} true").exit_code != 0, options


def test_calls_the_filter_cannot_judge_do_not_exist(box: Sandbox) -> None:
    clone3, beyond, x32 = 435, 600, 0x40000000 + 39
    assert [probe(box, f"call({n}, 0, 0)") for n in (clone3, beyond, x32)] == ["ENOSYS"] * 3


@pytest.mark.skipif(ARM, reason="int 0x80 is an instruction of x86")
def test_calls_of_another_architecture_end_the_process(box: Sandbox) -> None:
    box.write(
        "old.c",
        b"int main(void) { int r; "
        b'__asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory"); return r != 0; }',
    )
    assert box.run("gcc -o old old.c && ./old").exit_code == 128 + 31  # SIGSYS


@pytest.mark.parametrize("request_number", [0x5412, 0x541C, 0x5412 | (1 << 32)])
def test_nothing_can_be_typed_into_a_terminal(box: Sandbox, request_number: int) -> None:
    # The kernel looks at the low half of the number only, so a filter has to, too.
    assert probe(box, f"call({29 if ARM else 16}, 0, {request_number}, 0)") == "EPERM"


@pytest.mark.parametrize(
    "family", ["AF_VSOCK", "AF_ALG", "AF_PACKET", "AF_BLUETOOTH", "AF_CAN", "AF_TIPC", "AF_RDS", "AF_QIPCRTR"]
)
def test_sockets_that_a_network_namespace_does_not_hold_are_refused(box: Sandbox, family: str) -> None:
    assert probe(box, f"call({198 if ARM else 41}, socket.{family}, 1, 0)") == "EAFNOSUPPORT"
    # A pair makes both sockets first, which is what matters, and asks then whether the family has pairs.
    assert probe(box, f"call({199 if ARM else 53}, socket.{family}, 1, 0, bytes(8))") == "EAFNOSUPPORT"


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 9, 10, 12, 15, 16])
def test_only_routes_can_be_asked_by_netlink(box: Sandbox, protocol: int) -> None:
    assert probe(box, f"call({198 if ARM else 41}, socket.AF_NETLINK, 3, {protocol})") == "EAFNOSUPPORT"


@pytest.mark.parametrize(
    "expression",
    [
        f"call({261 if ARM else 302}, 0, 7, 0, 0)",  # prlimit64, reading the own limit
        f"call({140 if ARM else 141}, 0, 0, 19)",  # setpriority of the own process
        "socket.socket(socket.AF_INET) and socket.socket(socket.AF_INET6) and 'done'",
        "socket.socket(socket.AF_UNIX) and 'done'",
        "socket.socketpair() and 'done'",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) and 'done'",
        "os.sched_setaffinity(0, os.sched_getaffinity(0)) or 'done'",
        "os.nice(1) and 'done'",
        "__import__('threading').Thread(target=print).start() or 'done'",
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1] or 'done'",
    ],
)
def test_what_programs_need_still_works(box: Sandbox, expression: str) -> None:
    result = box.run(f'python3 probe.py "{expression}"')
    assert result.stdout.split()[-1] == "done", result


# -- other processes ------------------------------------------------------------------------

ON_OTHERS = {
    "prlimit64 cpu": f"call({261 if ARM else 302}, 1, 0, b'\\0' * 16, 0)",
    "prlimit64 nofile": f"call({261 if ARM else 302}, 1, 7, b'\\1' + b'\\0' * 15, 0)",
    "prlimit64 of the parent": f"call({261 if ARM else 302}, os.getppid(), 7, b'\\1' + b'\\0' * 15, 0)",
    "setpriority": f"call({140 if ARM else 141}, 0, 1, 19)",
    "setpriority of a group": f"call({140 if ARM else 141}, 1, 1, 19)",
    "setpriority of a user": f"call({140 if ARM else 141}, 2, 1000, 19)",
    "sched_setaffinity": f"call({122 if ARM else 203}, 1, 8, b'\\1' + b'\\0' * 7)",
    "sched_setscheduler": f"call({119 if ARM else 144}, 1, 5, b'\\0' * 4)",
    "sched_setparam": f"call({118 if ARM else 142}, 1, b'\\0' * 4)",
    "sched_setattr": f"call({274 if ARM else 314}, 1, b'\\x30' + b'\\0' * 47, 0)",
    "ioprio_set": f"call({30 if ARM else 251}, 1, 1, 0x6000)",
    "ioprio_set of a user": f"call({30 if ARM else 251}, 3, 1000, 0x6000)",
    "ptrace": f"call({117 if ARM else 101}, 16, 1, 0, 0)",
    "ptrace seize": f"call({117 if ARM else 101}, 0x4206, 1, 0, 0)",
    "process_vm_readv": f"call({270 if ARM else 310}, 1, 0, 0, 0, 0, 0)",
}


@pytest.mark.parametrize("name", ON_OTHERS)
def test_pid_1_cannot_be_touched(box: Sandbox, name: str) -> None:
    result = box.run(f'python3 probe.py "{ON_OTHERS[name]}"')
    # With no bytes to move process_vm_readv need not look at the process at all.
    assert result.stdout.strip() == "EPERM" or (name == "process_vm_readv" and "done" in result.stdout), (
        result
    )
    assert box.sh("echo on") == "on\n"
