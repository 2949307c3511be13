# SPDX-License-Identifier: Apache-2.0
"""Requests and answers that work, and what is refused before anything is sent."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
import pickle
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from net_tools import soon
from sandbox_native.http import Client, TransportError
from scripted import Peer, Server, answers, chunked, says

Serve = Callable[..., Server]


def test_what_a_server_sees(serve: Serve, client: Client) -> None:
    server = serve(answers(body=b'{"a": 1}'))
    answer = client.request(
        "POST",
        server.url("/a/../b?c=%20&d=%2F"),
        deadline=soon(),
        headers={"X-Key": "secret", "Content-Type": "application/json", "X-Empty": ""},
        body=b"{}",
    )
    assert (answer.status, answer.ok, answer.json()) == (200, True, {"a": 1})
    (request,) = server.requests
    assert (request.method, request.target, request.body) == ("POST", "/a/../b?c=%20&d=%2F", b"{}")
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "accept": "*/*",
        "accept-encoding": request.headers["accept-encoding"],
        "content-type": "application/json",
        "content-length": "2",
        "x-key": "secret",
        "x-empty": "",
    }
    assert sorted(request.headers["accept-encoding"].replace(" ", "").split(",")) == ["deflate", "gzip"]


@pytest.mark.parametrize(
    ("method", "body"),
    [
        *itertools.product(
            ["GET", "DELETE", "PUT", "POST", "PATCH", "OPTIONS"], [None, b"", b"x", b"y" * 300_000]
        ),
        ("HEAD", None),
    ],
)
def test_methods_and_bodies(serve: Serve, client: Client, method: str, body: bytes | None) -> None:
    def script(peer: Peer) -> None:
        while True:
            request = peer.read_request()
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
            if request.method != "HEAD":
                peer.send(b"body")

    server = serve(script)
    for _ in range(2):
        answer = client.request(method, server.url(), deadline=soon(), body=body)
        assert answer.body == (b"" if method == "HEAD" else b"body")
    assert [r.method for r in server.requests] == [method, method]
    assert [r.body for r in server.requests] == [body or b""] * 2
    assert all(("content-length" in r.headers) == (body is not None) for r in server.requests)
    assert not any(
        name in r.headers for r in server.requests for name in ("expect", "content-type", "transfer-encoding")
    )


def test_pieces_of_a_body(serve: Serve, client: Client) -> None:
    server = serve(answers())
    pieces = (b"one", bytearray(b"two"), b"", memoryview(b"three"))
    client.request("POST", server.url(), deadline=soon(), body=pieces)  # type: ignore[arg-type]
    client.request("POST", server.url(), deadline=soon(), body=())
    assert [r.body for r in server.requests] == [b"onetwothree", b""]


def test_a_connection_serves_many_requests(serve: Serve, client: Client) -> None:
    server = serve(answers())
    for _ in range(20):
        client.request("POST", server.url(), deadline=soon(), body=b"x")
        client.request("GET", server.url(), deadline=soon())
    assert server.connections == 1
    assert client._native().lanes() == (1, 1)


def test_a_connection_older_than_the_keep_alive_is_not_used_again(serve: Serve) -> None:
    server = serve(answers())
    client = Client(keep_alive=1.0)
    client.request("GET", server.url(), deadline=soon())
    threading.Event().wait(2.5)  # idle seconds are counted whole
    client.request("GET", server.url(), deadline=soon())
    assert server.connections == 2
    client.close()


def test_common_headers_give_way_to_those_of_a_request(serve: Serve) -> None:
    server = serve(answers())
    client = Client(headers={"User-Agent": "ua", "X-Key": "common"})
    client.request("GET", server.url(), deadline=soon(), headers={"x-key": "own"})
    client.request("GET", server.url(), deadline=soon())
    assert [(r.headers["user-agent"], r.headers["x-key"]) for r in server.requests] == [
        ("ua", "own"),
        ("ua", "common"),
    ]


def test_headers_of_an_answer(serve: Serve, client: Client) -> None:
    server = serve(
        says(
            b"HTTP/1.1 103 Early\r\nX: interim\r\n\r\n"
            b"HTTP/1.1 201 Created\r\nX: 1\r\nx:2 \r\nY:\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n0\r\nZ: trailer\r\n\r\n"
        )
    )
    answer = client.request("GET", server.url(), deadline=soon())
    assert (answer.status, answer.body) == (201, b"abc")
    assert answer.headers["x"] == answer.headers["X"] == "1, 2"
    assert answer.headers["y"] == ""
    assert "z" not in answer.headers and answer.headers.get("absent") is None
    assert "1, 2" not in repr(answer) + repr(answer.headers)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Again", "308 For ever"])
def test_redirects_are_answers(serve: Serve, client: Client, status: str) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer(b"elsewhere", status, Location=server.url("/stolen"))

    server = serve(script)
    answer = client.request("GET", server.url(), deadline=soon(), headers={"X-Key": "secret"})
    assert (answer.status, answer.ok, answer.headers["location"]) == (
        int(status[:3]),
        False,
        server.url("/stolen"),
    )
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answers_without_a_body(serve: Serve, client: Client, status: str) -> None:
    def script(peer: Peer) -> None:
        while True:
            peer.read_request()
            peer.send(f"HTTP/1.1 {status}\r\n\r\n".encode())

    server = serve(script)
    for _ in range(2):
        assert client.request("DELETE", server.url(), deadline=soon()).body == b""
    assert server.connections == 1


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_encoded_bodies(serve: Serve, client: Client, coding: str) -> None:
    plain = json.dumps(list(range(10000))).encode()
    data = gzip.compress(plain) if coding == "gzip" else zlib.compress(plain)

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer(data, Content_Encoding=coding)

    server = serve(script)
    assert client.request("GET", server.url(), deadline=soon()).json() == list(range(10000))


def test_plain_bytes_where_asked_for(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer(b"\x1f\x8b not touched", Content_Encoding="gzip")

    server = serve(script)
    answer = client.request("GET", server.url(), deadline=soon(), compressed=False)
    assert answer.body == b"\x1f\x8b not touched"
    assert server.requests[0].headers["accept-encoding"] == "identity"


SECRET = "s3cr3t-t0k3n"


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        ("header value", {"headers": {"X-Key": f"{SECRET}\r\nX: y"}}),
        ("header value", {"headers": {"X-Key": f"{SECRET}\n"}}),
        ("header value", {"headers": {"X-Key": f"{SECRET}\0"}}),
        ("header value", {"headers": {"X-Key": f"{SECRET}\x7f"}}),
        ("header value", {"headers": {"X-Key": f"{SECRET}é"}}),
        ("header value", {"headers": {"X-Key": f"{SECRET}\udc80"}}),
        ("header name", {"headers": {"X Key": SECRET}}),
        ("header name", {"headers": {"": SECRET}}),
        ("header name", {"headers": {"X\r\nY": SECRET}}),
        ("header name", {"headers": {"X:": SECRET}}),
        ("framing", {"headers": {"Content-Length": "3"}}),
        ("framing", {"headers": {"transfer-encoding": "chunked"}}),
        ("framing", {"headers": {"Expect": "100-continue"}}),
        ("framing", {"headers": {"Connection": "close"}}),
        ("URL", {"url": f"http://127.0.0.1/{SECRET}\r\nX: y"}),
        ("URL", {"url": f"http://127.0.0.1/{SECRET}\0"}),
        ("URL", {"url": f"http://127.0.0.1/{SECRET} x"}),
        ("URL", {"url": f"http://127.0.0.1/{SECRET}é"}),
        ("URL", {"url": f"http://127.0.0.1/{SECRET}#x"}),
        ("URL", {"url": f"http://user:{SECRET}@127.0.0.1/"}),
        ("URL", {"url": f"ftp://127.0.0.1/{SECRET}"}),
        ("URL", {"url": f"file:///{SECRET}"}),
        ("URL", {"url": f"/{SECRET}"}),
        ("URL", {"url": ""}),
        ("method", {"method": "GET / HTTP/1.1"}),
        ("method", {"method": ""}),
        ("null character", {"method": "GET\0"}),
        ("deadline", {"deadline": float("nan")}),
        ("deadline", {"deadline": float("inf")}),
        ("stall", {"stall": 0.0}),
        ("stall", {"stall": float("nan")}),
        ("cap", {"max_body": -1}),
        ("cancel descriptor", {"cancel_fd": 999_999}),
    ],
)
def test_what_is_refused(client: Client, what: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=what) as error:
        client.request(**{"method": "GET", "url": "http://127.0.0.1:1/", "deadline": soon(), **arguments})
    assert SECRET not in str(error.value)
    assert client._native().lanes() == (0, 0)  # nothing was even tried


@pytest.mark.parametrize("headers", [{"X": 1}, [("X",)], [("X", "y", "z")], {b"X": "y"}])
def test_headers_of_the_wrong_type(client: Client, headers: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        client.request("GET", "http://127.0.0.1:1/", deadline=soon(), headers=headers)


def test_a_closed_client(serve: Serve) -> None:
    server = serve(answers())
    client = Client()
    client.request("GET", server.url(), deadline=soon())
    client.close()
    client.close()
    with pytest.raises(ValueError, match="closed"):
        client.request("GET", server.url(), deadline=soon())


def test_closing_lets_calls_under_way_finish(serve: Serve) -> None:
    asked, closed = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        asked.set()
        assert closed.wait(100)
        peer.answer(b"late")

    server = serve(script)
    client = Client()
    bodies: list[bytes] = []
    thread = threading.Thread(
        target=lambda: bodies.append(client.request("GET", server.url(), deadline=soon()).body)
    )
    thread.start()
    assert asked.wait(100)
    client.close()
    closed.set()
    thread.join(100)
    assert bodies == [b"late"]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_are_clients_of_their_own(serve: Serve, duplicate: Callable[[Client], Client]) -> None:
    server = serve(answers())
    client = Client(headers={"X-Key": "k"})
    client.request("GET", server.url(), deadline=soon())
    other = duplicate(client)
    client.close()
    other.request("GET", server.url(), deadline=soon())
    other.close()
    assert [r.headers["x-key"] for r in server.requests] == ["k", "k"]
    assert server.connections == 2


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(TransportError("x", kind="receive", sent=True, received=3)))
    assert (str(error), error.kind, error.sent, error.received, error.timed_out) == (
        "x",
        "receive",
        True,
        3,
        False,
    )


def test_many_threads_use_one_client(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        while True:
            request = peer.read_request()
            peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            peer.send(chunked(request.body, request.target.encode()))

    server = serve(script)
    wrong: list[object] = []

    def work(number: int) -> None:
        for i in range(30):
            body = f"{number}-{i} ".encode() * (i * 50)
            answer = client.request("POST", server.url(f"/{number}"), deadline=soon(), body=body)
            if answer.body != body + f"/{number}".encode():
                wrong.append(answer)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert not wrong
    assert len(server.requests) == 24 * 30
    lanes, idle = client._native().lanes()
    assert lanes == idle <= 24
    assert server.connections <= 24
