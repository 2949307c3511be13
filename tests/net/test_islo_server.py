# SPDX-License-Identifier: Apache-2.0
"""The Islo test server itself: what no client's test looks at."""

from __future__ import annotations

import pytest

from cli_program import running_with, wait_for
from sandbox_native.backends import _islo_token
from sandbox_native.backends.islo import IsloSandboxBackend
from servers.islo.handle import IsloServer


@pytest.mark.parametrize("crash", [False, True])
def test_no_process_outlives_its_sandbox_or_the_server(monkeypatch: pytest.MonkeyPatch, crash: bool) -> None:
    _islo_token._sessions.clear()
    with IsloServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        backend = IsloSandboxBackend()
        here = f"islo-{server.process}-"
        for _ in range(5):
            backend.destroy(backend.create())  # while it starts
        wait_for(lambda: not running_with(here))
        standing = backend.create()
        backend.run_command(standing, "setsid sleep 1000 & echo", timeout=60, max_output_bytes=10)
        backend.create()
        assert running_with(here)
        if crash:
            server.kill()
    wait_for(lambda: not running_with(here))


def test_what_the_paths_are_answered_with(islo: IsloServer) -> None:
    backend = IsloSandboxBackend()
    name = backend.create()
    api = backend._service().api
    deadline = 1e9
    info = api.call("GET", f"/sandboxes/{name}", deadline=deadline).json()
    assert {"id", "name", "status", "image", "created_at", "spec", "lifecycle"} <= info.keys()
    page = api.call("GET", "/sandboxes?limit=1&offset=0", deadline=deadline).json()
    assert (page["total"], len(page["items"]), page["limit"]) == (1, 1, 1)
    answer = api.call("DELETE", f"/sandboxes/{name}", deadline=deadline)
    assert (answer.status, answer.body) == (204, b"")
