# SPDX-License-Identifier: Apache-2.0
"""A server in a process of its own, for tests, demos and benchmarks."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_NET = Path(__file__).resolve().parents[2]


class Faults:
    """What is to go wrong from now on; ``servers/opensandbox/README.rst`` lists the kinds."""

    def __init__(self, server: OpenSandboxServer) -> None:
        self._server = server

    def add(self, operation: str, kind: str, *, nth: int = 1, times: int | None = 1, **options: Any) -> None:
        """From the ``nth`` call of ``operation`` on (``"*"``: any), ``times`` times (None: for good)."""
        fault = {"operation": operation, "kind": kind, "nth": nth, "times": times, **options}
        self._server.control("POST", "faults", fault)

    def clear(self) -> None:
        self._server.control("DELETE", "faults")


class OpenSandboxServer:
    """Starts the process and ends it at the end of the ``with`` block.

    :param options: of the command line: ``api_key``, ``egress_mode``, ``max_timeout``, ``linger``, ``port``.
    """

    def __init__(self, *, api_key: str = "test-key", **options: Any) -> None:
        self.api_key = api_key
        arguments = [sys.executable, "-E", "-s", "-B", str(_NET / "servers" / "opensandbox")]
        arguments += [f"--api-key={api_key}", f"--parent={os.getpid()}"]
        arguments += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        # Not what a sanitised test process has preloaded.
        env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"the test server ended with {self._process.wait()}")
        self.domain = self.url.removeprefix("http://")
        self.faults = Faults(self)

    def __enter__(self) -> OpenSandboxServer:
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

    def control(self, method: str, what: str, value: Any = None) -> Any:
        connection = http.client.HTTPConnection(self.domain, timeout=60)
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
        """What came so far, all or of these operations.

        Each with ``operation method target headers body size at sandbox``.
        """
        found: list[dict[str, Any]] = self.control("GET", "requests")
        return [each for each in found if not operations or each["operation"] in operations]

    def forget_requests(self) -> None:
        self.control("DELETE", "requests")

    def sandboxes(self) -> list[dict[str, Any]]:
        """The sandboxes there are, as the API describes them."""
        found: list[dict[str, Any]] = self.control("GET", "sandboxes")
        return found

    def act(self, sandbox: str, action: str) -> None:
        """``kill-execd stop freeze thaw expire remove``, ``state:X`` or ``run:<shell text>``."""
        self.control("POST", "act", {"sandbox": sandbox, "action": action})

    def set(self, **settings: Any) -> None:
        """Change a setting: ``api_key``, ``egress_mode``, ``max_timeout``, ``linger`` (for new sandboxes)."""
        self.control("POST", "settings", settings)

    def reset(self) -> None:
        """As it was when it started: no sandboxes, no faults, no requests, its own settings."""
        self.control("POST", "reset", {})
