# SPDX-License-Identifier: Apache-2.0
"""``LocalSandboxBackend.stream_command``: output passed on while the command runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_native import SandboxSpec, calls
from sandbox_native.backends.local import LocalSandboxBackend


@pytest.fixture(scope="module")
def backend() -> LocalSandboxBackend:
    return LocalSandboxBackend()


@pytest.fixture
def sandbox(backend: LocalSandboxBackend) -> Iterator[str]:
    handle = backend.create(spec=SandboxSpec())
    yield handle
    backend.destroy(handle)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def running(backend: LocalSandboxBackend, sandbox: str, name: str) -> str:
    line = f"cat /proc/[0-9]*/comm | grep -c -x {name}"
    return backend.run_command(sandbox, line, timeout=30, max_output_bytes=1000).stdout.strip()


def test_a_reader_that_does_not_read_does_not_hold_up_the_timeout(
    backend: LocalSandboxBackend, sandbox: str, pipe: tuple[int, int]
) -> None:
    result = backend.stream_command(sandbox, "yes & yes", timeout=1, stdout=pipe[1], stderr=pipe[1])
    assert result.timed_out
    assert not result.sandbox_terminated
    assert running(backend, sandbox, "yes") == "0"


def test_a_reader_of_both_streams_that_does_not_read_costs_no_other_command(
    backend: LocalSandboxBackend, sandbox: str, pipe: tuple[int, int]
) -> None:
    """What the runner answers to the order to kill counts, not what becomes of the last output."""
    earlier = "exec -a earlier sleep 1000 >/dev/null 2>&1 &"
    assert backend.run_command(sandbox, earlier, timeout=30, max_output_bytes=1000).exit_code == 0
    result = backend.stream_command(sandbox, "yes >&2 & yes", timeout=1, stdout=pipe[1], stderr=pipe[1])
    assert result.timed_out
    assert not result.sandbox_terminated
    assert running(backend, sandbox, "yes") == "0"
    assert running(backend, sandbox, "sleep") == "1"


def test_a_reader_that_does_not_read_does_not_hold_up_a_cancel(
    backend: LocalSandboxBackend, sandbox: str, pipe: tuple[int, int]
) -> None:
    call = calls.prepare(
        backend.stream_command, sandbox, "yes & yes", timeout=300, stdout=pipe[1], stderr=pipe[1]
    )
    call.start()
    assert os.read(pipe[0], 2) == b"y\n"
    time.sleep(0.2)  # until the pipe is full; the test holds either way
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()
    assert running(backend, sandbox, "yes") == "0"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_left_ends_the_command(
    backend: LocalSandboxBackend, sandbox: str, stream: str, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    targets = {"stdout": other, "stderr": other, stream: writer}
    try:
        with pytest.raises(BrokenPipeError):
            backend.stream_command(sandbox, "yes & yes >&2", timeout=300, **targets)
    finally:
        os.close(writer)
        os.close(other)
    end = time.monotonic() + 30
    while running(backend, sandbox, "yes") != "0":
        assert time.monotonic() < end


@pytest.mark.parametrize("blocking", [True, False])
def test_a_slow_reader_gets_every_byte(
    backend: LocalSandboxBackend, sandbox: str, pipe: tuple[int, int], blocking: bool
) -> None:
    os.set_blocking(pipe[1], blocking)
    got = bytearray()

    def read() -> None:
        while not got.endswith(b"end\n"):
            got.extend(os.read(pipe[0], 7919))
            if len(got) < 100_000:
                time.sleep(0.01)

    reader = threading.Thread(target=read)
    reader.start()
    result = backend.stream_command(
        sandbox, "seq 500000; echo end", timeout=300, stdout=pipe[1], stderr=pipe[1]
    )
    reader.join()
    assert result.exit_code == 0
    assert bytes(got) == b"".join(b"%d\n" % n for n in range(1, 500_001)) + b"end\n"
    assert os.get_blocking(pipe[1]) == blocking


def test_the_streams_are_kept_apart_and_the_result_is_empty(
    backend: LocalSandboxBackend, sandbox: str, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        line = "echo one; echo two >&2; printf three; exit 7"
        result = backend.stream_command(sandbox, line, timeout=30, stdout=out.fileno(), stderr=err.fileno())
    assert (result.exit_code, result.stdout, result.stderr) == (7, "", "")
    assert not result.stdout_truncated
    assert (tmp_path / "out").read_bytes() == b"one\nthree"
    assert (tmp_path / "err").read_bytes() == b"two\n"


def test_a_background_process_does_not_hold_the_call(
    backend: LocalSandboxBackend, sandbox: str, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as out:
        line = "(sleep 1; echo late; touch done; sleep 1000) & echo now"
        backend.stream_command(sandbox, line, timeout=300, stdout=out.fileno(), stderr=out.fileno())
        end = time.monotonic() + 60
        while "done" not in dict(backend.list_directory(sandbox, ".")):
            assert time.monotonic() < end
    assert (tmp_path / "out").read_bytes() == b"now\n"


def test_no_descriptor_is_left_open(
    backend: LocalSandboxBackend, sandbox: str, pipe: tuple[int, int]
) -> None:
    backend.run_command(sandbox, "true", timeout=30, max_output_bytes=100)
    before = sorted(os.listdir("/proc/self/fd"))
    for line in ("echo", "exit 3", "yes"):
        backend.stream_command(sandbox, line, timeout=0.5, stdout=pipe[1], stderr=pipe[1])
    assert sorted(os.listdir("/proc/self/fd")) == before
