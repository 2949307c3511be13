# SPDX-License-Identifier: Apache-2.0
"""The default export's compression, checksum and several slices at a time, in real shells."""

from __future__ import annotations

import base64
import gzip
import io
import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from guests import tools
from sandbox_native import _sandbox_native as native
from sandbox_native import calls, contract, default_export
from sandbox_native.contract import SandboxError, SandboxExecResult
from sandbox_native.default_export import Packing
from shell_backend import ShellBackend

SLICE = 8192


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_EXPORT_CHUNK_BYTES", SLICE)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every channel counts as slower than gzip, and what is compressed as the faster way."""
    monkeypatch.setattr(default_export, "GZIP_RATE", float("inf"))
    took = Packing.took
    monkeypatch.setattr(
        Packing, "took", lambda self, packed, size, seconds: took(self, packed, size, 1.0 if packed else 2.0)
    )


def export(box: ShellBackend, dest: object = None) -> bytes:
    dest = io.BytesIO() if dest is None else dest
    assert isinstance(dest, io.BytesIO)
    assert box.export_file("box", "out.bin", dest, max_bytes=1 << 20) == len(dest.getvalue())
    return dest.getvalue()


def packed(box: ShellBackend) -> list[bool]:
    return ["gzip -1" in command for command in box.commands]


