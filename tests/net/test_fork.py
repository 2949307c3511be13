# SPDX-License-Identifier: Apache-2.0
"""Forked children leave the parent's connections alone, and never hang."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from net_tools import Authority, soon
from sandbox_native import http
from sandbox_native.http import Client, Event

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

DOWNLOAD_BYTES = 5_000_000
SERVER = f"""
import json, ssl, sys, threading
from scripted import Server, answers, chunked

def two_events(peer):
    peer.read_request()
    peer.send(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
    peer.send(chunked(b"data: 1\\n\\n", end=False))
    threading.Event().wait(0.2)
    peer.send(chunked(b"data: 2\\n\\n"))

def late(peer):
    while True:
        peer.read_request()
        threading.Event().wait(1.5)
        peer.answer(b"late")

def slow_download(peer):
    peer.read_request()
    peer.send(b"HTTP/1.1 200 OK\\r\\nContent-Length: {DOWNLOAD_BYTES}\\r\\n\\r\\n")
    threading.Event().wait(1.5)
    peer.send(bytes({DOWNLOAD_BYTES}))

script, *files = sys.argv[1:]
context = None
if files:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
scripts = {{"ok": answers(), "events": two_events, "download": answers(body=bytes({DOWNLOAD_BYTES})),
            "late": late, "slow_download": slow_download}}
server = Server(scripts[script], context)
print(server.port, flush=True)
for _ in sys.stdin:
    print(json.dumps([[r.target, r.connection] for r in server.requests]), flush=True)
server.close()
"""


class Other:
    """A server in a process of its own.

    Forking beside the threads of a server in this process would copy their locks, held or not: those of a TLS
    library, and those that AddressSanitizer takes while a thread begins or ends.
    """

    def __init__(self, script: str, files: tuple[Path, ...]) -> None:
        self._scheme = "https" if files else "http"
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, script, *map(str, files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.port = int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def url(self, path: str = "/") -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}{path}"

    def connections(self, target: str = "/") -> list[int]:
        """The numbers of the connections that the requests for ``target`` came on, in order."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return [number for seen, number in json.loads(self._line()) if seen == target]

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


Start = Callable[..., Other]


@pytest.fixture
def start() -> Iterator[Start]:
    servers: list[Other] = []

    def begin(script: str = "ok", *files: Path) -> Other:
        servers.append(Other(script, files))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


@pytest.fixture(params=["http", "https"])
def server(
    request: pytest.FixtureRequest, start: Start, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Other:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    return start("ok", *(authority.files() if request.param == "https" else ()))


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


@pytest.mark.parametrize("then", ["nothing", "use", "close", "delete"])
def test_a_child_takes_its_own_connection_and_leaves_the_parents(server: Other, then: str) -> None:
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
    assert server.connections("/parent") == [0, 0]  # still the same one: nobody said goodbye on it
    assert server.connections("/child") == ([1, 1, 1, 2, 2, 2] if then == "use" else [])
    client.close()


def test_a_child_keeps_no_connection_of_the_parent_open(server: Other) -> None:
    client = Client()
    client.request("POST", server.url(), deadline=soon(), body=b"x")
    number = client_end(server)
    end = os.readlink(f"/proc/self/fd/{number}")
    kept = os.open(os.devnull, os.O_RDONLY)

    def child() -> bytes:
        links = set()
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # that of the listing itself
                links.add(os.readlink(f"/proc/self/fd/{name}"))
        return b"%d %d" % (end in links, os.fstat(kept).st_rdev == os.stat(os.devnull).st_rdev)

    assert in_child(child) == b"0 1"  # the client's end is gone in the child, and nothing of others
    os.close(kept)
    client.close()


def client_end(server: Other) -> int:
    """The descriptor of this process that is connected to ``server``."""
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as sock:
                if sock.family == socket.AF_INET and sock.getpeername()[1] == server.port:
                    return number
        except OSError:  # that of the listing itself, or not connected
            continue
    raise AssertionError("not connected")


def test_a_number_that_became_something_else_in_a_child_is_not_closed(
    server: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert server.connections() == [0, 1, 0]
    client.close()


def test_many_children_from_threads_that_are_busy(server: Other) -> None:
    """New connections all the time, so that forks fall into handshakes."""
    stop = threading.Event()
    client = Client()

    def work() -> None:
        while not stop.is_set():
            fresh = Client()
            for busy in (fresh, client):
                busy.request("POST", server.url(), deadline=soon(), body=b"x")
            fresh.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            assert in_child(lambda: client.request("GET", server.url(), deadline=soon()).body) == b"ok"
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


def test_a_fork_in_the_middle_of_events(start: Start) -> None:
    server = start("events")
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


def test_a_fork_in_the_middle_of_a_download(start: Start) -> None:
    server = start("download")
    client = Client()

    def act(fork: Callable[[], None]) -> object:
        got = bytearray()

        def write(data: bytes) -> None:
            got.extend(data)
            fork()

        client.download(server.url(), write, deadline=soon())
        return len(got)

    assert fork_inside(act) == (DOWNLOAD_BYTES, b"RuntimeError")
    client.close()


class Left(BaseException):
    """What a child raises in the middle of its parent's call to get out of it."""


def fork_by_signal(act: Callable[[], object], *, child_leaves: bool) -> tuple[object, bytes]:
    """Run ``act`` while a signal handler forks once; what came out of it in the parent and in the child.

    The child opens files, which get the numbers of its parent's connections, and still has them at the end.
    """

    def inside(fork: Callable[[], None]) -> object:
        parent = os.getpid()
        opened: list[int] = []

        def handler(*_: object) -> None:
            fork()
            if os.getpid() != parent:
                opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(16))
                if child_leaves:
                    raise Left

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            return act()
        finally:
            signal.signal(signal.SIGALRM, before)
            for number in opened:
                os.close(number)

    return fork_inside(inside)


@pytest.mark.parametrize("child_leaves", [True, False])
def test_a_fork_by_a_signal_handler_in_the_middle_of_a_request(
    start: Start, authority: Authority, monkeypatch: pytest.MonkeyPatch, child_leaves: bool
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    server = start("late", *authority.files())
    client = Client()

    def act() -> object:
        return client.request("GET", server.url(), deadline=soon()).body

    said = b"Left" if child_leaves else b"forked"
    assert fork_by_signal(act, child_leaves=child_leaves) == (b"late", said)
    assert act() == b"late"
    assert server.connections() == [0, 0]  # the child said no goodbye on it
    client.close()


@pytest.mark.parametrize("child_leaves", [True, False])
def test_a_fork_by_a_signal_handler_in_the_middle_of_a_download(start: Start, child_leaves: bool) -> None:
    server = start("slow_download")
    client = Client()

    def act() -> object:
        got = bytearray()
        client.download(server.url(), got.extend, deadline=soon())
        return len(got)

    said = b"Left" if child_leaves else b"RuntimeError"
    assert fork_by_signal(act, child_leaves=child_leaves) == (DOWNLOAD_BYTES, said)
    client.close()
