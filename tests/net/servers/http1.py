# SPDX-License-Identifier: Apache-2.0
"""Just enough of an HTTP/1.1 server for the test servers: one thread per connection, nothing checked twice.

Runs inside the sandboxes, too, so it imports little.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, unquote

REASONS = {
    200: "OK",
    202: "Accepted",
    204: "No Content",
    206: "Partial Content",
    302: "Found",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
_BLOCK = 256 * 1024


class Cut(Exception):
    """Raised by a body: the connection ends here. With ``reset``, by RST."""

    def __init__(self, reset: bool = False) -> None:
        super().__init__()
        self.reset = reset


class PeerGone(Exception):
    pass


class Request(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    at: float = 0.0  # time.time() of its arrival

    @property
    def path(self) -> str:
        return unquote(self.raw_path)

    @property
    def raw_path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(self.target.partition("?")[2], keep_blank_values=True)

    def argument(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.query if key == name), default)

    def json(self) -> Any:
        return json.loads(self.body)


class Response:
    """An answer. ``body``: bytes, or an iterable of pieces, sent chunked unless ``length`` is given.

    :param length: what Content-Length says, whatever the body holds.
    :param close: the connection is closed afterwards, and said so.
    """

    def __init__(
        self,
        status: int = 200,
        body: bytes | Iterable[bytes] = b"",
        *,
        headers: dict[str, str] | None = None,
        length: int | None = None,
        close: bool = False,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = dict(headers or {})
        self.length = length
        self.close = close
        self.framed = True  # False: neither Content-Length nor chunks, the end of the connection is the end

    def pieces(self) -> Iterator[bytes]:
        """The body as it is now, whatever takes its place later."""
        return iter((self.body,) if isinstance(self.body, bytes) else self.body)

    def set_body(self, body: bytes, media: str = "application/json") -> None:
        self.body, self.length = body, None
        self.headers["Content-Type"] = media


def answer_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return Response(status, body, headers={"Content-Type": "application/json", **(headers or {})})


def error(status: int, code: str, message: str) -> Response:
    return answer_json({"code": code, "message": message}, status)


class Reader:
    """Buffered bytes of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = b""

    def more(self) -> None:
        try:
            data = self._sock.recv(_BLOCK)
        except OSError as e:
            raise PeerGone from e
        if not data:
            raise PeerGone
        self._data += data

    def until(self, mark: bytes) -> bytes:
        while mark not in self._data:
            self.more()
        head, _, self._data = self._data.partition(mark)
        return head

    def some(self, most: int) -> bytes:
        if not self._data:
            self.more()
        data, self._data = self._data[:most], self._data[most:]
        return data

    def exactly(self, size: int) -> Iterator[bytes]:
        while size > 0:
            data = self.some(size)
            size -= len(data)
            yield data

    def rest(self) -> Iterator[bytes]:
        with contextlib.suppress(PeerGone):
            while True:
                yield self.some(_BLOCK)

    def chunks(self) -> Iterator[bytes]:
        while size := int(self.until(b"\r\n").partition(b";")[0], 16):
            yield from self.exactly(size)
            self.until(b"\r\n")
        while self.until(b"\r\n"):  # trailers
            pass

    def head(self) -> tuple[str, dict[str, str], list[tuple[str, str]]]:
        first, *lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        return first, {name.lower(): value for name, value in pairs}, pairs


def read_request(reader: Reader, sock: socket.socket) -> Request:
    first, headers, _ = reader.head()
    method, target, _ = first.split(" ")
    if headers.get("expect", "").lower() == "100-continue":
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b"".join(reader.chunks())
    else:
        body = b"".join(reader.exactly(int(headers.get("content-length", "0"))))
    return Request(method, target, headers, body, time.time())


