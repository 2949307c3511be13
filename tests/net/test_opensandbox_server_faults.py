# SPDX-License-Identifier: Apache-2.0
"""The switchboard of the OpenSandbox test server: each kind of fault is what a client then meets."""

from __future__ import annotations

import http.client
import json
import socket
import time

import pytest

from opensandbox_wire import Wire, texts
from servers.opensandbox.handle import OpenSandboxServer

BROKEN = (http.client.IncompleteRead, http.client.RemoteDisconnected, ConnectionError)
TEN = b"0123456789"


@pytest.fixture
def wire(opensandbox_server: OpenSandboxServer) -> Wire:
    wire = Wire(opensandbox_server)
    wire.events("printf 0123456789 >/tmp/ten")
    return wire


def test_only_the_calls_that_are_meant(wire: Wire) -> None:
    wire.server.faults.add("info", "status", status=503, nth=2, times=2)
    path = f"{wire.proxy}/files/info?path=/tmp"
    assert [wire.raw("GET", path)[0] for _ in range(5)] == [200, 503, 503, 200, 200]
    wire.server.faults.add("info", "status", status=429, times=None)
    assert wire.raw("GET", f"{wire.proxy}/ping")[0] == 200
    assert {wire.raw("GET", path)[0] for _ in range(3)} == {429}
    wire.server.faults.clear()
    assert wire.raw("GET", path)[0] == 200


def test_an_answer_of_its_own(wire: Wire) -> None:
    faults = wire.server.faults
    faults.add("get", "status", status=500, body="<h1>sorry</h1>", media="text/html", repeat=3)
    status, headers, data = wire.raw("GET", f"/v1/sandboxes/{wire.id}")
    assert (status, headers["content-type"], data) == (500, "text/html", b"<h1>sorry</h1>" * 3)
    faults.add("get", "status", status=307, headers={"Location": "http://127.0.0.1:1/"})
    assert wire.raw("GET", f"/v1/sandboxes/{wire.id}")[1]["location"] == "http://127.0.0.1:1/"
    faults.add("get", "status", status=200, body="")
    assert wire.raw("GET", f"/v1/sandboxes/{wire.id}")[2] == b""
    faults.add("get", "status", status=409, body={"code": "X"})
    assert wire.json("GET", f"/v1/sandboxes/{wire.id}") == (409, {"code": "X"})


def test_done_and_answered_otherwise(wire: Wire) -> None:
    wire.server.faults.add("create", "status", status=503, after=True)
    assert Wire(wire.server).status == 503
    assert len(wire.server.sandboxes()) == 2
    wire.server.faults.add("create", "status", status=503)
    assert Wire(wire.server).status == 503
    assert len(wire.server.sandboxes()) == 2
    wire.server.faults.add("delete", "close", after=True)
    with pytest.raises(BROKEN):
        wire.raw("DELETE", f"/v1/sandboxes/{wire.id}")
    assert len(wire.server.sandboxes()) == 1


@pytest.mark.parametrize("reset", [False, True])
def test_no_answer(wire: Wire, reset: bool) -> None:
    wire.server.faults.add("ping", "close", reset=reset)
    with pytest.raises(BROKEN):
        wire.raw("GET", f"{wire.proxy}/ping")


def test_hanging(wire: Wire) -> None:
    wire.server.faults.add("ping", "hang", seconds=1)
    began = time.monotonic()
    assert wire.raw("GET", f"{wire.proxy}/ping")[0] == 200
    assert time.monotonic() - began >= 1


def test_ranges_that_are_not_kept(wire: Wire) -> None:
    wire.server.faults.add("download", "ignore-range")
    assert wire.download("/tmp/ten", "bytes=2-3")[::2] == (200, TEN)
    wire.server.faults.add("download", "shift-range", by=3)
    status, headers, data = wire.download("/tmp/ten", "bytes=2-3")
    assert (status, headers["content-range"], data) == (206, "bytes 5-6/10", b"56")


def test_bodies_that_are_cut(wire: Wire) -> None:
    faults = wire.server.faults
    faults.add("download", "cut", after_bytes=4)
    with pytest.raises(http.client.IncompleteRead) as caught:
        wire.download("/tmp/ten")
    assert caught.value.partial == b"0123"
    faults.add("download", "unframed", after_bytes=4)
    status, headers, data = wire.download("/tmp/ten")
    assert (status, data) == (200, b"0123")
    assert not {"content-length", "transfer-encoding"} & headers.keys()
    faults.add("download", "announce", by=5)
    with pytest.raises(http.client.IncompleteRead):
        wire.download("/tmp/ten")
    faults.add("download", "announce", length=(1 << 63) - 1)
    connection = http.client.HTTPConnection(wire.server.domain, timeout=60)
    connection.request("GET", f"{wire.proxy}/files/download?path=/tmp/ten")
    response = connection.getresponse()
    assert response.headers["content-length"] == str((1 << 63) - 1)
    assert response.read(10) == TEN
    connection.close()
    faults.add("download", "announce", by=-3)
    assert wire.download("/tmp/ten")[2] == b"0123456"
    faults.add("download", "trickle", bytes=3, pause=0.01)
    assert wire.download("/tmp/ten")[2] == TEN
    faults.add("download", "cut", after_bytes=4, stall=0.1)
    assert wire.download("/tmp/ten")[2] == TEN


