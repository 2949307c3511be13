# SPDX-License-Identifier: Apache-2.0
"""From a request to the operation it asks for, through the switchboard."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from servers.http1 import Cut, PeerGone, Request, Response, answer_json, error, forward
from servers.opensandbox import egress
from servers.opensandbox.faults import Fault, Switchboard
from servers.opensandbox.lifecycle import (
    EGRESS_PORT,
    EXECD_PORT,
    Lifecycle,
    Sandbox,
    not_found,
    unavailable,
)
from servers.opensandbox.settings import Settings

_PROXY = re.compile(r"(?:/v1)?/sandboxes/([^/]+)/proxy/(\d+)(/.*)?")
_DIRECT = re.compile(r"/proxy/(\d+)(/.*)?")
_SANDBOX = re.compile(r"(?:/v1)?/sandboxes/([^/]+)(?:/(metadata|pause|resume|endpoints/([^/]+)))?")
_SANDBOXES = re.compile(r"(?:/v1)?/sandboxes")
_OF_EXECD = {
    ("GET", "/ping"): "ping",
    ("POST", "/command"): "command",
    ("DELETE", "/command"): "interrupt",
    ("GET", "/files/info"): "info",
    ("GET", "/files/download"): "download",
    ("POST", "/files/upload"): "upload",
    ("DELETE", "/files"): "remove",
    ("GET", "/directories/list"): "directory",
    ("POST", "/directories"): "mkdirs",
}
OPERATIONS = (
    *("*", "create", "get", "delete", "list", "patch", "pause", "resume", "endpoint", "metrics", "health"),
    *("ping", "command", "interrupt", "info", "download", "upload", "remove", "directory", "mkdirs", "other"),
    *("policy", "unknown"),
)
_KEPT_BODY = 64 * 1024


class Routes:
    """The whole server but its sockets."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._original = replace(settings)
        self.board = Switchboard()
        self.lifecycle = Lifecycle(settings, self._direct)
        self._log: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def handle(self, request: Request) -> Response:
        if request.raw_path.startswith("/__test__/"):
            return self._control(request)
        response = self._lifecycle_request(request)
        response.headers.setdefault("x-request-id", uuid.uuid4().hex)
        return response

    # -- the API ------------------------------------------------------------------------------

    def _lifecycle_request(self, request: Request) -> Response:
        path = request.raw_path
        if found := _PROXY.fullmatch(path):
            sandbox, port, rest = found[1], int(found[2]), found[3] or "/"
            return self._inner(self.lifecycle.find(sandbox), sandbox, port, rest, request, proxied=True)
        operation, handle, sandbox = self._operation(request)

        def guarded(changed: Request) -> Response:
            return self._refuse_key(changed) or handle(changed)

        self._note(operation, request, sandbox)
        return self.board.answer(operation, request, guarded, self._actor(sandbox))

    def _refuse_key(self, request: Request) -> Response | None:
        key = self.settings.api_key
        given = request.headers.get("open-sandbox-api-key")
        if not key or given == key or request.path == "/health":
            return None
        if not given:
            return error(401, "MISSING_API_KEY", "Authentication credentials are missing.")
        return error(401, "INVALID_API_KEY", "Authentication credentials are invalid.")

    def _operation(self, request: Request) -> tuple[str, Callable[[Request], Response], str]:
        """The name of the operation, what does it, and the sandbox it is about."""
        path, method, life = request.path, request.method, self.lifecycle
        if method == "GET" and path == "/health":
            return "health", lambda r: answer_json({"status": "healthy"}), ""
        if method == "POST" and path in ("/v1/metrics/events", "/metrics/events"):
            return "metrics", lambda r: Response(204), ""
        if _SANDBOXES.fullmatch(path):
            if method == "POST":
                return "create", life.create, ""
            if method == "GET":
                return "list", life.list, ""
        found = _SANDBOX.fullmatch(path)
        named: dict[tuple[str, str], tuple[str, Callable[[Sandbox, Request], Response]]] = {
            ("GET", ""): ("get", life.get),
            ("DELETE", ""): ("delete", life.delete),
            ("PATCH", "metadata"): ("patch", life.patch),
            ("POST", "pause"): ("pause", life.pause),
            ("POST", "resume"): ("resume", life.resume),
        }
        if found:
            sandbox, part, port = found[1], found[2] or "", found[3]
            if port and method == "GET":
                return "endpoint", self._about(sandbox, lambda s, r: life.endpoint(s, port, r)), sandbox
            if (method, part) in named:
                name, action = named[method, part]
                return name, self._about(sandbox, action), sandbox
        return (
            "unknown",
            lambda r: answer_json({"code": "GENERAL::UNKNOWN_ERROR", "message": "Not Found"}, 404),
            "",
        )

    def _about(
        self, sandbox: str, action: Callable[[Sandbox, Request], Response]
    ) -> Callable[[Request], Response]:
        def handle(request: Request) -> Response:
            found = self.lifecycle.find(sandbox)
            return not_found(sandbox) if found is None else action(found, request)

        return handle

    # -- what is inside a sandbox ---------------------------------------------------------------

    def _direct(self, sandbox: Sandbox) -> Callable[[Request], Response]:
        def handle(request: Request) -> Response:
            found = _DIRECT.fullmatch(request.raw_path)
            port, rest = (int(found[1]), found[2] or "/") if found else (EXECD_PORT, request.raw_path)
            return self._inner(sandbox, sandbox.id, port, rest, request, proxied=False)

        return handle

    def _inner(
        self, sandbox: Sandbox | None, name: str, port: int, path: str, request: Request, *, proxied: bool
    ) -> Response:
        """Pass a request on to the agent or the sidecar; ``proxied`` by the server: it hides a cut."""
        _, mark, query = request.target.partition("?")
        inner = request._replace(target=path + mark + query)
        operation = "policy" if port == EGRESS_PORT else _OF_EXECD.get((request.method, path), "other")
        self._note(operation, request, name)

        def handle(changed: Request) -> Response:
            if sandbox is None:
                return not_found(name)
            if sandbox.state not in ("Running", "Paused"):
                return unavailable()
            if port == EGRESS_PORT and sandbox.policy is not None and self.settings.egress_mode != "none":
                return egress.answer(sandbox, self.settings, path, changed)
            if port != EXECD_PORT or not sandbox.box.alive:
                return _unreachable(sandbox, port)
            try:
                return _mended(forward(sandbox.box.port, changed), proxied=proxied)
            except ConnectionRefusedError:
                return _unreachable(sandbox, port)
            except PeerGone as e:
                if not proxied:
                    raise Cut from e
                return error(500, "GENERAL::UNKNOWN_ERROR", "An internal error occurred in the proxy: ")

        return self.board.answer(operation, inner, handle, self._actor(name))

    # -- what tests ask for -----------------------------------------------------------------------

    def _note(self, operation: str, request: Request, sandbox: str) -> None:
        entry = {
            "operation": operation,
            "sandbox": sandbox,
            "method": request.method,
            "target": request.target,
            "headers": request.headers,
            "body": request.body[:_KEPT_BODY].decode("utf-8", "replace"),
            "size": len(request.body),
            "at": request.at,
        }
        with self._lock:
            self._log.append(entry)

    def _actor(self, name: str) -> Callable[[str], None]:
        def act(action: str) -> None:
            sandbox = self.lifecycle.find(name)
            if sandbox is not None:
                self._act(sandbox, action)

        return act

    def _act(self, sandbox: Sandbox, action: str) -> None:
        verb, _, rest = action.partition(":")
        if verb == "kill-execd":
            sandbox.box.end()
        elif verb == "stop":
            sandbox.state = "Stopped"
            sandbox.box.end()
        elif verb == "freeze":
            sandbox.box.freeze()
        elif verb == "thaw":
            sandbox.box.thaw()
        elif verb == "expire":
            sandbox.expires = 0.0
        elif verb == "remove":
            self.lifecycle.forget(sandbox)
        elif verb == "state":
            sandbox.state = rest
        elif verb == "run":
            body = answer_json({"command": rest}).body
            assert isinstance(body, bytes)
            run = Request("POST", "/command", {"host": "execd"}, body)
            for piece in forward(sandbox.box.port, run).pieces():
                if b'"execution_complete"' in piece or b'"type":"error"' in piece:
                    break
        else:
            raise ValueError(f"there is no action {action!r}")

    def _reset(self) -> None:
        """As it was when it started."""
        self.board.clear()
        for sandbox in self.lifecycle.all():
            self.lifecycle.forget(sandbox)
        for field in fields(self.settings):
            setattr(self.settings, field.name, getattr(self._original, field.name))
        with self._lock:
            self._log.clear()

    def _control(self, request: Request) -> Response:
        """Faults, requests so far, settings, actions: not part of the API."""
        what = request.path.removeprefix("/__test__/")
        try:
            if what == "faults" and request.method == "POST":
                fault = Fault(**request.json())
                if fault.operation not in OPERATIONS:
                    raise ValueError(f"there is no operation {fault.operation!r}")
                self.board.add(fault)
            elif what == "faults" and request.method == "DELETE":
                self.board.clear()
            elif what == "requests" and request.method == "GET":
                with self._lock:
                    return answer_json(self._log)
            elif what == "requests" and request.method == "DELETE":
                with self._lock:
                    self._log.clear()
            elif what == "settings" and request.method == "POST":
                for name, value in request.json().items():
                    getattr(self.settings, name)
                    setattr(self.settings, name, value)
            elif what == "reset" and request.method == "POST":
                self._reset()
            elif what == "sandboxes" and request.method == "GET":
                return answer_json([sandbox.describe() for sandbox in self.lifecycle.all()])
            elif what == "act" and request.method == "POST":
                asked = request.json()
                sandbox = self.lifecycle.find(asked["sandbox"])
                if sandbox is None:
                    return not_found(asked["sandbox"])
                self._act(sandbox, asked["action"])
            else:
                return error(404, "TEST", f"no control {request.method} {what}")
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            return error(400, "TEST", f"{type(e).__name__}: {e}")
        return answer_json({})


def _unreachable(sandbox: Sandbox, port: int) -> Response:
    place = f"endpoint='127.0.0.1:{port}' of {sandbox.id}"
    return error(
        502, "GENERAL::UNKNOWN_ERROR", f"Could not connect to the backend sandbox {place}: connection failed"
    )


def _mended(response: Response, *, proxied: bool) -> Response:
    """A body that ends too early: the server closes a stream as if it were whole, anything else is cut.

    Before its first byte the agent's own proxy, which is what a published port leads to, still turns the
    status into 500; the headers stay.
    """
    source = response.pieces()
    hidden = proxied and response.length is None
    first = b""
    lost = False
    if not proxied and response.length:
        try:
            first = next(source, b"")
        except PeerGone:
            lost = True
            response.status = 500

    def body() -> Iterator[bytes]:
        if lost:
            raise Cut
        yield first
        try:
            yield from source
        except PeerGone as e:
            if not hidden:
                raise Cut from e

    response.body = body()
    return response
