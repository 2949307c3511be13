# SPDX-License-Identifier: Apache-2.0
"""Sandboxes and their metadata: the ``/v1/sandboxes`` part of the API."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from servers.http1 import Request, Response, Server, answer_json, error, listen
from servers.opensandbox.box import Box
from servers.opensandbox.settings import Settings

EXECD_PORT = 44772
EGRESS_PORT = 18080
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Sandbox:
    def __init__(self, body: dict[str, Any], settings: Settings) -> None:
        self.id = str(uuid.uuid4())
        self.body = body
        self.metadata: dict[str, str] = dict(body.get("metadata") or {})
        self.state = "Running"
        self.created = time.time()
        timeout = body.get("timeout")
        self.expires = None if timeout is None else self.created + float(timeout)
        self.policy: dict[str, Any] | None = body.get("networkPolicy")
        self.egress_token = uuid.uuid4().hex if self.policy is not None else ""
        env = {str(name): str(value) for name, value in (body.get("env") or {}).items() if value is not None}
        self.box = Box(self.id[:12], body["image"]["uri"], env, settings.linger)
        self.direct: Server | None = None

    def describe(self) -> dict[str, Any]:
        reason = {"Running": "CONTAINER_RUNNING", "Paused": "CONTAINER_PAUSED"}.get(
            self.state, "CONTAINER_EXITED"
        )
        answer = {
            "id": self.id,
            "image": {"uri": self.body["image"]["uri"]},
            "status": {"state": self.state, "reason": reason, "lastTransitionAt": instant(self.created)},
            "metadata": self.metadata,
            "entrypoint": self.body["entrypoint"],
            "createdAt": instant(self.created),
        }
        if self.expires is not None:
            answer["expiresAt"] = instant(self.expires)
        return answer

    def end(self) -> None:
        self.box.end()
        if self.direct is not None:
            self.direct.close()


class Lifecycle:
    """Every sandbox of the server.

    :param open_direct: the handler of a sandbox's published port.
    """

    def __init__(self, settings: Settings, open_direct: Callable[[Sandbox], Callable[[Request], Response]]):
        self._settings = settings
        self._open_direct = open_direct
        self._sandboxes: dict[str, Sandbox] = {}
        self._lock = threading.Lock()

    def find(self, sandbox: str) -> Sandbox | None:
        with self._lock:
            found = self._sandboxes.get(sandbox)
        if found is not None and found.expires is not None and found.expires < time.time():
            self.forget(found)
            return None
        return found

    def forget(self, sandbox: Sandbox) -> None:
        with self._lock:
            self._sandboxes.pop(sandbox.id, None)
        sandbox.end()

    def all(self) -> list[Sandbox]:
        with self._lock:
            return list(self._sandboxes.values())

    # -- operations ---------------------------------------------------------------------------

    def create(self, request: Request) -> Response:
        try:
            body = request.json()
        except ValueError:
            return unprocessable("json_invalid", ["body", 0], "JSON decode error")
        refused = _refuse_create(body, self._settings.max_timeout)
        if refused is not None:
            return refused
        sandbox = Sandbox(body, self._settings)
        sandbox.direct = Server(listen(), self._open_direct(sandbox)).start()

        # A published port refuses connections as soon as nobody is behind it.
        def watch(direct: Server) -> None:
            sandbox.box.wait()
            direct.close()

        threading.Thread(target=watch, args=(sandbox.direct,), daemon=True).start()
        with self._lock:
            self._sandboxes[sandbox.id] = sandbox
        answer = sandbox.describe()
        del answer["image"]
        return answer_json(answer, 202)

    def get(self, sandbox: Sandbox, request: Request) -> Response:
        return answer_json(sandbox.describe())

    def delete(self, sandbox: Sandbox, request: Request) -> Response:
        self.forget(sandbox)
        return Response(204)

    def patch(self, sandbox: Sandbox, request: Request) -> Response:
        try:
            patch = request.json()
        except ValueError:
            return unprocessable("json_invalid", ["body", 0], "JSON decode error")
        if not isinstance(patch, dict):
            return unprocessable("dict_type", ["body"], "Input should be a valid dictionary")
        for name, value in patch.items():
            if value is not None and not isinstance(value, str):
                return unprocessable("string_type", ["body", name], "Input should be a valid string")
        refused = refuse_labels({name: value or "" for name, value in patch.items()})
        if refused is not None:
            return refused
        with self._lock:
            for name, value in patch.items():
                if value is None:
                    sandbox.metadata.pop(name, None)
                else:
                    sandbox.metadata[name] = value
            return answer_json(sandbox.describe())

    def list(self, request: Request) -> Response:
        try:
            wanted = dict(
                parse_qsl(request.argument("metadata"), keep_blank_values=True, strict_parsing=True)
                if request.argument("metadata")
                else ()
            )
        except ValueError as e:
            return error(400, "INVALID_METADATA_FORMAT", f"Invalid metadata format: {e}")
        states = [value for name, value in request.query if name == "state"]
        page, size = int(request.argument("page", "1")), int(request.argument("pageSize", "20"))
        if page < 1 or not 1 <= size <= 200:
            return unprocessable("range", ["query", "pageSize"], "Input should be in range")
        found = [
            sandbox.describe()
            for sandbox in sorted(self.all(), key=lambda each: -each.created)
            if wanted.items() <= sandbox.metadata.items() and (not states or sandbox.state in states)
        ]
        pages = -(-len(found) // size)
        pagination = {"page": page, "pageSize": size, "totalItems": len(found), "totalPages": pages}
        items = found[(page - 1) * size : page * size]
        return answer_json({"items": items, "pagination": {**pagination, "hasNextPage": page < pages}})

    def endpoint(self, sandbox: Sandbox, port: str, request: Request) -> Response:
        if not port.isdigit() or not 1 <= int(port) <= 65535:
            return error(400, "DOCKER::INVALID_PORT", "Port must be between 1 and 65535.")
        if sandbox.state not in ("Running", "Paused"):
            return unavailable()
        if request.argument("use_server_proxy").lower() in ("true", "1", "yes", "on"):
            host = request.headers.get("host", "")
            answer: dict[str, Any] = {"endpoint": f"{host}/v1/sandboxes/{sandbox.id}/proxy/{port}"}
        else:
            assert sandbox.direct is not None
            answer = {"endpoint": f"127.0.0.1:{sandbox.direct.port}/proxy/{port}"}
        if int(port) == EGRESS_PORT and sandbox.egress_token and self._settings.egress_mode != "none":
            answer["headers"] = {"OPENSANDBOX-EGRESS-AUTH": sandbox.egress_token}
        return answer_json(answer)

    def pause(self, sandbox: Sandbox, request: Request) -> Response:
        if sandbox.state != "Running":
            return error(409, "DOCKER::SANDBOX_NOT_RUNNING", "Sandbox is not in a running state.")
        sandbox.box.freeze()
        sandbox.state = "Paused"
        return Response(202)

    def resume(self, sandbox: Sandbox, request: Request) -> Response:
        if sandbox.state != "Paused":
            return error(409, "DOCKER::SANDBOX_NOT_PAUSED", "Sandbox is not in a paused state.")
        sandbox.box.thaw()
        sandbox.state = "Running"
        return Response(202)


def instant(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1e6):06d}Z"


def not_found(sandbox: str) -> Response:
    return error(404, "DOCKER::SANDBOX_NOT_FOUND", f"Sandbox {sandbox} not found.")


def unavailable() -> Response:
    return error(
        500,
        "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE",
        "The sandbox's container has no address: not running.",
    )


def unprocessable(kind: str, place: list[Any], message: str) -> Response:
    return answer_json({"detail": [{"type": kind, "loc": place, "msg": message}]}, 422)


def _refuse_create(body: Any, longest: float | None) -> Response | None:
    if not isinstance(body, dict):
        return unprocessable("model_attributes_type", ["body"], "Input should be a valid dictionary")
    image = body.get("image")
    if not isinstance(image, dict) or not str(image.get("uri") or "").strip():
        return unprocessable("value_error", ["body"], "Exactly one of image or snapshotId must be provided.")
    if not isinstance(body.get("entrypoint"), list) or not body["entrypoint"]:
        return unprocessable("value_error", ["body"], "Entrypoint is required when image is provided.")
    timeout = body.get("timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float))):
        return unprocessable("int_type", ["body", "timeout"], "Input should be a valid integer")
    if timeout is not None and timeout % 1:
        message = "Input should be a valid integer, got a number with a fractional part"
        return unprocessable("int_from_float", ["body", "timeout"], message)
    if timeout is not None and timeout < 60:
        return unprocessable(
            "greater_than_equal", ["body", "timeout"], "Input should be greater than or equal to 60"
        )
    for field in ("metadata", "env", "resourceLimits"):
        for name, value in (body.get(field) or {}).items():
            if not isinstance(value, str):
                return unprocessable("string_type", ["body", field, name], "Input should be a valid string")
    for number, rule in enumerate((body.get("networkPolicy") or {}).get("egress") or ()):
        if not rule.get("target"):
            place = ["body", "networkPolicy", "egress", number, "target"]
            return unprocessable("string_too_short", place, "String should have at least 1 character")
    if longest is not None and timeout is not None and timeout > longest:
        return error(
            400,
            "SANDBOX::INVALID_PARAMETER",
            f"Sandbox timeout {timeout}s exceeds configured maximum of {longest:g}s.",
        )
    return refuse_labels(body.get("metadata") or {})


def refuse_labels(metadata: dict[str, str]) -> Response | None:
    """The rules of Kubernetes for labels."""
    for key, value in metadata.items():
        prefix, slash, name = key.partition("/") if "/" in key else ("", "", key)
        if key.startswith("opensandbox.io/"):
            problem = f"Metadata key '{key}' uses the reserved prefix 'opensandbox.io/'."
        elif len(name) > 63 or not _LABEL.fullmatch(name):
            problem = f"Metadata key '{key}' is invalid."
        elif slash and (len(prefix) > 253 or not _DNS.fullmatch(prefix)):
            problem = f"Metadata key '{key}' is invalid: its prefix is no DNS name."
        elif len(value) > 63 or (value and not _LABEL.fullmatch(value)):
            problem = f"Metadata value '{value}' is invalid."
        else:
            continue
        return error(400, "SANDBOX::INVALID_METADATA_LABEL", problem)
    return None
