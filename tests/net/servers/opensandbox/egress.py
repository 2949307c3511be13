# SPDX-License-Identifier: Apache-2.0
"""The egress sidecar's ``/policy``: what is enforced, read back."""

from __future__ import annotations

from servers.http1 import Request, Response, answer_json
from servers.opensandbox.lifecycle import Sandbox
from servers.opensandbox.settings import Settings

_PLAIN = {"Content-Type": "text/plain; charset=utf-8"}


def answer(sandbox: Sandbox, settings: Settings, path: str, request: Request) -> Response:
    if path != "/policy":
        return Response(404, b"404 page not found\n", headers=_PLAIN)
    if request.headers.get("opensandbox-egress-auth") != sandbox.egress_token:
        return Response(401, b"unauthorized\n", headers=_PLAIN)
    if request.method != "GET":
        return Response(405, b"method not allowed\n", headers=_PLAIN)
    policy = sandbox.policy or {}
    rules = policy.get("egress") or []
    default = policy.get("defaultAction") or "deny"
    mode = "enforcing" if rules else ("deny_all" if default == "deny" else "allow_all")
    body = {"status": "ok", "mode": mode, "policy": {"egress": rules, "defaultAction": default}}
    if settings.egress_mode:
        body["enforcementMode"] = settings.egress_mode
    return answer_json(body)
