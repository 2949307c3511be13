# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox by the standard library's HTTP alone: the wire with nothing of this package between.

An oracle: the facts are checked with it against a real deployment and against the test server.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

EXECD = 44772
EGRESS = 18080


@dataclass
class Reply:
    """An answer as it came.

    :ivar cut: the connection ended before the body did.
    """

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    cut: bool = False

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """The code of an error of the server or of execd."""
        return self.json()["code"]


def call(
    url: str,
    method: str = "GET",
    body: Any = None,
    headers: dict[str, str] | None = None,
    timeout: float = 120,
) -> Reply:
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout)
    headers = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    target = parts.path + ("?" + parts.query if parts.query else "")
    with contextlib.closing(connection):
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        reply = Reply(answer.status, answer.headers, b"")
        try:
            while data := answer.read1(1 << 16):  # in parts, for an announced length may be absurd
                reply.body += data
            reply.cut = bool(answer.length)
        except (http.client.IncompleteRead, ConnectionError):
            reply.cut = True
        return reply


@dataclass
class Ran:
    """What a command's stream brought.

    :ivar cut: the stream's connection was cut rather than ended.
    :ivar lingered: seconds from the event that ended the command to the end of the stream.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    raw: bytes = b""
    cut: bool = False
    lingered: float = 0.0

    def lines(self, kind: str = "stdout") -> list[str]:
        return [event["text"] for event in self.events if event["type"] == kind]

    @property
    def last(self) -> dict[str, Any] | None:
        ends = [event for event in self.events if event["type"] in ("error", "execution_complete")]
        assert len(ends) <= 1, ends
        return ends[0] if ends else None

    @property
    def exit(self) -> str | None:
        """The value that tells the exit status; "0" for a completion, None when nothing told one."""
        if self.last is None:
            return None
        return "0" if self.last["type"] == "execution_complete" else self.last["error"]["evalue"]


class Sandbox:
    """One sandbox, reached through the server's proxy or directly."""

    def __init__(self, deployment: Deployment, made: dict[str, Any], proxied: bool) -> None:
        self.deployment = deployment
        self.made = made
        self.id: str = made["id"]
        self.proxied = proxied
        endpoint = self.endpoint(EXECD)["endpoint"]
        self.execd = f"http://{endpoint}"

    def endpoint(self, port: int, proxied: bool | None = None) -> dict[str, Any]:
        proxied = self.proxied if proxied is None else proxied
        answer = self.deployment.call(
            f"/sandboxes/{self.id}/endpoints/{port}?use_server_proxy={str(proxied).lower()}"
        )
        assert answer.status == 200, answer
        made: dict[str, Any] = answer.json()
        return made

    def wait(self) -> None:
        for _ in range(300):
            with contextlib.suppress(OSError):
                if self.call("/ping").status == 200:
                    return
            time.sleep(0.1)
        raise AssertionError("execd does not answer")

    def call(self, path: str, method: str = "GET", body: Any = None, **options: Any) -> Reply:
        return call(self.execd + path, method, body, **options)

    def run(self, command: str, timeout: float = 60_000, **more: Any) -> Ran:
        """Run a command to the end of its stream."""
        ran = Ran()
        for _ in self.follow(ran, command, timeout, **more):
            pass
        return ran

    def follow(
        self, ran: Ran, command: str, timeout: float = 60_000, **more: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield the events of a command as they come, and fill ``ran``."""
        parts = urlsplit(self.execd)
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=120)
        body = json.dumps({"command": command, "timeout": timeout, **more}).encode()
        headers = {"Accept": "text/event-stream", "Content-Type": "application/json"}
        ended = 0.0
        with contextlib.closing(connection):
            connection.request("POST", parts.path + "/command", body, headers)
            answer = connection.getresponse()
            assert answer.status == 200, (answer.status, answer.read())
            assert answer.headers["content-type"].startswith("text/event-stream")
            waiting = b""
            while True:
                try:
                    data = answer.read1(1 << 20)
                except (http.client.IncompleteRead, ConnectionError):
                    ran.cut = True
                    break
                if not data:
                    # An end of the connection inside of a chunked body looks the same here as its end.
                    ran.cut = answer.chunk_left is not None
                    break
                ran.raw += data
                waiting += data
                *frames, waiting = waiting.split(b"\n\n")
                for frame in frames:
                    event = json.loads(frame)
                    ran.events.append(event)
                    if event["type"] in ("error", "execution_complete"):
                        ended = time.monotonic()
                    yield event
        if ended:
            ran.lingered = time.monotonic() - ended

    def upload(self, path: str, content: bytes, **metadata: Any) -> Reply:
        boundary = "b" * 30
        described = json.dumps({"path": path, "owner": None, "group": None, "mode": 644, **metadata})
        body = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n'
            f"Content-Type: application/json\r\n\r\n{described}\r\n"
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="upload"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        body += content + f"\r\n--{boundary}--\r\n".encode()
        return self.call(
            "/files/upload",
            "POST",
            body,
            headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
        )

    def download(self, path: str, wanted: str | None = None) -> Reply:
        headers = {} if wanted is None else {"Range": wanted}
        return self.call(f"/files/download?path={quote(path, safe='')}", headers=headers)

    def info(self, *paths: str) -> Reply:
        return self.call("/files/info?" + urlencode([("path", path) for path in paths]))

    def list(self, path: str, depth: int = 1) -> Reply:
        return self.call("/directories/list?" + urlencode({"path": path, "depth": depth}))

    def delete(self) -> Reply:
        return self.deployment.call(f"/sandboxes/{self.id}", "DELETE")


@dataclass
class Deployment:
    """A deployment of OpenSandbox.

    :ivar domain: ``host:port`` of the server.
    :ivar linger: seconds for which the stream of a command stays open after its last event.
    """

    domain: str
    key: str
    image: str = "python:3.12-slim"
    linger: float = 1.0

    def kill_execd(self, sandbox: Sandbox) -> None:
        """End the agent inside of a sandbox from there: the shell of a command is its child."""
        # Whether the answer begins before the agent is gone is chance; the proxy says 502 where it does not.
        with contextlib.suppress(ConnectionError, http.client.IncompleteRead):
            sandbox.call("/command", "POST", {"command": "kill -9 $PPID", "timeout": 60_000})

    def call(self, path: str, method: str = "GET", body: Any = None, **options: Any) -> Reply:
        options.setdefault("headers", {"OPEN-SANDBOX-API-KEY": self.key})
        return call(f"http://{self.domain}/v1{path}", method, body, **options)

    def create(self, **fields: Any) -> Reply:
        body: dict[str, Any] = {
            "image": {"uri": self.image},
            "timeout": 600,
            "resourceLimits": {"cpu": "1", "memory": "1Gi"},
            "env": {},
            "metadata": {"created-by": "wire-facts"},
            "entrypoint": ["tail", "-f", "/dev/null"],
            "secureAccess": False,
        }
        return self.call("/sandboxes", "POST", {**body, **fields})

    @contextlib.contextmanager
    def sandbox(self, proxied: bool, **fields: Any) -> Iterator[Sandbox]:
        answer = self.create(**fields)
        assert answer.status == 202, (answer.status, answer.body)
        sandbox = Sandbox(self, answer.json(), proxied)
        try:
            sandbox.wait()
            yield sandbox
        finally:
            assert sandbox.delete().status in (204, 404)
