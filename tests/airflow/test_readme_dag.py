# SPDX-License-Identifier: Apache-2.0
"""The README's Dag is one that Airflow takes."""

from __future__ import annotations

import textwrap
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag
from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.providers.common.ai.toolsets.sandbox import SandboxToolset as ProviderToolset

ROOT = Path(__file__).resolve().parents[2]


def test_the_dag_of_the_readme_is_parsed(tmp_path: Path) -> None:
    part = (
        (ROOT / "README.rst").read_text().partition("In a Dag\n")[2].partition(".. code-block:: python\n")[2]
    )
    code = textwrap.dedent(part.partition("\n\nThe sandbox is made")[0])
    (tmp_path / "queue_report.py").write_text(code)
    bag = DagBag(tmp_path)
    assert bag.import_errors == {}
    (task,) = bag.dags["queue_report"].tasks
    assert isinstance(task, AgentOperator)
    (toolset,) = task.toolsets
    # What AgentOperator itself asks to tell a sandbox from another toolset.
    assert isinstance(toolset, ProviderToolset)
    assert toolset.agent_template_fields
