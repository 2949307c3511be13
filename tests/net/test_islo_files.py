# SPDX-License-Identifier: Apache-2.0
"""Islo: files are read, written, listed and exported; what a failure means for the model."""

from __future__ import annotations

import io
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from imports import check_import
from sandbox_native import command_files
from sandbox_native.backends import _islo_files
from sandbox_native.contract import SandboxError, SandboxFileTooLargeError, SandboxTerminalError
from servers.islo.fixtures import Sandbox

NAMES = [
    "plain",
    "two  words ",
    "a?b=c&d#e",
    "100%25+",
    "[a]*{b}",
    "-rf",
    "quote'\"`$HOME\\",
    "line\nfeed",
    "é€😀",
    "..x",
    " ",
]


def recoverable(caught: pytest.ExceptionInfo[SandboxError]) -> bool:
    return not isinstance(caught.value, SandboxTerminalError | SandboxFileTooLargeError)


# ---- read ------------------------------------------------------------------------------------------


@pytest.mark.parity("A File#1")
@pytest.mark.parametrize("announce", [False, True])
@pytest.mark.parametrize("size", [0, 1, 99, 100, 300_000])
def test_a_read_is_one_download(box: Sandbox, announce: bool, size: int) -> None:
    box.server.set(announce=announce)
    content = os.urandom(size)
    box.backend.write_file(box.name, "/srv/f", content)
    box.server.forget_requests()
    assert box.backend.read_file(box.name, "/srv/f", max_bytes=max(size, 1)) == content
    (request,) = box.server.requests()
    assert request["operation"] == "download"
    assert request["target"].endswith("/files?path=%2Fsrv%2Ff")


@pytest.mark.parity("A File#2")
@pytest.mark.parametrize("announce", [False, True])
def test_a_file_over_the_budget_is_not_fetched_whole(box: Sandbox, announce: bool) -> None:
    box.server.set(announce=announce)
    box.run("head -c 50000000 /dev/zero >/srv/f")
    with pytest.raises(SandboxFileTooLargeError) as caught:
        box.backend.read_file(box.name, "/srv/f", max_bytes=10)
    assert (caught.value.path, caught.value.size_bytes, caught.value.max_bytes) == ("/srv/f", 50_000_000, 10)


@pytest.mark.parity("A File#3")
def test_a_file_over_the_budget_of_unknown_size(box: Sandbox) -> None:
    box.run("echo more than ten >/srv/f")
    box.server.faults.add(
        "result", "json", set={"status": "completed", "exit_code": 1, "stdout": ""}, times=None
    )
    with pytest.raises(SandboxError, match="larger than the 10 byte read limit") as caught:
        box.backend.read_file(box.name, "/srv/f", max_bytes=10)
    assert recoverable(caught)


@pytest.mark.parity("A File#4")
@pytest.mark.parametrize("path", ["/srv/none", "/srv", "/dev/null", "/srv/none/deeper"])
def test_a_missing_file_is_the_models_to_mend(box: Sandbox, path: str) -> None:
    with pytest.raises(SandboxError, match="does not exist") as caught:
        box.backend.read_file(box.name, path, max_bytes=10)
    assert recoverable(caught)
    assert box.server.count("get") == 1


@pytest.mark.parity("A File#5")
@pytest.mark.parametrize("action", ["status:stopped", "deleted", "status:failed"])
def test_a_missing_file_in_a_sandbox_that_cannot_serve(box: Sandbox, action: str) -> None:
    box.server.faults.add("download", "status", status=404, body={"code": "X", "message": "gone"}, act=action)
    with pytest.raises(SandboxTerminalError, match="cannot serve requests"):
        box.backend.read_file(box.name, "/srv/f", max_bytes=10)


@pytest.mark.parity("A File#6")
def test_a_missing_file_in_a_paused_sandbox(box: Sandbox) -> None:
    box.server.faults.add("download", "status", status=404, act="status:paused", times=2)
    with pytest.raises(SandboxError, match="does not exist") as caught:
        box.backend.read_file(box.name, "/srv/f", max_bytes=10)
    assert recoverable(caught)
    box.backend._auto_resume = "never"
    with pytest.raises(SandboxTerminalError, match="cannot serve requests"):
        box.backend.read_file(box.name, "/srv/f", max_bytes=10)