def send_response(sock: socket.socket, response: Response, *, head_only: bool = False) -> None:
    """Send it; Cut comes out when the body said so."""
    length = response.length
    if isinstance(response.body, bytes) and length is None:
        length = len(response.body)
    reason = REASONS.get(response.status, "Status")
    lines = [f"HTTP/1.1 {response.status} {reason}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    if not any(name.lower() == "date" for name in response.headers):
        lines.append(time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()))
    bare = response.status in (204, 304) or head_only
    chunked = response.framed and length is None and not bare
    if response.framed and length is not None and response.status != 204:
        lines.append(f"Content-Length: {length}")
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    if response.close:
        lines.append("Connection: close")
    pending = "\r\n".join([*lines, "", ""]).encode("latin-1")
    if bare:
        sock.sendall(pending)
        return
    if not isinstance(response.body, bytes):
        # What takes its time must not hold the head up.
        sock.sendall(pending)
        pending = b""
    try:
        for piece in response.pieces():
            if not piece:
                continue
            if chunked:
                sock.sendall(pending + b"%x\r\n%b\r\n" % (len(piece), piece))
            elif pending:
                sock.sendall(pending + piece)
            else:
                sock.sendall(piece)
            pending = b""
    except Cut:
        if pending:
            sock.sendall(pending)
        raise
    finally:
        close = getattr(response.body, "close", None)
        if close is not None:
            close()
    if chunked:
        pending += b"0\r\n\r\n"
    if pending:
        sock.sendall(pending)


Handler = Callable[[Request], Response]


class Server:
    """Answers requests on a listening socket until it is closed."""

    def __init__(self, listener: socket.socket, handler: Handler) -> None:
        self._listener = listener
        self._handler = handler
        self._peers: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.port = cast(int, listener.getsockname()[1])

    def start(self) -> Server:
        threading.Thread(target=self.run, daemon=True).start()
        return self

    def run(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._peers.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        reader = Reader(sock)
        try:
            while True:
                request = read_request(reader, sock)
                response = self._handler(request)
                send_response(sock, response, head_only=request.method == "HEAD")
                whole = response.framed and not response.close
                if not whole or request.headers.get("connection", "").lower() == "close":
                    return
        except Cut as e:
            if e.reset:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (PeerGone, OSError):
            pass
        except Exception:
            traceback.print_exc()
        finally:
            with self._lock:
                self._peers.discard(sock)
            sock.close()

    def close(self) -> None:
        """Stop listening and cut every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            peers = list(self._peers)
        for sock in peers:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def listen(port: int = 0, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_server((host, port), backlog=200)


def forward(port: int, request: Request, *, host: str = "127.0.0.1") -> Response:
    """Send a request on to a server of this machine and return its answer, whose body comes as it does.

    The body ends in PeerGone where the other side ends too early.

    :raises ConnectionRefusedError: nobody listens there.
    :raises PeerGone: it ended without an answer.
    """
    sock = socket.create_connection((host, port))
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        skip = {"connection", "transfer-encoding", "content-length", "expect", "keep-alive"}
        lines = [f"{request.method} {request.target} HTTP/1.1", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in request.headers.items() if name not in skip]
        lines.append(f"Content-Length: {len(request.body)}")
        sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + request.body)
        reader = Reader(sock)
        first, headers, pairs = reader.head()
    except OSError as e:
        sock.close()
        raise PeerGone from e
    except BaseException:
        sock.close()
        raise
    status = int(first.split(" ")[1])
    length: int | None = None
    if status == 204 or request.method == "HEAD":
        pieces: Iterator[bytes] = iter(())
    elif "chunked" in headers.get("transfer-encoding", ""):
        pieces = reader.chunks()
    elif "content-length" in headers:
        length = int(headers["content-length"])
        pieces = reader.exactly(length)
    else:
        pieces = reader.rest()
    dropped = ("connection", "transfer-encoding", "content-length")
    kept = {name: value for name, value in pairs if name.lower() not in dropped}

    def body() -> Iterator[bytes]:
        try:
            yield from pieces
        finally:
            sock.close()

    return Response(status, body(), headers=kept, length=length)
