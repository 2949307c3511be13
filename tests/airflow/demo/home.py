# SPDX-License-Identifier: Apache-2.0
"""A temporary AIRFLOW_HOME on SQLite, offline, that knows the Dags of one folder."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

# What would make a run depend on the user's own set-up. An agent must not find these in its sandbox
# either; the tests plant some of their own.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "TERM")


class AirflowHome:
    """The home, inside a ``with`` block; deleted at its end.

    :param dags: the Dag folder.
    :param env: further variables for each Airflow process, connections and Airflow variables included.
    :param log: a file that takes all that Airflow's commands print; appended to.
    """

    def __init__(self, dags: Path, env: Mapping[str, str], log: Path) -> None:
        self.dags = dags
        self.log = log
        self._extra = dict(env)
        self.path = Path()

    def __enter__(self) -> Self:
        self.path = Path(tempfile.mkdtemp(prefix="sandbox-native-airflow-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of an Airflow process."""
        settings = {
            "CORE__DAGS_FOLDER": str(self.dags),
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__EXECUTOR": "LocalExecutor",
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.path}/airflow.db",
            "LOGGING__BASE_LOG_FOLDER": f"{self.path}/logs",
            "LOGGING__LOGGING_LEVEL": "INFO",
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        return {
            **{name: os.environ[name] for name in INHERITED if name in os.environ},
            "AIRFLOW_HOME": str(self.path),
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            # No first line of advice, no call home of any library.
            "PYTHONWARNINGS": "ignore",
            "DO_NOT_TRACK": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            **self._extra,
        }

    def airflow(self, *args: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Run an ``airflow`` command; its output goes to the result and to the log.

        :param timeout: seconds.
        :raises subprocess.TimeoutExpired: it took longer.
        """
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *args],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
        )
        with self.log.open("a") as log:
            log.write(f"$ airflow {' '.join(args)}\n{done.stdout}\n[exit status {done.returncode}]\n\n")
        return done

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Read from Airflow's database, which is not disturbed."""
        with sqlite3.connect(f"file:{self.path}/airflow.db?mode=ro", uri=True, timeout=30) as db:
            return db.execute(sql, values).fetchall()

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """A value that a task pushed, or None."""
        rows = self.query(
            "select value from xcom where dag_id = ? and run_id = ? and task_id = ? and key = ?",
            *(dag_id, run_id, task_id, key),
        )
        value = json.loads(rows[0][0]) if rows else None
        # The column is JSON, and the execution API stores what it was sent as a JSON text in it.
        return json.loads(value) if isinstance(value, str) and value[:1] in '"[{' else value

    def states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """The state of each task of a run."""
        rows = self.query(
            "select task_id, state from task_instance where dag_id = ? and run_id = ?", dag_id, run_id
        )
        return dict(rows)
