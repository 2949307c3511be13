# SPDX-License-Identifier: Apache-2.0
"""Runs of the ``played`` Dag under the supervisor, and what they leave."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import processes
from .harness import Supervisor
from .processes import Process

SECRET = f"planted-{secrets.token_hex(8)}"
"""In the environment of every Airflow process."""


def command(line: str, **more: Any) -> list[Any]:
    """A ``run_command`` call for the player's list."""
    return ["run_command", {"command": line, **more}]


@dataclass
class Played:
    """A started run."""

    airflow: Supervisor
    folder: Path
    run_id: str

    def task(self) -> dict[str, Any]:
        """Id and descriptors of the task's process, once it has started."""
        file = self.folder / "task.json"
        processes.wait_for("the task has started", file.exists, 120)
        return dict(json.loads(file.read_text()))

    def state(self) -> str:
        """The state it ended in, waited for."""
        return self.airflow.wait("played", self.run_id)

    def results(self) -> list[str]:
        """What the tool calls of the ended run gave to the model."""
        messages = self.airflow.home.xcom("played", self.run_id, "play", "message_history") or []
        return [
            part["content"]
            for message in messages
            for part in message["parts"]
            if part["part_kind"] == "tool-return"
        ]

    def exported(self) -> list[Path]:
        """The files at and beside the destination of the export, staging files included."""
        folder = self.folder / "exported"
        return sorted(folder.iterdir()) if folder.is_dir() else []


@dataclass
class Runs:
    """The Airflow of the session."""

    airflow: Supervisor
    output: Path
    data: Path

    def play(self, *calls: list[Any]) -> Played:
        name = secrets.token_hex(6)
        run_id = self.airflow.trigger("played", {"name": name, "calls": list(calls)})
        return Played(self.airflow, self.output / name, run_id)

    def sandbox_of(self, run: Played, sleeps: list[str]) -> set[Process]:
        """The processes of the run's sandbox, once a ``sleep`` with each of these arguments runs."""
        task = run.task()["pid"]

        def sleepers() -> list[set[Process]]:
            return [processes.with_text(f"sleep\0{seconds}\0") for seconds in sleeps]

        processes.wait_for(f"sleep {sleeps}", lambda: all(sleepers()), 120)
        found = set().union(*sleepers())
        return found | processes.descendants(task) | processes.namespace_members(found)
