# SPDX-License-Identifier: Apache-2.0
"""The toolset and the local backend in tasks that Airflow's supervisor forked."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from demo import check
from supervisor import processes
from supervisor.player import FAIL
from supervisor.runs import SECRET, command

if TYPE_CHECKING:
    from supervisor.runs import Runs


@pytest.fixture
def marker() -> Iterator[str]:
    """A number of seconds (some days) that no other process of this machine sleeps for."""
    marker = f"{secrets.randbelow(90_000) + 100_000}.{secrets.randbelow(90_000_000) + 10_000_000}"
    yield marker
    processes.kill(processes.with_text(marker))


def sleepers(marker: str) -> tuple[str, list[str]]:
    """A command that starts a detached process and one in the background and stays; their arguments."""
    one, two, three = sleeps = [f"{marker}{n}" for n in (1, 2, 3)]
    return f"echo unfinished > out.txt; setsid sleep {one} & (sleep {two} &) ; sleep {three}", sleeps


def test_the_demo_dag_exports_its_files(runs: Runs) -> None:
    run_id = runs.airflow.trigger("city_bikes")
    state = runs.airflow.wait("city_bikes", run_id)
    assert state == "success", runs.airflow.task_logs()[-6000:]
    assert check.check(runs.data, runs.output / run_id) == []


def test_nothing_of_the_task_is_visible_inside(runs: Runs) -> None:
    hidden = [SECRET, "AIRFLOW", str(runs.airflow.home.path)]
    run = runs.play(
        command("for n in /proc/self/fd/*; do readlink $n; done"),
        # grep names the files with a match; the pattern is in no environment, only in arguments.
        command(f"env; grep -a -l {' '.join(f'-e {text}' for text in hidden)} /proc/[0-9]*/environ"),
        command("cat /proc/[0-9]*/comm; ls /proc | grep -c '^[0-9]'"),
        command(f"ls -a {runs.output} {runs.airflow.home.path} 2>/dev/null"),
        command("touch out.txt"),
    )
    assert run.state() == "success", runs.airflow.task_logs()[-6000:]
    task = run.task()
    assert task["descriptors"]["0"].startswith("socket:"), "the supervisor no longer passes its socket there"
    descriptors, environment, processes_inside, folders, _ = run.results()
    assert descriptors.splitlines()[1] == "/dev/null"
    ours = {target for target in task["descriptors"].values() if target != "/dev/null"}
    assert not ours & set(descriptors.splitlines())
    assert "socket:" not in descriptors
    assert not [text for text in hidden if text in environment]
    assert "/environ" not in environment.replace("[stderr]", "").partition("grep:")[0]
    assert "airflow" not in processes_inside
    assert int(processes_inside.splitlines()[-1]) < 12
    assert "task.json" not in folders
    assert "airflow.db" not in folders
    assert [path.read_bytes() for path in run.exported()] == [b""]


def test_a_task_marked_as_failed_ends_its_command_and_sandbox(runs: Runs, marker: str) -> None:
    line, sleeps = sleepers(marker)
    run = runs.play(command(line, timeout_seconds=300))
    sandbox = runs.sandbox_of(run, sleeps)
    runs.airflow.mark_failed("played", run.run_id, "play")
    processes.wait_for("the sandbox is gone", lambda: not processes.left(sandbox), 60)
    processes.wait_for("its command is gone", lambda: not processes.with_text(marker), 10)
    assert run.state() == "failed"
    assert run.exported() == []


def test_a_killed_task_leaves_no_process(runs: Runs, marker: str) -> None:
    line, sleeps = sleepers(marker)
    run = runs.play(command(line, timeout_seconds=300))
    sandbox = runs.sandbox_of(run, sleeps)
    os.kill(run.task()["pid"], signal.SIGKILL)
    processes.wait_for("the sandbox is gone", lambda: not processes.left(sandbox), 60)
    assert not processes.with_text(marker)
    assert run.state() == "failed"
    assert run.exported() == []


def test_a_failed_agent_run_destroys_its_sandbox_and_exports_nothing(runs: Runs, marker: str) -> None:
    run = runs.play(
        command(f"echo finished > out.txt; setsid sleep {marker} > /dev/null 2>&1 &"),
        command("sleep 3"),
        FAIL,
    )
    sandbox = runs.sandbox_of(run, [marker])
    assert run.state() == "failed"
    processes.wait_for("the sandbox is gone", lambda: not processes.left(sandbox), 60)
    assert not processes.with_text(marker)
    assert run.exported() == []
