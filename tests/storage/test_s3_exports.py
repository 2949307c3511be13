# SPDX-License-Identifier: Apache-2.0
"""Exports to a real S3 server: what arrives, and what is there when something failed."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO

import botocore.exceptions
import pytest
from upath import UPath

from gateway import Account, Gateway
from proxy import Proxy, Request
from sandbox_native import _obstore, calls, uploads
from sandbox_native.contract import SandboxError, SandboxTerminalError
from sandbox_native.exports import Export, Item, Source

log = logging.getLogger("exports")
PART = uploads.MIN_PART

KINDS: list[Callable[[], BaseException]] = [
    lambda: OSError("injected"),
    lambda: SandboxError("injected"),
    lambda: SandboxTerminalError("injected"),
    lambda: RuntimeError("injected"),
    lambda: MemoryError("injected"),
    lambda: KeyboardInterrupt("injected"),
    lambda: SystemExit("injected"),
    lambda: GeneratorExit("injected"),
    lambda: asyncio.CancelledError("injected"),
    lambda: calls.CallCancelled("injected"),
    lambda: botocore.exceptions.EndpointConnectionError(endpoint_url="injected"),
    lambda: botocore.exceptions.ClientError({"Error": {"Code": "injected"}}, "UploadPart"),
]
NAMES = [
    *["OSError", "SandboxError", "SandboxTerminalError", "RuntimeError", "MemoryError", "KeyboardInterrupt"],
    *["SystemExit", "GeneratorExit", "CancelledError", "CallCancelled", "botocore", "botocore-client"],
]


def content(size: int, seed: int = 0) -> bytes:
    block = hashlib.sha512(bytes([seed])).digest() * 1024
    return (block * (size // len(block) + 1))[:size]


class Files:
    """What stands for a sandbox: files that are written piece by piece, and something between the pieces."""

    def __init__(self, files: Mapping[str, bytes], *, announced: bool = True, piece: int = 1 << 20) -> None:
        self.files = files
        self.announced = announced
        self.piece = piece
        self.between: Callable[[str, int], None] = lambda path, at: None

    def copy(self, path: str, dest: BinaryIO) -> int:
        data = self.files[path]
        if self.announced:
            dest.announce(len(data))  # type: ignore[attr-defined]
        # The buffer is used again, as the producers in C do.
        buffer = bytearray(self.piece)
        for at in range(0, len(data), self.piece):
            piece = data[at : at + self.piece]
            buffer[: len(piece)] = piece
            dest.write(memoryview(buffer)[: len(piece)])
            self.between(path, at)
        self.between(path, len(data))
        return len(data)


def export(
    files: Files, bucket: str, account: Account, endpoint: str | None = None, prefix: str = "out/"
) -> None:
    options = account.options(endpoint)
    items = [
        Item(path, f"s3://{bucket}/{prefix}{path}", partial(files.copy, path), 1 << 30)
        for path in files.files
    ]
    Export(items, source=Source("box-1", "files"), resolve=lambda url: UPath(url, **options), log=log).run()


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART + 17, 3 * PART])
def test_what_arrives_is_what_was_copied_and_nothing_else(
    s3: Gateway, bucket: str, writer: str, size: int, announced: bool
) -> None:
    data = content(size)
    export(Files({"f": data}, announced=announced, piece=777_777), bucket, s3.root)
    assert s3.objects(bucket) == {"out/f": data}
    assert s3.uploads(bucket) == []


AWKWARD = [
    *["a b", "it's", 'say "x"', "a#b?c=d&e", "100%41", "[ab]*?", "-rf", "näme 密", "trailing ", " leading"],
    *["a\nb", "semi;colon$HOME`x`", "~", "..hidden..", "back\\slash", "a?b=7", "a+b", "x" * 200],
]


@pytest.mark.parametrize("name", AWKWARD)
def test_names_are_taken_as_they_are(s3: Gateway, bucket: str, writer: str, name: str) -> None:
    # A sibling that a pattern would match.
    s3.client.put_object(Bucket=bucket, Key="out/a", Body=b"sibling")
    export(Files({name: b"1"}), bucket, s3.root)
    assert s3.objects(bucket) == {"out/a": b"sibling", f"out/{name}": b"1"}


@pytest.mark.parametrize("name", ["a?versionId=7", "deep/b?versionId=null"])
def test_a_name_that_s3fs_reads_as_a_version_is_refused(
    s3: Gateway, bucket: str, writer: str, name: str
) -> None:
    s3.client.put_object(Bucket=bucket, Key="out/a", Body=b"sibling")
    with pytest.raises(SandboxTerminalError, match="version of an object"):
        export(Files({name: b"1"}), bucket, s3.root)
    assert s3.objects(bucket) == {"out/a": b"sibling"}


def test_a_key_that_begins_with_a_slash_keeps_it(s3: Gateway, bucket: str, writer: str, proxy: Proxy) -> None:
    """The server here has files for objects and no such key; it is seen in what it is asked for."""
    proxy.rule = lambda request: "refuse" if request.operation == "CreateMultipartUpload" else None
    with pytest.raises(SandboxTerminalError, match="the proxy says no"):
        export(Files({"f": b"1"}), bucket, s3.root, proxy.endpoint, prefix="/out//")
    asked = {r.key for r in proxy.seen if r.operation == "CreateMultipartUpload"}
    assert asked == {"/out//f"}


def test_the_writer_is_the_one_that_is_meant(s3: Gateway, bucket: str, writer: str, proxy: Proxy) -> None:
    export(Files({"f": content(PART + 1)}), bucket, s3.root, proxy.endpoint)
    parts = [request for request in proxy.seen if request.operation == "UploadPart"]
    assert len(parts) >= 1
    assert all(("object_store" in request.agent) == (writer == "obstore") for request in parts)


def test_nothing_is_copied_or_deleted_or_made_but_the_files(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy
) -> None:
    """So a file may be of any size, though a store copies no more than 5 GiB at once."""
    proxy.rule = lambda request: "refuse" if request.operation in ("CopyObject", "UploadPartCopy") else None
    files = Files({"one": content(PART + 1), "two": content(1), "three": b""})
    export(files, bucket, s3.root, proxy.endpoint)
    assert s3.objects(bucket) == {f"out/{path}": data for path, data in files.files.items()}
    made = {"CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"}
    reading = {"GetBucket", "HeadBucket", "GetObject", "HeadObject"}
    assert {request.operation for request in proxy.seen} - reading == made
    assert {request.key for request in proxy.seen if request.operation in made} == set(s3.objects(bucket))


def test_all_bytes_are_in_the_store_before_any_file_appears(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy
) -> None:
    files = Files({"one": content(2 * PART), "two": content(2 * PART), "three": content(7)})
    export(files, bucket, s3.root, proxy.endpoint)
    order = [
        request
        for request in proxy.seen
        if request.operation.endswith(("UploadPart", "CompleteMultipartUpload"))
    ]
    first = next(i for i, request in enumerate(order) if request.operation == "CompleteMultipartUpload")
    late = [request for request in order[first:] if request.operation == "UploadPart"]
    # Obstore sends what is left after the last whole part with the completion.
    assert {request.key for request in late} <= ({"out/one", "out/two"} if writer == "obstore" else set())
    assert [r.key for r in order if r.operation == "CompleteMultipartUpload"] == [
        "out/one",
        "out/two",
        "out/three",
    ]


# ---- something fails


class Scene:
    """An export of three files onto one that exists, which is to fail, and what has to be there then."""

    def __init__(self, s3: Gateway, bucket: str) -> None:
        self.s3, self.bucket = s3, bucket
        self.files = Files(
            {"one": content(2 * PART + 1, 1), "two": content(2 * PART + 1, 2), "three": content(9)}
        )
        self.before = {"out/two": b"as it was", "other": b"somebody else's"}
        for key, data in self.before.items():
            s3.client.put_object(Bucket=bucket, Key=key, Body=data)

    def is_as_it_was(self) -> None:
        assert self.s3.uploads(self.bucket) == [], "no multipart upload is left open"
        assert self.s3.objects(self.bucket) == self.before


@pytest.mark.parametrize(
    ("at", "kind"),
    [
        *[("part", kind) for kind in range(len(KINDS))],
        *[(at, NAMES.index(kind)) for at in ("begin", "end") for kind in ("OSError", "KeyboardInterrupt")],
    ],
    ids=lambda value: NAMES[value] if isinstance(value, int) else value,
)
def test_provider_fault_31_a_copy_that_ends_in_any_exception(
    s3: Gateway, bucket: str, writer: str, kind: int, at: str
) -> None:
    scene = Scene(s3, bucket)
    error = KINDS[kind]()
    where = {"begin": 0, "part": 6 << 20, "end": 2 * PART + 1}[at]

    def fail(path: str, position: int) -> None:
        if path == "two" and position >= where:
            raise error

    scene.files.between = fail
    with pytest.raises(BaseException, match="injected") as caught:
        export(scene.files, bucket, s3.root)
    if isinstance(error, Exception):
        assert isinstance(caught.value, SandboxTerminalError) and caught.value.__cause__ is error
    else:
        assert caught.value is error
    scene.is_as_it_was()


def once(operation: str, nth: int, action: str, key: str | None = None) -> Callable[[Request], str | None]:
    """A rule for the ``nth`` request of an operation and those that repeat it."""
    seen: list[tuple[str, int]] = []

    def rule(request: Request) -> str | None:
        if request.operation != operation or (key is not None and request.key != key):
            return None
        # Whoever makes it: what obstore could not begin, s3fs tries once more.
        what = (request.key, request.part)
        if what not in seen:
            seen.append(what)
        return action if seen.index(what) == nth else None

    return rule


@pytest.mark.parametrize(
    ("operation", "nth"),
    [
        *[("CreateMultipartUpload", n) for n in range(3)],
        *[("UploadPart", n) for n in range(5)],
    ],
)
def test_provider_fault_31_a_request_that_is_refused(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy, operation: str, nth: int
) -> None:
    scene = Scene(s3, bucket)
    proxy.rule = once(operation, nth, "refuse")
    try:
        export(scene.files, bucket, s3.root, proxy.endpoint)
    except SandboxTerminalError as e:
        said = str(e)
    else:
        raise AssertionError("it did not fail")
    assert s3.uploads(bucket) == []
    if "Already in place" in said:
        # The rest that obstore sends with the completion.
        assert writer == "obstore" and operation == "UploadPart"
        in_place = said.partition("Already in place: ")[2]
        for path, data in scene.files.files.items():
            expected = data if f"out/{path}" in in_place else scene.before.get(f"out/{path}")
            assert s3.objects(bucket).get(f"out/{path}") == expected
    else:
        scene.is_as_it_was()


@pytest.mark.parametrize(
    ("operation", "nth"),
    [
        ("CreateMultipartUpload", 0),
        *[("UploadPart", n) for n in range(5)],
        ("CompleteMultipartUpload", 0),
    ],
)
def test_provider_fault_31_a_request_for_a_file_alone_that_is_refused(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy, operation: str, nth: int
) -> None:
    """Several parts are on their way then, with obstore until the very end."""
    s3.client.put_object(Bucket=bucket, Key="out/f", Body=b"as it was")
    proxy.rule = once(operation, nth, "refuse")
    with pytest.raises(SandboxTerminalError) as caught:
        export(Files({"f": content(4 * PART + 1)}), bucket, s3.root, proxy.endpoint)
    assert s3.objects(bucket) == {"out/f": b"as it was"} and s3.uploads(bucket) == []
    assert "Already in place" not in str(caught.value) and "Left behind" not in str(caught.value)


def test_what_obstore_would_keep_in_memory_s3fs_sends(
    s3: Gateway, bucket: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files whose sizes are not known beforehand: much may be left after the last whole part."""
    monkeypatch.setattr(_obstore, "_HELD_BYTES", 2 << 20)
    files = Files({f"f{n}": content(6 << 20, n) for n in range(6)}, announced=False)
    export(files, bucket, s3.root, proxy.endpoint)
    assert s3.objects(bucket) == {f"out/{path}": data for path, data in files.files.items()}
    made = [r.agent for r in proxy.seen if r.operation == "CreateMultipartUpload"]
    assert ["object_store" in agent for agent in made] == [True, True, True, False, False, False]
    assert _obstore._held == 0


