# SPDX-License-Identifier: Apache-2.0
"""What of the OpenSandbox backend works from this machine, for ``sandbox-native doctor``."""

from __future__ import annotations

from sandbox_native.backends import _opensandbox_service as service
from sandbox_native.contract import SandboxTerminalError

Check = tuple[str, bool, str, str]
_TIMEOUT = 10.0


def diagnose(version: str) -> list[Check]:
    """(check, works, detail, what to do): the server can be reached, and takes the key. Creates nothing."""
    try:
        settings = service.resolve(None, None)
    except SandboxTerminalError as e:
        return [
            (
                "OpenSandbox server",
                False,
                str(e),
                f"set {service.DOMAIN_VARIABLE}, {service.API_KEY_VARIABLE}",
            )
        ]
    where = settings.base_url.removesuffix("/v1")
    set_domain = f"set {service.DOMAIN_VARIABLE}=host:port, or start the server"
    server = service.Service(settings, version)
    try:
        answer = server.lifecycle(
            "reach the server", "GET", "/sandboxes?pageSize=1", timeout=_TIMEOUT, attempts=2, may_cut=True
        )
    except SandboxTerminalError as e:
        return [("OpenSandbox server", False, f"{where}: {e}", set_domain)]
    reached: Check = ("OpenSandbox server", True, where, "")
    key = f"in {service.API_KEY_VARIABLE}" if settings.api_key else "none"
    if answer.status in (401, 403):
        return [
            reached,
            (
                "OpenSandbox key",
                False,
                f"{key}: refused (HTTP {answer.status})",
                f"set {service.API_KEY_VARIABLE}",
            ),
        ]
    if not answer.ok:
        return [
            (
                "OpenSandbox server",
                False,
                f"{where} answers HTTP {answer.status} to a list of sandboxes",
                set_domain,
            )
        ]
    return [reached, ("OpenSandbox key", True, f"{key}: accepted", "")]
