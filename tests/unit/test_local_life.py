# SPDX-License-Identifier: Apache-2.0
"""Making, ending, copying and forking local sandboxes."""

from __future__ import annotations

import contextlib
import copy
import gc
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from local_tools import Sandbox, eventually, host_processes, sandbox
from sandbox_native import calls
from sandbox_native.backends.local import LocalSandboxBackend
from sandbox_native.contract import SandboxExecResult, SandboxSpec, SandboxTerminalError


def marker() -> str:
    """An argument of sleep that no other process has."""
    return f"{uuid.uuid4().int % 10**9 + 10**9}"


def in_child(function: Any) -> int:
    """Runs the function in a forked child; its exit status, 0 when it returned."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except BaseException as e:
            os.write(2, repr(e).encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_monitors() -> None:
    """Kill this process' sandboxes from outside, as the kernel would when memory runs out."""
    for pid in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        for child in pid.read_text().split():
            if b"--as-pid-1" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)


# -- create and destroy ---------------------------------------------------------------------


def test_handles_have_the_shared_form_and_differ() -> None:
    backend = LocalSandboxBackend()
    handles = [backend.create() for _ in range(3)]
    for handle in handles:
        assert re.fullmatch("airflow-sandbox-[0-9a-f]{12}", handle)
        backend.destroy(handle)
    assert len(set(handles)) == 3


def test_destroy_is_idempotent_and_takes_any_handle() -> None:
    with sandbox() as box:
        for _ in range(3):
            box.backend.destroy(box.handle)
    box.backend.destroy("airflow-sandbox-000000000000")
    box.backend.destroy("")


def test_destroy_ends_everything_and_leaves_nothing() -> None:
    number = marker()
    with sandbox() as box:
        box.sh(f"sleep {number} & setsid sleep {number} >/dev/null 2>&1 & sleep 0.1")
        assert len(host_processes(number)) >= 2
    assert host_processes(number) == []
    assert host_processes(box.handle) == []


def test_descriptors_threads_and_zombies_do_not_grow() -> None:
    def use() -> None:
        with sandbox() as box:
            box.run("yes | head -c 1000000; sleep 100 &", max_output_bytes=10)
            box.write("f", b"x")
            box.run("sleep 10", timeout=0.05)

    def state() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    use()
    before = state()
    for _ in range(5):
        use()
    assert eventually(lambda: all(now <= then for now, then in zip(state(), before, strict=True)))
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in children]
    assert "Z" not in states


def test_many_sandboxes_stand_at_once_and_know_nothing_of_each_other() -> None:
    backend = LocalSandboxBackend()
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(lambda _: backend.create(), range(16)))

        def use(n: int) -> str:
            backend.write_file(handles[n], "name", str(n).encode())
            result = backend.run_command(handles[n], "cat name; ls", timeout=60, max_output_bytes=100)
            return result.stdout

        assert list(pool.map(use, range(16))) == [f"{n}name\n" for n in range(16)]
        list(pool.map(backend.destroy, handles))


def test_a_sandbox_outlives_the_thread_that_made_it() -> None:
    made: list[Sandbox] = []
    thread = threading.Thread(target=lambda: made.append(Sandbox(LocalSandboxBackend())))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert made[0].sh("echo here") == "here\n"
    made[0].backend.destroy(made[0].handle)


def test_a_forgotten_backend_ends_its_sandboxes() -> None:
    number = marker()
    box = Sandbox(LocalSandboxBackend())
    box.sh(f"sleep {number} >/dev/null 2>&1 &")
    assert host_processes(number)
    del box
    gc.collect()
    assert eventually(lambda: not host_processes(number))


def test_a_sandbox_that_dies_under_a_command_is_said_to_be_gone() -> None:
    with sandbox() as box:
        results: list[SandboxExecResult] = []
        thread = threading.Thread(target=lambda: results.append(box.run("echo begun; sleep 600")))
        thread.start()
        assert eventually(lambda: len(box.processes()) >= 1)
        kill_monitors()
        thread.join(60)
        assert [(r.exit_code, r.stdout, r.sandbox_terminated) for r in results] == [(-1, "begun\n", True)]
        with pytest.raises(SandboxTerminalError):
            box.run("true")