@pytest.mark.parity("A File#7")
def test_a_missing_file_in_a_missing_sandbox(box: Sandbox) -> None:
    box.server.act(box.name, "remove")
    with pytest.raises(SandboxTerminalError, match="check a sandbox"):
        box.backend.read_file(box.name, "/srv/f", max_bytes=10)


@pytest.mark.parity("A File#8")
@pytest.mark.parametrize(
    "fault",
    [
        *({"kind": "status", "status": status} for status in (401, 403, 429, 501, 503)),
        {"kind": "close"},
        {"kind": "cut", "after_bytes": 2},
        {"kind": "unframed"},
        {"kind": "announce", "by": 1},
    ],
)
def test_a_read_that_says_nothing_of_the_file(
    box: Sandbox, pauses: list[float], fault: dict[str, Any]
) -> None:
    box.run("echo content >/srv/f")
    box.server.faults.add("download", times=None, **fault)
    with pytest.raises(SandboxTerminalError, match="read a sandbox file"):
        box.backend.read_file(box.name, "/srv/f", max_bytes=10)
    assert not box.server.count("get")


@pytest.mark.parametrize("fault", [{"kind": "status", "status": 503}, {"kind": "cut", "after_bytes": 2}])
def test_a_read_is_tried_again(box: Sandbox, pauses: list[float], fault: dict[str, Any]) -> None:
    box.run("echo content >/srv/f")
    box.server.faults.add("download", times=2, **fault)
    assert box.backend.read_file(box.name, "/srv/f", max_bytes=10) == b"content\n"


@pytest.mark.parity("A File#9")
def test_the_services_message_reaches_the_model(box: Sandbox) -> None:
    body = {"code": "INVALID_PATH", "message": "path must be absolute: rel.txt."}
    box.server.faults.add("download", "status", status=400, body=body)
    with pytest.raises(SandboxError) as caught:
        box.backend.read_file(box.name, "rel.txt", max_bytes=10)
    assert recoverable(caught)
    assert str(caught.value) == "Could not read 'rel.txt' (HTTP 400): path must be absolute: rel.txt."


def test_relative_paths_start_where_commands_do(box: Sandbox) -> None:
    box.backend.write_file(box.name, "sub dir/rel#é", b"content")
    assert box.run("cat 'sub dir/rel#é'").stdout == "content"
    assert box.backend.read_file(box.name, "sub dir/rel#é", max_bytes=7) == b"content"


@pytest.mark.parity("A File#10")
def test_a_long_message_is_cut(box: Sandbox) -> None:
    body = {"code": "X", "message": "x" * 5000}
    box.server.faults.add("download", "status", status=400, body=body)
    with pytest.raises(SandboxError, match="xxx") as caught:
        box.backend.read_file(box.name, "/srv/f", max_bytes=10)
    assert len(str(caught.value)) < 300


@pytest.mark.parity("A File#21", "A Export#9")
@pytest.mark.parametrize("max_bytes", [0, -1, float("nan"), True])
def test_bounds_that_are_none(box: Sandbox, max_bytes: Any) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        box.backend.read_file(box.name, "/srv/f", max_bytes=max_bytes)
    with pytest.raises(ValueError, match="max_bytes"):
        box.backend.export_file(box.name, "/srv/f", io.BytesIO(), max_bytes=max_bytes)
    assert not box.server.requests()


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 4096])
def test_paths_that_no_file_has(box: Sandbox, path: str) -> None:
    for call in (
        lambda: box.backend.read_file(box.name, path, max_bytes=1),
        lambda: box.backend.write_file(box.name, path, b""),
        lambda: box.backend.list_directory(box.name, path),
        lambda: box.backend.export_file(box.name, path, io.BytesIO(), max_bytes=1),
    ):
        with pytest.raises(SandboxError) as caught:
            call()
        assert recoverable(caught)
    assert not box.server.requests()


