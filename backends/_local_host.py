# SPDX-License-Identifier: Apache-2.0
"""What this machine can do for a local sandbox, and which knob is in the way where it cannot."""

from __future__ import annotations

import os
import platform
import random
import re
import shutil
from collections.abc import Iterator

from sandbox_native.contract import SandboxTerminalError
from sandbox_native.process import program_path

IDS = 2000
"""Host user ids one sandbox takes where the worker is root (csrc/guest/launch.c: SN_UIDS)."""

# Ids that nothing else uses: above what systemd gives to containers (up to 0x6FFFFFFF,
# https://systemd.io/UIDS-GIDS/) and below the sign bit. Where a container maps only 65536 ids, no such range
# is left (from the end of Debian's ordinary users, 59999, to systemd's dynamic ones, 61184, is too little):
# then the high ones of ordinary users, which are given from 1000 up.
_WINDOWS = ((0x70000000, 0x7FFF0000), (20000, 60000), (2000, 60000))

INSTALL = "install bubblewrap: apt-get install bubblewrap"


def find_bwrap() -> str:
    """The path of bubblewrap.

    :raises SandboxTerminalError: it is not installed, or the machine is not one this backend knows.
    """
    if platform.machine() not in ("x86_64", "aarch64"):
        raise SandboxTerminalError(
            f"The local backend has no system call filter for {platform.machine()}; "
            "it works on x86_64 and aarch64."
        )
    found = shutil.which("bwrap") or shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    if found is None:
        raise SandboxTerminalError(f"bubblewrap (bwrap) was not found; {INSTALL}")
    return os.path.abspath(found)


def _mapped(kind: str) -> Iterator[tuple[int, int]]:
    with open(f"/proc/self/{kind}_map", encoding="ascii") as file:
        for line in file:
            first, _, count = (int(part) for part in line.split())
            yield first, first + count


def choose_base() -> int:
    """First of :data:`IDS` host ids that nothing uses and that exist here for users and groups.

    :raises SandboxTerminalError: this process is root of a user namespace with too few ids.
    """
    users, groups = list(_mapped("uid")), list(_mapped("gid"))

    def exists(first: int) -> bool:
        return all(any(a <= first and first + IDS <= b for a, b in ranges) for ranges in (users, groups))

    for low, high in _WINDOWS:
        usable = (
            [first for first in range(low, high - IDS + 1, IDS) if exists(first)] if high < 0x100000 else []
        )
        if high >= 0x100000 and exists(low) and exists(high - IDS):
            return low + random.randrange((high - low) // IDS) * IDS
        if usable:
            return random.choice(usable)
    raise SandboxTerminalError(
        f"The local backend runs as root here, where it needs {IDS} unused user ids for a sandbox, but "
        f"/proc/self/uid_map has none to spare: {users}. Give the container more ids (userns-remap, "
        "--uidmap), or run the worker as an ordinary user."
    )


def open_program() -> int:
    """A descriptor of the guest program that any user of the sandbox may execute."""
    try:
        fd = os.open(program_path(), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        raise SandboxTerminalError(f"The guest program of sandbox-native is missing: {e}") from e
    mode = os.fstat(fd).st_mode
    if mode & 0o005 == 0o005 and not os.fstatvfs(fd).f_flag & os.ST_NOEXEC:
        return fd
    # Installed for one user only, or on a file system that forbids execution: use a copy in memory.
    try:
        with os.fdopen(fd, "rb") as file:
            copy = os.memfd_create("guest", os.MFD_CLOEXEC)
            os.write(copy, file.read())
    except OSError as e:
        raise SandboxTerminalError(f"Could not copy the guest program: {e}") from e
    return copy


# Text bubblewrap or the launcher prints -> the knob and how to turn it. First match counts.
_KNOBS = (
    (
        r"Creating new namespace failed: nesting depth|max_\*?_namespaces|No space left on device",
        "the number of namespaces is limited: raise user.max_user_namespaces (and the other "
        "user.max_*_namespaces) with sysctl -w, or allow one more level of nesting",
    ),
    (
        r"setting up uid map: Permission denied|loopback: Failed RTM_NEWADDR|apparmor",
        "AppArmor restricts user namespaces: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or "
        "add an AppArmor profile for bwrap that allows userns",
    ),
    (
        r"No permissions to creat(e|ing) new namespace|could not make a (user|mount) namespace",
        "user namespaces are not allowed: sysctl -w kernel.unprivileged_userns_clone=1, and "
        "kernel.apparmor_restrict_unprivileged_userns=0 where AppArmor restricts them; in a container allow "
        "the unshare and clone calls (--security-opt seccomp=unconfined) or use a runtime that does",
    ),
    (
        r"Can't mount proc|mount proc on",
        "/proc is masked in this container, so no new one may be mounted: "
        "--security-opt systempaths=unconfined (Docker), procMount: Unmasked (Kubernetes)",
    ),
    (
        r"Can't read /proc/sys|could not (write|open) /proc/.*No such file",
        "there is no /proc here: mount it",
    ),
    (
        r"Failed to make / slave|could not mount|could not bind|mount.*Operation not permitted",
        "mounting is filtered: in a container, --security-opt seccomp=unconfined "
        "--security-opt apparmor=unconfined",
    ),
    (
        r"could not write .*(uid|gid)_map|unused user id",
        "root may not map user ids here: give the container CAP_SETUID, CAP_SETGID and CAP_SYS_ADMIN, or run "
        "the worker as an ordinary user",
    ),
    (r"Can't find source path (\S+)|could not open (/\S+)", "a path is missing or this user cannot reach it"),
    (
        r"seccomp|system call filtering",
        "the kernel refuses a system call filter: it needs CONFIG_SECCOMP_FILTER",
    ),
    (
        r"Unknown option",
        "this bubblewrap is too old; 0.8 is known to work",
    ),
    (r"could not join a control group", "the control group of the sandbox could not be joined"),
    (
        r"execvp .*No such file",
        "the system tree is incomplete: /usr, /lib or the guest program is missing inside",
    ),
)


def explain(printed: str) -> str:
    """Why a start failed, in words that name the knob, for what the start printed."""
    text = printed.strip() or "it ended without a word (killed, or out of memory?)"
    for pattern, knob in _KNOBS:
        if re.search(pattern, text):
            return f"{knob}. It said: {text}"
    return f"it said: {text}"
