# SPDX-License-Identifier: Apache-2.0
"""Streams of events: batches, the end of their meaning, and how they break."""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable

import pytest

from net_tools import CancelFd, soon
from sandbox_native.http import Client, Event, RequestCancelled, TransportError
from scripted import Peer, Server, chunked, says

Serve = Callable[..., Server]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b'{"type":"done"}\n\n'


class Collector:
    """Keeps events; done when it sees ``done`` in one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.batches = 0

    def __call__(self, events: list[Event]) -> bool:
        assert events
        self.batches += 1
        self.events += events
        return any(b"done" in data for _, data, _ in events)

    @property
    def data(self) -> list[bytes]:
        return [data for _, data, _ in self.events]


def test_events_come_as_they_are_sent(serve: Serve, client: Client) -> None:
    step = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(HEAD)
        for i in range(5):
            peer.send(chunked(b"event: e%d\ndata: %d\n\n" % (i, i), end=False))
            assert step.wait(100)  # only after the event arrived does the next one come
            step.clear()
        peer.send(chunked())

    seen: list[Event] = []

    def on_events(events: list[Event]) -> bool:
        seen.extend(events)
        step.set()
        return False

    answer = client.events("POST", serve(script).url(), on_events, deadline=soon(), body=b"{}")
    assert seen == [(b"e%d" % i, b"%d" % i, 1) for i in range(5)]
    assert (answer.status, answer.done, answer.body) == (200, False, b"")
    assert answer.headers["content-type"] == "text/event-stream"


def test_every_cut_of_the_stream_gives_the_same_events(serve: Serve, client: Client) -> None:
    stream = b'\xef\xbb\xbf: hi\r\n\r\ndata: a\r\ndata: b\r\n\r\n{"x":"\xe2\x80\xa8\xc2\x85"}\n\ndata: last'

    def script(peer: Peer) -> None:
        while True:
            cut = int(peer.read_request().target[1:])
            peer.send(HEAD + chunked(stream[:cut], end=False))
            threading.Event().wait(0.002)
            peer.send(chunked(stream[cut:]))

    server = serve(script)
    for cut in range(len(stream)):
        seen = Collector()
        assert client.events("GET", server.url(f"/{cut}"), seen, deadline=soon()).done is False
        assert seen.data == [b"a\nb", b'{"x":"\xe2\x80\xa8\xc2\x85"}', b"last"]
    assert server.connections == 1


def test_the_call_returns_when_the_meaning_is_complete(serve: Serve, client: Client) -> None:
    returned = threading.Event()
    connections: list[int] = []

    def script(peer: Peer) -> None:
        while True:
            request = peer.read_request()
            connections.append(request.connection)
            peer.send(HEAD + chunked(b"data: x\n\n" + DONE, end=False))
            assert returned.wait(100)  # the server holds the stream open until the call is back
            returned.clear()
            peer.send(chunked(b"data: late\n\n"))
            ended.set()

    server = serve(script)
    ended = threading.Event()
    for _ in range(5):
        seen = Collector()
        answer = client.events("POST", server.url(), seen, deadline=soon(), body=b"{}")
        assert (answer.done, seen.data) == (True, [b"x", DONE.strip()])
        returned.set()
        assert ended.wait(100)
        ended.clear()
    # The rest ran out, so the connection served again.
    assert connections == [0] * 5
    assert client._native().lanes() == (1, 0)


def test_connections_held_open_by_the_server_are_few(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(HEAD + chunked(DONE, end=False))
        peer.wait_until_closed()

    server = serve(script)
    for _ in range(40):
        assert client.events("GET", server.url(), Collector(), deadline=soon()).done
    lanes, _ = client._native().lanes()
    assert lanes <= 10


def test_a_flood_after_the_end_of_the_meaning(serve: Serve, client: Client) -> None:
    flooded = threading.Event()

    def script(peer: Peer) -> None:
        if peer.read_request().target == "/plain":
            peer.answer(b"ok")
            return
        peer.send(HEAD + chunked(DONE, end=False))
        try:
            while True:
                peer.send(chunked(b"x" * 60000, end=False))
        finally:
            flooded.set()

    server = serve(script)
    assert client.events("GET", server.url(), Collector(), deadline=soon()).done
    while not flooded.is_set():  # the next uses of the lane notice, and close it
        assert client.request("GET", server.url("/plain"), deadline=soon()).body == b"ok"
    assert server.connections > 1


@pytest.mark.parametrize("reset", [False, True])
def test_a_broken_connection_after_the_last_event_is_nothing(
    serve: Serve, client: Client, reset: bool
) -> None:
    answer = client.events(
        "POST",
        serve(says(HEAD + chunked(DONE, end=False), reset=reset)).url(),
        Collector(),
        deadline=soon(),
        body=b"x",
    )
    assert answer.done


def test_a_broken_stream_delivers_what_came_and_raises(serve: Serve, client: Client) -> None:
    seen = Collector()
    server = serve(says(HEAD + chunked(b"data: a\n\ndata: b\n\ndata: half", end=False)))
    with pytest.raises(TransportError) as error:
        client.events("POST", server.url(), seen, deadline=soon(), body=b"x")
    assert (error.value.kind, error.value.sent, error.value.status) == ("receive", True, 200)
    assert seen.data == [b"a", b"b"]
    assert len(server.requests) == 1


def test_a_stream_that_ends_well_without_its_last_event(serve: Serve, client: Client) -> None:
    seen = Collector()
    answer = client.events("GET", serve(says(HEAD + chunked(b"data: a"))).url(), seen, deadline=soon())
    assert (answer.done, seen.data) == (False, [b"a"])
    empty = Collector()
    assert not client.events("GET", serve(says(HEAD + chunked())).url(), empty, deadline=soon()).done
    assert empty.batches == 0


@pytest.mark.parametrize("at", [1, 2])
def test_what_the_callback_raises_comes_out(serve: Serve, client: Client, at: int) -> None:
    class Odd(BaseException):
        pass

    odd = Odd()
    go_on = threading.Event()
    calls = 0

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(HEAD + chunked(b"data: a\n\n", end=False))
        go_on.wait(100)
        peer.send(chunked(b"data: b\n\n", end=False))
        peer.wait_until_closed()

    def on_events(events: list[Event]) -> bool:
        nonlocal calls
        calls += 1
        go_on.set()
        if calls == at:
            raise odd
        return False

    with pytest.raises(Odd) as error:
        client.events("GET", serve(script).url(), on_events, deadline=soon())
    assert error.value is odd and calls == at


def test_an_answer_of_the_callback_that_has_no_truth(serve: Serve, client: Client) -> None:
    class Neither:
        def __bool__(self) -> bool:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        client.events("GET", serve(says(HEAD + chunked(DONE))).url(), lambda e: Neither(), deadline=soon())  # type: ignore[arg-type,return-value]


def test_the_callback_may_use_the_client(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        if peer.read_request().target == "/plain":
            peer.answer(b"inner")
        else:
            peer.send(HEAD + chunked(DONE))

    server = serve(script)
    inner: list[bytes] = []

    def on_events(events: list[Event]) -> bool:
        inner.append(client.request("GET", server.url("/plain"), deadline=soon()).body)
        return True

    assert client.events("GET", server.url(), on_events, deadline=soon()).done
    assert inner == [b"inner"]


def test_an_error_status_is_an_answer_and_no_events(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer(b'{"code":"X"}\n\n', "400 Bad Request", Content_Type="text/event-stream")

    seen = Collector()
    answer = client.events("POST", serve(script).url(), seen, deadline=soon(), body=b"")
    assert (answer.status, answer.json(), answer.done, seen.events) == (400, {"code": "X"}, False, [])


def test_an_event_over_the_cap_is_its_beginning(serve: Serve, client: Client) -> None:
    big = b'{"type":"stdout","text":"' + b"x" * 5_000_000 + b'"}'
    seen = Collector()
    client.events(
        "GET", serve(says(HEAD + chunked(big + b"\n\n" + DONE))).url(), seen, deadline=soon(), max_event=1000
    )
    assert seen.events == [(b"", big[:1000], len(big)), (b"", DONE.strip(), len(DONE) - 2)]


def test_a_flood_of_events_comes_in_bounded_batches(serve: Serve, client: Client) -> None:
    count = 300_000

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(HEAD)
        block = b"".join(b'{"n":%06d}\n\n' % i for i in range(1000))
        for _ in range(count // 1000):
            peer.send(chunked(block, end=False))
        peer.send(chunked(DONE))

    total = largest = 0

    def on_events(events: list[Event]) -> bool:
        nonlocal total, largest
        total += len(events)
        largest = max(largest, len(events))
        return b"done" in events[-1][1]

    assert client.events("GET", serve(script).url(), on_events, deadline=soon()).done
    assert total == count + 1
    assert largest <= 4096 + 16384 // 13 + 1  # a batch and one more read


def test_a_quiet_stream_can_be_cancelled(serve: Serve, client: Client, cancel: CancelFd) -> None:
    seen = Collector()
    reached = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(HEAD + chunked(b"data: a\n\n", end=False))
        reached.set()
        peer.wait_until_closed()

    thread = cancel.set_when(reached)
    with pytest.raises(RequestCancelled) as error:
        client.events("GET", serve(script).url(), seen, deadline=soon(), cancel_fd=cancel.fd)
    thread.join()
    assert error.value.sent is True


def test_a_quiet_stream_ends_by_its_deadline_or_stalls(serve: Serve, client: Client) -> None:
    server = serve(says(HEAD + chunked(b"data: a\n\n", end=False), linger=True))
    for arguments, kind in (
        ({"deadline": soon(0.3)}, "deadline"),
        ({"deadline": soon(), "stall": 0.3}, "stalled"),
    ):
        seen = Collector()
        with pytest.raises(TransportError) as error:
            client.events("GET", server.url(), seen, **arguments)
        assert (error.value.kind, seen.data) == (kind, [b"a"])


def test_pings_keep_a_stream_from_stalling(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(HEAD)
        for _ in range(10):
            threading.Event().wait(0.1)
            peer.send(chunked(b": ping\n\n", end=False))
        peer.send(chunked(DONE))

    assert client.events("GET", serve(script).url(), Collector(), deadline=soon(), stall=0.8).done


def test_no_reference_is_left(serve: Serve, client: Client) -> None:
    class Callback:
        def __call__(self, events: list[Event]) -> bool:
            return True

    server = serve(says(HEAD + chunked(DONE)))
    for _ in range(3):
        client.events("GET", server.url(), Callback(), deadline=soon())
    gc.collect()
    assert not [o for o in gc.get_objects() if isinstance(o, Callback)]


def test_the_callback_may_set_the_deadline(serve: Serve, client: Client) -> None:
    """A time that begins with an event: sooner, later, and not a number."""
    server = serve(says(HEAD + chunked(b'{"type":"init"}\n\n', end=False), linger=True))
    with pytest.raises(TransportError) as caught:
        client.events("POST", server.url(), lambda _: time.monotonic() + 0.2, deadline=soon(), body=b"{}")
    assert caught.value.kind == "deadline"
    with pytest.raises(ValueError, match="deadline"):
        client.events("POST", server.url(), lambda _: math.nan, deadline=soon(), body=b"{}")

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(HEAD + chunked(b'{"type":"init"}\n\n', end=False))
        time.sleep(1.5)
        peer.send(chunked(DONE))

    collect = Collector()
    later = soon()

    def on_events(events: list[Event]) -> bool | float:
        return collect(events) or later

    answer = client.events("POST", serve(script).url(), on_events, deadline=soon(1), body=b"{}")
    assert (answer.done, len(collect.data)) == (True, 2)
