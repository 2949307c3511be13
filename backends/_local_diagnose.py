# SPDX-License-Identifier: Apache-2.0
"""What ``sandbox-native doctor`` says about the local backend."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sandbox_native.backends import _local_host as host
from sandbox_native.contract import SandboxError, SandboxTerminalError

if TYPE_CHECKING:
    from sandbox_native.backends.local import LocalSandboxBackend

Check = tuple[str, bool, str, str]
_GROUPS = (
    "run as root, or have the worker's control group delegated (systemd: Delegate=yes); without it memory "
    "is limited for each process, and nothing limits what the processes and files of a sandbox take in all: "
    "limit the worker itself"
)


def diagnose(backend: LocalSandboxBackend) -> list[Check]:
    """Run every check that can be run; see :func:`sandbox_native.backends.local.diagnose`."""
    return [*_bubblewrap(), *_user_ids(), *_start(backend), *_limits(backend)]


def _bubblewrap() -> Iterator[Check]:
    try:
        path = host.find_bwrap()
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    except SandboxTerminalError as e:
        yield "bubblewrap", False, str(e), host.INSTALL
    except (OSError, subprocess.SubprocessError) as e:
        yield "bubblewrap", False, f"{path} does not run: {e}", host.INSTALL
    else:
        yield "bubblewrap", done.returncode == 0, f"{path}: {done.stdout.strip()}", host.INSTALL


def _user_ids() -> Iterator[Check]:
    if os.geteuid() != 0:
        yield "user ids", True, f"commands are this user ({os.geteuid()}) outside, uid 1000 inside", ""
        return
    try:
        base = host.choose_base()
    except SandboxTerminalError as e:
        yield "user ids", False, str(e), "map more user ids into the container, or run as an ordinary user"
    else:
        yield (
            "user ids",
            True,
            f"commands get an unused user id, such as {base + 1000}, never that of root",
            "",
        )


def _start(backend: LocalSandboxBackend) -> Iterator[Check]:
    begun = time.monotonic()
    try:
        handle = backend.create()
        try:
            result = backend.run_command(handle, "echo works", timeout=30, max_output_bytes=1000)
        finally:
            backend.destroy(handle)
    except SandboxError as e:
        yield "sandbox", False, str(e), "see the detail; it names the setting"
        return
    took = (time.monotonic() - begun) * 1000
    works = result.stdout == "works\n" and result.exit_code == 0
    yield "sandbox", works, f"started, ran a command and ended in {took:.0f} ms", ""


def _limits(backend: LocalSandboxBackend) -> Iterator[Check]:
    how = backend.enforcement()
    for limit in ("memory_mb", "max_processes"):
        grouped = how[limit] == "control group"
        yield f"limit {limit}", grouped, f"enforced by {how[limit]}", "" if grouped else _GROUPS
