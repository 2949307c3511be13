# SPDX-License-Identifier: Apache-2.0
"""What servers and networks do wrong, and how large they can make us grow."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable

import pytest

from net_tools import CancelFd, soon
from sandbox_native.http import Client, RequestCancelled, TransportError
from scripted import Peer, Server, answers, chunked, says

Serve = Callable[..., Server]
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"", "receive"),  # closed without an answer
        (b"HTTP/1.1 200 OK\r\nContent-Le", "receive"),
        (OK + b"Content-Length: 10\r\n\r\n12345", "receive"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", "receive"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", "receive"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"abc", end=False), "receive"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", "receive"),  # libcurl's word for it
        (OK + b"Content-Length: abc\r\n\r\n", "protocol"),
        (OK + b"Content-Length: -5\r\n\r\nabc", "protocol"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "protocol"),
        (b"<html>not HTTP</html>", "protocol"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "protocol"),  # a TLS alert
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain", "protocol"),
        (OK + b"Content-Encoding: rot13\r\nContent-Length: 5\r\n\r\nplain", "protocol"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_answer_that_is_not_one(serve: Serve, client: Client, sent: bytes, kind: str, method: str) -> None:
    server = serve(says(sent))
    with pytest.raises(TransportError) as error:
        client.request(method, server.url(), deadline=soon(), body=b"x" if method == "POST" else None)
    assert (error.value.kind, error.value.sent, error.value.timed_out) == (kind, True, False)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "sent",
    [b"", b"HTTP/1.1 200 OK\r\n", OK + b"Content-Length: 10\r\n\r\n12345"],
    ids=["none", "head", "body"],
)
def test_a_reset_connection(serve: Serve, client: Client, sent: bytes) -> None:
    server = serve(says(sent, reset=True))
    with pytest.raises(TransportError) as error:
        client.request("POST", server.url(), deadline=soon(), body=b"x")
    assert (error.value.kind, error.value.sent) == ("receive", True)


def test_the_client_works_on_after_any_failure(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        request = peer.read_request()
        if request.target == "/bad":
            peer.send(OK + b"Content-Length: 10\r\n\r\n1")
        else:
            peer.answer(b"good")

    server = serve(script)
    for _ in range(10):
        with pytest.raises(TransportError):
            client.request("GET", server.url("/bad"), deadline=soon())
        assert client.request("GET", server.url("/"), deadline=soon()).body == b"good"
    assert client._native().lanes() == (1, 1)


# ---- what is never sent twice ----


def keep_then_drop(peer: Peer) -> None:
    """Answers the first request of a connection, reads the second and closes without an answer."""
    peer.read_request()
    peer.answer(b"first")
    peer.read_request()


@pytest.mark.parametrize("body", [b"run it", b"y" * 300_000])
def test_a_post_on_a_connection_that_died_is_not_sent_again(
    serve: Serve, client: Client, body: bytes
) -> None:
    server = serve(keep_then_drop)
    client.request("GET", server.url(), deadline=soon())
    with pytest.raises(TransportError) as error:
        client.request("POST", server.url(), deadline=soon(), body=body)
    assert (error.value.kind, error.value.sent) == ("receive", True)
    assert [r.method for r in server.requests] == ["GET", "POST"]


def test_a_post_without_a_body_gets_a_connection_of_its_own(serve: Serve, client: Client) -> None:
    server = serve(keep_then_drop)
    client.request("GET", server.url(), deadline=soon())
    client.request("POST", server.url(), deadline=soon(), body=b"")
    client.request("POST", server.url(), deadline=soon())
    assert [(r.method, r.connection) for r in server.requests] == [("GET", 0), ("POST", 1), ("POST", 2)]


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("PUT", b"x" * 300_000), ("DELETE", None)])
def test_an_idempotent_request_is_sent_again_on_a_new_connection(
    serve: Serve, client: Client, method: str, body: bytes | None
) -> None:
    server = serve(keep_then_drop)
    client.request("GET", server.url(), deadline=soon())
    answer = client.request(method, server.url(), deadline=soon(), body=body)
    assert answer.body == b"first"
    assert [(r.method, r.connection) for r in server.requests] == [("GET", 0), (method, 0), (method, 1)]
    assert server.requests[1].body == server.requests[2].body == (body or b"")


def test_a_post_may_be_declared_idempotent(serve: Serve, client: Client) -> None:
    server = serve(keep_then_drop)
    client.request("GET", server.url(), deadline=soon())
    client.request("POST", server.url(), deadline=soon(), body=b"x", idempotent=True)
    assert [r.body for r in server.requests] == [b"", b"x", b"x"]


def test_a_connection_closed_while_idle_costs_nothing(serve: Serve, client: Client) -> None:
    closed = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer()
        peer.sock.shutdown(socket.SHUT_RDWR)
        closed.set()

    server = serve(script)
    for _ in range(3):
        closed.clear()
        client.request("POST", server.url(), deadline=soon(), body=b"x")
        assert closed.wait(100)
    assert len(server.requests) == 3


# ---- error statuses ----


def test_the_body_of_an_error_is_capped(serve: Serve) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer(b"e" * 1_000_000, "500 Broken")

    server = serve(script)
    client = Client(max_error_body=1000)
    answer = client.request("GET", server.url(), deadline=soon())
    assert (answer.status, answer.body, answer.cut) == (500, b"e" * 1000, True)
    with pytest.raises(ValueError, match="cut"):
        answer.json()
    exact = Client(max_error_body=1_000_000).request("GET", server.url(), deadline=soon())
    assert (len(exact.body), exact.cut) == (1_000_000, False)


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 10\r\n\r\nshort",
        b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"short", end=False),
        b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"short", end=False) + b"zz\r\n",
    ],
)
def test_the_status_of_an_error_counts_even_if_its_body_breaks(
    serve: Serve, client: Client, rest: bytes
) -> None:
    server = serve(says(b"HTTP/1.1 416 Range Not Satisfiable\r\n" + rest))
    answer = client.request("GET", server.url(), deadline=soon())
    assert (answer.status, answer.body, answer.cut) == (416, b"short", True)


@pytest.mark.parametrize("body", [b"", b"<html>\xff</html>", b'{"code": '])
def test_error_pages_are_answers(serve: Serve, client: Client, body: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer(body, "404 Not Found", Content_Type="text/html")

    answer = client.request("GET", serve(script).url(), deadline=soon())
    assert (answer.status, answer.body, answer.cut) == (404, body, False)
    with pytest.raises(ValueError):
        answer.json()


def test_an_early_error_ends_an_upload(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        peer.wait_until_closed()

    answer = client.request("PUT", serve(script).url(), deadline=soon(), body=b"x" * 20_000_000)
    assert (answer.status, answer.body) == (413, b"big")


# ---- sizes set by the peer ----


def test_a_body_over_the_cap(serve: Serve, client: Client) -> None:
    server = serve(answers(body=b"x" * 1001))
    with pytest.raises(TransportError) as error:
        client.request("GET", server.url(), deadline=soon(), max_body=1000)
    assert error.value.kind == "too_large"
    answer = client.request("GET", server.url(), deadline=soon(), max_body=1000, may_cut=True)
    assert (answer.body, answer.cut) == (b"x" * 1000, True)
    for cap in (1001, 1002):
        answer = client.request("GET", server.url(), deadline=soon(), max_body=cap, may_cut=True)
        assert (len(answer.body), answer.cut) == (1001, False)
    assert client.request("GET", server.url(), deadline=soon(), max_body=0, may_cut=True).body == b""


@pytest.mark.parametrize("framing", ["chunked", "endless"])
def test_a_body_without_end(serve: Serve, client: Client, framing: str) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK + (b"Transfer-Encoding: chunked\r\n\r\n" if framing == "chunked" else b"\r\n"))
        while True:
            peer.send(chunked(b"x" * 60000, end=False) if framing == "chunked" else b"x" * 60000)

    with pytest.raises(TransportError) as error:
        client.request("GET", serve(script).url(), deadline=soon(), max_body=1_000_000)
    assert error.value.kind == "too_large"


def test_an_encoded_body_is_capped_by_what_it_becomes(serve: Serve, client: Client) -> None:
    bomb = gzip.compress(bytes(200_000_000), compresslevel=9)
    assert len(bomb) < 300_000

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer(bomb, Content_Encoding="gzip")

    with pytest.raises(TransportError) as error:
        client.request("GET", serve(script).url(), deadline=soon(), max_body=1_000_000)
    assert error.value.kind == "too_large"
    assert error.value.received <= 1_000_000


def test_an_encoded_body_that_is_cut_is_no_json(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer(gzip.compress(b"[" + b"1," * 50000 + b"2]")[:-20], Content_Encoding="gzip")

    server = serve(script)
    with pytest.raises((TransportError, ValueError)):
        client.request("GET", server.url(), deadline=soon()).json()


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"X-%d: %s\r\n" % (i, b"y" * 50) for i in range(2000)) + b"\r\n",
        b"X: " + b"y" * 90_000 + b"\r\n\r\n",
        b"X: " + b"y" * 500_000 + b"\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"T: trailer\r\n" * 10_000 + b"\r\n",
    ],
    ids=["many", "long", "very-long", "trailers"],
)
def test_a_head_over_the_cap(serve: Serve, client: Client, head: bytes) -> None:
    with pytest.raises(TransportError) as error:
        client.request("GET", serve(says(OK + head, linger=True)).url(), deadline=soon())
    assert error.value.kind == "head_too_large"


def test_a_head_without_end(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        while True:
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    with pytest.raises(TransportError) as error:
        client.request("GET", serve(script).url(), deadline=soon())
    assert error.value.kind == "head_too_large"


# ---- time ----


def never(peer: Peer) -> None:
    peer.wait_until_closed()


def silent(peer: Peer) -> None:
    peer.read_request()
    peer.wait_until_closed()


def mid_body(peer: Peer) -> None:
    peer.read_request()
    peer.send(OK + b"Content-Length: 10\r\n\r\n12345")
    peer.wait_until_closed()


def trickle(peer: Peer) -> None:
    peer.read_request()
    peer.send(OK + b"Content-Length: 1000000\r\n\r\n")
    while True:
        peer.send(b"x")
        threading.Event().wait(0.02)


@pytest.mark.parametrize("script", [silent, mid_body, trickle])
def test_the_deadline_is_absolute(serve: Serve, client: Client, script: Callable[[Peer], None]) -> None:
    with pytest.raises(TransportError) as error:
        client.request("POST", serve(script).url(), deadline=soon(0.3), body=b"x")
    assert (error.value.kind, error.value.sent, error.value.timed_out) == ("deadline", True, True)


def test_a_deadline_in_the_past_sends_nothing(serve: Serve, client: Client) -> None:
    server = serve(answers())
    for deadline in (soon(-1), 0.0, -5.0):
        with pytest.raises(TransportError) as error:
            client.request("GET", server.url(), deadline=deadline)
        assert (error.value.kind, error.value.sent) == ("deadline", False)
    assert server.connections == 0


@pytest.mark.parametrize("script", [silent, mid_body])
def test_a_stalled_connection(serve: Serve, client: Client, script: Callable[[Peer], None]) -> None:
    with pytest.raises(TransportError) as error:
        client.request("GET", serve(script).url(), deadline=soon(), stall=0.3)
    assert (error.value.kind, error.value.sent, error.value.timed_out) == ("stalled", True, True)


def test_a_peer_that_stops_reading_stalls_an_upload(serve: Serve, client: Client) -> None:
    hold = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_head()
        hold.wait(100)

    with pytest.raises(TransportError) as error:
        client.request("POST", serve(script).url(), deadline=soon(), stall=0.3, body=b"x" * 50_000_000)
    hold.set()
    assert (error.value.kind, error.value.sent) == ("stalled", True)


def test_a_slow_but_moving_answer_does_not_stall(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK + b"Content-Length: 10\r\n\r\n")
        for _ in range(10):
            threading.Event().wait(0.1)
            peer.send(b"x")

    assert client.request("GET", serve(script).url(), deadline=soon(), stall=0.8).body == b"x" * 10


@pytest.fixture
def full_listener() -> int:
    """A port whose connects neither succeed nor fail: the queue of its listener is full."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    address = listener.getsockname()
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(address)
        fillers.append(filler)
    threading.Event().wait(0.1)
    yield address[1]  # type: ignore[misc]
    for filler in (*fillers, listener):
        filler.close()


