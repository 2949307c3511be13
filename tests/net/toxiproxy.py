# SPDX-License-Identifier: Apache-2.0
"""Toxiproxy: a program that stands between client and server and spoils their connection on demand."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BUILD = Path(__file__).parents[2] / ".ci" / "test-server"


class Proxy:
    """One way through the proxy to a port of this machine."""

    def __init__(self, api: Toxiproxy, name: str, address: str) -> None:
        self._api = api
        self.name = name
        self.address = address

    def url(self, path: str = "/") -> str:
        return f"http://{self.address}{path}"

    def add(self, kind: str, stream: str = "downstream", **attributes: int) -> None:
        """Add a toxic, to connections that are open already, too.

        :param stream: ``downstream`` (to the client) or ``upstream``.
        :param attributes: in the units of Toxiproxy: milliseconds, bytes, KB/s.
        """
        self._api.call(
            f"/proxies/{self.name}/toxics",
            {"name": f"{kind}-{stream}", "type": kind, "stream": stream, "attributes": attributes},
        )

    def enable(self, enabled: bool) -> None:
        """Listen, or close all that is open and listen no more."""
        self._api.call(f"/proxies/{self.name}", {"enabled": enabled})

    def end(self) -> None:
        self._api.call(f"/proxies/{self.name}", method="DELETE")


class Toxiproxy:
    """The running program.

    :raises subprocess.CalledProcessError: it cannot be built here.
    """

    def __init__(self, log: Path) -> None:
        self._made = 0
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        built = subprocess.run([BUILD, "toxiproxy"], check=True, stdout=subprocess.PIPE, text=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self._api = f"http://127.0.0.1:{port}"
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [built.stdout.strip(), "-host", "127.0.0.1", "-port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
            )
        for _ in range(1200):
            with contextlib.suppress(OSError):
                self.call("/version", method="GET")
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        self.close()
        raise RuntimeError(f"toxiproxy did not start: {log.read_text()}")

    def call(self, path: str, body: Any = None, method: str = "POST") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._api + path, data, method=method)
        with self._opener.open(request, timeout=100) as answer:
            content = answer.read()
        return json.loads(content) if content.startswith(b"{") else content

    def proxy(self, port: int) -> Proxy:
        """A new way to ``port``, without toxics."""
        self._made += 1
        made = self.call(
            "/proxies",
            {
                "name": f"p{self._made}",
                "listen": "127.0.0.1:0",
                "upstream": f"127.0.0.1:{port}",
                "enabled": True,
            },
        )
        return Proxy(self, made["name"], made["listen"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="session")
def toxiproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toxiproxy]:
    """The program, for all tests."""
    program = Toxiproxy(tmp_path_factory.mktemp("toxiproxy") / "log")
    yield program
    program.close()
