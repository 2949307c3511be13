# SPDX-License-Identifier: Apache-2.0
"""export_file over run_command alone, in real shells, with slices small enough to need several."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_native import command_files, contract
from sandbox_native.contract import (
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxTerminalError,
)
from shell_backend import ShellBackend

SLICE = 64


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_EXPORT_CHUNK_BYTES", SLICE)


def export(box: ShellBackend, path: object = "out.bin", max_bytes: int = 1 << 20) -> bytes:
    dest = io.BytesIO()
    assert box.export_file("box", str(path), dest, max_bytes=max_bytes) == len(dest.getvalue())
    return dest.getvalue()


def refused(box: ShellBackend, path: object = "out.bin", max_bytes: int = 1 << 20) -> SandboxError:
    """The error of an export that must write nothing."""
    dest = io.BytesIO()
    with pytest.raises(SandboxError) as error:
        box.export_file("box", str(path), dest, max_bytes=max_bytes)
    assert dest.getvalue() == b""
    return error.value


# ---- any guest -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 128, 1000])
def test_a_file_is_copied_exactly_across_slices(box: ShellBackend, size: int) -> None:
    content = os.urandom(size)
    (box.root / "out.bin").write_bytes(content)
    assert export(box) == content
    assert export(box, max_bytes=max(size, 1)) == content


@pytest.mark.parametrize("slice_bytes", [1, 7, 4096, 8192, 65536, 196_608, 1_000_003])
def test_slices_of_any_size_make_the_same_file(
    box: ShellBackend, slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "_EXPORT_CHUNK_BYTES", slice_bytes)
    content = os.urandom(min(slice_bytes * 3 + 5, 500_000))
    (box.root / "out.bin").write_bytes(content)
    assert export(box) == content


def test_one_command_is_enough_for_a_file_that_fits_a_slice(box: ShellBackend) -> None:
    (box.root / "out.bin").write_bytes(b"x" * SLICE)
    export(box)
    assert len(box.commands) == 1
    (box.root / "out.bin").write_bytes(b"x" * (SLICE + 1))
    export(box)
    assert len(box.commands) == 3


@pytest.mark.parametrize(
    "name",
    ["with space", "quo'te", "semi;colon", "$HOME", "*", "new\nline", "-rf", "-", "#?%[]", "é😀", "end "],
)
def test_a_name_is_exact(box: ShellBackend, name: str) -> None:
    (box.root / "decoy").write_bytes(b"other")
    (box.root / name).write_bytes(b"payload")
    assert export(box, name) == b"payload"
    assert export(box, box.root / name) == b"payload"


def test_a_link_to_a_file_is_exported(box: ShellBackend) -> None:
    (box.root / "out.bin").write_bytes(b"payload")
    (box.root / "link").symlink_to("out.bin")
    assert export(box, "link") == b"payload"


def test_only_regular_files_are_exported(box: ShellBackend) -> None:
    (box.root / "sub").mkdir()
    (box.root / "link").symlink_to("sub")
    (box.root / "dangling").symlink_to("nowhere")
    (box.root / "loop").symlink_to("loop")
    os.mkfifo(box.root / "fifo")
    for path, said in {
        "nope": "does not exist",
        "dangling": "does not exist",
        "loop": "does not exist",
        "sub": "is a directory",
        "link": "is a directory",
        "fifo": "not a regular file",
        "/dev/zero": "not a regular file",
        "/dev/null": "not a regular file",
        "": "empty",
    }.items():
        error = refused(box, path)
        assert said in str(error)
        assert not isinstance(error, SandboxTerminalError)


def test_a_file_over_the_budget_is_refused_before_anything_is_written(box: ShellBackend) -> None:
    (box.root / "out.bin").write_bytes(b"x" * 500)
    error = refused(box, max_bytes=100)
    assert isinstance(error, SandboxFileTooLargeError)
    assert (error.path, error.size_bytes, error.max_bytes) == ("out.bin", 500, 100)
    assert len(export(box, max_bytes=500)) == 500


def test_a_file_of_the_system_is_exported_whole_or_refused(box: ShellBackend) -> None:
    for path in ("/proc/version", "/proc/self/maps", "/sys/kernel/mm/transparent_hugepage/enabled"):
        if not os.path.exists(path):
            continue
        dest = io.BytesIO()
        try:
            box.export_file("box", path, dest, max_bytes=1 << 20)
        except SandboxError as e:
            assert "of the system" in str(e) or "changed" in str(e)
        else:
            assert dest.getvalue() == Path(path).read_bytes()


def test_provider_fault_32_a_file_that_changes_between_slices_is_an_error(box: ShellBackend) -> None:
    target = box.root / "out.bin"

    def changes(change: Callable[[], object]) -> str:
        target.write_bytes(b"x" * 100)
        done: list[object] = []

        def tamper(command: str, result: SandboxExecResult) -> SandboxExecResult:
            if not done:
                done.append(change())
            return result

        box.tamper = tamper
        with pytest.raises(SandboxError) as error:
            export(box)
        assert not isinstance(error.value, SandboxTerminalError)
        return str(error.value)

    def grow() -> None:
        with target.open("ab") as file:
            file.write(b"y" * 10)

    assert "changed while it was exported" in changes(grow)
    assert "changed while it was exported" in changes(lambda: os.truncate(target, 70))
    assert "does not exist" in changes(target.unlink)
    if box.env and not (Path(box.env["PATH"]) / "stat").exists():
        return  # Without stat only the size is known.
    assert "changed while it was exported" in changes(lambda: target.write_bytes(b"z" * 100))

    def replace() -> None:
        (box.root / "new").write_bytes(b"z" * 100)
        os.utime(box.root / "new", ns=(target.stat().st_atime_ns, target.stat().st_mtime_ns))
        (box.root / "new").rename(target)

    assert "changed while it was exported" in changes(replace)


def test_a_file_that_grows_past_the_budget_is_too_large(plain: ShellBackend) -> None:
    target = plain.root / "out.bin"
    target.write_bytes(b"x" * 100)

    def grow(command: str, result: SandboxExecResult) -> SandboxExecResult:
        with target.open("ab") as file:
            file.write(b"y" * 500)
        return result

    plain.tamper = grow
    with pytest.raises(SandboxFileTooLargeError):
        export(plain, max_bytes=200)


def test_provider_fault_32_a_file_that_changes_within_the_only_slice_is_an_error(plain: ShellBackend) -> None:
    target = plain.root / "out.bin"
    target.write_bytes(b"x" * 50)
    # dd of this guest writes to the file it reads.
    dd = 'dd() { command dd "$@"; printf more >>"$f"; }\n'
    plain.shell = ("sh", "-c", dd + 'eval "$0"')
    assert "changed while it was exported" in str(refused(plain))


# ---- limits --------------------------------------------------------------------------------------------


def test_the_allowance_follows_the_budget() -> None:
    assert contract._export_allowance(1024**3) == 1024
    assert contract._export_allowance(1024) == command_files.OPERATION_TIMEOUT == 120.0


def test_an_export_that_trickles_is_ended(plain: ShellBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain.root / "out.bin").write_bytes(b"x" * 1000)
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def slow(command: str, result: SandboxExecResult) -> SandboxExecResult:
        now[0] += 50.0
        return result

    plain.tamper = slow
    with pytest.raises(SandboxError, match="took longer than the 120 s"):
        export(plain)
    assert len(plain.commands) == 3
    # No command may last past the end of the whole.
    assert plain.timeouts == [120.0, 70.0, 20.0]


def test_a_slice_that_times_out_at_the_end_of_the_allowance(
    plain: ShellBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain.root / "out.bin").write_bytes(b"x" * 1000)
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def late(command: str, result: SandboxExecResult) -> SandboxExecResult:
        now[0] += plain.timeouts[-1]
        return SandboxExecResult(-1, "", "", timed_out=True)

    plain.tamper = late
    with pytest.raises(SandboxError, match="took longer than the 120 s"):
        export(plain)
    now[0] = 0.0
    monkeypatch.setattr(contract, "_export_allowance", lambda max_bytes: 500.0)
    with pytest.raises(SandboxError, match=r"Could not export 'out\.bin': it took longer than 120 s"):
        export(plain)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True])
def test_a_budget_must_be_a_number_of_bytes(plain: ShellBackend, bad: Any) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        plain.export_file("box", "x", io.BytesIO(), max_bytes=bad)


# ---- faults --------------------------------------------------------------------------------------------


def on_slice(number: int, change: Callable[[SandboxExecResult], SandboxExecResult]) -> Any:
    seen = []

    def tamper(command: str, result: SandboxExecResult) -> SandboxExecResult:
        seen.append(command)
        return change(result) if len(seen) == number else result

    return tamper


def with_fields(**fields: Any) -> Callable[[SandboxExecResult], SandboxExecResult]:
    return lambda result: SandboxExecResult(**{**vars(result), **fields})


@pytest.mark.parametrize("number", [1, 2, 4])
class TestFaults:
    @pytest.fixture(autouse=True)
    def _file(self, plain: ShellBackend) -> None:
        (plain.root / "out.bin").write_bytes(os.urandom(SLICE * 3 + 10))

    def test_a_slice_that_the_backend_cut_is_never_a_short_file(
        self, plain: ShellBackend, number: int
    ) -> None:
        plain.tamper = on_slice(number, with_fields(stdout_truncated=True))
        with pytest.raises(SandboxError, match="Could not export"):
            export(plain)
        plain.tamper = on_slice(
            number, lambda r: SandboxExecResult(0, r.stdout[:8], "", stdout_truncated=True)
        )
        with pytest.raises(SandboxError, match="Could not export"):
            export(plain)

    def test_a_slice_cut_in_silence_is_found(self, plain: ShellBackend, number: int) -> None:
        plain.tamper = on_slice(number, lambda r: with_fields(stdout=r.stdout[: len(r.stdout) // 2])(r))
        with pytest.raises(SandboxError, match="cut on its way"):
            export(plain)

    def test_a_slice_with_less_inside_is_found(self, plain: ShellBackend, number: int) -> None:
        # Whole groups of base64 lost from the middle decode without an error.
        def thin(result: SandboxExecResult) -> SandboxExecResult:
            text = re.sub(r"(sandbox-native:begin [^\n]*\n)....", r"\1", result.stdout, count=1)
            assert text != result.stdout
            return with_fields(stdout=text)(result)

        plain.tamper = on_slice(number, thin)
        with pytest.raises(SandboxError, match="Could not export"):
            export(plain)

    def test_the_end_of_the_sandbox_is_terminal(self, plain: ShellBackend, number: int) -> None:
        plain.tamper = on_slice(
            number, lambda r: SandboxExecResult(-1, "", "", sandbox_terminated=True, timed_out=True)
        )
        with pytest.raises(SandboxTerminalError, match="ended"):
            export(plain)

    def test_an_exception_of_the_backend_comes_out(self, plain: ShellBackend, number: int) -> None:
        def fail(result: SandboxExecResult) -> SandboxExecResult:
            raise SandboxTerminalError("the service is gone")

        plain.tamper = on_slice(number, fail)
        with pytest.raises(SandboxTerminalError, match="the service is gone"):
            export(plain)

    def test_an_exception_of_the_destination_comes_out_as_it_is(
        self, plain: ShellBackend, number: int
    ) -> None:
        error = PermissionError("the bucket says no")

        class Full(io.BytesIO):
            writes = 0

            def write(self, data: Any) -> int:
                self.writes += 1
                if self.writes == number:
                    raise error
                return super().write(data)

        with pytest.raises(PermissionError) as raised:
            plain.export_file("box", "out.bin", Full(), max_bytes=1 << 20)
        assert raised.value is error
        assert len(plain.commands) in (number, number + 1)  # the next one may be on its way


def test_a_read_error_in_the_guest_is_no_short_file(plain: ShellBackend) -> None:
    (plain.root / "out.bin").write_bytes(os.urandom(1000))
    broken = "head() { command head -c 10; echo 'Input/output error' >&2; return 1; }\ndd() { return 1; }\n"
    plain.shell = ("sh", "-c", broken + 'eval "$0"')
    with pytest.raises(SandboxError, match="Input/output error"):
        export(plain)


def test_notices_around_the_answers_do_no_harm(plain: ShellBackend) -> None:
    content = os.urandom(500)
    (plain.root / "out.bin").write_bytes(content)

    def noisy(command: str, result: SandboxExecResult) -> SandboxExecResult:
        text = f"Starting daemon...\n{result.stdout}bye\n".replace("\n", "\r\n")
        return SandboxExecResult(result.exit_code, text, "warning: slow")

    plain.tamper = noisy
    assert export(plain) == content
    assert isinstance(refused(plain, max_bytes=100), SandboxFileTooLargeError)


class Raw(io.RawIOBase):
    """Takes at most three bytes at a time, as a raw file may."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data[:3])
        self.taken += part
        return len(part)


