# SPDX-License-Identifier: Apache-2.0
"""Downloads to a descriptor and to a writer: whole, or an error that leaves nothing wrong behind."""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from net_tools import CancelFd, run_python, soon
from sandbox_native.http import Client, DownloadAnswer, RequestCancelled, TransportError
from scripted import Peer, Server, chunked, says

Serve = Callable[..., Server]
INT64_MAX = 2**63 - 1


class Sink:
    """A destination, by descriptor or by write."""

    def __init__(self, kind: str, path: Path) -> None:
        self._file = path.open("w+b", buffering=0)
        self._chunks: list[bytes] = []
        self.dest: int | Callable[[bytes], object] = (
            self._file.fileno() if kind == "fd" else self._chunks.append
        )

    @property
    def content(self) -> bytes:
        return b"".join(self._chunks) or os.pread(self._file.fileno(), 1 << 30, 0)

    def close(self) -> None:
        self._file.close()


@pytest.fixture(params=["fd", "write"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sink]:
    made = Sink(request.param, tmp_path / "dest")
    yield made
    made.close()


def pattern(size: int) -> bytes:
    block = bytes(range(251)) * 1000
    return (block * (size // len(block) + 1))[:size]


def file_server(content: bytes) -> Callable[[Peer], None]:
    """A well-behaved one, for ranges, too."""

    def script(peer: Peer) -> None:
        while True:
            asked = peer.read_request().headers.get("range")
            if asked is None:
                peer.answer(content)
                continue
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or INT64_MAX), len(content) - 1)
            if begin >= len(content):
                peer.answer(b"no", "416 Range Not Satisfiable", Content_Range=f"bytes */{len(content)}")
            else:
                peer.answer(
                    content[begin : end + 1],
                    "206 Partial Content",
                    Content_Range=f"bytes {begin}-{end}/{len(content)}",
                )

    return script


SIZES = [0, 1, 1000, 512 * 1024 - 1, 512 * 1024, 512 * 1024 + 1, 5_000_000]


@pytest.mark.parametrize("size", SIZES)
def test_whole_files(serve: Serve, client: Client, sink: Sink, size: int) -> None:
    content = pattern(size)
    server = serve(file_server(content))
    answer = client.download(server.url(), sink.dest, deadline=soon(), size=size, max_bytes=size)
    assert (answer.status, answer.taken, answer.total) == (200, size, size)
    assert sink.content == content
    assert server.requests[0].headers["accept-encoding"] == "identity"
    assert "range" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("first", "last", "asked"),
    [
        (0, None, "bytes=0-"),
        (0, 0, "bytes=0-0"),
        (10, None, "bytes=10-"),
        (10, 999, "bytes=10-999"),
        (999_999, None, "bytes=999999-"),
        (0, 5_000_000, "bytes=0-5000000"),
    ],
)
def test_ranges(serve: Serve, client: Client, sink: Sink, first: int, last: int | None, asked: str) -> None:
    content = pattern(1_000_000)
    server = serve(file_server(content))
    answer = client.download(
        server.url(), sink.dest, deadline=soon(), ranged=True, first=first, last=last, max_bytes=1_000_000
    )
    want = content[first : None if last is None else last + 1]
    assert (answer.status, answer.taken, answer.total) == (206, len(want), 1_000_000)
    assert sink.content == want
    assert server.requests[0].headers["range"] == asked


def test_a_file_in_slices_at_the_position_of_the_descriptor(
    serve: Serve, client: Client, tmp_path: Path
) -> None:
    content = pattern(1_000_001)
    server = serve(file_server(content))
    with (tmp_path / "dest").open("w+b", buffering=0) as file:
        file.write(b"before")
        for first in range(0, len(content), 300_000):
            client.download(
                *(server.url(), file.fileno()),
                deadline=soon(),
                first=first,
                last=first + 299_999,
                size=1_000_001,
            )
        assert file.tell() == 6 + len(content)
    assert (tmp_path / "dest").read_bytes() == b"before" + content
    assert server.connections == 1


def test_past_the_end(serve: Serve, client: Client, sink: Sink) -> None:
    answer = client.download(serve(file_server(b"abc")).url(), sink.dest, deadline=soon(), first=3)
    assert (answer.status, answer.body, answer.taken, sink.content) == (416, b"no", 0, b"")


