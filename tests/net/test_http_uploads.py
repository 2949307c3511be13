# SPDX-License-Identifier: Apache-2.0
"""Forms and files that are sent."""

from __future__ import annotations

import email
import email.policy
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from net_tools import soon
from sandbox_native.http import Client, TransportError
from sandbox_native.multipart import FileSlice, Part
from scripted import Peer, Request, Server, answers

Serve = Callable[..., Server]


def parts_of(request: Request) -> list[tuple[str | None, str | None, str, bytes]]:
    """The form as the standard library reads it: name, file name, type, content."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + request.body, policy=email.policy.HTTP)
    return [
        (
            part.get_param("name", header="content-disposition"),  # type: ignore[misc]
            part.get_filename(),
            part.get_content_type(),
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()  # type: ignore[attr-defined]
    ]


def test_a_form_of_bytes(serve: Serve, client: Client) -> None:
    server = serve(answers())
    client.upload(
        "POST",
        server.url(),
        [
            Part("metadata", b'{"path": "/a \\"b\\".txt"}', content_type="application/json"),
            Part("file", b"content\r\n--x", filename="upload"),
        ],
        deadline=soon(),
        headers={"X-Key": "k"},
    )
    (request,) = server.requests
    assert parts_of(request) == [
        ("metadata", None, "application/json", b'{"path": "/a \\"b\\".txt"}'),
        ("file", "upload", "application/octet-stream", b"content\r\n--x"),
    ]
    boundary = request.headers["content-type"].partition("boundary=")[2]
    assert len(boundary) == 32
    assert request.body.startswith(
        f'--{boundary}\r\nContent-Disposition: form-data; name="metadata"\r\n'
        f"Content-Type: application/json\r\n\r\n".encode()
    )
    assert request.body.endswith(f"\r\n--{boundary}--\r\n".encode())
    assert request.headers["x-key"] == "k" and "expect" not in request.headers


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (0, 5_000_000), (1000, 3_000_001)])
def test_a_form_of_a_file(serve: Serve, client: Client, tmp_path: Path, offset: int, length: int) -> None:
    content = os.urandom(5_000_000)
    (tmp_path / "f").write_bytes(content)
    server = serve(answers())
    with (tmp_path / "f").open("rb") as file:
        file.seek(77)
        for _ in range(2):
            client.upload(
                "POST",
                server.url(),
                [Part("file", FileSlice(file.fileno(), offset, length), filename="upload")],
                deadline=soon(),
            )
        assert file.tell() == 77
    assert [parts_of(r)[0][3] for r in server.requests] == [content[offset : offset + length]] * 2


@pytest.mark.parametrize(
    "part", [Part('a"b', b""), Part("a\r\n", b""), Part("a", b"", "x\ny"), Part("a", b"", "x", "t\r\n")]
)
def test_unsafe_names(client: Client, part: Part) -> None:
    with pytest.raises(ValueError, match="unsafe"):
        client.upload("POST", "http://127.0.0.1:1/", [part], deadline=soon())


def test_a_file_that_became_shorter_is_never_sent_as_if_whole(
    serve: Serve, client: Client, tmp_path: Path
) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        raise AssertionError("a whole request came")

    server = serve(script)
    (tmp_path / "f").write_bytes(b"x" * 999)
    with (tmp_path / "f").open("rb") as file, pytest.raises(TransportError, match="shorter") as error:
        client.upload("POST", server.url(), [Part("f", FileSlice(file.fileno(), 0, 1000))], deadline=soon())
    assert error.value.kind == "source"


def test_a_file_that_grows_is_sent_at_its_announced_length(
    serve: Serve, client: Client, tmp_path: Path
) -> None:
    server = serve(answers())
    (tmp_path / "f").write_bytes(b"x" * 2000)
    with (tmp_path / "f").open("rb") as file:
        client.request("PUT", server.url(), deadline=soon(), body=[FileSlice(file.fileno(), 0, 1000)])
    assert server.requests[0].body == b"x" * 1000


def test_a_file_that_cannot_be_read(serve: Serve, client: Client, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "f", os.O_CREAT | os.O_WRONLY)
    with pytest.raises(OSError, match="Bad file descriptor"):
        client.request(
            "PUT", serve(lambda p: p.wait_until_closed()).url(), deadline=soon(), body=[FileSlice(fd, 0, 10)]
        )
    os.close(fd)


@pytest.mark.parametrize(
    "piece",
    [
        FileSlice(-1, 0, 1),
        FileSlice(9999, 0, 1),
        FileSlice(0, -1, 1),
        FileSlice(0, 0, -1),
        FileSlice(0, 2**62, 2**62),
    ],
)
def test_slices_that_are_none(client: Client, tmp_path: Path, piece: FileSlice) -> None:
    with (tmp_path / "f").open("w+b") as file:
        if piece.fd == 0:
            piece = piece._replace(fd=file.fileno())
        with pytest.raises((ValueError, OSError)):
            client.request("PUT", "http://127.0.0.1:1/", deadline=soon(), body=[piece])


def test_only_regular_files(client: Client) -> None:
    read, write = os.pipe()
    with pytest.raises(ValueError, match="regular"):
        client.request("PUT", "http://127.0.0.1:1/", deadline=soon(), body=[FileSlice(read, 0, 1)])
    os.close(read)
    os.close(write)
    with pytest.raises(TypeError):
        client.request("PUT", "http://127.0.0.1:1/", deadline=soon(), body=["text"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        client.request("PUT", "http://127.0.0.1:1/", deadline=soon(), body=[(1, 2)])  # type: ignore[list-item]


def test_a_resent_file_is_whole(serve: Serve, client: Client, tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer()
        peer.read_request()

    content = os.urandom(1_000_000)
    (tmp_path / "f").write_bytes(content)
    server = serve(script)
    client.request("GET", server.url(), deadline=soon())
    with (tmp_path / "f").open("rb") as file:
        client.request(
            "PUT", server.url(), deadline=soon(), body=[b"<", FileSlice(file.fileno(), 0, len(content)), b">"]
        )
    assert [r.body for r in server.requests[1:]] == [b"<" + content + b">"] * 2