class Silent:
    """Some file-likes return nothing from write and want bytes."""

    def __init__(self) -> None:
        self.taken = b""

    def write(self, data: bytes) -> None:
        assert type(data) is bytes
        self.taken += data


@pytest.mark.parametrize("kind", [Raw, Silent])
def test_any_kind_of_destination_gets_every_byte(plain: ShellBackend, kind: Any) -> None:
    content = os.urandom(200)
    (plain.root / "out.bin").write_bytes(content)
    dest = kind()
    assert plain.export_file("box", "out.bin", dest, max_bytes=1000) == 200
    assert dest.taken == content


def test_a_destination_that_takes_nothing_is_an_error_not_a_loop(plain: ShellBackend) -> None:
    class Stuck(io.BytesIO):
        def write(self, data: Any) -> int:
            return 0

    (plain.root / "out.bin").write_bytes(b"x")
    with pytest.raises(OSError, match="takes no more data"):
        plain.export_file("box", "out.bin", Stuck(), max_bytes=1000)


def test_a_compressing_destination(plain: ShellBackend, tmp_path: Path) -> None:
    content = b"line\n" * 1000
    (plain.root / "out.bin").write_bytes(content)
    with gzip.open(tmp_path / "out.gz", "wb") as dest:
        assert plain.export_file("box", "out.bin", dest, max_bytes=10_000) == len(content)
    with gzip.open(tmp_path / "out.gz") as back:
        assert back.read() == content
