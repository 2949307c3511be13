# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox: files are read, written, listed and exported as the shell means them, or the model is told."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from imports import check_import
from opensandbox_box import OpenBox, recoverable
from sandbox_native import command_files
from sandbox_native.backends import _opensandbox_files as files
from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sandbox_native.contract import SandboxError, SandboxFileTooLargeError, SandboxTerminalError

NAMES = [
    "plain",
    "two  words ",
    "a?b=c&d#e%25+",
    "[a]*{b}",
    "-rf",
    "quote'\"`id`\\",
    "line\nfeed\r",
    "é€😀",
    "..x",
    "~",
    "~root",
    "$HOME",
    "a$HOME-${PATH}$(id)$$",
]


def operations(box: OpenBox) -> list[str]:
    return [request["operation"] for request in box.sent()]


# ---- read ------------------------------------------------------------------------------------------------


@pytest.mark.parity("B File#1")
def test_a_read_is_one_ranged_download(opened: OpenBox) -> None:
    opened.out("printf 0123456789 >/srv/f")
    opened.server.forget_requests()
    assert opened.backend.read_file(opened.id, "/srv/f", max_bytes=10) == b"0123456789"
    assert operations(opened) == ["info", "download"]
    headers = {name.lower(): value for name, value in opened.sent("download")[0]["headers"].items()}
    assert headers["range"] == "bytes=0-10"


@pytest.mark.parity("B File#2")
def test_a_file_over_the_budget_is_not_fetched(opened: OpenBox) -> None:
    opened.out("head -c 5000 /dev/zero >/srv/f")
    with pytest.raises(SandboxFileTooLargeError) as caught:
        opened.backend.read_file(opened.id, "/srv/f", max_bytes=100)
    assert (caught.value.path, caught.value.size_bytes, caught.value.max_bytes) == ("/srv/f", 5000, 100)
    assert opened.sent("download") == []


@pytest.mark.parity("B File#3")
@pytest.mark.parametrize("fault", [("json", {"set": {"SIZE": 0}}), ("status", {"status": 500})])
def test_a_size_that_is_not_known_is_what_was_read(opened: OpenBox, fault: Any) -> None:
    opened.out("head -c 50 /dev/zero >/f")
    kind, options = fault
    if kind == "json":
        options = {"set": {"/f": {"type": "file", "size": 0, "modified_at": "x"}}}
    opened.server.faults.add("info", kind, times=None, **options)
    with pytest.raises(SandboxFileTooLargeError) as caught:
        opened.backend.read_file(opened.id, "/f", max_bytes=10)
    # Asked of the guest where the interface gives 0; else one byte over the limit shows it.
    assert caught.value.size_bytes in (11, 50)


@pytest.mark.parity("B File#4", "B Export#4", "B File#11")
def test_what_is_missing_is_the_models_to_mend(opened: OpenBox) -> None:
    for call in (
        lambda: opened.backend.read_file(opened.id, "/nope", max_bytes=10),
        lambda: opened.backend.export_file(opened.id, "/nope", io.BytesIO(), max_bytes=10),
        lambda: opened.backend.list_directory(opened.id, "/nope"),
    ):
        opened.server.forget_requests()
        with pytest.raises(SandboxError, match="does not exist") as caught:
            call()
        assert recoverable(caught)
        assert operations(opened).count("get") == 1


@pytest.mark.parity("B File#5")
def test_a_sandbox_that_is_gone_is_not_a_missing_file(opened: OpenBox) -> None:
    opened.out("true")
    opened.server.act(opened.id, "remove")
    for call in (
        lambda: opened.backend.read_file(opened.id, "/f", max_bytes=10),
        lambda: opened.backend.export_file(opened.id, "/f", io.BytesIO(), max_bytes=10),
        lambda: opened.backend.list_directory(opened.id, "/f"),
        lambda: opened.backend.write_file(opened.id, "/f", b""),
    ):
        with pytest.raises(SandboxTerminalError, match="confirm that a sandbox still exists"):
            call()


