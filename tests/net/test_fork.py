# SPDX-License-Identifier: Apache-2.0
"""Forked children leave the parent's connections alone, and never hang."""

from __future__ import annotations

import gc
import os
import socket
import stat
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Authority, soon
from sandbox_native import http
from sandbox_native.http import Client, Event
from scripted import Peer, Server, answers, chunked

Serve = Callable[..., Server]
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_child(work: Callable[[], bytes]) -> bytes:
    """Run ``work`` in a forked child that leaves by ``os._exit``, and return what it returned."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, work())
        except BaseException as e:
            os.write(write, repr(e).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        result = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return result


def sockets() -> set[str]:
    """TCP sockets that are open in this process."""
    found = set()
    with open("/proc/self/net/tcp") as table:
        inodes = {line.split()[9] for line in list(table)[1:]}
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if link.startswith("socket:[") and link[8:-1] in inodes:
            found.add(link)
    return found


@pytest.fixture(params=["http", "https"])
def server(
    request: pytest.FixtureRequest, serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Server:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    return serve(answers(), authority.context() if request.param == "https" else None)


@pytest.mark.parametrize("then", ["nothing", "use", "close", "delete"])
def test_a_child_takes_its_own_connection_and_leaves_the_parents(server: Server, then: str) -> None:
    client = Client()
    client.request("POST", server.url("/parent"), deadline=soon(), body=b"x")

    def child() -> bytes:
        nonlocal client
        if then == "use":
            for _ in range(3):
                client.request("POST", server.url("/child"), deadline=soon(), body=b"x")
        elif then == "close":
            client.close()
        elif then == "delete":
            del client
            gc.collect()
        return b"ok"

    for _ in range(2):
        assert in_child(child) == b"ok"
    client.request("POST", server.url("/parent"), deadline=soon(), body=b"x")
    by_parent = {r.connection for r in server.requests if r.target == "/parent"}
    by_child = [r.connection for r in server.requests if r.target == "/child"]
    assert by_parent == {0}  # still the same one: nobody said goodbye on it
    assert by_child == ([1, 1, 1, 2, 2, 2] if then == "use" else [])
    client.close()


def test_a_child_keeps_no_connection_of_the_parent_open(server: Server) -> None:
    client = Client()
    client.request("POST", server.url(), deadline=soon(), body=b"x")
    mine = sockets()
    servers_own = {link for link in mine}  # the scripted server lives in this process, too

    def child() -> bytes:
        return b"%d" % len(servers_own - sockets())

    assert in_child(child) == b"1"  # exactly the client's end is gone in the child
    client.close()


def client_end(server: Server) -> int:
    """The descriptor of this process that is connected to ``server``."""
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as sock:
                if sock.family == socket.AF_INET and sock.getpeername()[1] == server.port:
                    return int(name)
        except OSError:
            continue
    raise AssertionError("not connected")


def test_a_number_that_became_something_else_in_a_child_is_not_closed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a child of a fork that ran no hooks of Python, and closed everything and opened its own files."""
    client = Client()
    client.request("GET", server.url(), deadline=soon())
    number = client_end(server)
    monkeypatch.setattr(http, "_clients", weakref.WeakSet())  # so no hook reaches it

    def child() -> bytes:
        os.dup2(os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR), number)
        body = client.request("GET", server.url(), deadline=soon()).body
        return b"%s %d" % (body, stat.S_ISREG(os.fstat(number).st_mode))

    assert in_child(child) == b"ok 1"
    client.request("GET", server.url(), deadline=soon())
    assert [r.connection for r in server.requests] == [0, 1, 0]
    client.close()


SERVER = """
import ssl, sys
from scripted import Server, answers
context = None
if sys.argv[1:]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[1:])
server = Server(answers(), context)
print(server.url(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["http", "https"])
def other_process(
    request: pytest.FixtureRequest, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URL of a server in another process: the locks of a TLS server here would be forked, too."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    files = [str(path) for path in authority.files()] if request.param == "https" else []
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, *files],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None and process.stdout is not None
    yield process.stdout.readline().strip()
    process.stdin.close()
    process.stdout.close()
    process.wait()


def test_many_children_from_threads_that_are_busy(other_process: str) -> None:
    """New connections all the time, so that forks fall into handshakes."""
    stop = threading.Event()
    client = Client()

    def work() -> None:
        while not stop.is_set():
            fresh = Client()
            for busy in (fresh, client):
                busy.request("POST", other_process, deadline=soon(), body=b"x")
            fresh.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            assert in_child(lambda: client.request("GET", other_process, deadline=soon()).body) == b"ok"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    client.close()


def fork_inside(act: Callable[[Callable[[], None]], object]) -> tuple[object, bytes]:
    """Run ``act`` with a function that forks; what came out of it in the parent and in the child."""
    read, write = os.pipe()
    child: list[int] = []

    def fork() -> None:
        if not child:
            pid = os.fork()
            child.append(pid)

    try:
        result = act(fork)
    except BaseException as e:
        result = e
    if child == [0]:
        kind = getattr(result, "kind", type(result).__name__)
        os.write(write, f"{kind}".encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read()
    assert os.waitpid(child[0], 0)[1] == 0
    return result, said


def test_a_fork_in_the_middle_of_events(serve: Serve) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.send(chunked(b"data: 1\n\n", end=False))
        threading.Event().wait(0.2)
        peer.send(chunked(b"data: 2\n\n"))

    server = serve(script)
    client = Client()
    seen: list[bytes] = []

    def act(fork: Callable[[], None]) -> object:
        def on_events(events: list[Event]) -> bool:
            seen.extend(data for _, data, _ in events)
            fork()
            return False

        return client.events("GET", server.url(), on_events, deadline=soon()).status

    assert fork_inside(act) == (200, b"forked")
    assert seen == [b"1", b"2"]
    client.close()


def test_a_fork_in_the_middle_of_a_download(serve: Serve) -> None:
    content = bytes(5_000_000)
    server = serve(answers(body=content))
    client = Client()

    def act(fork: Callable[[], None]) -> object:
        got = bytearray()

        def write(data: bytes) -> None:
            got.extend(data)
            fork()

        client.download(server.url(), write, deadline=soon())
        return len(got)

    assert fork_inside(act) == (len(content), b"RuntimeError")
    client.close()
