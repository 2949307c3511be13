# SPDX-License-Identifier: Apache-2.0
"""A whole Airflow, small: API server, scheduler with LocalExecutor and Dag processor, on SQLite.

``airflow dags test`` runs tasks in its own process; here the executor's supervisor forks them, keeps its
request socket on their descriptor 0, and they end by ``os._exit``.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.home import AirflowHome

from . import processes

COMPONENTS = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
}
SIMPLE_AUTH = "airflow.api_fastapi.auth.managers.simple"
START_SECONDS = 180.0
STOP_SECONDS = 20.0
FINAL = ("success", "failed")


class Supervisor:
    """The running Airflow, inside a ``with`` block.

    :param folder: an existing folder for the logs and the copies of the Dag files.
    :param dags: Dag files.
    :param env: further variables for each process.
    """

    def __init__(self, folder: Path, dags: Iterable[Path], env: Mapping[str, str]) -> None:
        self.folder = folder
        (folder / "dags").mkdir()
        for file in dags:
            shutil.copy(file, folder / "dags")
        self.url = f"http://127.0.0.1:{_free_port()}"
        settings = {
            "API__HOST": "127.0.0.1",
            "API__PORT": self.url.rpartition(":")[2],
            "API__BASE_URL": self.url,
            "API__WORKERS": "1",
            "API__SECRET_KEY": secrets.token_hex(16),
            "API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "CORE__AUTH_MANAGER": f"{SIMPLE_AUTH}.simple_auth_manager.SimpleAuthManager",
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__PARALLELISM": "2",
            # How soon a running task hears that it was marked as failed.
            "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        }
        self.home = AirflowHome(
            folder / "dags",
            {**{f"AIRFLOW__{name}": value for name, value in settings.items()}, **env},
            folder / "commands.log",
        )
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._token = ""

    def __enter__(self) -> Self:
        self.home.__enter__()
        try:
            done = self.home.airflow("db", "migrate")
            if done.returncode:
                raise RuntimeError(f"airflow db migrate failed:\n{done.stdout[-3000:]}")
            for name, command in COMPONENTS.items():
                with (self.folder / f"{name}.log").open("wb") as log:
                    self._started[name] = subprocess.Popen(
                        [sys.executable, "-m", "airflow", *command],
                        env=self.home.env,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
            wanted = {path.stem for path in (self.folder / "dags").iterdir()}
            self._wait("the Dags are known to the API", lambda: wanted <= self._known_dags(), START_SECONDS)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run and return its id."""
        answer = self.request(
            "POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": dict(conf or {})}
        )
        return str(answer["dag_run_id"])

    def wait(self, dag_id: str, run_id: str, seconds: float = 150) -> str:
        """Wait until a run ended; its state.

        :raises TimeoutError: it did not within ``seconds``; the text has the end of the tasks' logs.
        """
        self._wait(
            f"{dag_id} {run_id} ended",
            lambda: self.request("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"] in FINAL,
            seconds,
        )
        return str(self.request("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def mark_failed(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Do what a person does in the UI to end a running task."""
        self.request(
            "PATCH",
            f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}",
            {"new_state": "failed"},
        )

    def task_logs(self) -> str:
        """All that the tasks logged."""
        files = sorted((self.home.path / "logs").rglob("*.log"))
        return "\n".join(f"--- {file}\n{file.read_text(errors='replace')}" for file in files)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """A call of the REST API; the JSON of the answer."""
        if not self._token:
            with urllib.request.urlopen(f"{self.url}/auth/token", timeout=30) as answer:
                self._token = json.load(answer)["access_token"]
        request = urllib.request.Request(
            self.url + urllib.parse.quote(path),
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            raise RuntimeError(f"{method} {path}: {e.code}: {e.read(2000).decode(errors='replace')}") from e

    def _known_dags(self) -> set[str]:
        try:
            return {dag["dag_id"] for dag in self.request("GET", "/api/v2/dags")["dags"]}
        except (OSError, RuntimeError):
            return set()

    def _wait(self, what: str, condition: Any, seconds: float) -> None:
        """Wait, and give up as soon as a component has ended."""

        def met() -> bool:
            for name, process in self._started.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with {process.returncode}:\n{self._tail(name)}")
            if condition():
                return True
            time.sleep(0.25)
            return False

        try:
            processes.wait_for(what, met, seconds)
        except TimeoutError as e:
            logs = "\n".join(f"--- {name}\n{self._tail(name)}" for name in self._started)
            raise TimeoutError(f"{e}\n{logs}\n{self.task_logs()[-6000:]}") from None

    def _tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def _stop(self) -> None:
        """End what was started: asked first, then by force, and last whatever still has this home."""
        for process in self._started.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        for process in self._started.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
        for process in self._started.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        # The path of the home is random, so this names no process of anybody else.
        processes.kill(processes.with_text(f"AIRFLOW_HOME={self.home.path}\0", "environ"))
        self.home.__exit__(None, None, None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
