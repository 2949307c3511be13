# SPDX-License-Identifier: Apache-2.0
"""One Islo test server for all tests, set back before each, and a backend with a sandbox on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_native.backends import _islo_calls, _islo_token
from sandbox_native.backends.islo import IsloSandboxBackend
from sandbox_native.contract import SandboxExecResult
from servers.islo.handle import IsloServer


@pytest.fixture(scope="session")
def islo_process() -> Iterator[IsloServer]:
    with IsloServer() as server:
        yield server


@pytest.fixture
def islo(islo_process: IsloServer, monkeypatch: pytest.MonkeyPatch) -> IsloServer:
    server = islo_process
    server.faults.clear()
    server.set(api_key="test-key", token_life=600, enforce_timeout=False, announce=False)
    for name in server.sandboxes():
        server.act(name, "remove")
    server.forget_requests()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    _islo_token._sessions.clear()
    return server


class Sandbox:
    """A backend with one sandbox."""

    def __init__(self, server: IsloServer, **options: Any) -> None:
        self.server = server
        self.backend = IsloSandboxBackend(**options)
        self.name = self.backend.create()
        server.forget_requests()

    def run(self, command: str, *, timeout: float = 60, max_output_bytes: int = 10_000) -> SandboxExecResult:
        return self.backend.run_command(
            self.name, command, timeout=timeout, max_output_bytes=max_output_bytes
        )

    def stands(self) -> bool:
        return self.name in self.server.sandboxes()


@pytest.fixture
def box(islo: IsloServer) -> Sandbox:
    return Sandbox(islo)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between two tries of a call, which are not waited for."""
    waits: list[float] = []
    monkeypatch.setattr(_islo_calls, "pause", waits.append)
    return waits
