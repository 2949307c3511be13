# SPDX-License-Identifier: Apache-2.0
"""One sandbox on the OpenSandbox test server, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox_native import retries
from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sandbox_native.contract import (
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxTerminalError,
)
from servers.opensandbox.handle import OpenSandboxServer


@dataclass
class OpenBox:
    server: OpenSandboxServer
    backend: OpenSandboxBackend
    id: str

    def run(self, command: str, *, timeout: float = 60, cap: int = 65536) -> SandboxExecResult:
        return self.backend.run_command(self.id, command, timeout=timeout, max_output_bytes=cap)

    def out(self, command: str) -> str:
        """What a command that has to succeed prints."""
        result = self.run(command)
        assert result.exit_code == 0, result
        return result.stdout

    def sent(self, *operations: str) -> list[dict[str, Any]]:
        return self.server.requests(*operations)


def body_of(request: dict[str, Any]) -> Any:
    return json.loads(request["body"])


def recoverable(caught: pytest.ExceptionInfo[SandboxError]) -> bool:
    return not isinstance(caught.value, SandboxTerminalError | SandboxFileTooLargeError)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked again is asked again at once."""
    monkeypatch.setattr(retries, "_jittered", lambda delay: 0.01)


@pytest.fixture
def opened(opensandbox_server: OpenSandboxServer, hasty: None) -> Iterator[OpenBox]:
    """A sandbox reached through the server, with nothing asked of it yet."""
    backend = OpenSandboxBackend(None)
    box = OpenBox(opensandbox_server, backend, backend.create())
    opensandbox_server.forget_requests()
    yield box
    opensandbox_server.faults.clear()
