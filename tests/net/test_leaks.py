# SPDX-License-Identifier: Apache-2.0
"""After any number of calls, good and bad, nothing is held that was not held after the first few."""

from __future__ import annotations

import contextlib
import gc
import os
import tracemalloc
from collections.abc import Callable

import pytest

from net_tools import CancelFd, soon
from sandbox_native import _sandbox_native as native
from sandbox_native.http import Client, TransportError
from sandbox_native.multipart import Part
from scripted import Peer, Server, chunked

Serve = Callable[..., Server]
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def script(peer: Peer) -> None:
    while True:
        target = peer.read_request().target
        peer.server.requests.clear()
        if target == "/stream":
            peer.send(CHUNKED + chunked(b"data: x\n\n" * 100))
        elif target == "/open-stream":
            peer.send(CHUNKED + chunked(b"data: x\n\n" * 100, end=False))
            peer.send(chunked())
        elif target == "/cut":
            peer.send(OK + b"Content-Length: 100000\r\n\r\n" + b"x" * 50000)
            return
        elif target == "/large":
            peer.answer(b"x" * 100_000)
        elif target == "/error":
            peer.answer(b"x" * 1000, "500 Broken")
        elif target == "/head":
            peer.send(OK + b"X: y\r\n" * 20_000 + b"\r\n")
            return
        else:
            peer.answer(b"ok")


def raising(*_: object) -> bool:
    raise KeyError


@pytest.mark.parametrize("fresh", [False, True], ids=["one-client", "many-clients"])
def test_nothing_is_left_behind(serve: Serve, cancel: CancelFd, fresh: bool) -> None:
    server = serve(script)
    memory = os.memfd_create("sink")
    cancel.set()
    shared = Client()

    def once() -> None:
        client = Client() if fresh else shared
        url = server.url
        client.request("GET", url(), deadline=soon(), headers={"X-Key": "k"})
        client.request("POST", url("/error"), deadline=soon(), body=[b"a", b"b"])
        client.upload("POST", url(), [Part("f", b"x" * 1000)], deadline=soon())
        client.request("GET", url("/large"), deadline=soon())
        client.events("GET", url("/stream"), lambda e: False, deadline=soon())
        client.events("GET", url("/open-stream"), lambda e: True, deadline=soon())
        os.lseek(memory, 0, os.SEEK_SET)
        client.download(url("/large"), memory, deadline=soon())
        client.download(url("/large"), lambda d: None, deadline=soon(), last=200_000)
        for failing in (
            lambda: client.request("GET", url("/cut"), deadline=soon()),
            lambda: client.request("GET", url("/head"), deadline=soon()),
            lambda: client.request("GET", url("/large"), deadline=soon(), max_body=10),
            lambda: client.request("GET", "http://127.0.0.1:1/", deadline=soon()),
            lambda: client.request("GET", url(), deadline=soon(), cancel_fd=cancel.fd),
            lambda: client.request("GET", url(), deadline=0.0),
            lambda: client.request("GET", url("#"), deadline=soon()),
            lambda: client.request("GET", url(), deadline=soon(), headers={"X": "\n"}),
            lambda: client.request("GET", url(), deadline=soon(), body=[b"x", (1, 2)]),  # type: ignore[list-item]
            lambda: client.events("GET", url("/stream"), raising, deadline=soon()),
            lambda: client.events("GET", url("/cut"), lambda e: False, deadline=soon(), max_event=10),
            lambda: client.download(url("/cut"), memory, deadline=soon()),
            lambda: client.download(url("/cut"), lambda d: None, deadline=soon()),
            lambda: client.download(url("/large"), raising, deadline=soon()),
            lambda: client.download(url("/large"), lambda d: None, deadline=soon(), max_bytes=5),
        ):
            with contextlib.suppress(TransportError, ValueError, KeyError, TypeError):
                failing()
        if fresh:
            client.close()

    def held() -> tuple[int, int]:
        gc.collect()
        return native.allocated_bytes(), len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        once()
    before = held()
    tracemalloc.start()
    once()
    gc.collect()
    python_before = tracemalloc.get_traced_memory()[0]
    for _ in range(30):
        once()
    gc.collect()
    python_after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    after = held()
    assert after[0] - before[0] <= 2000  # a lane more or less
    assert after[1] - before[1] <= 12  # connections the server's threads have yet to close
    assert python_after - python_before < 50_000  # what the scripted server has in hand
    shared.close()
    os.close(memory)


def test_ending_the_client_frees_all(serve: Serve) -> None:
    server = serve(script)
    gc.collect()
    before = native.allocated_bytes()
    for _ in range(10):
        client = Client()
        client.request("GET", server.url(), deadline=soon())
        client.events("GET", server.url("/stream"), lambda e: True, deadline=soon())
        client.close()
    gc.collect()
    assert native.allocated_bytes() == before
