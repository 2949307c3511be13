# SPDX-License-Identifier: Apache-2.0
"""A Dag whose agent does what the configuration of its run lists: ``name`` of the run and ``calls``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.sdk import DAG

from sandbox_native.airflow import SandboxToolset
from sandbox_native.backends.local import LocalSandboxBackend

FOLDER = "{{ var.value.played_output }}/{{ dag_run.conf['name'] }}"


def describe_process(context: Any) -> None:
    """Write down what the process of the task is: its id and what its descriptors lead to."""
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    folder = Path(os.environ["AIRFLOW_VAR_PLAYED_OUTPUT"], context["dag_run"].conf["name"])
    folder.mkdir()
    # Under its final name only when it is complete: the test waits for it.
    draft = folder / "task.json.draft"
    draft.write_text(json.dumps({"pid": os.getpid(), "descriptors": descriptors}))
    draft.rename(folder / "task.json")


with DAG("played", schedule=None):
    AgentOperator(
        task_id="play",
        llm_conn_id="played_model",
        prompt="{{ dag_run.conf['calls'] | tojson }}",
        toolsets=[
            SandboxToolset(
                LocalSandboxBackend(), exports={"out.txt": f"file://{FOLDER}/exported/{{{{ run_id }}}}.txt"}
            )
        ],
        message_history=[],
        pre_execute=describe_process,
    )