def test_a_file_of_less_than_a_part_is_sent_by_s3fs_before_any_appears(
    s3: Gateway, bucket: str, proxy: Proxy
) -> None:
    files = Files({f"f{n}": content(PART - n, n) for n in range(3)})
    export(files, bucket, s3.root, proxy.endpoint)
    assert s3.objects(bucket) == {f"out/{path}": data for path, data in files.files.items()}
    made = [r for r in proxy.seen if r.operation in ("UploadPart", "CompleteMultipartUpload")]
    by_obstore = {r.key: "object_store" in r.agent for r in made}
    assert by_obstore == {"out/f0": True, "out/f1": False, "out/f2": False}
    small = [r.operation for r in made if r.key != "out/f0"]
    assert small == ["UploadPart"] * 2 + ["CompleteMultipartUpload"] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"s3_additional_kwargs": {"ContentType": "text/csv"}},
        {"requester_pays": True},
        {"anon": True},
        {"config_kwargs": {"s3": {"payload_signing_enabled": True}}},
        {"config_kwargs": {"proxies": {"https": "http://127.0.0.1:1"}}},
        {"config_kwargs": {"signature_version": "s3"}},
    ],
)
def test_options_that_obstore_is_not_told_of_are_left_to_s3fs(
    s3: Gateway, bucket: str, options: dict[str, Any]
) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(**{**s3.root.options(), **options})
    with pytest.raises(_obstore.Unsuitable):
        _obstore.begin(fs, f"{bucket}/key", PART, 0)
    assert s3.uploads(bucket) == []


