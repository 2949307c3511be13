# SPDX-License-Identifier: Apache-2.0
"""Control groups for local sandboxes, where this process may make them.

Version 1: ``memory`` and ``pids`` below the worker's own groups. Version 2: beside the worker's group,
because a group with processes in it cannot hand controllers on
(https://docs.kernel.org/admin-guide/cgroup-v2.html#no-internal-process-constraint).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sandbox_native.names import PREFIX

log = logging.getLogger(__name__)

# The guest program's own processes, on top of what the commands may have.
_OWN_PROCESSES = 64


@dataclass
class Groups:
    """The control groups of one sandbox. Empty where none could be made."""

    directories: list[str] = field(default_factory=list)
    has_memory: bool = False

    def open_procs(self) -> Iterator[int]:
        """Descriptors through which a process joins the groups; the caller closes them."""
        for directory in self.directories:
            yield os.open(os.path.join(directory, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)

    def remove(self) -> None:
        """Remove the groups; for a second, while the kernel may still count their last processes."""
        deadline = time.monotonic() + 1
        for directory in self.directories:
            while not _remove(directory):
                if time.monotonic() > deadline:
                    log.warning("Could not remove the control group %s; the next sandbox will try", directory)
                    break
                time.sleep(0.005)
        self.directories = []


def _remove(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class _Place:
    """A directory in which groups can be made, and the files of a group that carry its limits."""

    directory: str
    memory: bool
    pids: bool
    version: int


def _hierarchies(proc: str) -> Iterator[tuple[str, set[str], str]]:
    """(mount point, options, root of the mount within the hierarchy) of every cgroup mount."""
    with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            fields, tail = before.split(), after.split()
            if tail and tail[0] in ("cgroup", "cgroup2"):
                options = set(tail[2].split(",")) if tail[0] == "cgroup" else {"cgroup2"}
                yield fields[4].replace("\\040", " "), options, fields[3]


def _own_groups(proc: str) -> Mapping[str, str]:
    """Controller -> path of this process' group; the unified hierarchy's key is ``cgroup2``."""
    own = {}
    with open(f"{proc}/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            number, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(",") if number != "0" else ("cgroup2",):
                own[controller] = path
    return own


def _below(mount: str, root: str, path: str) -> str | None:
    """Where a group of the hierarchy is in the file system; None when this mount does not show it."""
    relative = os.path.relpath(path, root)
    return None if relative.startswith("..") else os.path.normpath(os.path.join(mount, relative))


def places(proc: str = "/proc") -> list[_Place]:
    """Where groups may be made, judged by what is there and who may write; nothing is changed."""
    found = []
    try:
        own = _own_groups(proc)
        hierarchies = list(_hierarchies(proc))
    except OSError:
        return []
    for mount, options, root in hierarchies:
        if "cgroup2" in options:
            here = _below(mount, root, own.get("cgroup2", "/"))
            place = _unified(here, mount)
            if place is not None:
                found.append(place)
            continue
        for controller in ("memory", "pids"):
            if controller in options and controller in own:
                directory = _below(mount, root, own[controller])
                if directory is not None and os.access(directory, os.W_OK | os.X_OK):
                    found.append(_Place(directory, controller == "memory", controller == "pids", 1))
    return found


def _unified(here: str | None, mount: str) -> _Place | None:
    if here is None or here == os.path.normpath(mount):
        return None  # the root of a container's view: it has processes and no parent to use instead
    parent = os.path.dirname(here)
    try:
        with open(os.path.join(parent, "cgroup.subtree_control"), encoding="ascii") as file:
            enabled = file.read().split()
    except OSError:
        return None
    # A process may be moved only by who may write to the group both are in.
    if not all(os.access(path, os.W_OK) for path in (parent, os.path.join(parent, "cgroup.procs"))):
        return None
    if not {"memory", "pids"} & set(enabled):
        return None
    return _Place(parent, "memory" in enabled, "pids" in enabled, 2)


def make(handle: str, *, memory_bytes: int, processes: int) -> Groups:
    """Make the groups of one sandbox, as many as this process may; limits as given."""
    groups = Groups()
    for place in places():
        _sweep(place.directory)
        directory = os.path.join(place.directory, f"{handle}.{os.getpid()}")
        try:
            os.mkdir(directory)
        except OSError:
            continue
        try:
            if place.memory:
                _limit_memory(directory, place.version, memory_bytes)
            if place.pids:
                _write(directory, "pids.max", str(processes + _OWN_PROCESSES))
        except OSError as e:
            log.debug("The control group %s takes no limit: %s", directory, e)
            _remove(directory)
            continue
        groups.directories.append(directory)
        groups.has_memory |= place.memory
    return groups


def _limit_memory(directory: str, version: int, memory_bytes: int) -> None:
    if version == 1:
        _write(directory, "memory.limit_in_bytes", str(memory_bytes))
        # Only where swap is accounted for; without it swap is not limited by this either.
        with contextlib.suppress(FileNotFoundError):
            _write(directory, "memory.memsw.limit_in_bytes", str(memory_bytes))
    else:
        _write(directory, "memory.max", str(memory_bytes))
        with contextlib.suppress(FileNotFoundError):
            _write(directory, "memory.swap.max", "0")


def _write(directory: str, name: str, value: str) -> None:
    with open(os.path.join(directory, name), "w", encoding="ascii") as file:
        file.write(value)


def _sweep(directory: str) -> None:
    """Remove groups whose worker is gone. One that is in use cannot be removed."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            name, _, pid = entry.name.rpartition(".")
            if name.startswith(PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                _remove(entry.path)