# ---- write -----------------------------------------------------------------------------------------


@pytest.mark.parity("A File#11")
def test_a_write_makes_the_parents_and_is_one_upload(box: Sandbox) -> None:
    content = os.urandom(1_000_000)
    box.backend.write_file(box.name, "/srv/a b/c/f", content)
    (upload,) = box.server.requests("upload")
    assert upload["target"].endswith("/files?path=%2Fsrv%2Fa%20b%2Fc%2Ff")
    head = upload["body"].partition("\r\n\r\n")[0]
    assert 'name="file"; filename="upload"' in head
    assert "Content-Type: application/octet-stream" in head
    assert upload["headers"]["content-length"] == str(upload["size"])
    assert box.backend.read_file(box.name, "/srv/a b/c/f", max_bytes=10**7) == content
    box.backend.write_file(box.name, "/srv/a b/c/f", b"")
    assert box.backend.read_file(box.name, "/srv/a b/c/f", max_bytes=1) == b""


@pytest.mark.parity("A File#12")
def test_parents_that_cannot_be_made(box: Sandbox) -> None:
    with pytest.raises(SandboxError, match=r"[Rr]ead-only") as caught:
        box.backend.write_file(box.name, "/usr/local/new/f", b"x")
    assert recoverable(caught)
    assert not box.server.count("upload")


@pytest.mark.parity("A File#13")
def test_a_write_the_service_cannot_take(box: Sandbox, pauses: list[float]) -> None:
    box.server.faults.add("upload", "status", status=503, times=3)
    with pytest.raises(SandboxTerminalError, match="write a sandbox file"):
        box.backend.write_file(box.name, "/srv/f", b"x")
    assert box.server.count("upload") == 3
    assert not box.server.count("get")
    box.server.faults.add("upload", "status", status=429, headers={"Retry-After": "3"})
    box.server.faults.add("upload", "close", after=True, nth=2)
    box.backend.write_file(box.name, "/srv/f", b"y")
    assert pauses[2] == 3
    assert box.backend.read_file(box.name, "/srv/f", max_bytes=1) == b"y"


@pytest.mark.parity("A File#14")
@pytest.mark.parametrize("path", ["/srv", "/proc/self/comm", "/sys/f"])
def test_a_write_onto_what_is_no_file(box: Sandbox, path: str) -> None:
    with pytest.raises(SandboxError) as caught:
        box.backend.write_file(box.name, path, b"x")
    assert recoverable(caught)
    text = str(caught.value)
    assert text.startswith(f"Could not write {path!r} (HTTP 500).")
    assert "directory or under a pseudo-filesystem such as /proc or /sys" in text
    assert "internal error" not in text
    assert box.server.count("get") == 1
    assert box.server.count("upload") == 1


@pytest.mark.parity("A File#15")
def test_a_write_into_a_sandbox_that_cannot_serve(box: Sandbox) -> None:
    box.server.faults.add("upload", "status", status=500, act="status:stopped")
    with pytest.raises(SandboxTerminalError, match="cannot serve requests"):
        box.backend.write_file(box.name, "/srv/f", b"x")


def test_a_path_of_a_directory_is_not_written(box: Sandbox) -> None:
    with pytest.raises(SandboxError, match="is a directory"):
        box.backend.write_file(box.name, "/srv/new/", b"x")
    assert not box.server.requests()


@pytest.mark.parametrize("name", NAMES)
def test_names_are_exact(box: Sandbox, name: str, tmp_path: Path) -> None:
    path = f"/srv/{name}/{name}"
    content = name.encode()
    box.backend.write_file(box.name, path, content)
    assert box.backend.read_file(box.name, path, max_bytes=100) == content
    assert box.backend.list_directory(box.name, "/srv") == [(name, True)]
    assert box.backend.list_directory(box.name, f"/srv/{name}") == [(name, False)]
    for source in (path, f"../srv/{name}/{name}"):
        with (tmp_path / "dest").open("wb") as dest:
            assert box.backend.export_file(box.name, source, dest, max_bytes=100) == len(content)
        assert (tmp_path / "dest").read_bytes() == content


