# SPDX-License-Identifier: Apache-2.0
"""An AgentOperator whose sandbox is on an OpenSandbox server, by an Airflow connection, with an export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from demo.endpoint import Call, Conversation, ScriptedEndpoint
from demo.home import AirflowHome

from servers.opensandbox.handle import OpenSandboxServer

DAG = """\
import os

from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.sdk import DAG

from sandbox_native.airflow import SandboxToolset
from sandbox_native.backends.opensandbox import OpenSandboxBackend

with DAG("opensandbox_agent", schedule=None):
    AgentOperator(
        task_id="work",
        llm_conn_id="scripted",
        prompt="Add the numbers.",
        toolsets=[
            SandboxToolset(
                OpenSandboxBackend(image="python:3.12-slim", sandbox_timeout=900),
                exports={"sum.txt": "file://" + os.environ["OPENSANDBOX_TEST_OUTPUT"] + "/{{ run_id }}.txt"},
            )
        ],
        message_history=[],
    )
"""


def model(talk: Conversation) -> Call | str:
    """Writes numbers, adds them with a mistake first, and reads what came."""
    steps = len(talk.turns)
    if steps == 0:
        return Call("write_file", {"path": "/data/numbers", "content": "3\n4\n35\n"})
    if steps == 1:
        return Call("run_command", {"command": "paste -sd+ /data/number | bc >sum.txt; exit 3"})
    if steps == 2:
        if "No such file" not in talk.last or "[exit code: 3]" not in talk.last:
            return f"I did not expect {talk.last!r}"
        return Call("list_directory", {"path": "/data"})
    if steps == 3:
        if "numbers" not in talk.last:
            return f"I did not expect {talk.last!r}"
        add = "s=0; while read n; do s=$((s+n)); done </data/numbers; echo $s >sum.txt"
        return Call("run_command", {"command": add})
    if steps == 4:
        return Call("read_file", {"path": "sum.txt"})
    return f"The sum is {talk.last.split()[0]}."


@pytest.mark.timeout(600)
def test_an_agent_works_on_a_server_and_its_file_comes_out(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "opensandbox_agent.py").write_text(DAG)
    output, log = tmp_path / "output", tmp_path / "airflow.log"
    output.mkdir()
    with (
        OpenSandboxServer(api_key="key-of-the-connection") as server,
        ScriptedEndpoint({"adder": model}) as endpoint,
    ):
        host, _, port = server.domain.partition(":")
        connection = {
            "conn_type": "generic",
            "host": host,
            "port": int(port),
            "schema": "http",
            "password": server.api_key,
            "extra": {"request_timeout": "60"},
        }
        env = {
            "AIRFLOW_CONN_OPENSANDBOX_DEFAULT": json.dumps(connection),
            "AIRFLOW_CONN_SCRIPTED": endpoint.connection("adder"),
            "OPENSANDBOX_TEST_OUTPUT": str(output),
        }
        with AirflowHome(tmp_path / "dags", env, log) as home:
            migrated = home.airflow("db", "migrate", timeout=250)
            assert not migrated.returncode, log.read_text()
            tested = home.airflow("dags", "test", "opensandbox_agent", timeout=250)
            ((run_id, state),) = home.query("select run_id, state from dag_run")
            assert (state, endpoint.errors) == ("success", []), tested.stdout
            answer = home.xcom("opensandbox_agent", run_id, "work")
        (create,) = server.requests("create")
        body = json.loads(create["body"])
        # The toolset's own default: no network, read back before it is used.
        assert (body["timeout"], body["networkPolicy"]) == (900, {"defaultAction": "deny"})
        assert len(server.requests("policy")) == 1
        assert server.sandboxes() == []
    assert "The sum is 42." in str(answer)
    (exported,) = output.iterdir()
    assert (exported.name, exported.read_text()) == (f"{run_id}.txt", "42\n")
    assert "key-of-the-connection" not in log.read_text()
