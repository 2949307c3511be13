# SPDX-License-Identifier: Apache-2.0
"""Backends for tests of the toolset: they keep files in memory, count, and wait where they are told to."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO

from sandbox_native import calls
from sandbox_native.contract import (
    AttachableSandboxBackend,
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxSpec,
    SandboxTerminalError,
)

GUARD = 30.0
"""Seconds after which a wait that should have ended is a failure."""


class MemoryBackend(SandboxBackend):
    """A backend without a machine. ``block_in`` names the operation that waits for its cancel token."""

    name = "mem"

    def __init__(self, *, block_in: str = "", deaf: bool = False) -> None:
        self.block_in = block_in
        self.deaf = deaf
        self.files: dict[str, bytes] = {}
        self.entries: list[tuple[str, bool]] = []
        self.result: SandboxExecResult | BaseException = SandboxExecResult(0, "out\n", "")
        self.created: list[SandboxSpec | None] = []
        self.destroyed: list[str] = []
        self.commands: list[tuple[str, str, float, int]] = []
        self.reads = 0
        self.export_error: BaseException | None = None
        # Not copied along with the backend: a copied toolset has a backend that nobody waits in.
        self._waiting: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_waiting": {}}

    @property
    def inside(self) -> int:
        """Threads that are in the blocking operation now."""
        return sum(self._waiting.get("inside", []))

    @property
    def blocked(self) -> threading.Event:
        """Set once the blocking operation was reached."""
        event: threading.Event = self._waiting.setdefault("event", threading.Event())
        return event

    def _pass(self, operation: str) -> None:
        if operation != self.block_in:
            return
        inside: list[int] = self._waiting.setdefault("inside", [])
        inside.append(1)
        try:
            fd = calls.cancel_fd()
            self.blocked.set()
            assert fd >= 0, f"{operation} cannot be cancelled"
            ready, _, _ = select.select([fd], [], [], GUARD)
            assert ready, f"{operation} was never cancelled"
            if not self.deaf:
                raise calls.CallCancelled(operation)
        finally:
            inside.pop()

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        self._pass("create")
        self.created.append(spec)
        return f"box-{len(self.created)}"

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        self.commands.append((sandbox, command, timeout, max_output_bytes))
        self._pass("run_command")
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        self.reads += 1
        self._pass("read_file")
        if path not in self.files:
            raise SandboxError(f"{path!r} does not exist")
        return self.files[path]

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        self._pass("write_file")
        self.files[path] = content

    def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
        self._pass("list_directory")
        return list(self.entries)

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        assert sandbox not in self.destroyed
        data = self.read_file(sandbox, path, max_bytes=max_bytes)
        dest.write(data[:1])
        self._pass("export_file")
        if self.export_error is not None:
            raise self.export_error
        dest.write(data[1:])
        return len(data)

    def destroy(self, sandbox: str) -> None:
        assert calls.cancel_fd() == -1, "nothing may cancel a destroy"
        self.destroyed.append(sandbox)

    def assert_nothing_left(self) -> None:
        assert self.inside == 0
        assert self.destroyed == [f"box-{n + 1}" for n in range(len(self.created))]


class TaggedBackend(MemoryBackend, AttachableSandboxBackend):
    """One whose sandboxes carry tags."""

    name = "tagged"

    def __init__(self, tags: Mapping[str, Mapping[str, str]], *, block_in: str = "") -> None:
        super().__init__(block_in=block_in)
        self.tags = {sandbox: dict(of) for sandbox, of in tags.items()}
        self.tag_errors: list[BaseException] = []

    def read_tags(self, sandbox: str) -> Mapping[str, str]:
        if self.tag_errors:
            raise self.tag_errors.pop(0)
        if sandbox not in self.tags:
            raise SandboxTerminalError(f"no sandbox {sandbox!r}")
        return dict(self.tags[sandbox])

    def write_tags(self, sandbox: str, tags: Mapping[str, str]) -> None:
        self.tags[sandbox] = dict(tags)
        # After the claim was written: the worst moment for an attach to be cut short.
        self._pass("attach")


async def until(event: threading.Event) -> None:
    while not event.is_set():
        await asyncio.sleep(0.001)