# ---- list ------------------------------------------------------------------------------------------


@pytest.mark.parity("A File#16")
def test_a_listing(box: Sandbox) -> None:
    box.run("cd /srv; mkdir d .h; : >f; : >'n\nl'; ln -s d to-d; ln -s f to-f; ln -s none to-none; mkfifo p")
    assert box.backend.list_directory(box.name, "/srv") == [
        ("d", True),
        ("f", False),
        ("n\nl", False),
        ("p", False),
        ("to-d", True),
        ("to-f", False),
        ("to-none", False),
        (".h", True),
    ]
    assert box.backend.list_directory(box.name, "/srv/d") == []


@pytest.mark.parity("A File#17")
def test_a_listing_in_parts_loses_and_mangles_nothing(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_islo_files, "LISTING_PART", 20)
    box.run("cd /srv; for i in 1 2 3 4 5 6 7 8 9; do : >é-long-name-$i; done")
    assert box.backend.list_directory(box.name, "/srv") == [(f"é-long-name-{i}", False) for i in range(1, 10)]


def test_a_listing_of_many_names(box: Sandbox) -> None:
    box.run("cd /srv; seq -f file-with-quite-a-long-name-%g-of-them 20000 | xargs touch")
    found = box.backend.list_directory(box.name, "/srv")
    assert sorted(found) == sorted(
        (f"file-with-quite-a-long-name-{i}-of-them", False) for i in range(1, 20001)
    )


def test_a_listing_without_end(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_files, "LISTING_MAX_BYTES", 100)
    monkeypatch.setattr(_islo_files, "LISTING_PART", 40)
    box.run("cd /srv; seq -f file-%g 100 | xargs touch")
    with pytest.raises(SandboxError, match="more than 100 bytes") as caught:
        box.backend.list_directory(box.name, "/srv")
    assert recoverable(caught)


@pytest.mark.parity("A File#18")
def test_the_services_flag_drops_nothing(box: Sandbox) -> None:
    box.run("cd /srv; : >a; : >b")
    box.server.faults.add("result", "json", set={"truncated": True}, times=None)
    assert box.backend.list_directory(box.name, "/srv") == [("a", False), ("b", False)]


@pytest.mark.parity("A File#19")
@pytest.mark.parametrize(("path", "text"), [("/srv/missing", "missing"), ("/bin/sh", "not a directory")])
def test_a_listing_that_fails(box: Sandbox, path: str, text: str) -> None:
    with pytest.raises(SandboxError, match=text) as caught:
        box.backend.list_directory(box.name, path)
    assert recoverable(caught)


@pytest.mark.parity("A File#20")
def test_a_helper_that_cost_the_sandbox(box: Sandbox) -> None:
    box.server.faults.add("result", "json", set={"status": "timeout"}, times=None)
    with pytest.raises(SandboxTerminalError, match="destroyed"):
        box.backend.list_directory(box.name, "/srv")
    assert not box.stands()


# ---- export ----------------------------------------------------------------------------------------


@pytest.mark.parity("A Export#1")
@pytest.mark.parametrize("announce", [False, True])
@pytest.mark.parametrize("straight", [False, True])
def test_an_export(box: Sandbox, tmp_path: Path, announce: bool, straight: bool) -> None:
    box.server.set(announce=announce)
    content = os.urandom(1_500_000)
    box.backend.write_file(box.name, "/srv/f", content)
    box.server.forget_requests()
    if straight:
        with (tmp_path / "dest").open("wb") as dest:
            dest.write(b"before ")
            assert box.backend.export_file(box.name, "/srv/f", dest, max_bytes=10**7) == len(content)
            dest.write(b" after")
        assert (tmp_path / "dest").read_bytes() == b"before " + content + b" after"
    else:
        memory = io.BytesIO()
        assert box.backend.export_file(box.name, "/srv/f", memory, max_bytes=10**7) == len(content)
        assert memory.getvalue() == content
    assert box.server.count("download") == 1
    assert box.server.count("exec") == 2  # one look before, one after


