# SPDX-License-Identifier: Apache-2.0
"""Export of files from a local sandbox."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from local_tools import Sandbox, sandbox
from sandbox_native import calls
from sandbox_native.backends import _local_files
from sandbox_native.contract import SandboxError, SandboxFileTooLargeError, SandboxTerminalError


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as it:
        yield it


@pytest.fixture(params=["descriptor", "stream"])
def dest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BinaryIO]:
    """A destination with a descriptor, and one without."""
    if request.param == "stream":
        yield io.BytesIO()
    else:
        with open(tmp_path / "dest", "w+b") as file:
            yield file


def content(dest: BinaryIO) -> bytes:
    dest.seek(0)
    return dest.read()


def export(box: Sandbox, path: str, dest: Any, max_bytes: int = 1 << 40) -> int:
    return box.backend.export_file(box.handle, path, dest, max_bytes=max_bytes)


class Hooked(io.BytesIO):
    """Runs something after the first write."""

    def __init__(self, then: Any) -> None:
        super().__init__()
        self._then = then

    def write(self, data: Any) -> int:
        count = super().write(data)
        then, self._then = self._then, lambda: None
        then()
        return count


@pytest.mark.parametrize("size", [0, 1, 4095, 1 << 20, (1 << 20) + 1, 30_000_001])
def test_a_file_arrives_whole(box: Sandbox, dest: BinaryIO, size: int) -> None:
    box.sh(f"head -c {size} /dev/urandom > file")
    assert export(box, "file", dest) == size
    assert hashlib.sha256(content(dest)).hexdigest() == box.sh("sha256sum file").split()[0]


def test_it_goes_on_where_the_destination_is(box: Sandbox, dest: BinaryIO) -> None:
    box.write("file", b"second")
    dest.write(b"first ")
    assert export(box, "file", dest) == 6
    dest.write(b" third") if isinstance(dest, io.BytesIO) else None
    assert content(dest).startswith(b"first second")


def test_a_file_of_the_read_only_tree_can_be_exported(box: Sandbox, dest: BinaryIO) -> None:
    assert export(box, "/usr/bin/env", dest) == os.stat("/usr/bin/env").st_size
    assert content(dest) == Path("/usr/bin/env").read_bytes()


def test_a_sparse_file_is_exported_with_its_holes(box: Sandbox, dest: BinaryIO) -> None:
    box.sh("rm -f sparse; truncate -s 3M sparse; printf end >> sparse")
    assert export(box, "sparse", dest) == (3 << 20) + 3
    assert content(dest) == bytes(3 << 20) + b"end"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("missing", "does not exist"),
        ("dir", "is a directory"),
        ("to-dir", "is a directory"),
        ("fifo", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("/proc/self/status", "not a regular file"),
        ("loop", "symbolic links"),
        ("secret", "Permission denied"),
        ("", "empty"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_a_byte_is_written(
    box: Sandbox, dest: BinaryIO, path: str, why: str
) -> None:
    box.run("mkdir -p dir; ln -sfn dir to-dir; mkfifo fifo; ln -sfn loop loop; touch secret; chmod 0 secret")
    with pytest.raises(SandboxError, match=why) as error:
        export(box, path, dest)
    assert not isinstance(error.value, SandboxTerminalError)
    assert content(dest) == b""


def test_a_file_over_the_budget_is_refused_with_its_size(box: Sandbox, dest: BinaryIO) -> None:
    box.write("file", b"x" * 500)
    with pytest.raises(SandboxFileTooLargeError) as error:
        export(box, "file", dest, max_bytes=499)
    assert error.value.size_bytes == 500
    assert content(dest) == b""
    assert export(box, "file", dest, max_bytes=500) == 500


@pytest.mark.parametrize(
    "change",
    [
        "printf more >> file",
        "truncate -s 10 file",
        "printf y | dd of=file conv=notrunc",
        "cat file > t; cat t > file",
    ],
)
def test_provider_fault_32_a_file_that_changes_meanwhile_is_refused(box: Sandbox, change: str) -> None:
    box.write("file", b"x" * (3 << 20))
    with pytest.raises(SandboxError, match="changed while it was exported"):
        export(box, "file", Hooked(lambda: box.sh(change)))


def test_a_file_that_outgrows_the_budget_meanwhile_is_too_large(box: Sandbox) -> None:
    box.write("file", b"x" * (3 << 20))
    with pytest.raises(SandboxFileTooLargeError):
        export(box, "file", Hooked(lambda: box.sh("printf more >> file")), max_bytes=3 << 20)


def test_a_file_under_constant_change_is_refused(box: Sandbox, dest: BinaryIO) -> None:
    box.sh("rm -f w; while :; do printf %s{1..50} >> w; done >/dev/null 2>&1 & echo $! > pid; sleep 0.3")
    with pytest.raises(SandboxError, match="changed while it was exported"):
        while True:  # a busy machine may let the writer rest once or twice
            export(box, "w", dest)
    box.sh("kill $(cat pid)")


def test_a_file_replaced_meanwhile_is_the_one_that_was_opened(box: Sandbox) -> None:
    box.write("file", b"x" * (3 << 20))
    out = Hooked(lambda: box.sh("rm file; ln -s /etc/passwd file"))
    assert export(box, "file", out) == 3 << 20
    assert out.getvalue() == b"x" * (3 << 20)
    box.sh("rm file")


def test_too_slow_a_copy_is_ended(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.write("file", b"x" * (3 << 20))
    monkeypatch.setattr(_local_files, "TIMEOUT", 0.2)
    monkeypatch.setattr(_local_files, "_MIN_RATE", 1 << 40)
    with pytest.raises(SandboxError, match="took longer than"):
        export(box, "file", Hooked(lambda: time.sleep(0.5)), max_bytes=4 << 20)


class Full(io.BytesIO):
    def __init__(self) -> None:
        super().__init__()
        self.error = OSError(28, "No space left on device")

    def write(self, data: Any) -> int:
        raise self.error


def test_the_destinations_own_error_comes_out_unchanged(box: Sandbox) -> None:
    box.write("file", b"x")
    out = Full()
    with pytest.raises(OSError) as error:
        export(box, "file", out)
    assert error.value is out.error


def test_a_full_disk_under_a_descriptor_is_the_destinations_error(box: Sandbox) -> None:
    import resource
    import signal
    import tempfile

    box.write("file", b"x" * 100_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with tempfile.TemporaryFile() as out:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(OSError) as error:
                export(box, "file", out)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
    assert not isinstance(error.value, SandboxError)


def test_a_cancelled_export_stops(box: Sandbox) -> None:
    box.write("file", b"x" * (5 << 20))
    started = threading.Event()

    def wait_for_cancel() -> None:
        started.set()
        while not calls.is_cancelled():
            time.sleep(0.01)

    out = Hooked(wait_for_cancel)
    call = calls.prepare(lambda: export(box, "file", out))
    call.start()
    assert started.wait(60)
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()
    assert len(out.getvalue()) < 5 << 20


def test_an_export_into_a_pipe_end_is_written_to_the_end(box: Sandbox) -> None:
    box.write("file", b"x" * 300_000)
    read_end, write_end = os.pipe()
    got: list[bytes] = []

    def reader() -> None:
        with os.fdopen(read_end, "rb") as file:
            got.append(file.read())

    thread = threading.Thread(target=reader)
    thread.start()
    with os.fdopen(write_end, "wb") as out:
        assert export(box, "file", out) == 300_000
    thread.join(60)
    assert got == [b"x" * 300_000]


def test_a_destination_that_takes_no_more_is_an_error_not_a_short_file(box: Sandbox) -> None:
    box.write("file", b"x" * 3_000_000)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with (
        os.fdopen(read_end, "rb"),
        os.fdopen(write_end, "wb", buffering=0) as out,
        pytest.raises(OSError, match="takes no more"),
    ):
        export(box, "file", out)


def test_appending_destinations_work(box: Sandbox, tmp_path: Path) -> None:
    box.write("file", b"new")
    (tmp_path / "log").write_bytes(b"old ")
    with open(tmp_path / "log", "ab") as out:
        assert export(box, "file", out) == 3
    assert (tmp_path / "log").read_bytes() == b"old new"