def test_a_sandbox_that_died_unseen_is_terminal() -> None:
    with sandbox() as box:
        number = marker()
        box.sh(f"sleep {number} >/dev/null 2>&1 &")
        kill_monitors()
        assert eventually(lambda: not host_processes(number))
        with pytest.raises(SandboxTerminalError, match=box.handle):
            box.run("true")


# -- what a spec may ask for ----------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(allow_egress_to=["example.org"]),
        SandboxSpec(allow_egress_to_cidrs=["203.0.113.0/24"]),
        SandboxSpec(owner="dag/run"),
        SandboxSpec(block_network=False, allow_egress_to=["example.org"]),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(spec: SandboxSpec) -> None:
    (field,) = (name for name in ("owner", "allow_egress_to_cidrs", "allow_egress_to") if getattr(spec, name))
    with pytest.raises(SandboxTerminalError, match=f"SandboxSpec.{field}"):
        LocalSandboxBackend().create(spec=spec)


@pytest.mark.parametrize(
    ("env", "what"),
    [
        ({"": "x"}, "name"),
        ({"A=B": "x"}, "A=B"),
        ({"A\0": "x"}, "name"),
        ({"A": "x\0"}, "'A'"),
        ({"A": 1}, "int"),
        ({"LONG": "x" * 131_067}, "LONG.*131071"),
    ],
)
def test_an_impossible_environment_is_refused(env: Any, what: str) -> None:
    with pytest.raises(SandboxTerminalError, match=what):
        LocalSandboxBackend().create(spec=SandboxSpec(env=env))


@pytest.mark.parametrize(
    "options",
    [
        {name: bad}
        for name in (
            "memory_mb",
            "max_processes",
            "max_file_bytes",
            "cpu_seconds",
            "max_open_files",
            "workspace_bytes",
            "tmp_bytes",
            "shm_bytes",
        )
        for bad in (0, -1, True, 1.5, math.inf, "1")
    ]
    + [{"max_processes": 501}]
    + [
        {"read_only_paths": bad}
        for bad in ("/opt", ["relative"], ["/"], ["/proc"], ["/tmp"], ["/workspace/x"], ["/a\0"])
    ],
)
def test_options_are_checked_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        LocalSandboxBackend(**options)


def test_a_read_only_path_that_is_missing_is_named() -> None:
    with pytest.raises(SandboxTerminalError, match="/no/such/path"):
        LocalSandboxBackend(read_only_paths=["/no/such/path"]).create()


# -- copies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
@pytest.mark.parametrize("used", [False, True])
def test_a_copy_has_the_options_and_no_sandboxes(how: Any, used: bool) -> None:
    original = LocalSandboxBackend(memory_mb=300, read_only_paths=["/srv"])
    handle = original.create() if used else ""
    other = how(original)
    assert (other.memory_mb, other.read_only_paths, other.name) == (300, ("/srv",), "local")
    if used:
        with pytest.raises(SandboxTerminalError):
            other.run_command(handle, "true", timeout=5, max_output_bytes=5)
        other.destroy(handle)
        assert original.run_command(handle, "echo on", timeout=60, max_output_bytes=5).stdout == "on\n"
        original.destroy(handle)
    made = other.create()
    assert other.run_command(made, "echo mine", timeout=60, max_output_bytes=10).stdout == "mine\n"
    other.destroy(made)


# -- forks ----------------------------------------------------------------------------------


def test_a_forked_child_cannot_touch_the_parents_sandbox_and_makes_its_own() -> None:
    with sandbox() as box:

        def child() -> None:
            with pytest.raises(SandboxTerminalError, match="in this process"):
                box.run("true")
            box.backend.destroy(box.handle)
            handle = box.backend.create()
            result = box.backend.run_command(handle, "echo child", timeout=60, max_output_bytes=10)
            assert result.stdout == "child\n"
            box.backend.destroy(handle)

        assert in_child(child) == 0
        assert box.sh("echo parent") == "parent\n"


def test_forks_while_commands_run_and_sandboxes_start() -> None:
    stop = threading.Event()

    def busy(box: Sandbox) -> None:
        while not stop.is_set():
            box.sh("echo x")
            with sandbox():
                pass

    def child() -> None:
        with sandbox() as own:
            assert own.sh("echo child") == "child\n"

    with sandbox() as one, sandbox() as two:
        threads = [threading.Thread(target=busy, args=(box,)) for box in (one, two)]
        for thread in threads:
            thread.start()
        try:
            assert [in_child(child) for _ in range(5)] == [0] * 5
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)


