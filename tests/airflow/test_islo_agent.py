# SPDX-License-Identifier: Apache-2.0
"""An AgentOperator whose sandbox is at Islo, against the test server: commands, files, and an export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from demo.endpoint import Call, Conversation, ScriptedEndpoint
from demo.home import AirflowHome

from servers.islo.handle import IsloServer

DAG = """\
import os

from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.sdk import DAG

from sandbox_native.airflow import SandboxToolset
from sandbox_native.backends.islo import IsloSandboxBackend

with DAG("islo_agent", schedule=None):
    AgentOperator(
        task_id="work",
        llm_conn_id="scripted",
        prompt="Sort the names.",
        toolsets=[
            SandboxToolset(
                IsloSandboxBackend(vcpus=1),
                exports={"sorted.txt": "file://" + os.environ["ISLO_TEST_OUTPUT"] + "/{{ run_id }}.txt"},
            )
        ],
        message_history=[],
    )
"""
NAMES = ["Zoë", "Ann", "Émile"]


def model(talk: Conversation) -> Call | str:
    """Writes a file, runs a program on it that fails at first, and looks at what came."""
    steps = len(talk.turns)
    if steps == 0:
        return Call("write_file", {"path": "/data/names.txt", "content": "\n".join(NAMES) + "\n"})
    if steps == 1:
        return Call("run_command", {"command": "sort /data/nams.txt >sorted.txt"})
    if steps == 2:
        if "No such file" not in talk.last:
            return f"I did not expect {talk.last!r}"
        return Call("list_directory", {"path": "/data"})
    if steps == 3:
        if "names.txt" not in talk.last:
            return f"I did not expect {talk.last!r}"
        return Call("run_command", {"command": "LC_ALL=C sort /data/names.txt >sorted.txt; wc -l sorted.txt"})
    if steps == 4:
        return Call("read_file", {"path": "sorted.txt"})
    return f"The first is {talk.last.split()[0]}."


@pytest.mark.timeout(600)
def test_an_agent_works_at_islo_and_its_file_comes_out(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "islo_agent.py").write_text(DAG)
    output, log = tmp_path / "output", tmp_path / "airflow.log"
    output.mkdir()
    with IsloServer() as server, ScriptedEndpoint({"sorter": model}) as endpoint:
        env = {
            **server.environment,
            "AIRFLOW_CONN_SCRIPTED": endpoint.connection("sorter"),
            "ISLO_TEST_OUTPUT": str(output),
        }
        with AirflowHome(tmp_path / "dags", env, log) as home:
            migrated = home.airflow("db", "migrate", timeout=250)
            assert not migrated.returncode, log.read_text()
            tested = home.airflow("dags", "test", "islo_agent", timeout=250)
            ((run_id, state),) = home.query("select run_id, state from dag_run")
            assert (state, endpoint.errors) == ("success", []), tested.stdout
            answer = home.xcom("islo_agent", run_id, "work")
        (create,) = server.requests("create")
        assert json.loads(create["body"])["vcpus"] == 1
        assert not server.sandboxes()
        assert server.count("token") == 1
    assert "The first is Ann." in str(answer)
    (exported,) = output.iterdir()
    assert exported.name == f"{run_id}.txt"
    assert exported.read_text() == "Ann\nZoë\nÉmile\n"
    assert "test-key" not in log.read_text()
