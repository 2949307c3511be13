# SPDX-License-Identifier: Apache-2.0
"""Programs on the host, run by the same runner and drain as commands in a sandbox."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from local_tools import eventually, host_processes
from sandbox_native._sandbox_native import CommandOutcome, copy_file
from sandbox_native.process import run_process, stream_process


def run(*argv: str, timeout: float = 60, max_output_bytes: int = 1 << 20, **options: Any) -> CommandOutcome:
    return run_process(argv, timeout=timeout, max_output_bytes=max_output_bytes, **options)


def sh(script: str, **options: Any) -> CommandOutcome:
    return run("sh", "-c", script, **options)


def marker() -> str:
    return f"{uuid.uuid4().int % 10**9 + 10**9}"


def test_streams_and_status() -> None:
    outcome = sh("echo out; echo err >&2; exit 3")
    assert (outcome.ending, outcome.value, outcome.stdout, outcome.stderr) == ("exit", 3, b"out\n", b"err\n")
    assert sh("kill -TERM $$").value == 128 + 15


def test_arguments_arrive_as_they_are() -> None:
    given = ["a b", "", "$HOME", "*", "\n", "é", "-x", "x" * 100_000]
    outcome = run("python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *given)
    assert outcome.stdout.decode().strip() == ascii(given)


def test_the_environment_is_the_given_one_or_this_process_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", "x")
    assert sh("echo $OWN").stdout == b"x\n"
    assert run("env", env={"A": "b c", "PATH": "/usr/bin:/bin"}).stdout == b"A=b c\nPATH=/usr/bin:/bin\n"


def test_the_program_is_looked_up_in_the_given_path(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho tool $1\n")
    (tmp_path / "tool").chmod(0o755)
    assert run("tool", "x", env={"PATH": f"{tmp_path}:/bin"}).stdout == b"tool x\n"


def test_it_runs_where_it_is_told(tmp_path: Path) -> None:
    assert run("pwd", cwd=tmp_path).stdout.decode().strip() == str(tmp_path.resolve())
    assert run("pwd").stdout.decode().strip() == os.getcwd()


def test_nothing_is_inherited() -> None:
    extra = os.dup2(0, 77, inheritable=True)
    try:
        outcome = run(
            "python3", "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))); print(input())"
        )
    finally:
        os.close(extra)
    assert outcome.stdout == b"[0, 1, 2, 3]\n"
    assert b"EOFError" in outcome.stderr
    session = run("python3", "-c", "import os; print(os.getsid(0) == os.getpid())")
    assert session.stdout == b"True\n", session
    assert run("python3", "-c", "import signal; print(signal.getsignal(signal.SIGINT))").value == 0


def test_the_signals_of_the_c_library_are_not_inherited_as_ignored() -> None:
    program = """
import ctypes, platform
from sandbox_native.process import run_process, stream_process
number = {"x86_64": 13, "aarch64": 134}[platform.machine()]  # rt_sigaction
ignore = (ctypes.c_ulong * 4)(1)
for private in (32, 33):
    assert ctypes.CDLL(None).syscall(number, private, ignore, None, 8) == 0
print(run_process(["grep", "SigIgn", "/proc/self/status"], timeout=30, max_output_bytes=1000).stdout.decode())
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["SigIgn:", "0" * 16]


def test_signals_are_as_in_a_fresh_process() -> None:
    # Python ignores SIGPIPE; a program that inherited that would never end here.
    assert sh("yes | head -1", timeout=30).stdout == b"y\n"
    lines = run("cat", "/proc/self/status").stdout.decode().splitlines()
    signals = dict(line.split(":\t") for line in lines if line.startswith(("SigBlk", "SigIgn")))
    assert signals == {"SigBlk": "0" * 16, "SigIgn": "0" * 16}


@pytest.mark.parametrize(
    ("argv", "error"),
    [(["/no/such/program"], errno.ENOENT), (["no-such-program"], errno.ENOENT), (["/etc"], errno.EACCES)],
)
def test_a_program_that_cannot_be_started_is_told_by_its_errno(argv: list[str], error: int) -> None:
    outcome = run(*argv)
    assert (outcome.ending, outcome.value) == ("failed", error)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert (run("true", cwd=tmp_path / "no").ending, run("true", cwd=tmp_path / "no").value) == (
        "failed",
        errno.ENOENT,
    )


