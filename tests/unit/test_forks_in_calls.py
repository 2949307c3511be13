# SPDX-License-Identifier: Apache-2.0
"""Python code that runs in the middle of a call may fork; the call stays the parent's."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from local_tools import sandbox
from sandbox_native import _sandbox_native as native
from sandbox_native.backends.local import LocalSandboxBackend
from sandbox_native.process import run_process, stream_process


class Left(BaseException):
    """What a child raises in the middle of its parent's call to get out of it."""


def forking(act: Callable[[Callable[[], None]], object], child_leaves: bool) -> tuple[object, bytes]:
    """Run ``act`` with a function that forks once; what came out of it in the parent and in the child."""
    parent = os.getpid()
    read, write = os.pipe()
    children: list[int] = []

    def fork() -> None:
        if not children:
            children.append(os.fork())
            if os.getpid() != parent and child_leaves:
                raise Left

    try:
        result = act(fork)
    except BaseException as e:
        result = e
    finally:
        if os.getpid() != parent:
            os.write(write, type(result).__name__.encode())
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read()
    assert len(children) == 1
    assert os.waitpid(children[0], 0)[1] == 0
    return result, said


@contextlib.contextmanager
def on_alarm(fork: Callable[[], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: fork())
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


LEAVING = pytest.mark.parametrize(("leaves", "said"), [(True, b"Left"), (False, b"RuntimeError")])
SLOW = "echo begun; sleep 1.5; echo done"


@LEAVING
def test_a_program(leaves: bool, said: bytes) -> None:
    def act(fork: Callable[[], None]) -> object:
        with on_alarm(fork):
            outcome = run_process(["sh", "-c", SLOW], timeout=60, max_output_bytes=1000)
        return outcome.ending, outcome.value, outcome.stdout

    assert forking(act, leaves) == (("exit", 0, b"begun\ndone\n"), said)


@LEAVING
def test_a_program_whose_output_goes_to_a_callable(leaves: bool, said: bytes) -> None:
    def act(fork: Callable[[], None]) -> object:
        got = bytearray()

        def write(data: bytes) -> None:
            got.extend(data)
            fork()

        outcome, taken = stream_process(
            ["sh", "-c", SLOW], write, most=1000, timeout=60, stall=60, max_output_bytes=1000
        )
        return outcome.ending, taken, bytes(got)

    assert forking(act, leaves) == (("exit", 11, b"begun\ndone\n"), said)


@LEAVING
def test_a_command_in_a_sandbox(leaves: bool, said: bytes) -> None:
    with sandbox() as box:

        def act(fork: Callable[[], None]) -> object:
            with on_alarm(fork):
                return box.sh(SLOW)

        assert forking(act, leaves) == ("begun\ndone\n", said)
        assert box.sh("echo again") == "again\n"


@LEAVING
def test_the_start_of_a_sandbox(leaves: bool, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LocalSandboxBackend()

    def act(fork: Callable[[], None]) -> object:
        with on_alarm(fork):
            handle = backend.create()
        return backend.run_command(handle, "echo ok", timeout=30, max_output_bytes=100).stdout

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        slow = Path(folder, "bwrap")
        slow.write_text('#!/bin/sh\nsleep 1.5\nexec /usr/bin/bwrap "$@"\n')
        slow.chmod(0o755)
        monkeypatch.setenv("PATH", folder, prepend=":")
        assert forking(act, leaves) == ("ok\n", said)


@LEAVING
def test_a_listing(leaves: bool, said: bytes) -> None:
    read, write = os.pipe()

    def act(fork: Callable[[], None]) -> object:
        parent = os.getpid()

        def forks_and_answers() -> None:
            fork()
            if os.getpid() != parent:
                return
            os.write(write, b"fname\0\0")
            os.close(write)

        with on_alarm(forks_and_answers):
            return native.read_listing(read, 1000, timeout=60)

    assert forking(act, leaves) == ([("name", False)], said)
    os.close(read)


def test_a_child_that_closed_everything_keeps_what_it_opened_since() -> None:
    """A daemon does that: the numbers of its parent's sandbox are those of its own files then."""
    with sandbox() as box:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            report = os.dup2(write, 200)
            os.closerange(3, 200)
            opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]
            box.backend._standing.clear()
            gc.collect()
            for number in opened:
                with contextlib.suppress(OSError):
                    os.fstat(number)
                    continue
                os.write(report, b"closed %d " % number)
            os.write(report, b"end")
            os._exit(0)
        os.close(write)
        with open(read, "rb") as pipe:
            assert pipe.read() == b"end"
        assert os.waitpid(pid, 0)[1] == 0
        assert box.sh("echo ok") == "ok\n"
