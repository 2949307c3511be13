# SPDX-License-Identifier: Apache-2.0
"""What a network does to connections, done by Toxiproxy: the right error, in time, and nothing half done.

Deadlines are far except where the deadline is what is tested, so that a call that only its deadline ended
is told by the kind of its error.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from net_tools import FAR, CancelFd, soon
from sandbox_native.http import Client, RequestCancelled, TransportError
from sandbox_native.multipart import FileSlice, Part
from sandbox_native.retries import with_retries
from scripted import Peer, Server, chunked
from toxiproxy import Proxy, Toxiproxy

Serve = Callable[..., Server]

CONTENT = os.urandom(1_500_000)
EVENTS = 2000


def script(peer: Peer) -> None:
    while True:
        request = peer.read_request()
        if request.target == "/events":
            peer.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            for i in range(EVENTS):
                peer.send(chunked(b'data: {"number": %d, "text": "%s"}\n\n' % (i, b"x" * 300), end=False))
            peer.send(chunked(b"data: end\n\n"))
        elif request.target == "/upload":
            peer.answer(hashlib.sha256(request.body).hexdigest().encode())
        else:
            peer.answer(CONTENT)


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve(script)


@pytest.fixture
def proxy(toxiproxy: Toxiproxy, server: Server) -> Iterator[Proxy]:
    proxy = toxiproxy.proxy(server.port)
    yield proxy
    proxy.end()


Wait = dict[str, Any]


def get(client: Client, url: Callable[[str], str], folder: Path, wait: Wait) -> None:
    answer = client.request("GET", url("/content"), **wait)
    assert (answer.status, answer.body) == (200, CONTENT)


def post(client: Client, url: Callable[[str], str], folder: Path, wait: Wait) -> None:
    answer = client.request("POST", url("/upload"), body=CONTENT, **wait)
    assert (answer.status, answer.body.decode()) == (200, hashlib.sha256(CONTENT).hexdigest())


def upload(client: Client, url: Callable[[str], str], folder: Path, wait: Wait) -> None:
    path = folder / "source"
    path.write_bytes(CONTENT)
    with path.open("rb") as file:
        part = Part("file", FileSlice(file.fileno(), 0, len(CONTENT)), filename="upload")
        answer = client.upload("POST", url("/upload"), [part], **wait)
    assert answer.status == 200 and len(answer.body) == 64


def events(client: Client, url: Callable[[str], str], folder: Path, wait: Wait) -> None:
    seen: list[bytes] = []

    def take(batch: list[tuple[bytes, bytes, int]]) -> bool:
        seen.extend(data for _, data, _ in batch)
        return seen[-1] == b"end"

    answer = client.events("GET", url("/events"), take, **wait)
    assert (answer.status, answer.done, len(seen)) == (200, True, EVENTS + 1)


def download_to_descriptor(client: Client, url: Callable[[str], str], folder: Path, wait: Wait) -> None:
    with (folder / "copy").open("w+b") as file:
        try:
            answer = client.download(url("/content"), file.fileno(), size=len(CONTENT), **wait)
        except TransportError as e:
            file.seek(0)
            assert CONTENT.startswith(file.read()) and e.received < len(CONTENT)
            raise
        file.seek(0)
        assert (answer.taken, file.read()) == (len(CONTENT), CONTENT)


def download_to_write(client: Client, url: Callable[[str], str], folder: Path, wait: Wait) -> None:
    parts: list[bytes] = []
    try:
        answer = client.download(url("/content"), parts.append, **wait)
    except TransportError as e:
        assert CONTENT.startswith(b"".join(parts)) and e.received < len(CONTENT)
        raise
    assert (answer.taken, b"".join(parts)) == (len(CONTENT), CONTENT)


Call = Callable[[Client, Callable[[str], str], Path, Wait], None]
CALLS: tuple[Call, ...] = (get, post, upload, events, download_to_descriptor, download_to_write)
LARGE_REQUESTS: tuple[Call, ...] = (post, upload)
LARGE_ANSWERS: tuple[Call, ...] = (get, events, download_to_descriptor, download_to_write)


@pytest.fixture(params=CALLS, ids=lambda call: call.__name__)
def call(request: pytest.FixtureRequest) -> Call:
    chosen: Call = request.param
    return chosen


class Toxic(NamedTuple):
    kind: str
    stream: str
    attributes: dict[str, int]

    def __str__(self) -> str:
        words = ",".join(f"{name}={value}" for name, value in self.attributes.items())
        return f"{self.kind}-{self.stream}-{words}"

    def on(self, proxy: Proxy) -> None:
        proxy.add(self.kind, self.stream, **self.attributes)


def down(kind: str, **attributes: int) -> Toxic:
    return Toxic(kind, "downstream", attributes)


def up(kind: str, **attributes: int) -> Toxic:
    return Toxic(kind, "upstream", attributes)


# Milliseconds, far behind any deadline here.
NEVER = 1_000_000


@pytest.mark.parametrize(
    "toxic",
    [
        down("latency", latency=100, jitter=50),
        up("latency", latency=100, jitter=50),
        down("bandwidth", rate=8000),
        up("bandwidth", rate=8000),
        down("slicer", average_size=2000, size_variation=1000, delay=10),
        up("slicer", average_size=2000, size_variation=1000, delay=10),
        down("slow_close", delay=NEVER),
        up("slow_close", delay=NEVER),
        down("limit_data", bytes=10_000_000),
    ],
    ids=str,
)
def test_a_slow_network_is_no_fault(
    proxy: Proxy, client: Client, call: Call, toxic: Toxic, tmp_path: Path
) -> None:
    toxic.on(proxy)
    for _ in range(2):
        call(client, proxy.url, tmp_path, {"deadline": soon(), "stall": FAR})


QUIET = [down("latency", latency=NEVER), down("timeout", timeout=0), up("timeout", timeout=0)]


def at_once(
    calls: tuple[Call, ...], proxy: Proxy, folder: Path, wait: Callable[[], Wait]
) -> dict[str, TransportError]:
    """Make the calls at the same time, each with a client of its own, and return how each failed."""
    failed: dict[str, TransportError] = {}
    others: list[BaseException] = []

    def run(call: Call) -> None:
        own = folder / call.__name__
        own.mkdir()
        client = Client()
        try:
            call(client, proxy.url, own, wait())
        except TransportError as e:
            failed[call.__name__] = e
        except BaseException as e:
            others.append(e)
        finally:
            client.close()

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if others:
        raise others[0]
    assert set(failed) == {call.__name__ for call in calls}
    return failed


@pytest.mark.parametrize("toxic", QUIET, ids=str)
@pytest.mark.parametrize("end", ["deadline", "stalled", "cancelled"])
def test_a_connection_that_went_quiet(
    proxy: Proxy, toxic: Toxic, end: str, tmp_path: Path, cancel: CancelFd
) -> None:
    toxic.on(proxy)
    timer = threading.Timer(0.5 if end == "cancelled" else FAR, cancel.set)
    timer.start()

    def wait() -> Wait:
        return {
            "deadline": soon(0.5 if end == "deadline" else FAR),
            "stall": 0.5 if end == "stalled" else None,
            "cancel_fd": cancel.fd,
        }

    for call, error in at_once(CALLS, proxy, tmp_path, wait).items():
        assert (error.kind, error.sent) == (end, True), call
        assert error.timed_out == (end != "cancelled"), call
        assert isinstance(error, RequestCancelled) == (end == "cancelled"), call
    timer.cancel()
    timer.join()


@pytest.mark.parametrize("end", ["deadline", "cancelled"])
@pytest.mark.parametrize(("calls", "stream"), [(LARGE_ANSWERS, "downstream"), (LARGE_REQUESTS, "upstream")])
def test_a_connection_that_trickles(
    proxy: Proxy, calls: tuple[Call, ...], stream: str, end: str, tmp_path: Path, cancel: CancelFd
) -> None:
    proxy.add("bandwidth", stream, rate=1)
    timer = threading.Timer(1.0 if end == "cancelled" else FAR, cancel.set)
    timer.start()

    def wait() -> Wait:
        return {
            "deadline": soon(1.0 if end == "deadline" else FAR),
            "cancel_fd": cancel.fd,
        }

    for call, error in at_once(calls, proxy, tmp_path, wait).items():
        assert (error.kind, error.sent) == (end, True), call
    timer.cancel()
    timer.join()


@pytest.mark.parametrize(
    "toxic",
    [
        down("reset_peer", timeout=0),
        up("reset_peer", timeout=0),
        down("reset_peer", timeout=200),
        up("reset_peer", timeout=200),
        down("timeout", timeout=200),
        up("timeout", timeout=200),
        down("limit_data", bytes=0),  # nothing
        down("limit_data", bytes=10),  # inside of the first line
        down("limit_data", bytes=60),  # inside of the head or just after
        up("limit_data", bytes=0),
        up("limit_data", bytes=10),
    ],
    ids=str,
)
def test_a_connection_that_breaks(
    proxy: Proxy, server: Server, client: Client, call: Call, toxic: Toxic, tmp_path: Path
) -> None:
    toxic.on(proxy)
    with pytest.raises(TransportError) as error:
        call(client, proxy.url, tmp_path, {"deadline": soon()})
    assert error.value.kind in ("receive", "send"), error.value
    assert not error.value.timed_out
    assert len(server.requests) <= 1  # nothing is asked twice behind the caller's back


@pytest.mark.parametrize("size", [2000, 100_000, 600_000])
def test_an_answer_cut_at_any_size_is_never_a_whole_one(
    proxy: Proxy, client: Client, call: Call, size: int, tmp_path: Path
) -> None:
    if call in LARGE_ANSWERS:
        proxy.add("limit_data", bytes=size)
    else:
        proxy.add("limit_data", "upstream", bytes=size)
    with pytest.raises(TransportError) as error:
        call(client, proxy.url, tmp_path, {"deadline": soon()})
    assert error.value.kind in ("receive", "send", "length"), error.value
    assert error.value.sent
    if call in LARGE_ANSWERS:
        assert error.value.status == 200


def test_a_port_that_refuses(proxy: Proxy, client: Client, call: Call, tmp_path: Path) -> None:
    proxy.enable(False)
    with pytest.raises(TransportError) as error:
        call(client, proxy.url, tmp_path, {"deadline": soon()})
    assert (error.value.kind, error.value.sent) == ("connect", False)


@pytest.mark.parametrize(
    "toxic",
    [down("timeout", timeout=0), down("limit_data", bytes=5000), up("reset_peer", timeout=0)],
    ids=str,
)
def test_the_client_works_again_when_the_network_does(
    toxiproxy: Toxiproxy, proxy: Proxy, client: Client, call: Call, toxic: Toxic, tmp_path: Path
) -> None:
    call(client, proxy.url, tmp_path, {"deadline": soon()})
    toxic.on(proxy)
    for _ in range(2):
        try:
            call(client, proxy.url, tmp_path, {"deadline": soon(), "stall": 0.2})
        except TransportError:
            continue
        # Few bytes of an answer pass a limit.
        assert toxic.kind == "limit_data" and call in LARGE_REQUESTS
    toxiproxy.call(f"/proxies/{proxy.name}/toxics/{toxic.kind}-{toxic.stream}", method="DELETE")
    call(client, proxy.url, tmp_path, {"deadline": soon()})


def test_kept_connections_that_died_are_not_used(
    proxy: Proxy, server: Server, client: Client, call: Call, tmp_path: Path
) -> None:
    for _ in range(3):
        call(client, proxy.url, tmp_path, {"deadline": soon()})
        proxy.enable(False)
        proxy.enable(True)
    assert (len(server.requests), server.connections) == (3, 3)


@pytest.mark.parametrize("idempotent", [True, False])
def test_retries_end_with_the_network_back_and_send_a_post_once(
    proxy: Proxy, server: Server, client: Client, idempotent: bool
) -> None:
    proxy.add("timeout", timeout=100)  # the request arrives, its answer does not
    asked = []

    def ask() -> Any:
        if len(asked) == 2:
            proxy.enable(False)
        asked.append(time.monotonic())
        return client.request("POST", proxy.url("/upload"), deadline=soon(), body=b"x", idempotent=idempotent)

    with pytest.raises(TransportError) as error:
        with_retries(ask, deadline=soon(), idempotent=idempotent, first_delay=0.01, attempts=3)
    assert (error.value.kind, error.value.sent) == (("connect", False) if idempotent else ("receive", True))
    assert len(server.requests) == (2 if idempotent else 1)


def test_slow_close_of_a_stream_that_never_said_its_end(
    serve: Serve, toxiproxy: Toxiproxy, client: Client
) -> None:
    def ends_without(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\n")

    proxy = toxiproxy.proxy(serve(ends_without).port)
    proxy.add("slow_close", delay=NEVER)
    seen: list[bytes] = []

    def take(batch: list[tuple[bytes, bytes, int]]) -> bool:
        seen.extend(data for _, data, _ in batch)
        return False

    with pytest.raises(TransportError) as error:
        client.events("GET", proxy.url(), take, deadline=soon(), stall=0.2)
    assert (error.value.kind, seen) == ("stalled", [b"one"])
    proxy.end()