@pytest.mark.parity("B File#6", "B Export#6", "B File#8")
@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("operation", ["download", "upload", "directory"])
def test_provider_fault_8_what_execd_refuses_is_told_in_its_words(
    opened: OpenBox, operation: str, status: int
) -> None:
    opened.out("echo x >/srv/f")
    opened.server.forget_requests()
    body = {"code": "RUNTIME_ERROR", "message": "open /srv/f: very odd reason."}
    opened.server.faults.add(operation, "status", status=status, body=body, times=None)
    call = {
        "download": lambda: opened.backend.read_file(opened.id, "/srv/f", max_bytes=10),
        "upload": lambda: opened.backend.write_file(opened.id, "/srv/new", b"x"),
        "directory": lambda: opened.backend.list_directory(opened.id, "/srv"),
    }[operation]
    if (operation, status) == ("directory", 400):
        call()  # a link or a file, by execd's words; the guest knows
        return
    with pytest.raises(SandboxError, match="very odd reason") as caught:
        call()
    assert recoverable(caught)
    assert operations(opened)[-1] == "get"


@pytest.mark.parametrize("status", [401, 403, 416, 429, 502, 503])
@pytest.mark.parametrize("operation", ["info", "download", "upload", "directory"])
def test_other_refusals_are_not_the_models(opened: OpenBox, operation: str, status: int) -> None:
    opened.out("echo x >/srv/f")
    opened.server.forget_requests()
    opened.server.faults.add(operation, "status", status=status, body="<html>" * 100, times=None)
    call = {
        "info": lambda: opened.backend.read_file(opened.id, "/srv/f", max_bytes=10),
        "download": lambda: opened.backend.read_file(opened.id, "/srv/f", max_bytes=10),
        "upload": lambda: opened.backend.write_file(opened.id, "/srv/new", b"x"),
        "directory": lambda: opened.backend.list_directory(opened.id, "/srv"),
    }[operation]
    with pytest.raises(SandboxTerminalError, match=f"HTTP {status}") as caught:
        call()
    assert "<html>" not in str(caught.value)
    assert opened.sent("get") == []


SHUT = "touch /srv/f /srv/shut; chmod 0 /srv/shut; ln -s loop /srv/loop"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/srv/shut", "ermission denied"),
        ("/srv/f/below", "not a directory|does not exist"),
        ("/srv/loop", "too many|does not exist"),
        ("/srv/" + "x" * 300, "too long|does not exist"),
    ],
)
def test_provider_fault_8_the_systems_reason_reaches_the_model(
    opened: OpenBox, path: str, reason: str
) -> None:
    opened.out(SHUT)
    for call in (
        lambda: opened.backend.read_file(opened.id, path, max_bytes=10),
        lambda: opened.backend.export_file(opened.id, path, io.BytesIO(), max_bytes=10),
        lambda: opened.backend.write_file(opened.id, path, b"x"),
    ):
        with pytest.raises(SandboxError, match=reason) as caught:
            call()
        assert recoverable(caught), caught.value


@pytest.mark.parametrize("path", ["/srv/d", "/srv/dl", "/srv/dll", "/", "."])
def test_provider_fault_9_a_directory_and_a_link_to_one_are_the_models_to_mend(
    opened: OpenBox, path: str
) -> None:
    opened.out("mkdir /srv/d; ln -s d /srv/dl; ln -s dl /srv/dll")
    copy = io.BytesIO()
    for call in (
        lambda: opened.backend.read_file(opened.id, path, max_bytes=10),
        lambda: opened.backend.export_file(opened.id, path, copy, max_bytes=10),
        lambda: opened.backend.write_file(opened.id, path, b"x"),
    ):
        with pytest.raises(SandboxError, match="is a directory") as caught:
            call()
        assert recoverable(caught), caught.value
    assert copy.getvalue() == b""
    # execd would begin an answer and cut the connection.
    assert opened.sent("download") == []


def test_provider_fault_10_an_empty_path_is_recoverable(opened: OpenBox) -> None:
    for call in (
        lambda: opened.backend.list_directory(opened.id, ""),
        lambda: opened.backend.read_file(opened.id, "", max_bytes=10),
        lambda: opened.backend.write_file(opened.id, "", b"x"),
    ):
        with pytest.raises(SandboxError, match="empty") as caught:
            call()
        assert recoverable(caught)


@pytest.mark.parametrize("path", ["/srv/pipe", "/srv/pipe-link"])
def test_a_pipe_is_refused_and_never_waited_for(opened: OpenBox, path: str) -> None:
    opened.out("mkfifo /srv/pipe; ln -s pipe /srv/pipe-link")
    for call in (
        lambda: opened.backend.read_file(opened.id, path, max_bytes=10),
        lambda: opened.backend.export_file(opened.id, path, io.BytesIO(), max_bytes=10),
        lambda: opened.backend.write_file(opened.id, path, b"x"),
    ):
        with pytest.raises(SandboxError, match="not a regular file") as caught:
            call()
        assert recoverable(caught)
    assert opened.sent("download", "upload") == []