@pytest.mark.parity("A Export#2")
@pytest.mark.parametrize("name", ["rel file ", "sub/rel#é"])
def test_a_relative_path_is_resolved_in_the_guest(box: Sandbox, name: str) -> None:
    box.run(f"mkdir -p sub; echo content >'{name}'")
    memory = io.BytesIO()
    assert box.backend.export_file(box.name, name, memory, max_bytes=100) == 8
    assert memory.getvalue() == b"content\n"
    (download,) = box.server.requests("download")
    assert "path=%2Fworkspace%2F" in download["target"]


@pytest.mark.parity("A Export#3")
@pytest.mark.parametrize(
    ("path", "text"),
    [("/srv/none", "does not exist"), ("/srv", "is a directory"), ("/srv/p", "is not a regular file")],
)
def test_what_is_no_file_is_not_exported(box: Sandbox, path: str, text: str) -> None:
    box.run("mkfifo /srv/p")
    with pytest.raises(SandboxError, match=text) as caught:
        box.backend.export_file(box.name, path, io.BytesIO(), max_bytes=100)
    assert recoverable(caught)
    assert not box.server.count("download")


@pytest.mark.parity("A Export#3")
def test_a_file_over_the_limit_is_not_exported(box: Sandbox) -> None:
    box.run("head -c 5000 /dev/zero >/srv/f")
    memory = io.BytesIO()
    with pytest.raises(SandboxFileTooLargeError, match="5000 bytes"):
        box.backend.export_file(box.name, "/srv/f", memory, max_bytes=4999)
    assert not memory.getvalue()
    assert not box.server.count("download")


@pytest.mark.parity("A Export#4")
@pytest.mark.parametrize("announce", [False, True])
def test_a_file_that_outgrows_the_limit(box: Sandbox, announce: bool) -> None:
    box.server.set(announce=announce)
    box.run("printf sixsix >/srv/f")
    box.server.faults.add("download", "act", act="run:printf sixsix >>/srv/f")
    memory = io.BytesIO()
    with pytest.raises(SandboxFileTooLargeError) as caught:
        box.backend.export_file(box.name, "/srv/f", memory, max_bytes=10)
    assert caught.value.size_bytes == 12
    assert len(memory.getvalue()) <= 10


CHANGED = [
    "printf more >>/srv/f",
    "printf less >/srv/f",
    "printf CONTENT >/srv/f",  # of the same size
    "printf content >/srv/g; touch -r /srv/f /srv/g; mv /srv/g /srv/f",
]