def test_a_sandbox_of_a_child_ends_with_the_child() -> None:
    number = marker()

    def child() -> None:
        Sandbox(LocalSandboxBackend()).sh(f"sleep {number} >/dev/null 2>&1 &")

    assert in_child(child) == 0
    assert eventually(lambda: not host_processes(number))


# -- the end of the worker ------------------------------------------------------------------

PROGRAM = """
import os, signal, sys, threading, time
from sandbox_native.backends.local import LocalSandboxBackend
backend = LocalSandboxBackend()
handle = backend.create()
def run(command="sleep MARKER"):
    backend.run_command(handle, command, timeout=300, max_output_bytes=9)
run("exec >/dev/null 2>&1; sleep MARKER & setsid sleep MARKER &")
"""


@pytest.mark.parametrize(
    "ending",
    [
        "pass",
        "sys.exit(3)",
        "os._exit(0)",
        "threading.Thread(target=run, daemon=True).start(); time.sleep(0.3)",
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start(); run()",
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start(); run()",
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start(); run()",
        "os.fork() or time.sleep(3); os.kill(os.getpid(), signal.SIGKILL)",
        "os.abort()",
        "os.execv('/bin/true', ['true'])",
    ],
)
def test_however_the_worker_ends_nothing_is_left(ending: str) -> None:
    number = marker()
    program = textwrap.dedent(PROGRAM).replace("MARKER", number) + ending
    subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert eventually(lambda: not host_processes(number))


@pytest.mark.parametrize("delay", [n / 1000 for n in range(0, 40, 2)])
def test_a_worker_killed_while_a_sandbox_starts_leaves_nothing(delay: float, tmp_path: Path) -> None:
    # The path is an argument of everything that starts a sandbox, so it is found by it.
    program = (
        "import sys; from sandbox_native.backends.local import LocalSandboxBackend\n"
        "backend = LocalSandboxBackend(read_only_paths=sys.argv[1:])\n"
        "print(flush=True)\n"
        "while True: backend.create()"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        time.sleep(delay)
        worker.kill()
    assert eventually(lambda: not host_processes(str(tmp_path)))


def test_a_start_that_is_killed_halfway_leaves_nothing(tmp_path: Path) -> None:
    backend = LocalSandboxBackend(read_only_paths=[str(tmp_path)])
    stop = threading.Event()

    def kill_starters() -> None:
        while not stop.is_set():
            for pid in host_processes(str(tmp_path)):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_starters)
    killer.start()
    try:
        for _ in range(20):
            with contextlib.suppress(SandboxTerminalError):
                backend.destroy(backend.create())
    finally:
        stop.set()
        killer.join(60)
    assert eventually(lambda: not host_processes(str(tmp_path)))
    with sandbox() as box:
        assert box.sh("echo on") == "on\n"


def test_a_cancelled_create_leaves_nothing(tmp_path: Path) -> None:
    """At any moment of the start, also while bubblewrap has not yet told its child that it may go on."""
    backend = LocalSandboxBackend(read_only_paths=[tmp_path])
    for moment in range(60):
        call = calls.prepare(backend.create)
        call.start()
        time.sleep(moment * 0.0004)
        call.cancel()
        with contextlib.suppress(calls.CallCancelled):
            backend.destroy(call.wait())
    assert backend._table() == {}
    assert eventually(lambda: not host_processes(str(tmp_path)))


def test_a_worker_killed_in_a_create_leaves_nothing(tmp_path: Path) -> None:
    """At any moment of the start, too, when the sandbox does not know of the worker yet."""
    backend = LocalSandboxBackend(read_only_paths=[tmp_path])
    for moment in range(60):
        ready, begun = os.pipe()
        worker = os.fork()
        if worker == 0:
            try:
                os.write(begun, b"x")
                backend.create()
                time.sleep(600)
            finally:
                os._exit(1)
        os.read(ready, 1)
        time.sleep(moment * 0.0004)
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        os.close(ready)
        os.close(begun)
    assert eventually(lambda: not host_processes(str(tmp_path)))


def test_the_longest_variable_reaches_the_command() -> None:
    with sandbox(spec=SandboxSpec(env={"LONG": "x" * 131_066})) as box:
        assert box.run("echo ${#LONG}").stdout == "131066\n"
