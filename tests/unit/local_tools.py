# SPDX-License-Identifier: Apache-2.0
"""A standing local sandbox for tests."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from sandbox_native.backends.local import LocalSandboxBackend
from sandbox_native.contract import SandboxExecResult, SandboxSpec

AS_ROOT = os.geteuid() == 0


class Sandbox:
    """One sandbox and its backend."""

    def __init__(self, backend: LocalSandboxBackend, spec: SandboxSpec | None = None) -> None:
        self.backend = backend
        self.handle = backend.create(spec=spec)

    def run(self, command: str, timeout: float = 60, max_output_bytes: int = 1 << 20) -> SandboxExecResult:
        return self.backend.run_command(
            self.handle, command, timeout=timeout, max_output_bytes=max_output_bytes
        )

    def sh(self, command: str, timeout: float = 60) -> str:
        """The output of a command that has to succeed."""
        result = self.run(command, timeout)
        assert (result.exit_code, result.timed_out) == (0, False), result
        return result.stdout

    def python(self, program: str, timeout: float = 60) -> SandboxExecResult:
        self.write("program.py", program.encode())
        return self.run("python3 program.py", timeout)

    def read(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        return self.backend.read_file(self.handle, path, max_bytes=max_bytes)

    def write(self, path: str, content: bytes) -> None:
        self.backend.write_file(self.handle, path, content)

    def names(self, path: str) -> list[tuple[str, bool]]:
        return sorted(self.backend.list_directory(self.handle, path))

    def processes(self) -> list[str]:
        """Command lines of the commands inside, without this one and the guest program's."""
        lines = self.sh("ps -eo pid,user,args --no-headers").splitlines()
        return [
            line.split(None, 2)[2]
            for line in lines
            if " ps -eo" not in line and "/proc/self/fd/" not in line and "defunct" not in line
        ]


@contextlib.contextmanager
def sandbox(spec: SandboxSpec | None = None, **options: Any) -> Iterator[Sandbox]:
    box = Sandbox(LocalSandboxBackend(**options), spec)
    try:
        yield box
    finally:
        box.backend.destroy(box.handle)


def eventually(condition: Callable[[], object], seconds: float = 30) -> bool:
    """Whether the condition becomes true; the time is a guard against hanging only."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def host_processes(marker: str) -> list[int]:
    """Living processes of this machine with the marker in their arguments."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                    state = file.read().rpartition(")")[2].split()[0]
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if marker.encode() in file.read() and state not in "ZX":
                        found.append(int(name))
    return found