@pytest.mark.parametrize(
    "script",
    [
        "sleep N",
        "trap '' TERM; sleep N; sleep N",
        "setsid sleep N & (setsid setsid sleep N &); sleep N",
        "while :; do setsid sleep N & sleep 0.01; done",
    ],
)
def test_a_timeout_kills_the_whole_tree(script: str) -> None:
    number = marker()
    outcome = sh("echo begun; " + script.replace("N", number), timeout=0.5)
    assert (outcome.ending, outcome.stdout, outcome.killed) == ("timeout", b"begun\n", True)
    assert host_processes(number) == []


def test_a_cancel_kills_the_whole_tree() -> None:
    number = marker()
    fd = os.eventfd(0)
    try:
        threading.Timer(0.5, os.eventfd_write, (fd, 1)).start()
        outcome = sh(f"setsid sleep {number} & sleep {number}", cancel_fd=fd)
        assert (outcome.ending, outcome.killed) == ("cancel", True)
        assert host_processes(number) == []
    finally:
        os.close(fd)


def test_a_background_child_does_not_hold_the_call_and_lives_on(tmp_path: Path) -> None:
    begun = time.monotonic()
    flag = tmp_path / "flag"
    outcome = sh(
        f"(for i in $(seq 20); do echo noise; sleep 0.05; done; touch {flag}) & echo here", timeout=60
    )
    assert outcome.stdout.endswith(b"here\n") or b"here\n" in outcome.stdout
    assert not flag.exists() or time.monotonic() - begun > 1
    assert eventually(flag.exists)


def test_only_the_end_is_kept_and_the_rest_counted() -> None:
    outcome = sh("head -c 3000000 /dev/zero; printf end; printf error >&2", max_output_bytes=5)
    assert (outcome.stdout, outcome.stdout_dropped) == (b"\0\0end", 2_999_998)
    assert (outcome.stderr, outcome.stderr_dropped) == (b"error", 0)


def no_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def test_many_at_once_and_no_descriptor_or_zombie_left() -> None:
    from concurrent.futures import ThreadPoolExecutor

    sh("true")
    before = len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: sh(f"echo {n}; exit {n}"), range(64)))
    assert [(o.value, o.stdout) for o in outcomes] == [(n, f"{n}\n".encode()) for n in range(64)]
    # A runner of an earlier test may have been about to end when this one began.
    assert eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert eventually(no_children)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_a_timeout_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        run("true", timeout=bad)


def test_bad_arguments_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="max_output_bytes"):
        run("true", max_output_bytes=0)
    with pytest.raises(ValueError, match="argv"):
        run_process([], timeout=1, max_output_bytes=1)
    with pytest.raises(ValueError, match="argv"):
        run("true", "a\0b")
    with pytest.raises(ValueError, match="env"):
        run("true", env={"A": "\0"})
    assert run("true", "x" * 200_000).value == errno.E2BIG


@pytest.mark.parametrize("print_it", ["head -c 300000 /dev/zero", "head -c 300000 /dev/zero >&2"])
def test_a_reader_that_does_not_take_the_end_of_the_output_is_a_timeout(print_it: str) -> None:
    """Also where the program itself ended in time, and nothing is said to have been left running."""
    read, write = os.pipe()
    try:
        outcome = sh(print_it, timeout=2, stdout=write, stderr=write)
    finally:
        os.close(read)
        os.close(write)
    assert (outcome.ending, outcome.killed) == ("timeout", True)
    assert len(outcome.stdout) + len(outcome.stderr) == 300_000


def streamed(to: Any, most: int) -> int:
    return stream_process(["echo", "x"], to, most=most, timeout=60, stall=60, max_output_bytes=100)[1]


@pytest.mark.parametrize("most", [2, (1 << 64) - 1, 1 << 64, (1 << 64) + 1, 1 << 200])
def test_a_cap_may_be_of_any_size(most: int) -> None:
    got = bytearray()
    assert streamed(got.extend, most) == 2
    assert got == b"x\n"
    source, target = os.memfd_create("source"), os.memfd_create("target")
    try:
        os.write(source, b"x\n")
        os.lseek(source, 0, os.SEEK_SET)
        assert copy_file(source, target, most, timeout=60) == 2
    finally:
        os.close(source)
        os.close(target)


@pytest.mark.parametrize("most", [-1, -(1 << 64) + 5, -(1 << 200)])
def test_a_cap_below_zero_is_refused(most: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        streamed(bytearray().extend, most)


def test_a_number_that_is_no_descriptor_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        for number in (-1, (1 << 32) + file.fileno(), 1 << 200):
            with pytest.raises(ValueError, match="descriptor"):
                streamed(number, 100)
    assert (tmp_path / "file").read_bytes() == b""