def test_files_of_the_kernel(opened: OpenBox) -> None:
    content = opened.backend.read_file(opened.id, "/proc/version", max_bytes=10_000)
    assert content.startswith(b"Linux")
    with pytest.raises(SandboxError, match="file of the system") as caught:
        opened.backend.export_file(opened.id, "/proc/version", io.BytesIO(), max_bytes=10_000)
    assert recoverable(caught)
    with pytest.raises(SandboxFileTooLargeError):
        opened.backend.read_file(opened.id, "/dev/zero", max_bytes=1000)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 300_000])
def test_sizes_of_reads(opened: OpenBox, size: int) -> None:
    content = os.urandom(size)
    opened.backend.write_file(opened.id, "/srv/f", content)
    assert opened.backend.read_file(opened.id, "/srv/f", max_bytes=max(size, 1)) == content


def test_provider_fault_20_a_read_has_a_deadline(opened: OpenBox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_files, "OPERATION_TIMEOUT", 1.5)
    opened.out("head -c 1000 /dev/zero >/srv/f")
    opened.server.faults.add("download", "trickle", bytes=1, pause=0.1, times=None)
    with pytest.raises(SandboxError, match=r"took longer than 1\.5 s"):
        opened.backend.read_file(opened.id, "/srv/f", max_bytes=1000)


def test_a_read_that_was_cut_is_never_short(opened: OpenBox) -> None:
    content = os.urandom(5000)
    opened.backend.write_file(opened.id, "/srv/f", content)
    opened.server.faults.add("download", "cut", after_bytes=2000)
    assert opened.backend.read_file(opened.id, "/srv/f", max_bytes=10_000) == content


@pytest.mark.parity("B File#12")
def test_bounds_are_checked(opened: OpenBox) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        opened.backend.read_file(opened.id, "/f", max_bytes=0)
    with pytest.raises(ValueError, match="max_bytes"):
        opened.backend.export_file(opened.id, "/f", io.BytesIO(), max_bytes=0)


# ---- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("folder", ["/srv/", ""])
def test_provider_fault_15_paths_mean_what_the_shell_means(opened: OpenBox, name: str, folder: str) -> None:
    path = folder + name
    content = b"content of " + name.encode()
    opened.backend.write_file(opened.id, path, content)
    assert opened.backend.read_file(opened.id, path, max_bytes=1000) == content
    copy = io.BytesIO()
    assert opened.backend.export_file(opened.id, path, copy, max_bytes=1000) == len(content)
    assert copy.getvalue() == content
    where = folder or "."
    assert (name, False) in opened.backend.list_directory(opened.id, where)
    # And the shell finds it there, under just this name.
    listed = opened.out(f"cd {folder or '/'}; printf '%s\\0' * .[!.]* ..?*").split("\0")
    assert name in listed
    opened.backend.write_file(opened.id, path, b"again")
    assert opened.backend.read_file(opened.id, path, max_bytes=1000) == b"again"


@pytest.mark.parametrize("path", ["a\0b", "\udcff", "x" * 5000])
def test_what_is_no_path(opened: OpenBox, path: str) -> None:
    with pytest.raises(SandboxError) as caught:
        opened.backend.read_file(opened.id, path, max_bytes=10)
    assert recoverable(caught)
    assert opened.sent() == []


# ---- write -----------------------------------------------------------------------------------------------


@pytest.mark.parity("B File#7")
def test_provider_fault_7_parents_keep_their_modes(opened: OpenBox) -> None:
    opened.out("mkdir -m 2770 /srv/kept")
    opened.backend.write_file(opened.id, "/tmp/x", b"1")
    opened.backend.write_file(opened.id, "/srv/kept/new/er/x", b"1")
    opened.backend.write_file(opened.id, "/srv/kept/x", b"1" * 200_000)
    assert opened.out("stat -c %a /tmp /srv/kept /srv/kept/x /tmp/x").split() == [
        "1777",
        "2770",
        "644",
        "644",
    ]


