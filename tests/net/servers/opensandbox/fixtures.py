# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the conftest of any folder of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.opensandbox.handle import OpenSandboxServer


@pytest.fixture(scope="session")
def opensandbox_process() -> Iterator[OpenSandboxServer]:
    """One server for the whole session; its streams stay open for 0.1 s after the last event, not 1 s."""
    with OpenSandboxServer(linger=0.1) as server:
        yield server


@pytest.fixture
def opensandbox_server(
    opensandbox_process: OpenSandboxServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenSandboxServer]:
    """The server with nothing in it, named by ``OPEN_SANDBOX_DOMAIN`` and ``OPEN_SANDBOX_API_KEY``."""
    opensandbox_process.reset()
    monkeypatch.setenv("OPEN_SANDBOX_DOMAIN", opensandbox_process.domain)
    monkeypatch.setenv("OPEN_SANDBOX_API_KEY", opensandbox_process.api_key)
    yield opensandbox_process
    opensandbox_process.reset()
