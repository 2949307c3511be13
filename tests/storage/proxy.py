# SPDX-License-Identifier: Apache-2.0
"""A proxy before a real S3 server that refuses, breaks and records what it is told to."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

HOP = {"connection", "keep-alive", "transfer-encoding", "expect"}


@dataclass(frozen=True)
class Request:
    """What S3 calls it, and of which key."""

    operation: str
    bucket: str
    key: str
    part: int
    agent: str


def operation(method: str, path: str, headers: http.client.HTTPMessage) -> Request:
    url = urlsplit(path)
    bucket, _, key = unquote(url.path).lstrip("/").partition("/")
    query = parse_qs(url.query, keep_blank_values=True)
    copied = "x-amz-copy-source" in headers
    if "uploads" in query:
        name = "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
    elif "uploadId" in query:
        part = "UploadPartCopy" if copied else "UploadPart"
        name = {
            "PUT": part,
            "POST": "CompleteMultipartUpload",
            "DELETE": "AbortMultipartUpload",
            "GET": "ListParts",
        }[method]
    elif key:
        name = {"PUT": "CopyObject" if copied else "PutObject", "DELETE": "DeleteObject"}.get(
            method, f"{method.capitalize()}Object"
        )
    else:
        name = {"PUT": "CreateBucket"}.get(method, f"{method.capitalize()}Bucket")
    return Request(name, bucket, key, int(query.get("partNumber", ["0"])[0]), headers.get("user-agent", ""))


Rule = Callable[[Request], str | None]
"""What to do with a request: ``None`` for passing it on, else ``refuse`` (403), ``break`` (close, unsent),
``lose`` (pass it on and close before the answer), or a number: the status of an answer without a body."""


@dataclass
class Proxy:
    """Where it listens, what it saw, and the rule it follows."""

    endpoint: str
    seen: list[Request] = field(default_factory=list)
    rule: Rule = lambda _: None

    def count(self, name: str) -> int:
        return sum(request.operation == name for request in self.seen)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """A client that hung up is no fault here."""


@contextlib.contextmanager
def before(endpoint: str) -> Iterator[Proxy]:
    """A proxy before ``endpoint``."""
    upstream = urlsplit(endpoint)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def handle_any(self) -> None:
            request = operation(self.command, self.path, self.headers)
            with lock:
                proxy.seen.append(request)
            body = self._body()
            action = proxy.rule(request)
            if action == "break":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if action == "refuse":
                text = (
                    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code>'
                    b"<Message>the proxy says no</Message></Error>"
                )
                self._answer(403, [("Content-Type", "application/xml")], text)
                return
            if action is not None and action.isdecimal():
                self._answer(int(action), [], b"")
                return
            connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port or 80, timeout=120)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in HOP:
                        connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                data = answer.read()
            finally:
                connection.close()
            if action == "lose":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self._answer(answer.status, answer.getheaders(), data)

        def _body(self) -> bytes:
            if self.headers.get("expect", "").lower() == "100-continue":
                self.send_response_only(100)
                self.end_headers()
            return self.rfile.read(int(self.headers.get("content-length", 0)))

        def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
            self.send_response_only(status)
            sized = False
            for name, value in headers:
                if name.lower() not in HOP:
                    sized |= name.lower() == "content-length"
                    self.send_header(name, value)
            if not sized:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    server = _Server(("127.0.0.1", 0), Handler)
    proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
