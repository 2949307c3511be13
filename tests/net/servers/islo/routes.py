# SPDX-License-Identifier: Apache-2.0
"""What each request is answered with."""

from __future__ import annotations

import itertools
import re
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, unquote

from servers.http1 import Cut, PeerGone, Request, Response, answer_json, error
from servers.islo.sandboxes import Sandbox
from servers.opensandbox.faults import Fault, Switchboard

_RECORD_BODY = 200_000
_ROUTES = [
    ("list", "GET", r"/sandboxes"),
    ("create", "POST", r"/sandboxes"),
    ("get", "GET", r"/sandboxes/(?P<sandbox>[^/]+)"),
    ("delete", "DELETE", r"/sandboxes/(?P<sandbox>[^/]+)"),
    ("exec", "POST", r"/sandboxes/(?P<sandbox>[^/]+)/exec"),
    ("exec-stream", "POST", r"/sandboxes/(?P<sandbox>[^/]+)/exec/stream"),
    ("result", "GET", r"/sandboxes/(?P<sandbox>[^/]+)/exec/(?P<exec>[^/]+)"),
    ("download", "GET", r"/sandboxes/(?P<sandbox>[^/]+)/files"),
    ("upload", "POST", r"/sandboxes/(?P<sandbox>[^/]+)/files"),
    ("pause", "POST", r"/sandboxes/(?P<sandbox>[^/]+)/pause"),
    ("resume", "POST", r"/sandboxes/(?P<sandbox>[^/]+)/resume"),
]


@dataclass
class Settings:
    """What a deployment decides.

    :param api_key: the only one that is taken.
    :param token_life: ``cookie_max_age`` of a token, in seconds; it is refused after that.
    :param enforce_timeout: a command is killed after its ``timeout_secs``, and has the status ``timeout``.
    :param announce: a download has a Content-Length; else it comes in chunks.
    """

    api_key: str = "test-key"
    token_life: float = 600
    enforce_timeout: bool = False
    announce: bool = False