def test_the_whole_file_serves_for_a_range_that_covers_it(serve: Serve, client: Client, sink: Sink) -> None:
    for say, arguments in (
        (b"Content-Length: 3\r\n\r\nabc", {"ranged": True}),
        (b"Content-Length: 3\r\n\r\nabc", {"last": 2}),
        (b"Content-Length: 3\r\n\r\nabc", {"last": 100, "size": 3}),
        (b"Content-Length: 0\r\n\r\n", {"ranged": True, "last": 100}),
        (b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"a", b"bc"), {"ranged": True}),
        (b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"a", b"bc"), {"ranged": True, "size": 3}),
        (b"\r\nabc", {"size": 3}),  # ended by closing, but of the size that is known
    ):
        server = serve(says(b"HTTP/1.1 200 OK\r\n" + say))
        answer = client.download(server.url(), sink.dest, deadline=soon(), **arguments)  # type: ignore[arg-type]
        assert answer.taken == (0 if b"Length: 0" in say else 3)


P = b"HTTP/1.1 206 Partial Content\r\n"
W = b"HTTP/1.1 200 OK\r\n"
RANGE: dict[str, Any] = {"first": 2, "last": 4}
WRONG: list[tuple[str, bytes, dict[str, Any], str]] = [
    ("cut", W + b"Content-Length: 10\r\n\r\nabc", {}, "receive"),
    ("cut-chunks", W + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"abc", end=False), {}, "receive"),
    ("cut-partial", P + b"Content-Range: bytes 2-4/9\r\nContent-Length: 3\r\n\r\na", RANGE, "receive"),
    ("close-delimited", W + b"\r\nabc", {}, "length"),
    ("close-delimited-short", W + b"\r\nab", {"size": 3}, "length"),
    ("close-delimited-long", W + b"\r\nabcd", {"size": 3}, "length"),
    ("close-delimited-range", P + b"Content-Range: bytes 2-4/9\r\n\r\na", RANGE, "length"),
    ("ignored", W + b"Content-Length: 9\r\n\r\nabcdefghi", RANGE, "range"),
    ("ignored-from-0", W + b"Content-Length: 9\r\n\r\nabcdefghi", {"last": 4}, "range"),
    ("ignored-unsized", W + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"abc"), {"last": 4}, "range"),
    ("elsewhere", P + b"Content-Range: bytes 3-5/9\r\nContent-Length: 3\r\n\r\nabc", RANGE, "range"),
    ("shorter", P + b"Content-Range: bytes 2-3/9\r\nContent-Length: 2\r\n\r\nab", RANGE, "range"),
    ("longer", P + b"Content-Range: bytes 2-5/9\r\nContent-Length: 4\r\n\r\nabcd", RANGE, "range"),
    (
        "not-to-the-end",
        P + b"Content-Range: bytes 2-4/9\r\nContent-Length: 3\r\n\r\nabc",
        {"first": 2},
        "range",
    ),
    ("no-range", P + b"Content-Length: 3\r\n\r\nabc", RANGE, "range"),
    (
        "two-ranges",
        P + b"Content-Range: bytes 2-4/9\r\nContent-Range: bytes 2-4/9\r\n\r\nabc",
        RANGE,
        "range",
    ),
    ("odd-range", P + b"Content-Range: bytes 2-4\r\nContent-Length: 3\r\n\r\nabc", RANGE, "range"),
    ("multipart", P + b"Content-Type: multipart/byteranges; boundary=x\r\n\r\n--x", RANGE, "range"),
    ("unasked", P + b"Content-Range: bytes 0-2/9\r\nContent-Length: 3\r\n\r\nabc", {}, "range"),
    (
        "unknown-total",
        P + b"Content-Range: bytes 2-4/*\r\nContent-Length: 3\r\n\r\nabc",
        {"first": 2},
        "length",
    ),
    ("range-length", P + b"Content-Range: bytes 2-4/9\r\nContent-Length: 4\r\n\r\nabcd", RANGE, "length"),
    (
        "range-chunks-short",
        P + b"Content-Range: bytes 2-4/9\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"ab"),
        RANGE,
        "length",
    ),
    (
        "range-chunks-long",
        P + b"Content-Range: bytes 2-4/9\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"abcd"),
        RANGE,
        "length",
    ),
    (
        "changed",
        P + b"Content-Range: bytes 2-4/9\r\nContent-Length: 3\r\n\r\nabc",
        {**RANGE, "size": 10},
        "length",
    ),
    ("changed-whole", W + b"Content-Length: 3\r\n\r\nabc", {"size": 4}, "length"),
    ("changed-chunks", W + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"abc"), {"size": 4}, "length"),
    ("int64-max", W + b"Content-Length: 9223372036854775807\r\n\r\nabc", {}, "length"),
    ("over-int64", W + b"Content-Length: 9223372036854775808\r\n\r\nabc", {}, "length"),
    (
        "int64-range",
        P + b"Content-Range: bytes 2-4/9223372036854775807\r\nContent-Length: 3\r\n\r\nabc",
        RANGE,
        "length",
    ),
    ("two-lengths", W + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", {}, "length"),
    ("odd-status", b"HTTP/1.1 204 No Content\r\n\r\n", {}, "protocol"),
    ("created", b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc", {}, "protocol"),
    ("encoded", W + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", {}, "encoding"),
    ("over-the-cap", W + b"Content-Length: 101\r\n\r\n" + b"x" * 101, {"max_bytes": 100}, "too_large"),
    (
        "over-the-cap-chunks",
        W + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * 101),
        {"max_bytes": 100},
        "too_large",
    ),
]


@pytest.mark.parametrize(("say", "arguments", "kind"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_is_not_the_file(
    serve: Serve, client: Client, sink: Sink, say: bytes, arguments: dict[str, Any], kind: str
) -> None:
    with pytest.raises(TransportError) as error:
        client.download(serve(says(say)).url(), sink.dest, deadline=soon(), **arguments)
    assert error.value.kind == kind
    # Nothing reaches the destination where the head tells; at most a true beginning where it does not.
    may_begin = kind == "receive" or b"chunked" in say or b"\r\n\r\n" not in say[:-4] or b"Length" not in say
    assert sink.content == b"" or may_begin


def test_an_announced_size_is_told(serve: Serve, client: Client, sink: Sink) -> None:
    with pytest.raises(TransportError) as error:
        client.download(
            serve(says(W + b"Content-Length: 12345\r\n\r\n")).url(), sink.dest, deadline=soon(), max_bytes=100
        )
    assert (error.value.kind, error.value.announced) == ("too_large", 12345)
    with pytest.raises(TransportError) as error:
        client.download(
            serve(says(W + b"Content-Length: %d\r\n\r\n" % INT64_MAX)).url(), sink.dest, deadline=soon()
        )
    assert (error.value.kind, error.value.announced) == ("length", INT64_MAX)


def test_at_the_cap(serve: Serve, client: Client, sink: Sink) -> None:
    server = serve(says(W + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * 100)))
    assert client.download(server.url(), sink.dest, deadline=soon(), max_bytes=100).taken == 100


@pytest.mark.parametrize("status", ["404 Not Found", "416 Range Not Satisfiable", "500 Broken", "302 Found"])
@pytest.mark.parametrize("rest", [b"Content-Length: 5\r\n\r\nerror", b"Content-Length: 500\r\n\r\nerror"])
def test_an_error_body_never_reaches_the_destination(
    serve: Serve, client: Client, sink: Sink, status: str, rest: bytes
) -> None:
    server = serve(says(f"HTTP/1.1 {status}\r\n".encode() + rest))
    answer = client.download(server.url(), sink.dest, deadline=soon(), ranged=True)
    assert isinstance(answer, DownloadAnswer)
    assert (answer.status, answer.ok, answer.body) == (int(status[:3]), False, b"error")
    assert (answer.taken, sink.content) == (0, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        {"first": -1},
        {"first": 3, "last": 2},
        {"last": -5},
        {"size": -2},
        {"max_bytes": -1},
        {"dest": 9999},
        {"dest": -1},
        {"dest": "directory"},
        {"dest": "pipe"},
    ],
)
def test_what_is_refused(client: Client, tmp_path: Path, arguments: dict[str, Any]) -> None:
    read, write = os.pipe()
    directory = os.open(tmp_path, os.O_RDONLY)
    file = os.open(tmp_path / "x", os.O_CREAT | os.O_RDWR)
    dest = {"directory": directory, "pipe": write}.get(arguments.get("dest"), arguments.get("dest", file))
    with pytest.raises(ValueError, match="invalid"):
        client.download("http://127.0.0.1:1/", **{**arguments, "dest": dest, "deadline": soon()})
    for fd in (read, write, directory, file):
        os.close(fd)


# ---- destinations that fail ----


def test_a_descriptor_that_cannot_be_written(serve: Serve, client: Client, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    server = serve(file_server(pattern(1000)))
    with (tmp_path / "x").open("rb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        client.download(server.url(), file.fileno(), deadline=soon())
    assert client.request("GET", server.url(), deadline=soon()).ok


@pytest.mark.parametrize("at", [1, 3])
def test_what_write_raises_comes_out(serve: Serve, client: Client, at: int) -> None:
    class Odd(BaseException):
        pass

    odd = Odd()
    calls = 0

    def write(data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == at:
            raise odd
        return len(data)

    server = serve(file_server(pattern(20_000_000)))
    with pytest.raises(Odd) as error:
        client.download(server.url(), write, deadline=soon())
    assert error.value is odd and calls == at
    assert client.request("HEAD", serve(says(W + b"\r\n")).url(), deadline=soon()).ok


def test_writers_that_take_less(serve: Serve, client: Client) -> None:
    content = pattern(1_500_000)
    got = io.BytesIO()

    def raw(data: bytes) -> int:
        return got.write(data[:70_001])

    client.download(serve(file_server(content)).url(), raw, deadline=soon())
    assert got.getvalue() == content
    for odd in (0, -1, 10**30):
        with pytest.raises((OSError, OverflowError)):
            client.download(serve(file_server(content)).url(), lambda data, odd=odd: odd, deadline=soon())
    with pytest.raises(TypeError):
        client.download(serve(file_server(content)).url(), None, deadline=soon())  # type: ignore[arg-type]


def test_what_was_written_stays_as_it_was(serve: Serve, client: Client) -> None:
    """A sink may keep the objects it got: no buffer is used twice."""
    content = pattern(10_000_000)
    kept: list[bytes] = []
    client.download(serve(file_server(content)).url(), kept.append, deadline=soon())
    assert b"".join(kept) == content
    assert max(map(len, kept)) <= 512 * 1024


def test_a_slow_writer_holds_the_download_and_is_no_stall(serve: Serve, client: Client) -> None:
    content = pattern(8_000_000)
    got = bytearray()

    def write(data: bytes) -> None:
        if len(got) < 2_000_000:
            threading.Event().wait(0.5)
        got.extend(data)

    client.download(serve(file_server(content)).url(), write, deadline=soon(), stall=1.0)
    assert got == content


# ---- time and cancel ----


def mid_file(peer: Peer) -> None:
    peer.read_request()
    peer.send(W + b"Content-Length: 3000000\r\n\r\n" + b"x" * 1_500_000)
    peer.wait_until_closed()


def test_the_deadline_and_stalls(serve: Serve, client: Client, sink: Sink) -> None:
    server = serve(mid_file)
    for arguments, kind in (
        ({"deadline": soon(0.3)}, "deadline"),
        ({"deadline": soon(), "stall": 0.3}, "stalled"),
    ):
        with pytest.raises(TransportError) as error:
            client.download(server.url(), sink.dest, **arguments)
        assert (error.value.kind, error.value.status) == (kind, 200)


def test_a_cancel(serve: Serve, client: Client, sink: Sink, cancel: CancelFd) -> None:
    reached = threading.Event()

    def script(peer: Peer) -> None:
        reached.set()
        mid_file(peer)

    thread = cancel.set_when(reached)
    with pytest.raises(RequestCancelled):
        client.download(serve(script).url(), sink.dest, deadline=soon(), cancel_fd=cancel.fd)
    thread.join()


def test_many_downloads_at_once(serve: Serve, client: Client) -> None:
    content = pattern(3_000_000)
    server = serve(file_server(content))
    wrong: list[int] = []

    def work(number: int) -> None:
        got = bytearray()
        client.download(server.url(), got.extend, deadline=soon())
        if got != content:
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_descriptor_holds_what_is_said_to_have_come(serve: Serve, client: Client, tmp_path: Path) -> None:
    """So that a broken download can be taken up again where it broke."""
    content = pattern(300_001)
    server = serve(says(W + b"Content-Length: 1000000\r\n\r\n" + content))
    with (tmp_path / "dest").open("w+b", buffering=0) as file:
        with pytest.raises(TransportError) as error:
            client.download(server.url(), file.fileno(), deadline=soon())
        assert (error.value.kind, error.value.received) == ("receive", len(content))
        assert file.tell() == len(content)
    assert (tmp_path / "dest").read_bytes() == content


def test_a_limit_on_the_size_of_files(serve: Serve, tmp_path: Path) -> None:
    done = run_python(
        """
import os, resource, signal, sys, time
from sandbox_native.http import Client
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with open(sys.argv[2], "wb") as file:
    try:
        Client().download(sys.argv[1], file.fileno(), deadline=time.monotonic() + 100)
    except OSError as e:
        print(e.errno)
""",
        serve(file_server(pattern(int(1e6)))).url(),
        str(tmp_path / "dest"),
    )
    assert (done.stdout, done.stderr) == (f"{errno.EFBIG}\n", "")
