# SPDX-License-Identifier: Apache-2.0
"""A test server in a process of its own, for tests, demos and benchmarks, and what can be asked of it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

_SERVERS = Path(__file__).resolve().parent


class Faults:
    """What is to go wrong from now on; ``servers/opensandbox/README.rst`` lists the kinds."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def add(self, operation: str, kind: str, *, nth: int = 1, times: int | None = 1, **options: Any) -> None:
        """From the ``nth`` call of ``operation`` on (``"*"``: any), ``times`` times (None: for good)."""
        fault = {"operation": operation, "kind": kind, "nth": nth, "times": times, **options}
        self._server.ask("POST", "faults", fault)

    def clear(self) -> None:
        self._server.ask("DELETE", "faults")


class ServerProcess:
    """Starts the process and ends it at the end of the ``with`` block.

    :param folder: below ``tests/net/servers``; run as a program, which prints its URLs on one line.
    :param arguments: of the command line.
    :param api_key: what it takes from clients.
    """

    def __init__(self, folder: str, *arguments: str, api_key: str) -> None:
        self.api_key = api_key
        command = [sys.executable, "-E", "-s", "-B", str(_SERVERS / folder)]
        command += [f"--api-key={api_key}", f"--parent={os.getpid()}", *arguments]
        # Not what a sanitised test process has preloaded.
        env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self._process.stdout is not None
        self.urls = self._process.stdout.readline().split()
        if not self.urls:
            raise RuntimeError(f"the test server ended with {self._process.wait()}")
        self.faults = Faults(self)

    @property
    def process(self) -> int:
        """The number of the server's process; its sandboxes have it in their host names."""
        return self._process.pid

    def kill(self) -> None:
        """As a crash would end it."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def ask(self, method: str, what: str, value: Any = None) -> Any:
        """Ask the server itself, beside the service that it plays."""
        connection = http.client.HTTPConnection(self.urls[0].removeprefix("http://"), timeout=60)
        try:
            body = None if value is None else json.dumps(value)
            connection.request(method, f"/__test__/{what}", body)
            response = connection.getresponse()
            answer = json.loads(response.read())
            if response.status != 200:
                raise ValueError(f"{what}: {answer}")
            return answer
        finally:
            connection.close()

    def requests(self, *operations: str) -> list[dict[str, Any]]:
        """What came so far, all or of these operations, as the server's ``routes`` records it."""
        found: list[dict[str, Any]] = self.ask("GET", "requests")
        return [each for each in found if not operations or each["operation"] in operations]

    def count(self, *operations: str) -> int:
        return len(self.requests(*operations))

    def forget_requests(self) -> None:
        self.ask("DELETE", "requests")

    def set(self, **settings: Any) -> None:
        """Change settings, by the names they have on the command line, for what comes from now on."""
        self.ask("POST", "settings", settings)
