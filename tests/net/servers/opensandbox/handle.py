# SPDX-License-Identifier: Apache-2.0
"""The OpenSandbox server, as tests handle it."""

from __future__ import annotations

from typing import Any

from servers.process import ServerProcess


class OpenSandboxServer(ServerProcess):
    """:param options: of the command line: ``egress_mode``, ``max_timeout``, ``linger``, ``port``.

    Settings: ``api_key``, ``egress_mode``, ``max_timeout``, ``linger`` (for new sandboxes).
    """

    def __init__(self, *, api_key: str = "test-key", **options: Any) -> None:
        arguments = (f"--{name.replace('_', '-')}={value}" for name, value in options.items())
        super().__init__("opensandbox", *arguments, api_key=api_key)
        (self.url,) = self.urls
        self.domain = self.url.removeprefix("http://")

    def sandboxes(self) -> list[dict[str, Any]]:
        """The sandboxes there are, as the API describes them."""
        found: list[dict[str, Any]] = self.ask("GET", "sandboxes")
        return found

    def act(self, sandbox: str, action: str) -> None:
        """``kill-execd stop freeze thaw expire remove``, ``state:X`` or ``run:<shell text>``."""
        self.ask("POST", "act", {"sandbox": sandbox, "action": action})

    def reset(self) -> None:
        """As it was when it started: no sandboxes, no faults, no requests, its own settings."""
        self.ask("POST", "reset", {})