# ---- compression ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, SLICE, SLICE * 2, SLICE * 5 + 17])
@pytest.mark.parametrize("text", [True, False])
def test_slices_are_compressed_on_a_slow_channel(
    box: ShellBackend, slow: None, size: int, text: bool, tmp_path: Path
) -> None:
    content = (b"all work and no play\n" * (size // 21 + 1))[:size] if text else os.urandom(size)
    (box.root / "out.bin").write_bytes(content)
    assert export(box) == content
    has_gzip = not box.env or (Path(box.env["PATH"]) / "gzip").exists()
    slices = -(-size // SLICE) or 1
    assert packed(box) == [False] + [has_gzip] * (slices - 1)
    with (tmp_path / "plain").open("wb") as dest:
        assert box.export_file("box", "out.bin", dest, max_bytes=1 << 20) == size
    assert (tmp_path / "plain").read_bytes() == content


def test_nothing_is_compressed_on_a_fast_channel(
    plain: ShellBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default_export, "GZIP_RATE", 0)
    (plain.root / "out.bin").write_bytes(bytes(SLICE * 5))
    export(plain)
    assert packed(plain) == [False] * 5


def test_the_faster_way_is_taken_and_the_other_tried_again() -> None:
    packing = Packing()
    assert not packing.choose()
    packing.took(False, 1000, 1.0)
    assert not packing.choose()  # no gzip in the guest
    packing.possible = True
    assert packing.choose()
    packing.took(True, 1000, 2.0)
    chosen = []
    for _ in range(70):
        chosen.append(packing.choose())
        packing.took(chosen[-1], 1000, 2.0 if chosen[-1] else 1.0)
    assert chosen.count(True) == 2 and not chosen[0]
    packing.took(True, 1000, 0.5)
    assert packing.choose()
    packing.took(False, 1, 1e-9)  # faster than gzip by far
    assert not packing.choose()


def test_a_guest_without_base64_compresses_too(tmp_path: Path, slow: None) -> None:
    (tmp_path / "work").mkdir()
    path = tools(tmp_path / "tools", "sh", "head", "tail", "od", "wc", "gzip")
    box = ShellBackend(tmp_path / "work", shell=("/bin/sh", "-c"), env={"PATH": path})
    content = os.urandom(100) * 300
    (box.root / "out.bin").write_bytes(content)
    assert export(box) == content and any(packed(box))


@pytest.mark.parametrize("missing", ["base64 or od", "head", "tail"])
def test_what_a_guest_lacks_is_named(tmp_path: Path, missing: str) -> None:
    (tmp_path / "work").mkdir()
    names = [name for name in ("sh", "head", "tail", "od", "wc") if name not in missing]
    path = tools(tmp_path / "tools", *names)
    box = ShellBackend(tmp_path / "work", shell=("/bin/sh", "-c"), env={"PATH": path})
    (box.root / "out.bin").write_bytes(b"x" * 20000)
    said = missing if " " in missing else "dd, nor head and tail"
    with pytest.raises(SandboxError, match=f"the sandbox has no {said}"):
        export(box)


def test_gzip_that_fails_in_the_guest_is_no_short_file(plain: ShellBackend, slow: None) -> None:
    (plain.root / "out.bin").write_bytes(os.urandom(SLICE * 6))
    plain.shell = ("sh", "-c", 'gzip() { head -c 100 | command gzip; return 1; }\neval "$0"')
    with pytest.raises(SandboxError, match="Could not export"):
        export(plain)
    plain.shell = ("sh", "-c", 'gzip() { head -c 100 | command gzip; }\neval "$0"')
    with pytest.raises(SandboxError, match="Could not export"):
        export(plain)
    # The reader fails and gzip does not notice.
    broken = 'head() { command head -c 9; return 1; }\ndd() { [ $# = 5 ] && return 1; command dd "$@"; }\n'
    plain.shell = ("sh", "-c", broken + 'eval "$0"')
    with pytest.raises(SandboxError, match="Could not export"):
        export(plain)


def mangle(change: object) -> object:
    """Change the data of each compressed slice."""

    def tamper(command: str, result: SandboxExecResult) -> SandboxExecResult:
        if "gzip -1" not in command:
            return result
        found = re.search(r"(begin [^\n]*\n)(.*?)(\n+sandbox-native:end)", result.stdout, re.DOTALL)
        assert found
        data = change(base64.b64decode(found[2]))  # type: ignore[operator]
        text = (
            result.stdout[: found.end(1)] + base64.b64encode(data).decode() + result.stdout[found.start(3) :]
        )
        return replace(result, stdout=text)

    return tamper


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data + b"x",
        lambda data: data + gzip.compress(b"more"),
        lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
        lambda data: gzip.compress(b"less"),
        lambda data: gzip.compress(bytes(50_000_000), 1),
        lambda data: b"not gzip at all",
    ],
    ids=["cut", "half", "empty", "junk", "member", "damaged", "less", "bomb", "other"],
)
def test_a_compressed_slice_that_is_not_what_was_sent(
    plain: ShellBackend, slow: None, change: object
) -> None:
    content = b"all work and no play\n" * 4000
    (plain.root / "out.bin").write_bytes(content)
    plain.tamper = mangle(change)  # type: ignore[assignment]
    before = native.allocated_bytes()
    with pytest.raises(SandboxError, match="Could not export"):
        export(plain)
    assert native.allocated_bytes() == before
    # Members are one stream, however many.
    plain.tamper = mangle(  # type: ignore[assignment]
        lambda data: gzip.compress(gzip.decompress(data)[:9]) + gzip.compress(gzip.decompress(data)[9:])
    )
    assert export(plain) == content


# ---- checksum ------------------------------------------------------------------------------------------


def test_the_whole_is_compared_with_a_checksum_of_the_guest(box: ShellBackend, tmp_path: Path) -> None:
    box.verify_exports = True
    content = os.urandom(SLICE * 3 + 5)
    (box.root / "out.bin").write_bytes(content)
    if box.env and not any((Path(box.env["PATH"]) / f"{name}sum").exists() for name in ("sha256", "md5")):
        with pytest.raises(SandboxError, match="has no sha256sum or sha1sum or md5sum"):
            export(box)
        assert len(box.commands) == 1
        return
    assert export(box) == content and "sha256sum" in box.commands[-1]
    with (tmp_path / "plain").open("wb") as dest:
        box.export_file("box", "out.bin", dest, max_bytes=1 << 20)
    assert (tmp_path / "plain").read_bytes() == content
    (box.root / "out.bin").write_bytes(b"")
    assert export(box) == b""


def test_bytes_that_changed_on_the_way_do_not_pass(plain: ShellBackend) -> None:
    plain.verify_exports = True
    (plain.root / "out.bin").write_bytes(b"a" * SLICE * 3)

    def other(command: str, result: SandboxExecResult) -> SandboxExecResult:
        # Good base64 of the same length.
        text = re.sub(r"(begin base64[^\n]*\n)YWFh", r"\1YWFi", result.stdout, count=1)
        return replace(result, stdout=text)

    plain.tamper = other
    with pytest.raises(SandboxError, match="sha256 checksum of what arrived is not the one"):
        export(plain)
    plain.verify_exports = False
    assert export(plain)[:3] == b"aab"


def test_a_file_that_changes_before_the_checksum_is_an_error(plain: ShellBackend) -> None:
    plain.verify_exports = True
    (plain.root / "out.bin").write_bytes(b"a" * 100)

    def later(command: str, result: SandboxExecResult) -> SandboxExecResult:
        if "sha256sum <" not in command:
            (plain.root / "out.bin").write_bytes(b"b" * 100)
        return result

    plain.tamper = later
    with pytest.raises(SandboxError, match="changed while it was exported"):
        export(plain)


# ---- several at a time ---------------------------------------------------------------------------------


class Counting(ShellBackend):
    """Knows how many commands run, and holds each until as many as asked for do."""

    running = most = 0
    lock = threading.Lock()

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            return super().run_command(sandbox, command, timeout=timeout, max_output_bytes=max_output_bytes)
        finally:
            with self.lock:
                self.running -= 1


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_as_many_slices_as_the_backend_allows_are_on_their_way(tmp_path: Path, at_once: int) -> None:
    box = Counting(tmp_path)
    box.concurrent_commands = at_once  # type: ignore[misc]
    together = threading.Barrier(at_once)

    def meet(command: str, result: SandboxExecResult) -> SandboxExecResult:
        if len(box.commands) > 1:
            together.wait(60)
        return result

    box.tamper = meet
    content = os.urandom(SLICE * (at_once * 3) + SLICE)
    (tmp_path / "out.bin").write_bytes(content)
    assert export(box) == content
    assert box.most == at_once and box.running == 0


@pytest.mark.parametrize("at_once", [1, 3])
def test_whatever_ends_an_export_no_command_is_left(tmp_path: Path, at_once: int) -> None:
    box = Counting(tmp_path)
    box.concurrent_commands = at_once  # type: ignore[misc]
    (tmp_path / "out.bin").write_bytes(os.urandom(SLICE * 20))

    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise PermissionError("the bucket says no")

    with pytest.raises(PermissionError):
        box.export_file("box", "out.bin", Full(), max_bytes=1 << 20)
    assert box.running == 0

    def cut(command: str, result: SandboxExecResult) -> SandboxExecResult:
        return replace(result, stdout_truncated=True) if len(box.commands) > 4 else result

    box.tamper = cut
    with pytest.raises(SandboxError, match="Could not export"):
        export(box)
    assert box.running == 0


def test_a_cancel_reaches_every_slice(tmp_path: Path) -> None:
    box = Counting(tmp_path)
    box.concurrent_commands = 3  # type: ignore[misc]
    (tmp_path / "out.bin").write_bytes(os.urandom(SLICE * 20))
    waiting = threading.Semaphore(0)

    def hold(command: str, result: SandboxExecResult) -> SandboxExecResult:
        if len(box.commands) > 1:
            waiting.release()
            assert calls.cancel_fd() >= 0
            while not calls.is_cancelled():
                threading.Event().wait(0.01)
            raise calls.CallCancelled("stopped")
        return result

    box.tamper = hold
    call = calls.prepare(box.export_file, "box", "out.bin", io.BytesIO(), max_bytes=1 << 20)
    call.start()
    for _ in range(3):
        assert waiting.acquire(timeout=60)
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()
    assert box.running == 0


# ---- the decoder ---------------------------------------------------------------------------------------


def test_a_slice_is_decoded_from_text_or_bytes(tmp_path: Path) -> None:
    data = os.urandom(100_000)
    for compressed, text in ((False, base64.b64encode(data)), (True, base64.b64encode(gzip.compress(data)))):
        around = b"ab" + text + b"cd"
        for given in (around, around.decode()):
            assert native.decode_slice(given, 2, len(around) - 2, compressed, len(data), -1) == data
            with (tmp_path / "o").open("wb") as dest:
                count = native.decode_slice(given, 2, len(around) - 2, compressed, len(data), dest.fileno())
            assert count == len(data) and (tmp_path / "o").read_bytes() == data
        with pytest.raises(OverflowError):
            native.decode_slice(text, 0, len(text), compressed, len(data) - 1, -1)
        with pytest.raises(ValueError, match="the data"):
            native.decode_slice(
                text, 0, len(text) - 4 if compressed else len(text) - 1, compressed, len(data), -1
            )
        with pytest.raises(ValueError, match="the data"):
            native.decode_slice(b"!" + text, 0, len(text), compressed, len(data), -1)
        with open("/dev/full", "wb") as full, pytest.raises(OSError, match="No space left"):
            native.decode_slice(text, 0, len(text), compressed, len(data), full.fileno())
    for begin, end, most in ((-1, 0, 1), (1, 0, 1), (0, 5, 1), (0, 0, -1)):
        with pytest.raises(ValueError, match="out of its range"):
            native.decode_slice("QQ==", begin, end, False, most, -1)
    with pytest.raises(ValueError, match="not ASCII"):
        native.decode_slice("é", 0, 1, False, 1, -1)
    with pytest.raises(TypeError):
        native.decode_slice(None, 0, 1, False, 1, -1)  # type: ignore[arg-type]
