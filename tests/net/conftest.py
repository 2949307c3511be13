# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator

import pytest

from net_tools import Authority, CancelFd
from opensandbox_box import hasty, opened  # noqa: F401 (fixtures)
from sandbox_native.http import Client
from scripted import Script, Server
from servers.islo.fixtures import box, islo, islo_process, pauses  # noqa: F401 (fixtures)
from servers.opensandbox.fixtures import opensandbox_process, opensandbox_server  # noqa: F401 (fixtures)
from suite.run import pytest_terminal_summary  # noqa: F401 (a hook)
from toxiproxy import toxiproxy  # noqa: F401 (a fixture)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(script: Script, context: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(script, context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


@pytest.fixture
def cancel() -> Iterator[CancelFd]:
    token = CancelFd()
    yield token
    os.close(token.fd)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))
