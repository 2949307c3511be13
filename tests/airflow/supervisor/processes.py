# SPDX-License-Identifier: Apache-2.0
"""Processes as /proc shows them. An identity is the id with the start time, since ids are used again."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process of this machine."""

    pid: int
    started: int
    """Clock ticks after boot."""


def running() -> dict[Process, int]:
    """Every process that is no zombie, with its parent's id."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (stat := _stat(int(entry))) is not None:
            process, parent, state = stat
            if state not in "ZX":
                found[process] = parent
    return found


def _stat(pid: int) -> tuple[Process, int, str] | None:
    try:
        # The name in parentheses may itself hold blanks and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[19])), int(fields[1]), fields[0]


def descendants(pid: int) -> set[Process]:
    """The processes below ``pid``, not itself."""
    parents = running()
    below = {pid}
    while more := {process.pid for process, parent in parents.items() if parent in below} - below:
        below |= more
    return {process for process in parents if process.pid in below and process.pid != pid}


def with_text(text: str, file: str = "cmdline") -> set[Process]:
    """The processes with ``text`` in their arguments (``file`` "cmdline") or environment ("environ")."""
    found = set()
    for process in running():
        try:
            content = Path(f"/proc/{process.pid}/{file}").read_bytes()
        except OSError:
            continue
        if text.encode() in content:
            found.add(process)
    return found


def namespace_members(processes: Iterable[Process]) -> set[Process]:
    """All that runs in the pid namespaces of ``processes``, as far as these are not our own."""
    own = _namespace(os.getpid())
    wanted = {_namespace(process.pid) for process in processes} - {own, None}
    return {process for process in running() if _namespace(process.pid) in wanted}


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def left(processes: Iterable[Process]) -> dict[Process, str]:
    """Those of ``processes`` that still run, with their arguments."""
    now = running()
    names = {}
    for process in set(processes) & now.keys():
        with contextlib.suppress(OSError):
            names[process] = Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return names


def kill(processes: Iterable[Process]) -> None:
    for process in left(processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def wait_for(what: str, condition: Callable[[], object], seconds: float) -> None:
    """Return once ``condition`` is true.

    :raises TimeoutError: it was not within ``seconds``; ``what`` says what was waited for.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)
