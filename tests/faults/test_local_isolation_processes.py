# SPDX-License-Identifier: Apache-2.0
"""What a command in a local sandbox sees of processes, and what it can do to those that guard it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_tools import AS_ROOT, Sandbox, eventually, sandbox
from sandbox_native.contract import SandboxSpec


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as it:
        yield it


def test_no_process_of_the_host_is_visible(box: Sandbox) -> None:
    marker = "987654321.5"
    with subprocess.Popen(["sleep", marker]) as other:
        shown = box.sh("ps -ef; ls /proc; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        other.kill()
    assert marker not in shown and "pytest" not in shown and "bwrap" not in shown
    pids = [int(name) for name in box.sh("ls /proc").split() if name.isdigit()]
    assert 1 in pids and len(pids) < 12


@pytest.mark.parametrize("signal", ["KILL", "STOP", "TERM", "0"])
def test_no_process_of_the_host_can_be_signalled(box: Sandbox, signal: str) -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        for pid in (os.getpid(), os.getppid(), other.pid):
            inside = set(box.sh("ls /proc").split())
            if str(pid) not in inside:
                assert "No such process" in box.run(f"kill -{signal} {pid}").stderr
        assert other.poll() is None
        other.kill()


def test_the_environment_and_arguments_of_the_worker_are_not_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_SECRET_FOR_TEST", "hunter2-of-the-worker")
    with sandbox() as box:
        found = box.run("env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'")
        assert "hunter2" not in found.stdout and sys.argv[0] not in found.stdout


def test_no_descriptor_of_the_worker_is_inherited(tmp_path: object) -> None:
    secret = os.memfd_create("secret", 0)
    os.write(secret, b"the worker's secret")
    os.set_inheritable(secret, True)
    high = os.dup2(secret, 200, inheritable=True)
    try:
        with sandbox() as box:
            shown = box.sh("for fd in /proc/self/fd/*; do readlink $fd; done; ls /proc/self/fd | wc -w")
            assert "secret" not in shown
            links = box.sh("python3 -c \"import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))\"")
            assert links in ("[0, 1, 2, 3]\n",)  # the last one is the listing itself
            assert box.sh("readlink /proc/self/fd/0") == "/dev/null\n"
    finally:
        os.close(secret)
        os.close(high)


@pytest.mark.parametrize(
    "what", ["environ", "mem", "maps", "fd", "root", "cwd", "exe", "fdinfo", "io", "stack", "syscall"]
)
@pytest.mark.parametrize("who", ["1", "$PPID"])
def test_the_guards_cannot_be_looked_into(box: Sandbox, who: str, what: str) -> None:
    # $PPID is the runner of the command.
    path = f"/proc/{who}/{what}"
    for attempt in (f"ls {path}/", f"head -c1 {path}", f"readlink {path}"):
        result = box.run(f"bash -c '{attempt}' 2>&1" if who == "1" else f"{attempt} 2>&1")
        assert result.exit_code != 0 or result.stdout == "", result
    assert box.run(f"echo x > {path}").exit_code != 0


@pytest.mark.parametrize(
    "name", ["oom_score_adj", "comm", "sched", "timerslack_ns", "coredump_filter", "uid_map", "setgroups"]
)
def test_the_guards_cannot_be_changed_through_proc(box: Sandbox, name: str) -> None:
    assert box.run(f"echo 0 > /proc/1/{name}").exit_code != 0
    assert box.run(f"echo 0 > /proc/$PPID/{name}").exit_code != 0


@pytest.mark.parametrize(
    "attack",
    [
        "kill -9 1",
        "kill -STOP 1",
        "kill -TERM 1; kill -HUP 1; kill -SEGV 1; kill -USR1 1",
        "kill -9 -1",
        "kill -STOP -1",
        "kill -9 $PPID",
        "kill -STOP $PPID",
        "kill -9 $PPID; kill -9 1; kill -9 -1",
        "for p in $(ls /proc | grep -E '^[0-9]+$'); do kill -9 $p; done",
        "exec 0<&- 1<&- 2<&-; sleep 300",
    ],
)
def test_the_sandbox_outlives_attacks_on_its_guards(attack: str) -> None:
    with sandbox() as box:
        box.run(f"{attack}; sleep 300", timeout=1)
        assert box.sh("echo on") == "on\n"
        assert eventually(lambda: box.processes() == [])


@pytest.mark.skipif(not AS_ROOT, reason="an ordinary user's sandbox has one uid for guards and commands")
def test_as_root_commands_have_another_uid_than_the_guards(box: Sandbox) -> None:
    assert box.run("kill -0 1").exit_code != 0
    assert box.run("kill -0 $PPID").exit_code != 0


def test_commands_have_no_privileges_and_cannot_get_any(box: Sandbox) -> None:
    status = dict(
        line.split(":\t", 1) for line in box.sh("cat /proc/self/status").splitlines() if ":\t" in line
    )
    assert status["Uid"] == status["Gid"] == "1000\t1000\t1000\t1000"
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    for program in ("su", "sudo", "mount", "passwd", "newgrp"):
        assert box.run(f"timeout 10 {program} -c true </dev/null && id -u | grep -x 0").exit_code != 0


def owners_of(part: str) -> set[int]:
    """The users whose processes, as the host sees them, have ``part`` in their arguments."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            if part.encode() in (process / "cmdline").read_bytes():
                # Not the folder's owner, which is root's for a process that may not be looked into.
                status = (process / "status").read_text()
                found.add(int(status.partition("Uid:")[2].split()[0]))
    return found


@pytest.mark.skipif(not AS_ROOT, reason="for an ordinary user the outer uid is that user's")
def test_as_root_commands_are_an_unused_uid_outside() -> None:
    with sandbox() as box:
        box.sh("sleep 456456456 >/dev/null 2>&1 &")
        uids = owners_of("456456456")
        assert len(uids) == 1
        assert min(uids) > 1000
        # Nor is anything else of the sandbox's inside root outside.
        guards = owners_of("/proc/self/fd/7\0init")
        assert guards and 0 not in guards


def test_sandboxes_do_not_see_each_other() -> None:
    with sandbox() as one, sandbox() as two:
        one.sh(
            "sleep 314159 >/dev/null 2>&1 & for f in file /tmp/file /dev/shm/file; do echo secret > $f; done"
        )
        one.sh('python3 -c "import ctypes; print(ctypes.CDLL(None).shmget(4242, 4096, 0o1666))"')
        shown = two.sh("ps -ef; ls -laR /tmp /workspace /dev/shm; cat /proc/sysvipc/shm")
        assert "314159" not in shown and "file" not in shown and "4242" not in shown
        assert "No such process" in two.run("kill -9 $(seq 2 40)").stderr
        assert one.processes() == ["sleep 314159"]


def test_a_spec_with_a_network_hides_processes_as_well() -> None:
    with sandbox(SandboxSpec(block_network=False)) as box:
        assert "bwrap" not in box.sh("ps -ef")
