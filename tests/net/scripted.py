# SPDX-License-Identifier: Apache-2.0
"""A server made of raw sockets: a test scripts what each connection does, well-behaved or not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import traceback
from collections.abc import Callable
from typing import NamedTuple


class Request(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int  # which connection it came on, from 0
    head: bytes  # as it came


class PeerGone(Exception):
    pass


class Peer:
    """One connection of a client, for the script."""

    def __init__(self, server: Server, sock: socket.socket, number: int) -> None:
        self.server = server
        self.sock = sock
        self.number = number
        self._read = b""

    def receive(self, size: int = 8192) -> bytes:
        try:
            return self.sock.recv(size)
        except OSError as e:
            raise PeerGone from e

    def read_head(self) -> bytes:
        while b"\r\n\r\n" not in self._read:
            data = self.receive()
            if not data:
                raise PeerGone
            self._read += data
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        return head

    def read_request(self) -> Request:
        """The next request with its body; PeerGone when the client has closed."""
        head = self.read_head()
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        while len(self._read) < size:
            data = self.receive()
            if not data:
                raise PeerGone
            self._read += data
        body, self._read = self._read[:size], self._read[size:]
        request = Request(method, target, headers, body, self.number, head)
        self.server.requests.append(request)
        return request

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError as e:
            raise PeerGone from e

    def answer(self, body: bytes = b"", status: str = "200 OK", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def reset(self) -> None:
        """Close with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_until_closed(self) -> None:
        """Until the client closes its side."""
        with contextlib.suppress(PeerGone):
            while self.receive():
                pass


Script = Callable[[Peer], None]


class Server:
    """Runs ``script`` on a thread for each connection; what it raises fails the test at the end."""

    def __init__(self, script: Script, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.errors: list[str] = []
        self.connections = 0
        self._script = script
        self._context = context
        self._peers: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{'https' if self._context else 'http'}://{host}:{self.port}{path}"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = self.connections
            self.connections += 1
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._peers = [peer for peer in self._peers if peer.fileno() >= 0] + [sock]
            thread = threading.Thread(target=self._run, args=(sock, number), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, sock: socket.socket, number: int) -> None:
        if self._context is not None:
            try:
                sock = self._context.wrap_socket(sock, server_side=True)
            except OSError:
                sock.close()
                return
            self._peers.append(sock)
        try:
            self._script(Peer(self, sock, number))
        except PeerGone:
            pass
        except Exception:
            self.errors.append(traceback.format_exc())
        finally:
            sock.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in tuple(self._peers):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._accepting.join(20)
        for thread in self._threads:
            thread.join(20)
        assert not self.errors, "\n".join(self.errors)


def answers(*, body: bytes = b"ok") -> Script:
    """A script that answers every request with ``body`` and keeps the connection."""

    def script(peer: Peer) -> None:
        while True:
            peer.read_request()
            peer.answer(body)

    return script


def says(data: bytes, *, reset: bool = False, linger: bool = False) -> Script:
    """A script that answers the first request with exactly ``data`` and closes, resets, or keeps it open."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(data)
        if reset:
            peer.reset()
        elif linger:
            peer.wait_until_closed()

    return script


def chunked(*chunks: bytes, end: bool = True) -> bytes:
    data = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)
    return data + (b"0\r\n\r\n" if end else b"")
