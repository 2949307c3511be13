# SPDX-License-Identifier: Apache-2.0
"""The Islo server, as tests handle it."""

from __future__ import annotations

from servers.process import ServerProcess


class IsloServer(ServerProcess):
    """:param flags: of the command line without a value: ``enforce-timeout``, ``announce``.

    Settings: ``api_key``, ``token_life``, ``enforce_timeout``, ``announce``.
    """

    def __init__(self, *flags: str, api_key: str = "test-key") -> None:
        super().__init__("islo", *(f"--{flag}" for flag in flags), api_key=api_key)
        self.control, self.compute = self.urls

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a backend, or the SDK, finds this server."""
        return {
            "ISLO_API_KEY": self.api_key,
            "ISLO_BASE_URL": self.control,
            "ISLO_COMPUTE_URL": self.compute,
        }

    def sandboxes(self) -> list[str]:
        """The names of the sandboxes there are."""
        return [each["name"] for each in self.ask("GET", "sandboxes")]

    def act(self, sandbox: str, action: str) -> None:
        """``remove``, ``kill``, ``deleted``, ``revoke`` (all tokens), ``status:X``, ``run:<shell text>``."""
        self.ask("POST", "act", {"sandbox": sandbox, "action": action})