@pytest.mark.parametrize("size", [3, 200_000])
def test_a_file_that_is_there_keeps_its_mode_and_other_names(opened: OpenBox, size: int) -> None:
    opened.out("echo old >/srv/f; chmod 750 /srv/f; ln /srv/f /srv/g; ln -s f /srv/l")
    content = os.urandom(size)
    for path in ("/srv/f", "/srv/l"):
        opened.backend.write_file(opened.id, path, content)
        assert opened.out("stat -c '%a %h' /srv/f; readlink /srv/l").split() == ["750", "2", "f"]
        assert opened.backend.read_file(opened.id, "/srv/g", max_bytes=10**6) == content
    assert [name for name, _ in opened.backend.list_directory(opened.id, "/srv")] != []
    assert ".partial" not in opened.out("ls -A /srv /tmp")


def test_provider_fault_7_an_image_that_does_not_run_as_root(opened: OpenBox) -> None:
    backend = OpenSandboxBackend(None, image="nonroot:1")
    box = OpenBox(opened.server, backend, backend.create())
    backend.write_file(box.id, "/tmp/x", b"1")
    backend.write_file(box.id, "mine/x", b"2" * 100_000)
    backend.write_file(box.id, "mine/x", b"3" * 100_000)
    assert box.out("pwd; id -u; stat -c '%a %u' mine/x").split() == ["/home/app", "1000", "644", "1000"]
    with pytest.raises(SandboxError, match=r"ermission denied|ead-only") as caught:
        backend.write_file(box.id, "/usr/x", b"x")
    assert recoverable(caught)


@pytest.mark.parity("B File#8")
def test_a_write_that_is_answered_with_404(opened: OpenBox) -> None:
    opened.server.faults.add("upload", "status", status=404, body={"code": "FILE_NOT_FOUND"})
    with pytest.raises(SandboxError, match="Could not write") as caught:
        opened.backend.write_file(opened.id, "/srv/x", b"1")
    assert recoverable(caught)
    assert len(opened.sent("get")) == 1


# ---- list ------------------------------------------------------------------------------------------------


@pytest.mark.parity("B File#9")
@pytest.mark.parametrize("path", ["/srv/d", "/srv/d/"])
def test_a_listing(opened: OpenBox, path: str) -> None:
    opened.out("mkdir -p /srv/d/sub; touch /srv/d/a /srv/d/.hidden")
    opened.server.forget_requests()
    found = opened.backend.list_directory(opened.id, path)
    assert sorted(found) == [(".hidden", False), ("a", False), ("sub", True)]
    assert operations(opened) == ["directory"]


def test_provider_fault_14_links_count_as_what_they_lead_to(opened: OpenBox) -> None:
    opened.out("mkdir /srv/d; touch /srv/d/x; cd /srv; ln -s d dl; ln -s d/x fl; ln -s nowhere nl; ln -s l l")
    found = dict(opened.backend.list_directory(opened.id, "/srv"))
    assert found == {"d": True, "dl": True, "fl": False, "nl": False, "l": False}
    assert opened.backend.list_directory(opened.id, "/srv/dl") == [("x", False)]
    for path in ("/srv/fl", "/srv/d/x"):
        with pytest.raises(SandboxError, match="not a directory") as caught:
            opened.backend.list_directory(opened.id, path)
        assert recoverable(caught)


@pytest.mark.parity("B File#10")
def test_more_entries_than_the_limit(opened: OpenBox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LISTING_MAX_ENTRIES", 2)
    opened.out("mkdir /srv/d; touch /srv/d/1 /srv/d/2")
    assert len(opened.backend.list_directory(opened.id, "/srv/d")) == 2
    opened.out("touch /srv/d/3")
    with pytest.raises(SandboxError, match="more than 2 entries") as caught:
        opened.backend.list_directory(opened.id, "/srv/d")
    assert recoverable(caught)


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"path": 3}]', "nonsense"])
def test_a_listing_that_is_none(opened: OpenBox, text: str) -> None:
    opened.server.faults.add("directory", "body", text=text)
    with pytest.raises(SandboxTerminalError, match="list a sandbox directory"):
        opened.backend.list_directory(opened.id, "/srv")


# ---- export ----------------------------------------------------------------------------------------------


@pytest.mark.parity("B Export#1")
def test_an_export_is_looked_at_copied_and_looked_at_again(opened: OpenBox) -> None:
    opened.out("printf 12345 >/srv/f")
    opened.server.forget_requests()
    dest = io.BytesIO()
    assert opened.backend.export_file(opened.id, "/srv/f", dest, max_bytes=10) == 5
    assert dest.getvalue() == b"12345"
    assert operations(opened) == ["info", "download", "info"]
    headers = {name.lower(): value for name, value in opened.sent("download")[0]["headers"].items()}
    assert headers["range"] == "bytes=0-10"


