# SPDX-License-Identifier: Apache-2.0
"""What a local sandbox sees, as arguments for bubblewrap.

The order is the order of mounting. Sources: bubblewrap's manual page for the options; which parts of
``/etc`` programs need was measured (compilers and editors: ``alternatives``; TLS: ``ssl/certs``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from sandbox_native import _sandbox_native as native

WORKSPACE = "/workspace"
UID = 1000
"""User and group of every command, inside."""

_ETC = (
    "alternatives",
    "ssl/certs",
    "ca-certificates.conf",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "mime.types",
    "ld.so.cache",
)
_PASSWD = "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n"
_GROUP = "root:x:0:\nsandbox:x:1000:\n"
_HOSTS = "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost sandbox\n"
_NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"
# What a path shown read-only must not hide or reach around.
_RESERVED = (
    "/",
    "/proc",
    "/sys",
    "/dev",
    "/tmp",
    "/etc",
    "/run",
    "/var",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    WORKSPACE,
)


# The host's own trees, where every directory is there already.
_MOUNTED = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/etc/")


@dataclass(frozen=True)
class Layout:
    """Everything the arguments depend on; sizes in bytes."""

    bwrap: str
    two_uids: bool
    share_network: bool
    read_only_paths: Sequence[str]
    workspace_bytes: int
    tmp_bytes: int
    shm_bytes: int

    def staged(self) -> Sequence[str]:
        """Paths the launcher binds below /tmp first: the uid bubblewrap runs as may not reach them.

        All or none, since that covers what else lies in /tmp.
        """
        if not self.two_uids or all(reachable_by_all(path) for path in self.read_only_paths):
            return ()
        return self.read_only_paths

    def files(self) -> dict[str, bytes]:
        """Files made in ``/etc``, by path; their descriptors are numbered in this order."""
        made = {
            "/etc/passwd": _PASSWD.encode(),
            "/etc/group": _GROUP.encode(),
            "/etc/hosts": _HOSTS.encode(),
            "/etc/nsswitch.conf": _NSSWITCH.encode(),
        }
        if self.share_network:
            try:
                with open("/etc/resolv.conf", "rb") as file:
                    made["/etc/resolv.conf"] = file.read(65536)
            except FileNotFoundError:
                pass  # a host without one resolves by /etc/hosts alone
        return made

    def arguments(self) -> list[str]:
        """The command line of bubblewrap with the guest program as the command."""
        return [self.bwrap, *self._namespaces(), *self._tree(), *self._end()]

    def _namespaces(self) -> Iterator[str]:
        yield from ("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
        if not self.share_network:
            yield "--unshare-net"
        if self.two_uids:
            yield from (
                "--userns",
                str(native.BOX_FD_USERNS),
                "--uid",
                "0",
                "--gid",
                "0",
                "--cap-drop",
                "ALL",
            )
            for name in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_CHOWN"):
                yield from ("--cap-add", name)
        else:
            yield from ("--unshare-user", "--uid", str(UID), "--gid", str(UID), "--cap-drop", "ALL")
        yield from ("--hostname", "sandbox", "--as-pid-1", "--new-session", "--die-with-parent", "--clearenv")

    def _tree(self) -> Iterator[str]:
        yield from ("--ro-bind", "/usr", "/usr")
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            path = f"/{name}"
            if os.path.islink(path):
                yield from ("--symlink", os.readlink(path), path)
            elif os.path.isdir(path):
                yield from ("--ro-bind", path, path)
        yield from self._etc()
        for number, path in enumerate(self.files(), native.BOX_FD_DATA):
            yield from ("--perms", "0644", "--file", str(number), path)
        yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
        yield from self._tmpfs("1777", self.shm_bytes, "/dev/shm")
        yield from self._tmpfs("1777", self.tmp_bytes, "/tmp")
        yield from ("--perms", "0755", "--dir", "/var", "--symlink", "../tmp", "/var/tmp")
        yield from ("--perms", "0755", "--dir", "/run")
        yield from self._tmpfs("0755", self.workspace_bytes, WORKSPACE)
        for directory in self._parents():
            yield from ("--perms", "0755", "--dir", directory)
        staged = self.staged()
        for number, path in enumerate(self.read_only_paths):
            yield from ("--ro-bind", f"/tmp/{number}" if staged else path, path)
        yield from ("--remount-ro", "/dev", "--remount-ro", "/")

    def _etc(self) -> Iterator[str]:
        found = [f"/etc/{name}" for name in _ETC if os.path.exists(f"/etc/{name}")]
        # Directories that bubblewrap makes on its way to a mount point would be for root alone.
        parents = {str(parent): None for path in found for parent in reversed(PurePosixPath(path).parents)}
        for directory in parents:
            if directory != "/":
                yield from ("--perms", "0755", "--dir", directory)
        for path in found:
            yield from ("--ro-bind", path, path)

    def _parents(self) -> list[str]:
        """The directories on the way to the read-only paths, as far as they are not there already."""
        found: dict[str, None] = {}
        for path in self.read_only_paths:
            parts = path.split("/")[1:-1]
            steps = ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]
            found.update(
                dict.fromkeys(
                    step for step in steps if step != "/tmp" and not f"{step}/".startswith(_MOUNTED)
                )
            )
        return list(found)

    def _tmpfs(self, mode: str, size: int, path: str) -> tuple[str, ...]:
        return ("--perms", mode, "--size", str(size), "--tmpfs", path)

    def _end(self) -> Iterator[str]:
        yield from ("--seccomp", str(native.BOX_FD_SECCOMP), "--")
        yield from (f"/proc/self/fd/{native.BOX_FD_PROGRAM}", "init")


def reachable_by_all(path: str) -> bool:
    """Whether any user may walk to ``path`` and read it."""
    real = os.path.realpath(path)
    for directory in {*map(str, PurePosixPath(path).parents), *map(str, PurePosixPath(real).parents)}:
        if not os.stat(directory).st_mode & 0o001:
            return False
    wanted = 0o005 if os.path.isdir(real) else 0o004
    return os.stat(real).st_mode & wanted == wanted


def check_read_only_path(path: str | os.PathLike[str]) -> str:
    """The normal form of a path to be shown read-only.

    :raises ValueError: not absolute, or it would hide a part of the sandbox itself.
    """
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise ValueError(f"read_only_paths must be absolute paths, got {path!r}")
    normal = os.path.normpath("/" + path.lstrip("/"))
    if normal in _RESERVED or normal.startswith(("/proc/", "/sys/", "/dev/", f"{WORKSPACE}/")):
        raise ValueError(f"read_only_paths cannot contain {path!r}: the sandbox has its own {normal}")
    return normal
