# SPDX-License-Identifier: Apache-2.0
"""The README's Dag whose tasks share a sandbox, run by Airflow against an OpenSandbox server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from demo.endpoint import Call, Conversation, ScriptedEndpoint
from demo.home import AirflowHome
from test_readme_dag import blocks

from servers.opensandbox.handle import OpenSandboxServer


def model(talk: Conversation) -> Call | str:
    """Writes the report where there is none, and corrects the one that is there."""
    steps = len(talk.turns)
    if steps == 0:
        return Call("run_command", {"command": "cat report.md"})
    if steps == 1:
        text = "corrected" if talk.last.strip() == "[stdout]\ndraft" else "draft"
        return Call("write_file", {"path": "report.md", "content": text})
    if steps == 2:
        return Call("read_file", {"path": "report.md"})
    return f"It says: {talk.last}"


@pytest.mark.timeout(600)
def test_what_one_task_writes_the_next_one_finds(tmp_path: Path) -> None:
    (code,) = [block for block in blocks() if "shared_sandbox" in block]
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "shared_sandbox.py").write_text(code)
    log = tmp_path / "airflow.log"
    with OpenSandboxServer(api_key="a-key") as server, ScriptedEndpoint({"writer": model}) as endpoint:
        connection = {"conn_type": "generic", "host": server.domain, "password": server.api_key}
        env = {
            "AIRFLOW_CONN_OPENSANDBOX_DEFAULT": json.dumps(connection),
            "AIRFLOW_CONN_PYDANTICAI_DEFAULT": endpoint.connection("writer"),
        }
        with AirflowHome(tmp_path / "dags", env, log) as home:
            assert not home.airflow("db", "migrate", timeout=250).returncode, log.read_text()
            tested = home.airflow("dags", "test", "shared_sandbox", timeout=250)
            ((run_id, state),) = home.query("select run_id, state from dag_run")
            assert (state, endpoint.errors) == ("success", []), tested.stdout
            answers = [str(home.xcom("shared_sandbox", run_id, task)) for task in ("draft", "review")]
        assert len(server.requests("create")) == 1
        assert server.sandboxes() == []
    assert ["It says: draft" in answers[0], "It says: corrected" in answers[1]] == [True, True], answers