@pytest.mark.parametrize("to_file", [False, True])
def test_a_large_export(opened: OpenBox, tmp_path: Path, to_file: bool) -> None:
    opened.out("head -c 20000000 /dev/urandom >/srv/f")
    if to_file:
        with (tmp_path / "out").open("wb") as dest:
            dest.write(b"before")
            assert opened.backend.export_file(opened.id, "/srv/f", dest, max_bytes=10**9) == 20_000_000
        assert (tmp_path / "out").stat().st_size == 20_000_006
        return
    copy = io.BytesIO()
    assert opened.backend.export_file(opened.id, "/srv/f", copy, max_bytes=10**9) == 20_000_000


@pytest.mark.parity("B Export#2", "B Export#3")
def test_what_is_not_exported(opened: OpenBox) -> None:
    opened.out("head -c 100 /dev/zero >/srv/f")
    for path, words in (("/srv", "is a directory"), ("/dev/null", "not a regular file")):
        with pytest.raises(SandboxError, match=words) as caught:
            opened.backend.export_file(opened.id, path, io.BytesIO(), max_bytes=10)
        assert recoverable(caught)
    dest = io.BytesIO()
    with pytest.raises(SandboxFileTooLargeError) as large:
        opened.backend.export_file(opened.id, "/srv/f", dest, max_bytes=10)
    assert large.value.size_bytes == 100
    assert dest.getvalue() == b""
    assert opened.sent("download") == []


@pytest.mark.parity("B Export#5")
def test_an_empty_answer_is_a_missing_file(opened: OpenBox) -> None:
    opened.server.faults.add("info", "body", text="{}")
    with pytest.raises(SandboxError, match="does not exist"):
        opened.backend.export_file(opened.id, "/srv/f", io.BytesIO(), max_bytes=10)


@pytest.mark.parity("B Export#7")
def test_a_relative_path_is_exported(opened: OpenBox) -> None:
    opened.out("printf 12345 >rel.txt")
    info = {"/rel.txt": {"path": "/rel.txt", "type": "file", "size": 5, "modified_at": "now"}}
    opened.server.faults.add("info", "body", text=__import__("json").dumps(info), times=None)
    assert opened.backend.export_file(opened.id, "rel.txt", io.BytesIO(), max_bytes=10) == 5


@pytest.mark.parity("B Export#8")
def test_a_file_that_grows_past_the_budget(opened: OpenBox) -> None:
    opened.out("printf 12345 >/srv/f")
    opened.server.faults.add("download", "act", act="run:printf 6789012345 >>/srv/f")
    with pytest.raises(SandboxError) as caught:
        opened.backend.export_file(opened.id, "/srv/f", io.BytesIO(), max_bytes=10)
    assert not isinstance(caught.value, SandboxTerminalError)
    assert isinstance(caught.value, SandboxFileTooLargeError) or "changed" in str(caught.value)


@pytest.mark.parity("B Export#9")
def test_an_export_that_takes_too_long(opened: OpenBox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_files, "OPERATION_TIMEOUT", 1.5)
    monkeypatch.setattr(command_files, "EXPORT_MIN_RATE", 10**12)
    opened.out("head -c 1000 /dev/zero >/srv/f")
    opened.server.faults.add("download", "trickle", bytes=1, pause=0.1, times=None)
    with pytest.raises(SandboxError, match="took longer than") as caught:
        opened.backend.export_file(opened.id, "/srv/f", io.BytesIO(), max_bytes=1000)
    assert recoverable(caught)


@pytest.mark.parity("B Export#10")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param("truncate -s 200 /srv/f", id="provider_fault_16_shrinks"),
        "head -c 10 /dev/zero >>/srv/f",
        "head -c 100000 /dev/urandom >/srv/f",
        "rm /srv/f",
        "rm /srv/f; mkdir /srv/f",
    ],
)
@pytest.mark.parametrize("at", [0, 1000])
def test_provider_fault_16_a_file_that_changes_is_the_models_to_mend(
    opened: OpenBox, change: str, at: int
) -> None:
    opened.out("head -c 100000 /dev/zero >/srv/f; touch -d '2001-02-03' /srv/f")
    if at:
        opened.server.faults.add("download", "cut", after_bytes=at, act=f"run:{change}")
    else:
        opened.server.faults.add("download", "act", act=f"run:{change}")
    with pytest.raises(SandboxError) as caught:
        opened.backend.export_file(opened.id, "/srv/f", io.BytesIO(), max_bytes=10**6)
    assert recoverable(caught), caught.value


