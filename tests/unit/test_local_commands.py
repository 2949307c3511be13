# SPDX-License-Identifier: Apache-2.0
"""Commands in a local sandbox."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from local_tools import Sandbox, eventually, sandbox
from sandbox_native import _sandbox_native as native
from sandbox_native import calls
from sandbox_native.contract import SandboxError, SandboxExecResult, SandboxSpec, SandboxTerminalError


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as it:
        yield it


# -- what comes back ------------------------------------------------------------------------


def test_streams_and_status_come_back_apart(box: Sandbox) -> None:
    assert box.run("echo out; echo err >&2; exit 3") == SandboxExecResult(3, "out\n", "err\n")


@pytest.mark.parametrize(
    ("command", "status"),
    [("true", 0), ("", 0), ("exit 255", 255), ("no-such-program", 127), ("kill -9 $$", 137)],
)
def test_exit_status_is_the_shells(box: Sandbox, command: str, status: int) -> None:
    assert box.run(command).exit_code == status


def test_output_is_byte_exact(box: Sandbox) -> None:
    result = box.run(r"printf 'a\rb\0c\n\nno end'; printf 'bad \377 \303' >&2")
    assert result.stdout == "a\rb\0c\n\nno end"
    assert result.stderr == "bad � �"


@pytest.mark.parametrize(("size", "truncated"), [(99, False), (100, False), (101, True), (5_000_000, True)])
def test_the_cap_is_exact(box: Sandbox, size: int, truncated: bool) -> None:
    result = box.run(f"head -c {size - 1} /dev/zero | tr '\\0' x; printf E", max_output_bytes=100)
    assert result.stdout == "x" * (min(size, 100) - 1) + "E"
    assert (result.stdout_truncated, result.stderr_truncated) == (truncated, False)


@pytest.mark.parametrize("cap", range(1, 12))
def test_a_cut_never_splits_a_character(box: Sandbox, cap: int) -> None:
    whole = "aé€😀".encode()
    result = box.run("printf 'aé€😀'", max_output_bytes=cap)
    assert result.stdout == whole[-cap:].decode("utf-8", "ignore")
    assert result.stdout_truncated == (cap < len(whole))


def test_both_streams_can_be_large_at_once(box: Sandbox) -> None:
    result = box.run(
        "head -c 20M /dev/zero & head -c 20M /dev/zero >&2; wait; echo O; echo E >&2", max_output_bytes=2
    )
    assert (result.exit_code, result.stdout, result.stderr) == (0, "O\n", "E\n")


def test_the_last_burst_before_the_exit_is_not_lost(box: Sandbox) -> None:
    for _ in range(50):
        result = box.run(
            "head -c 200000 /dev/zero | tr '\\0' y; printf END; kill -9 $$", max_output_bytes=300_000
        )
        assert (len(result.stdout), result.stdout[-3:]) == (200_003, "END")


def test_output_can_be_reopened(box: Sandbox) -> None:
    assert (
        box.sh("echo a; echo b > /dev/stdout; echo c | tee /dev/stderr; echo d > /proc/self/fd/1")
        == "a\nb\nc\nd\n"
    )


# -- where and how it runs ------------------------------------------------------------------


def test_commands_start_in_the_workspace_with_nothing_on_standard_input(box: Sandbox) -> None:
    assert box.sh("pwd; echo $HOME; cat; umask; ulimit -c") == "/workspace\n/workspace\n0022\n0\n"


def test_the_shell_is_bash(box: Sandbox) -> None:
    assert box.sh("[[ a == a ]] && echo $BASH_VERSINFO").strip().isdigit()


def test_the_environment_is_the_specs_and_nothing_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_SECRET", "s3cr3t")
    with sandbox(SandboxSpec(env={"GIVEN": "a b\n$x", "PATH": "/usr/bin:/bin"})) as box:
        names = {line.partition("=")[0] for line in box.sh("env -0").split("\0") if line}
        assert names <= {"GIVEN", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LC_CTYPE", "PWD", "SHLVL", "_"}
        assert box.sh('printf %s "$GIVEN"; printf %s "$PATH"') == "a b\n$x/usr/bin:/bin"


@pytest.mark.parametrize(
    "program",
    [
        'python3 -c "import ssl, sqlite3, threading; print(6 * 7)"',
        "bash -c 'echo 42'",
        "perl -e 'print 42'",
        "awk 'BEGIN { print 42 }'",
        "git init -q r && cd r && git -c user.name=n -c user.email=e commit -q --allow-empty -m 42 && "
        "git log --format=%s",
        "echo 'int main(void){return 42;}' > a.c && gcc -o a a.c && { ./a; echo $?; }",
        "printf '#include <iostream>\\nint main(){std::cout<<42;}' > a.cc && g++ -o b a.cc && ./b",
        "script -qec 'echo 42' /dev/null",
        "python3 -m venv --without-pip v && v/bin/python -c 'print(42)'",
        "mkfifo f && (echo 42 > f &) && cat f",
    ],
)
def test_the_usual_tools_work(box: Sandbox, program: str) -> None:
    box.sh("rm -rf r a* b f v")
    assert box.sh(program, timeout=120).split()[-1] == "42"


@pytest.mark.parametrize("size", [1000, 131_000, 131_071, 131_072, 200_000, 5_000_000])
def test_a_command_of_any_length_runs(box: Sandbox, size: int) -> None:
    command = "echo begin; : " + "x" * size + "; echo end; exit 7"
    result = box.run(command, timeout=120)
    assert (result.exit_code, result.stdout) == (7, "begin\nend\n")


def test_a_command_that_no_shell_can_take_is_refused(box: Sandbox) -> None:
    with pytest.raises(SandboxError, match="NUL") as nul:
        box.run("echo a\0b")
    with pytest.raises(SandboxError, match="not valid text") as surrogate:
        box.run("echo \ud800")
    with pytest.raises(SandboxError, match="too long") as long:
        box.run(":" + "x" * (65 << 20))
    assert not any(isinstance(e.value, SandboxTerminalError) for e in (nul, surrogate, long))


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, True])
def test_a_timeout_that_is_none_is_refused(box: Sandbox, bad: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        box.run("true", timeout=bad)


@pytest.mark.parametrize("bad", [0, -5, True])
def test_a_cap_that_keeps_nothing_is_refused(box: Sandbox, bad: int) -> None:
    with pytest.raises(ValueError, match="max_output_bytes"):
        box.run("true", max_output_bytes=bad)


# -- background processes -------------------------------------------------------------------


def test_a_background_child_does_not_hold_the_call_and_lives_on() -> None:
    with sandbox() as box:
        # It keeps both pipes open and writes more than they hold: a closed or full pipe would stop it.
        result = box.run(
            "(for i in $(seq 400); do head -c 10000 /dev/zero; sleep 0.005; done; echo > flag) & echo started"
        )
        assert (result.exit_code, result.stdout.strip("\0")) == (0, "started\n")
        assert eventually(lambda: ("flag", False) in box.names("."))


def test_a_background_child_that_never_stops_printing_does_not_hold_the_call(box: Sandbox) -> None:
    result = box.run("yes & echo started; sleep 0.2", max_output_bytes=1000)
    assert result.exit_code == 0
    assert box.run("pkill yes").exit_code == 0


def test_a_server_of_one_command_answers_the_next() -> None:
    with sandbox() as box:
        box.sh("echo hello > index.html; python3 -m http.server 8123 >/dev/null 2>&1 &")
        fetch = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/').read())\""
        assert eventually(lambda: box.run(fetch).stdout == "b'hello\\n'\n")


# -- being stopped --------------------------------------------------------------------------


def test_a_timeout_keeps_what_was_printed(box: Sandbox) -> None:
    result = box.run("echo begun; echo e >&2; sleep 600", timeout=0.5)
    assert (result.stdout, result.stderr) == ("begun\n", "e\n")
    assert (result.timed_out, result.sandbox_terminated) == (True, False)


@pytest.mark.parametrize(
    "command",
    [
        "sleep 600",
        "trap '' TERM INT HUP; sleep 600",
        "setsid sleep 600; sleep 600",
        "(setsid setsid sleep 600 &) ; sleep 600",
        "nohup sleep 600 & disown; exec sleep 601",
        "setsid bash -c 'while :; do setsid sleep 600 & sleep 0.01; done'; sleep 600",
        "kill -STOP $$",
        "yes",
        "while :; do :; done",
    ],
)
def test_a_timeout_kills_the_whole_tree_and_nothing_else(command: str) -> None:
    with sandbox() as box:
        box.sh("sleep 54321 >/dev/null 2>&1 &")
        assert box.run(command, timeout=0.6, max_output_bytes=1000).timed_out
        assert box.processes() == ["sleep 54321"]


def test_the_smallest_timeout_is_a_timeout(box: Sandbox) -> None:
    result = box.run("sleep 600", timeout=1e-9)
    assert (result.timed_out, result.sandbox_terminated) == (True, False)
    assert box.sh("echo on") == "on\n"


def test_a_cancelled_call_kills_the_tree(box: Sandbox) -> None:
    call = calls.prepare(lambda: box.run("setsid sleep 77777 & sleep 77778"))
    call.start()
    assert eventually(lambda: len(box.processes()) >= 2)
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()
    assert box.processes() == []


def test_a_signal_handlers_exception_ends_the_command_in_the_main_thread(box: Sandbox) -> None:
    class FromHandler(Exception):
        pass

    raised = FromHandler()

    def handler(number: int, frame: object) -> None:
        raise raised

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        with pytest.raises(FromHandler) as caught:
            box.run("setsid sleep 88888 & yes")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught.value is raised
    assert box.processes() == []


def test_a_signal_handler_that_returns_changes_nothing(box: Sandbox) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        result = box.run("sleep 1; echo whole")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (result.stdout, len(seen) > 2) == ("whole\n", True)


# -- many at once ---------------------------------------------------------------------------


def test_commands_of_one_sandbox_run_side_by_side(box: Sandbox) -> None:
    def one(n: int) -> str:
        return box.run(
            f"echo {n}; until [ $(ls meet | wc -l) -ge 8 ]; do touch meet/{n}; sleep 0.05; done; echo {n}"
        ).stdout

    box.sh("mkdir meet")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [f"{n}\n{n}\n" for n in range(8)]


def test_threads_share_a_sandbox_without_mixing_output(box: Sandbox) -> None:
    def many(n: int) -> None:
        for i in range(20):
            assert box.run(f"echo {n}-{i}; exit {n}") == SandboxExecResult(n, f"{n}-{i}\n", "")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(many, range(6)))


def test_destroying_under_a_command_ends_it_and_says_so() -> None:
    with sandbox() as box:
        results: list[SandboxExecResult] = []
        thread = threading.Thread(target=lambda: results.append(box.run("echo begun; sleep 600")))
        thread.start()
        time.sleep(0.5)
        box.backend.destroy(box.handle)
        thread.join(60)
        assert [(r.stdout, r.sandbox_terminated) for r in results] == [("begun\n", True)]
        with pytest.raises(SandboxTerminalError, match="no local sandbox"):
            box.run("true")


def test_a_workspace_nobody_may_enter_can_be_mended_by_a_command() -> None:
    with sandbox() as box:
        box.sh("echo kept > file; chmod 0 /workspace")
        result = box.run("pwd; echo on")
        assert (result.exit_code, result.stdout) == (0, "/\non\n")
        assert result.stderr == "sandbox: /workspace cannot be entered (Permission denied); running in /\n"
        box.write("/tmp/absolute", b"reached")
        assert box.read("/tmp/absolute") == b"reached"
        for attempt in (lambda: box.read("file"), lambda: box.write("file", b""), lambda: box.names(".")):
            with pytest.raises(SandboxError, match="Permission denied"):
                attempt()
        box.sh("chmod 755 /workspace")
        assert box.run("pwd; cat file").stdout == "/workspace\nkept\n"
        assert box.run("pwd").stderr == ""


def first_processes() -> list[int]:
    """The processes below this one that are the first of a process namespace, by their ids out here."""
    parents, firsts = {}, []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/status", encoding="latin-1") as file:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            parents[int(name)] = int(fields["PPid"])
            ids = fields["NSpid"].split()
            if len(ids) > 1 and ids[-1] == "1":
                firsts.append(int(name))

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return [pid for pid in firsts if is_ours(pid)]


WAITS: dict[str, Callable[[Sandbox], object]] = {
    "read": lambda box: box.read("file"),
    "write": lambda box: box.write("file", b"content"),
    "list": lambda box: box.names("."),
    "command too long for the socket": lambda box: box.run("true " + "x" * (4 << 20)),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_handler_runs_while_a_sandbox_does_not_answer(wait: str) -> None:
    def handler(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    already = first_processes()
    with sandbox() as box:
        stopped = [pid for pid in first_processes() if pid not in already]
        assert stopped
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                WAITS[wait](box)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def test_a_handler_runs_while_a_listing_does_not_end() -> None:
    def handler(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    here, there = socket.socketpair()
    before = signal.signal(signal.SIGALRM, handler)
    with here, there:
        there.send(b"fname\0")
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                native.read_listing(here.fileno(), 1 << 20, timeout=120)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