def test_a_file_that_changes_on_the_way(wire: Wire) -> None:
    faults = wire.server.faults
    faults.add("download", "act", nth=2, act="run:printf abcdefghij >/tmp/ten")
    assert wire.download("/tmp/ten", "bytes=0-4")[2] == b"01234"
    assert wire.download("/tmp/ten", "bytes=5-9")[2] == b"fghij"
    wire.events("head -c 8000000 /dev/zero >/tmp/large")
    faults.add("download", "cut", after_bytes=1000, act="run:: >/tmp/large")
    with pytest.raises(BROKEN):
        wire.download("/tmp/large")


def test_events_that_are_missing(wire: Wire) -> None:
    faults = wire.server.faults
    faults.add("command", "events", end_at="execution_complete")
    assert [event["type"] for event in wire.events("echo x")] == ["init", "ping", "stdout"]
    faults.add("command", "events", drop=["init", "ping", "stdout"])
    assert [event["type"] for event in wire.events("echo x")] == ["execution_complete"]
    prose = json.dumps({"type": "error", "error": {"ename": "X", "evalue": "prose", "traceback": []}})
    faults.add("command", "events", replace={"execution_complete": prose})
    assert wire.events("true")[-1]["error"]["evalue"] == "prose"


@pytest.mark.parametrize(
    ("shape", "end"), [("sse", b"\n\n"), ("crlf", b"\r\n\r\n"), ("bytes", b"\n\n"), ("unended", b"}")]
)
def test_events_in_another_shape(wire: Wire, shape: str, end: bytes) -> None:
    wire.server.faults.add("command", "events", shape=shape)
    data = wire.raw("POST", f"{wire.proxy}/command", {"command": "echo x"})[2]
    assert data.endswith(end)
    assert (b"data: {" in data) == (shape in ("sse", "crlf"))
    assert b'"text":"x"' in data


def test_headers_and_fields(wire: Wire) -> None:
    faults = wire.server.faults
    faults.add("ping", "headers", set={"X-One": "1"}, count=20, bytes=100)
    headers = wire.raw("GET", f"{wire.proxy}/ping")[1]
    assert headers["x-one"] == "1"
    assert sum(len(value) for name, value in headers.items() if name.startswith("x-filler")) == 2000
    faults.add("get", "json", set={"status.state": "Weird"}, remove=["entrypoint"], pad=5000)
    data = wire.raw("GET", f"/v1/sandboxes/{wire.id}")[2]
    assert json.loads(data)["status"]["state"] == "Weird"
    assert "entrypoint" not in json.loads(data)
    assert len(data) > 5000
    faults.add("info", "body", text="[1]")
    assert wire.json("GET", f"{wire.proxy}/files/info?path=/tmp") == (200, [1])


def test_several_at_once(wire: Wire) -> None:
    wire.server.faults.add("download", "ignore-range")
    wire.server.faults.add("download", "announce", by=2)
    with pytest.raises(http.client.IncompleteRead) as caught:
        wire.download("/tmp/ten", "bytes=0-1")
    assert caught.value.partial == TEN


def test_frozen_and_thawed(wire: Wire) -> None:
    wire.server.act(wire.id, "freeze")
    host, _, port = wire.server.domain.partition(":")
    with socket.create_connection((host, int(port)), timeout=0.5) as sock:
        sock.sendall(f"GET {wire.proxy}/ping HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        with pytest.raises(TimeoutError):
            sock.recv(1)
        wire.server.act(wire.id, "thaw")
        sock.settimeout(60)
        assert sock.recv(12) == b"HTTP/1.1 200"


def test_expired(wire: Wire) -> None:
    wire.server.act(wire.id, "expire")
    assert wire.raw("GET", f"/v1/sandboxes/{wire.id}")[0] == 404
    assert wire.server.sandboxes() == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (("info", "no-such-kind"), "there is no fault 'no-such-kind'"),
        (("no-such-operation", "close"), "there is no operation 'no-such-operation'"),
    ],
)
def test_what_is_not_there_is_refused(wire: Wire, fault: tuple[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wire.server.faults.add(*fault)
    with pytest.raises(ValueError, match="there is no action"):
        wire.server.act(wire.id, "dance")


def test_requests_are_kept(wire: Wire) -> None:
    wire.server.forget_requests()
    assert texts(wire.events("echo kept"), "stdout") == ["kept"]
    wire.raw("GET", f"{wire.proxy}/ping")
    (command,) = wire.server.requests("command")
    assert json.loads(command["body"])["command"] == "echo kept"
    assert [each["operation"] for each in wire.server.requests()] == ["command", "ping"]
    assert {each["sandbox"] for each in wire.server.requests()} == {wire.id}
