# SPDX-License-Identifier: Apache-2.0
"""The network policy of a sandbox: what a spec asks for, and whether the egress sidecar enforces it.

The server takes a policy whether or not it runs the sidecar that enforces it, and a sidecar in ``dns`` mode
only refuses to resolve names. So the policy is read back, and only the mode that stops connections counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sandbox_native.backends._opensandbox_service import Service
from sandbox_native.contract import SandboxError, SandboxSpec, SandboxTerminalError
from sandbox_native.http import TransportError

#: Port of the egress sidecar.
EGRESS_PORT = 18080
_ENFORCING_MODE = "dns+nft"
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
# A name, or all below one (`*.`). What else a list holds would never match a name that is looked up.
_HOST = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")


def requested(spec: SandboxSpec | None) -> dict[str, Any] | None:
    """The ``networkPolicy`` of the request that creates a sandbox; None for an open network.

    :raises SandboxTerminalError: the spec asks for what cannot be enforced here.
    """
    if spec is None:
        return None
    if spec.allow_egress_to_cidrs:
        raise SandboxTerminalError(
            "SandboxSpec names allow_egress_to_cidrs, which this backend does not support yet. Use "
            "allow_egress_to with host names, or a backend that enforces address ranges."
        )
    hosts = spec.allow_egress_to
    if not spec.block_network:
        if hosts:
            raise SandboxTerminalError(
                "SandboxSpec.allow_egress_to lists what a blocked network still lets through: set "
                "block_network=True, or drop the list."
            )
        return None
    policy: dict[str, Any] = {"defaultAction": "deny"}
    if hosts:
        if isinstance(hosts, (str, bytes)):
            raise SandboxTerminalError(
                "SandboxSpec.allow_egress_to must be a list of host names, not a text."
            )
        policy["egress"] = [{"action": "allow", "target": _checked(host)} for host in hosts]
    return policy


def _checked(host: object) -> str:
    if isinstance(host, str) and len(host) <= 253 and _HOST.fullmatch(host):
        return host
    raise SandboxTerminalError(
        f"SandboxSpec.allow_egress_to has {host!r}, which matches no host: give a name such as example.com "
        "or *.example.com, without a scheme, port, path or final dot."
    )


def problem(service: Service, url: str, headers: Mapping[str, str], wanted: Mapping[str, Any]) -> str | None:
    """What keeps the policy ``wanted`` from being enforced, None if nothing does.

    :param url: of the egress sidecar.
    """
    try:
        answer = service.ask("read the network policy back", "GET", f"{url}/policy", headers=headers)
        if not answer.ok:
            # The name is that of the vendor's exception, which users of the provider know this text by.
            return _unread(f"SandboxApiException, HTTP {answer.status}")
        status = answer.json()
    except SandboxTerminalError as e:
        cause = e.__cause__
        unreachable = isinstance(cause, TransportError) and not cause.sent
        return _unread("ConnectError" if unreachable else str(e))
    except (SandboxError, ValueError) as e:
        return _unread(type(e).__name__)
    return _difference(status, wanted)


def _unread(why: str) -> str:
    return f"the policy could not be read back ({why}). The server may be running without its egress sidecar."


def _difference(status: Any, wanted: Mapping[str, Any]) -> str | None:
    policy = status.get("policy") if isinstance(status, dict) else None
    if not isinstance(policy, dict):
        return _unread("an answer without a policy")
    rules = policy.get("egress") or []
    try:
        allowed = {rule["target"] for rule in rules if rule["action"] == "allow"}
    except (TypeError, KeyError):
        return _unread("an answer with malformed rules")
    asked = {rule["target"] for rule in wanted.get("egress", ())}
    default = policy.get("defaultAction")
    if default != "deny" or allowed != asked:
        return (
            f"the enforced policy is default {default!r} with allow {sorted(map(str, allowed))}. The server "
            "may be running without its egress sidecar."
        )
    mode = status.get("enforcementMode")
    if mode == _ENFORCING_MODE:
        return None
    if not isinstance(mode, str) or not mode:
        trouble = (
            "its egress sidecar does not report an enforcement mode. Upgrade the sidecar to v1.0.1 or later "
            f"and run it in {_ENFORCING_MODE} mode."
        )
    else:
        trouble = (
            f"its egress sidecar enforces it in {mode!r} mode, where addresses stay within reach and only "
            f'names are refused. Set [egress] mode = "{_ENFORCING_MODE}" in the configuration of the server.'
        )
    return f"{trouble} Or pass SandboxSpec(block_network=False) for a sandbox that may reach the network."