class Routes:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.faults = Switchboard()
        self.requests: list[dict[str, Any]] = []
        self._tokens: dict[str, float] = {}
        self._sandboxes: dict[str, Sandbox] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    # -- the control plane ----------------------------------------------------------------------

    def control(self, request: Request) -> Response:
        if request.raw_path.startswith("/__test__/"):
            return self._test(request)
        token = request.method == "POST" and request.raw_path == "/auth/token"
        return self._answer(
            "token" if token else "unknown", request, None, self._exchange if token else _nowhere
        )

    def _exchange(self, request: Request) -> Response:
        if request.json().get("access_key") != self.settings.api_key:
            return error(401, "AUTH_REQUIRED", "invalid access key")
        with self._lock:
            token = f"token-{next(self._numbers)}-of-{self.settings.api_key}"
            self._tokens[token] = time.monotonic() + self.settings.token_life
        return answer_json({"session_token": token, "cookie_max_age": self.settings.token_life})

    # -- the compute plane ----------------------------------------------------------------------

    def compute(self, request: Request) -> Response:
        for operation, method, pattern in _ROUTES:
            found = re.fullmatch(pattern, request.raw_path)
            if found and method == request.method:
                names = {key: unquote(value) for key, value in found.groupdict().items()}
                return self._answer(
                    operation,
                    request,
                    names.get("sandbox"),
                    lambda r, o=operation, n=names: self._do(o, r, n),
                )
        return self._answer("unknown", request, None, _nowhere)

    def _answer(self, operation: str, request: Request, sandbox: str | None, handle: Any) -> Response:
        record = {"operation": operation, "sandbox": sandbox, **request._asdict()}
        record["size"] = len(request.body)
        record["body"] = request.body[:_RECORD_BODY].decode("latin-1")
        with self._lock:
            self.requests.append(record)

        def act(action: str) -> None:
            if action == "revoke":
                self._tokens.clear()
            elif sandbox is not None:
                self.act(sandbox, action)

        return self.faults.answer(operation, request, handle, act)

    def _do(self, operation: str, request: Request, names: dict[str, str]) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if time.monotonic() >= self._tokens.get(token, 0.0):
            return error(401, "AUTH_REQUIRED", "missing or invalid session token")
        if operation == "list":
            return self._list(request)
        if operation == "create":
            return self._create(request.json())
        sandbox = self._find(names["sandbox"])
        if sandbox is None:
            return error(404, "SANDBOX_NOT_FOUND", f"sandbox not found: {names['sandbox']}")
        if operation == "get":
            return answer_json(sandbox.json())
        if operation == "delete":
            self.remove(sandbox.name)
            return Response(204)
        if operation in ("pause", "resume"):
            sandbox.status = "paused" if operation == "pause" else "running"
            return answer_json(sandbox.json())
        if operation == "result":
            command = sandbox.execs.get(names["exec"])
            if command is None:
                return error(404, "EXEC_NOT_FOUND", f"exec not found: {names['exec']}")
            return answer_json(command.json())
        if not sandbox.resume():
            return error(409, "SANDBOX_INVALID_STATE", f"sandbox is {sandbox.status}")
        return self._work(operation, request, sandbox)

    def _work(self, operation: str, request: Request, sandbox: Sandbox) -> Response:
        try:
            if operation in ("exec", "exec-stream"):
                return self._exec(operation, request.json(), sandbox)
            path = request.argument("path")
            if not path.startswith("/"):
                return error(400, "INVALID_PATH", f"path must be absolute: {path}")
            target = f"/file?path={quote(path, safe='', errors='surrogateescape')}"
            if operation == "download":
                return self._download(sandbox.ask("GET", target))
            content = file_of(request)
            if content is None:
                return error(400, "INVALID_REQUEST", "no part named file")
            return sandbox.ask("PUT", target, content)
        except (OSError, PeerGone):
            return error(500, "INTERNAL_ERROR", "the sandbox does not answer")

    def _download(self, answer: Response) -> Response:
        size = answer.headers.pop("X-Size", None)
        if size is not None and self.settings.announce:
            answer.length = int(size)
        return answer

    def _exec(self, operation: str, body: dict[str, Any], sandbox: Sandbox) -> Response:
        command = body.get("command")
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            return error(422, "INVALID_REQUEST", "command must be a list of strings")
        started = sandbox.run(body, self.settings.enforce_timeout)
        if operation == "exec":
            identity = sandbox.json()["id"]
            return answer_json({"exec_id": started.id, "sandbox_id": identity, "status": "running"})
        while (result := started.json())["status"] == "running":
            time.sleep(0.005)
        events = [(name, result[name]) for name in ("stdout", "stderr") if result[name]]
        events.append(("exit", str(result["exit_code"])))
        text = "".join(
            f"event: {name}\n" + "".join(f"data: {line}\n" for line in data.split("\n")) + "\n"
            for name, data in events
        )
        return Response(200, text.encode(), headers={"Content-Type": "text/event-stream"})

    def _list(self, request: Request) -> Response:
        found = [sandbox.json() for sandbox in list(self._sandboxes.values())]
        found = [each for each in found if each["name"].startswith(request.argument("name_prefix"))]
        limit, offset = int(request.argument("limit", "50")), int(request.argument("offset", "0"))
        page = found[offset : offset + limit]
        return answer_json({"items": page, "limit": limit, "offset": offset, "total": len(found)})

    def _create(self, body: dict[str, Any]) -> Response:
        with self._lock:
            number = next(self._numbers)
            name = body.get("name") or f"sandbox-{number}"
            if name in self._sandboxes:
                return error(409, "SANDBOX_EXISTS", f"a sandbox named {name} exists")
            sandbox = self._sandboxes[name] = Sandbox(name, number, body)
        return answer_json(sandbox.json(), 201)

    def _find(self, name: str) -> Sandbox | None:
        sandbox = self._sandboxes.get(name)
        if sandbox is not None and sandbox.expired:
            self.remove(name)
            return None
        return sandbox

    def remove(self, name: str) -> None:
        sandbox = self._sandboxes.pop(name, None)
        if sandbox is not None:
            sandbox.end()

    def close(self) -> None:
        for name in list(self._sandboxes):
            self.remove(name)

    # -- for tests ------------------------------------------------------------------------------

    def act(self, name: str, action: str) -> None:
        if action == "remove":
            self.remove(name)
        elif action == "revoke":
            self._tokens.clear()
        elif name in self._sandboxes:
            self._sandboxes[name].act(action)

    def _test(self, request: Request) -> Response:
        what = request.raw_path.removeprefix("/__test__/")
        try:
            return answer_json(self._do_test(request.method, what, request))
        except (ValueError, KeyError, TypeError) as e:
            return answer_json(str(e), 400)

    def _do_test(self, method: str, what: str, request: Request) -> Any:
        if what == "requests":
            if method == "DELETE":
                self.requests = []
            return self.requests
        if what == "sandboxes":
            return [{**each.json(), "asked": each.asked} for each in list(self._sandboxes.values())]
        if what == "faults":
            if method == "DELETE":
                self.faults.clear()
            else:
                self.faults.add(Fault(**request.json()))
        elif what == "act":
            self.act(request.json()["sandbox"], request.json()["action"])
        elif what == "settings":
            self.settings = Settings(**{**asdict(self.settings), **request.json()})
        else:
            raise ValueError(f"there is no {what!r}")
        return None


def _nowhere(request: Request) -> Response:
    return Response(404, b"404 page not found\n", headers={"Content-Type": "text/plain; charset=utf-8"})


def file_of(request: Request) -> bytes | None:
    """The content of the part ``file`` of a form."""
    found = re.fullmatch(
        r'multipart/form-data; boundary="?([^"]+)"?', request.headers.get("content-type", "")
    )
    if found is None:
        return None
    mark = b"\r\n--" + found[1].encode()
    for part in (b"\r\n" + request.body).split(mark)[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if re.search(rb'name="file"', head):
            return content
    return None


__all__ = ["Cut", "Routes", "Settings", "file_of"]
