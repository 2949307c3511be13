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

    def __init__(self, server: IsloServer) -> None:
        self._server = server

    def add(self, operation: str, kind: str, *, nth: int = 1, times: int | None = 1, **options: Any) -> None:
        """From the ``nth`` call of ``operation`` on (``"*"``: any), ``times`` times (None: for good)."""
        fault = {"operation": operation, "kind": kind, "nth": nth, "times": times, **options}
        self._server.ask("POST", "faults", fault)

    def clear(self) -> None:
        self._server.ask("DELETE", "faults")


class IsloServer:
    """Starts the process and ends it at the end of the ``with`` block.

    :param flags: of the command line without a value: ``enforce-timeout``, ``announce``.
    """

    def __init__(self, *flags: str, api_key: str = "test-key") -> None:
        self.api_key = api_key
        arguments = [sys.executable, "-E", "-s", "-B", str(_NET / "servers" / "islo")]
        arguments += [f"--api-key={api_key}", f"--parent={os.getpid()}", *(f"--{flag}" for flag in flags)]
        # Not what a sanitised test process has preloaded.
        env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().split()
        if len(line) != 2:
            raise RuntimeError(f"the test server ended with {self._process.wait()}")
        self.control, self.compute = line
        self.faults = Faults(self)

    @property
    def process(self) -> int:
        """The number of the server's process; its sandboxes have it in their host names."""
        return self._process.pid

    def kill(self) -> None:
        """As a crash would end it."""
        self._process.kill()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a backend, or the SDK, finds this server."""
        return {
            "ISLO_API_KEY": self.api_key,
            "ISLO_BASE_URL": self.control,
            "ISLO_COMPUTE_URL": self.compute,
        }

    def __enter__(self) -> IsloServer:
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
        connection = http.client.HTTPConnection(self.control.removeprefix("http://"), timeout=60)
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
        """What came so far, all or of these operations, as ``routes`` records it."""
        found: list[dict[str, Any]] = self.ask("GET", "requests")
        return [each for each in found if not operations or each["operation"] in operations]

    def count(self, *operations: str) -> int:
        return len(self.requests(*operations))

    def forget_requests(self) -> None:
        self.ask("DELETE", "requests")

    def sandboxes(self) -> list[str]:
        """The names of the sandboxes there are."""
        return [each["name"] for each in self.ask("GET", "sandboxes")]

    def act(self, sandbox: str, action: str) -> None:
        """``remove``, ``kill``, ``deleted``, ``revoke`` (all tokens), ``status:X``, ``run:<shell text>``."""
        self.ask("POST", "act", {"sandbox": sandbox, "action": action})

    def set(self, **settings: Any) -> None:
        """Change a setting: ``api_key``, ``token_life``, ``enforce_timeout``, ``announce``."""
        self.ask("POST", "settings", settings)
