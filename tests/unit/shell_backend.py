# SPDX-License-Identifier: Apache-2.0
"""A backend that brings only the three required methods: commands run in a real shell of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox_native.contract import SandboxBackend, SandboxExecResult, SandboxSpec

Tamper = Callable[[str, SandboxExecResult], SandboxExecResult]


class ShellBackend(SandboxBackend):
    """Runs commands by ``shell`` in ``root``, keeps the tail of long output, and counts.

    :param tamper: gets each command and its result, and returns the result that is passed on.
    """

    name = "shell"

    def __init__(
        self,
        root: Path,
        *,
        shell: Sequence[str] = ("sh", "-c"),
        env: dict[str, str] | None = None,
        user: int | None = None,
        tamper: Tamper | None = None,
    ) -> None:
        self.root = root
        self.shell = shell
        self.env = env
        self.user = user
        self.tamper = tamper
        self.commands: list[str] = []
        self.timeouts: list[float] = []

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        return "box"

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        self.commands.append(command)
        self.timeouts.append(timeout)
        done = subprocess.run(
            [*self.shell, command],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd=self.root,
            env=self.env,
            user=self.user,
            extra_groups=None if self.user is None else [],
            timeout=60,
            check=False,
        )
        result = SandboxExecResult(
            exit_code=done.returncode,
            stdout=done.stdout[-max_output_bytes:].decode(errors="replace"),
            stderr=done.stderr[-max_output_bytes:].decode(errors="replace"),
            stdout_truncated=len(done.stdout) > max_output_bytes,
            stderr_truncated=len(done.stderr) > max_output_bytes,
        )
        return self.tamper(command, result) if self.tamper else result

    def destroy(self, sandbox: str) -> None:
        pass