@pytest.mark.parity("B Export#11")
def test_links_are_followed_and_compared(opened: OpenBox) -> None:
    opened.out("printf 12345 >/srv/f; ln -s f /srv/l; ln -s l /srv/ll; ln -s /srv/f '/srv/$HOME'")
    for path in ("/srv/l", "/srv/ll", "/srv/$HOME"):
        dest = io.BytesIO()
        assert opened.backend.export_file(opened.id, path, dest, max_bytes=10) == 5
        assert dest.getvalue() == b"12345"


@pytest.mark.parity("B Export#12")
def test_the_destinations_error_comes_out_as_itself(opened: OpenBox) -> None:
    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            raise failure

    failure = OSError(28, "No space left on device")
    opened.out("printf 12345 >/srv/f")
    opened.server.forget_requests()
    with pytest.raises(OSError, match="No space") as caught:
        opened.backend.export_file(opened.id, "/srv/f", Full(), max_bytes=10)  # type: ignore[arg-type]
    assert caught.value is failure
    assert opened.sent("get") == []


@pytest.mark.parametrize("to_file", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_an_export_goes_on_after_its_connection_broke(
    opened: OpenBox, tmp_path: Path, to_file: bool, reset: bool
) -> None:
    content = os.urandom(3_000_000)
    opened.backend.write_file(opened.id, "/srv/f", content)
    opened.server.forget_requests()
    opened.server.faults.add("download", "cut", after_bytes=1_000_000, times=2, reset=reset)
    if to_file:
        with (tmp_path / "out").open("wb") as dest:
            assert opened.backend.export_file(opened.id, "/srv/f", dest, max_bytes=10**7) == len(content)
        assert (tmp_path / "out").read_bytes() == content
    else:
        copy = io.BytesIO()
        assert opened.backend.export_file(opened.id, "/srv/f", copy, max_bytes=10**7) == len(content)
        assert copy.getvalue() == content
    assert len(opened.sent("download")) == 3


@pytest.mark.parametrize(
    "change",
    [
        "head -c 3000000 /dev/urandom >/srv/f",  # as large as it was
        "touch /srv/f",  # the same, which is not known
        "head -c 3000001 /dev/urandom >/srv/f; touch -d 2001-02-03 /srv/f",
        "rm /srv/f",
        "rm /srv/f; ln -s g /srv/f",
    ],
)
def test_an_export_does_not_go_on_in_what_may_be_another_file(opened: OpenBox, change: str) -> None:
    opened.out("head -c 3000000 /dev/urandom >/srv/f; touch -d 2001-02-03 /srv/f; cp -p /srv/f /srv/g")
    opened.server.forget_requests()
    opened.server.faults.add("download", "cut", after_bytes=1_000_000, reset=True)
    opened.server.faults.add("info", "act", nth=2, act=f"run:{change}")
    with pytest.raises(SandboxError, match=r"changed while it was exported|does not exist") as caught:
        opened.backend.export_file(opened.id, "/srv/f", io.BytesIO(), max_bytes=10**7)
    assert recoverable(caught)
    assert len(opened.sent("download")) == 1


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("cut", {"after_bytes": 0}),
        ("ignore-range", {}),
        ("shift-range", {}),
        ("announce", {"by": 10}),
        ("announce", {"by": -10, "clip": True}),
        ("announce", {"length": 2**63 - 1}),
        ("unframed", {"after_bytes": 50}),
    ],
)
def test_no_broken_answer_is_taken_for_the_file(
    opened: OpenBox, kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_RESUME_PAUSE", 0.0)
    content = os.urandom(100_000)
    opened.backend.write_file(opened.id, "/srv/f", content)
    opened.server.faults.add("download", kind, times=None, **options)
    dest = io.BytesIO()
    try:
        size = opened.backend.export_file(opened.id, "/srv/f", dest, max_bytes=10**6)
    except SandboxError as e:
        assert isinstance(e, SandboxTerminalError)
    else:
        assert (size, dest.getvalue()) == (len(content), content)


# ---- import ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_an_import_streams_a_file_of_any_size_into_a_new_and_an_old_file(
    opened: OpenBox, tmp_path: Path, kind: str
) -> None:
    check_import(opened.backend, opened.id, tmp_path, kind)