def test_connecting_takes_no_longer_than_allowed(full_listener: int) -> None:
    client = Client(connect_timeout=0.3)
    with pytest.raises(TransportError) as error:
        client.request("GET", f"http://127.0.0.1:{full_listener}/", deadline=soon())
    assert (error.value.kind, error.value.sent, error.value.timed_out) == ("connect_timeout", False, True)


def test_the_deadline_ends_connecting(full_listener: int, client: Client) -> None:
    with pytest.raises(TransportError) as error:
        client.request("GET", f"http://127.0.0.1:{full_listener}/", deadline=soon(0.3))
    assert (error.value.kind, error.value.sent) == ("deadline", False)


def test_nobody_listens(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TransportError, match=rf"127\.0\.0\.1(:| port ){port}\b") as error:
        client.request("POST", f"http://127.0.0.1:{port}/secret", deadline=soon(), body=b"x")
    assert (error.value.kind, error.value.sent) == ("connect", False)
    assert "secret" not in str(error.value)


def test_a_name_that_does_not_exist(client: Client) -> None:
    with pytest.raises(TransportError, match=r"nowhere\.invalid") as error:
        client.request("POST", "http://nowhere.invalid/", deadline=soon(), body=b"x")
    assert (error.value.kind, error.value.sent) == ("resolve", False)