@pytest.mark.parametrize(
    "variable",
    ["AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_KMS_KEY_ID", "AWS_PROXY_URL", "AWS_CHECKSUM_ALGORITHM"],
)
def test_options_of_obstore_in_the_environment_are_not_taken(
    s3: Gateway, bucket: str, proxy: Proxy, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    export(Files({"f": content(3)}), bucket, s3.root, proxy.endpoint)
    assert s3.objects(bucket) == {"out/f": content(3)}
    assert not [request for request in proxy.seen if "object_store" in request.agent]


@pytest.mark.parametrize(
    "variable",
    [
        *[
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ENDPOINT",
            "AWS_ACCESS_KEY_ID",
            "AWS_SESSION_TOKEN",
        ],
        *["AWS_SKIP_SIGNATURE", "AWS_REGION", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_BUCKET"],
    ],
)
def test_what_the_environment_says_does_not_lead_obstore_elsewhere(
    s3: Gateway, bucket: str, proxy: Proxy, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "true" if variable.endswith(("SIGNATURE", "REQUEST")) else "http://127.0.0.1:1"
    monkeypatch.setenv(variable, value)
    export(Files({"f": content(3)}), bucket, s3.root, proxy.endpoint)
    assert s3.objects(bucket) == {"out/f": content(3)}
    assert {r.bucket for r in proxy.seen} == {bucket}


@pytest.mark.parametrize("nth", range(3))
def test_provider_fault_31_a_completion_that_is_refused(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy, nth: int
) -> None:
    scene = Scene(s3, bucket)
    proxy.rule = once("CompleteMultipartUpload", nth, "refuse")
    with pytest.raises(SandboxTerminalError, match="Could not move the export into") as caught:
        export(scene.files, bucket, s3.root, proxy.endpoint)
    assert s3.uploads(bucket) == []
    in_place = [f"out/{path}" for path in list(scene.files.files)[:nth]]
    assert ("Already in place" in str(caught.value)) == bool(in_place)
    expected = {
        **scene.before,
        **{f"out/{p}": d for p, d in scene.files.files.items() if f"out/{p}" in in_place},
    }
    assert s3.objects(bucket) == expected


@pytest.mark.parametrize("times", [1, 99])
def test_an_answer_to_a_completion_that_is_lost(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy, times: int
) -> None:
    """The object is there, so this is no failure, whether or not asking again helped."""
    scene = Scene(s3, bucket)
    lost = 0

    def rule(request: Request) -> str | None:
        nonlocal lost
        if request.operation != "CompleteMultipartUpload" or request.key != "out/two" or lost >= times:
            return None
        lost += 1
        return "lose"

    proxy.rule = rule
    export(scene.files, bucket, s3.root, proxy.endpoint)
    assert lost >= 1 and s3.uploads(bucket) == []
    expected = {**scene.before, **{f"out/{path}": data for path, data in scene.files.files.items()}}
    assert s3.objects(bucket) == expected


def test_a_connection_that_breaks_once_is_no_failure(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy
) -> None:
    broken: set[str] = set()

    def rule(request: Request) -> str | None:
        if request.operation in broken:
            return None
        broken.add(request.operation)
        return "break"

    proxy.rule = rule
    files = Files({"f": content(2 * PART + 1)})
    export(files, bucket, s3.root, proxy.endpoint)
    assert s3.objects(bucket) == {"out/f": files.files["f"]} and s3.uploads(bucket) == []


def test_an_abort_that_is_refused_names_what_is_left(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy
) -> None:
    scene = Scene(s3, bucket)
    proxy.rule = lambda request: "refuse" if request.operation == "AbortMultipartUpload" else None

    def fail(path: str, position: int) -> None:
        if path == "two" and position >= 6 << 20:
            raise RuntimeError("the first")

    scene.files.between = fail
    with pytest.raises(SandboxTerminalError, match="the first") as caught:
        export(scene.files, bucket, s3.root, proxy.endpoint)
    assert s3.objects(bucket) == scene.before
    left = s3.uploads(bucket)
    assert left == ["out/one", "out/two"]
    for key in left:
        assert f"of s3://{bucket}/{key}" in str(caught.value).partition("Left behind")[2]


def test_a_role_that_may_neither_abort_nor_list_is_told_what_may_be_left(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy
) -> None:
    scene = Scene(s3, bucket)
    account = s3.role(bucket, "out/", "PutObject")
    denied = ("AbortMultipartUpload", "ListMultipartUploads")
    proxy.rule = lambda request: "refuse" if request.operation in denied else None

    def fail(path: str, position: int) -> None:
        if path == "two" and position >= 6 << 20:
            raise RuntimeError("the first")

    scene.files.between = fail
    with pytest.raises(SandboxTerminalError, match="the first") as caught:
        export(scene.files, bucket, account, proxy.endpoint)
    assert s3.objects(bucket) == scene.before
    for key in s3.uploads(bucket):
        assert f"of s3://{bucket}/{key}" in str(caught.value).partition("Left behind")[2]


def test_a_cancel_ends_an_upload_that_waits_for_the_store(
    s3: Gateway, bucket: str, writer: str, proxy: Proxy
) -> None:
    scene = Scene(s3, bucket)
    token: list[Any] = []

    def remember(path: str, position: int) -> None:
        token[:] = [calls._token.get()]

    def rule(request: Request) -> str | None:
        if request.operation == "UploadPart" and request.key == "out/two":
            token[0].cancel()
        return None

    scene.files.between, proxy.rule = remember, rule
    with pytest.raises(calls.CallCancelled):
        export(scene.files, bucket, s3.root, proxy.endpoint)
    scene.is_as_it_was()


def test_no_bucket_is_made(s3: Gateway, writer: str) -> None:
    files = Files({"f": content(3)})
    with pytest.raises(SandboxTerminalError, match=r"'f' from sandbox box-1.*no-such-bucket.*not exist"):
        export(files, "no-such-bucket", s3.root)
    assert "no-such-bucket" not in [b["Name"] for b in s3.client.list_buckets()["Buckets"]]


@pytest.mark.parametrize(
    "actions",
    [
        ("PutObject", "GetObject", "DeleteObject"),
        ("PutObject", "GetObject", "DeleteObject", "AbortMultipartUpload"),
        ("PutObject",),
    ],
)
def test_a_role_that_may_only_write_under_its_prefix(
    s3: Gateway, bucket: str, writer: str, actions: tuple[str, ...]
) -> None:
    account = s3.role(bucket, "out/", *actions)
    files = Files({"one": content(2 * PART + 1), "two": b"2"})
    export(files, bucket, account)
    assert s3.objects(bucket) == {f"out/{path}": data for path, data in files.files.items()}
    with pytest.raises(SandboxTerminalError, match="Could not export 'one' from sandbox box-1"):
        export(files, bucket, account, prefix="elsewhere/")
    assert set(s3.objects(bucket)) == {"out/one", "out/two"} and s3.uploads(bucket) == []


def test_a_role_that_may_not_write_fails_before_any_file_is_in_place(
    s3: Gateway, bucket: str, writer: str
) -> None:
    account = s3.role(bucket, "out/one", "PutObject", "AbortMultipartUpload")
    files = Files({"one": content(3), "two": content(3)})
    with pytest.raises(SandboxTerminalError, match="Could not export 'two'"):
        export(files, bucket, account)
    assert s3.objects(bucket) == {} and s3.uploads(bucket) == []