@pytest.mark.parity("A Export#5")
@pytest.mark.parametrize("announce", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("command", CHANGED)
def test_a_file_that_changes_is_not_exported(box: Sandbox, announce: bool, after: bool, command: str) -> None:
    box.server.set(announce=announce)
    box.run("printf content >/srv/f; touch -d '1 hour ago' /srv/f")
    if after:
        box.server.faults.add("download", "cut", after_bytes=3, act=f"run:{command}")
    else:
        box.server.faults.add("download", "act", act=f"run:{command}")
    with pytest.raises(SandboxError, match="changed while it was exported") as caught:
        box.backend.export_file(box.name, "/srv/f", io.BytesIO(), max_bytes=100)
    assert recoverable(caught)


def test_a_file_that_goes_away_is_not_exported(box: Sandbox) -> None:
    box.run("printf content >/srv/f")
    box.server.faults.add("download", "cut", after_bytes=3, act="run:rm /srv/f")
    with pytest.raises(SandboxError, match="changed while it was exported"):
        box.backend.export_file(box.name, "/srv/f", io.BytesIO(), max_bytes=100)


@pytest.mark.parity("A Export#6")
def test_an_export_that_fails(box: Sandbox, pauses: list[float]) -> None:
    box.run("echo content >/srv/f")
    box.server.faults.add("download", "act", act="run:rm /srv/f")
    with pytest.raises(SandboxError, match="does not exist") as caught:
        box.backend.export_file(box.name, "/srv/f", io.BytesIO(), max_bytes=100)
    assert type(caught.value) is SandboxError
    box.run("echo content >/srv/f")
    box.server.faults.add("download", "status", status=503, body="an error page", times=3)
    memory = io.BytesIO()
    with pytest.raises(SandboxTerminalError, match="export a sandbox file"):
        box.backend.export_file(box.name, "/srv/f", memory, max_bytes=100)
    assert not memory.getvalue()
    assert box.backend.export_file(box.name, "/srv/f", memory, max_bytes=100) == 8


@pytest.mark.parametrize(
    "fault", [{"kind": "cut", "after_bytes": 3}, {"kind": "cut", "after_bytes": 3, "reset": True}]
)
def test_a_transport_that_cut_the_file_is_named_so(box: Sandbox, fault: dict[str, Any]) -> None:
    box.run("echo content >/srv/f")
    box.server.faults.add("download", times=None, **fault)
    with pytest.raises(SandboxTerminalError, match="export a sandbox file: "):
        box.backend.export_file(box.name, "/srv/f", io.BytesIO(), max_bytes=100)
    assert not box.server.count("get")


class Full(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parity("A Export#7")
def test_the_destinations_error_comes_out_as_it_is(box: Sandbox) -> None:
    box.run("echo content >/srv/f")
    with pytest.raises(OSError, match="No space left") as caught:
        box.backend.export_file(box.name, "/srv/f", Full(), max_bytes=100)  # type: ignore[arg-type]
    assert caught.value.errno == 28
    assert not box.server.count("get")
    with Path("/dev/full").open("wb", buffering=0) as dest, pytest.raises(OSError, match="No space left"):
        box.backend.export_file(box.name, "/srv/f", dest, max_bytes=100)


@pytest.mark.parity("A Export#8")
def test_an_export_that_takes_too_long(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.run("head -c 1000000 /dev/zero >/srv/f")
    monkeypatch.setattr(command_files, "export_allowance", lambda max_bytes: 1.0)
    box.server.faults.add("download", "hang", seconds=5)
    memory = io.BytesIO()
    with pytest.raises(SandboxError, match="took longer than") as caught:
        box.backend.export_file(box.name, "/srv/f", memory, max_bytes=10**7)
    assert recoverable(caught)
    assert not memory.getvalue()
    box.server.faults.add("download", "trickle", bytes=10_000, pause=0.1)
    with pytest.raises(SandboxError, match="took longer than") as caught:
        box.backend.export_file(box.name, "/srv/f", memory, max_bytes=10**7)
    assert recoverable(caught)


def test_a_file_whose_size_is_made_up_is_not_exported(box: Sandbox) -> None:
    memory = io.BytesIO()
    with pytest.raises(SandboxError, match="changed while it was exported") as caught:
        box.backend.export_file(box.name, "/proc/version", memory, max_bytes=10_000)
    assert recoverable(caught)
    assert not memory.getvalue()


def test_a_large_export_in_constant_memory(box: Sandbox, tmp_path: Path) -> None:
    box.run("head -c 200000000 /dev/zero >/srv/f")

    def peak() -> int:
        found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    before = peak()
    with (tmp_path / "dest").open("wb") as dest:
        assert box.backend.export_file(box.name, "/srv/f", dest, max_bytes=10**9) == 200_000_000
    assert (tmp_path / "dest").stat().st_size == 200_000_000
    assert peak() - before < 40_000_000


def test_a_stalled_read_ends(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.run("echo content >/srv/f")
    monkeypatch.setattr(_islo_files, "OPERATION_TIMEOUT", 1.0)
    box.server.faults.add("download", "cut", after_bytes=3, stall=5, times=None)
    begun = time.monotonic()
    with pytest.raises(SandboxError, match="took longer than 1 s") as caught:
        box.backend.read_file(box.name, "/srv/f", max_bytes=100)
    assert recoverable(caught)
    assert time.monotonic() - begun < 100


# ---- import ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_an_import_streams_a_file_of_any_size_into_a_new_and_an_old_file(
    box: Sandbox, tmp_path: Path, kind: str
) -> None:
    check_import(box.backend, box.name, tmp_path, kind)