# ---- cancelling ----


def test_a_cancel_that_came_before(serve: Serve, client: Client, cancel: CancelFd) -> None:
    server = serve(answers())
    cancel.set()
    with pytest.raises(RequestCancelled) as error:
        client.request("POST", server.url(), deadline=soon(), body=b"x", cancel_fd=cancel.fd)
    assert (error.value.kind, error.value.sent) == ("cancelled", False)
    assert server.connections == 0


@pytest.mark.parametrize("script", [never, silent, mid_body, trickle])
def test_a_cancel_in_the_middle(
    serve: Serve, client: Client, cancel: CancelFd, script: Callable[[Peer], None]
) -> None:
    reached = threading.Event()

    def signalling(peer: Peer) -> None:
        reached.set()
        script(peer)

    thread = cancel.set_when(reached)
    with pytest.raises(RequestCancelled):
        client.request("GET", serve(signalling).url(), deadline=soon(), cancel_fd=cancel.fd)
    thread.join()
    assert client._native().lanes() == (1, 1)


def test_a_cancel_while_connecting(full_listener: int, client: Client, cancel: CancelFd) -> None:
    timer = threading.Timer(0.3, cancel.set)
    timer.start()
    with pytest.raises(RequestCancelled) as error:
        client.request("GET", f"http://127.0.0.1:{full_listener}/", deadline=soon(), cancel_fd=cancel.fd)
    timer.join()
    assert error.value.sent is False


def test_a_cancel_while_sending(serve: Serve, client: Client, cancel: CancelFd) -> None:
    reached, hold = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.read_head()
        reached.set()
        hold.wait(100)

    thread = cancel.set_when(reached)
    with pytest.raises(RequestCancelled) as error:
        client.request(
            "POST", serve(script).url(), deadline=soon(), body=b"x" * 50_000_000, cancel_fd=cancel.fd
        )
    hold.set()
    thread.join()
    assert error.value.sent is True
