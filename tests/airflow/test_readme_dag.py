# SPDX-License-Identifier: Apache-2.0
"""The README's Dag is one that Airflow takes."""

from __future__ import annotations

import textwrap
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag
from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.providers.common.ai.toolsets.sandbox import SandboxToolset as ProviderToolset

from sandbox_native import SandboxToolset, backend

ROOT = Path(__file__).resolve().parents[2]


def blocks() -> list[str]:
    """The Python of the README, each block without its indentation."""
    found = []
    for part in (ROOT / "README.rst").read_text().split(".. code-block:: python\n")[1:]:
        lines = []
        for line in part.splitlines()[1:]:
            if line and not line.startswith("    "):
                break
            lines.append(line)
        found.append(textwrap.dedent("\n".join(lines)))
    return found


def test_the_dags_of_the_readme_are_parsed(tmp_path: Path) -> None:
    for number, block in enumerate(block for block in blocks() if "with DAG(" in block):
        (tmp_path / f"dag_{number}.py").write_text(block)
    bag = DagBag(tmp_path)
    assert bag.import_errors == {}
    assert set(bag.dags) == {"queue_report", "shared_sandbox"}
    agents = [task for dag in bag.dags.values() for task in dag.tasks if isinstance(task, AgentOperator)]
    assert sorted(task.task_id for task in agents) == ["draft", "review", "simulate"]
    for task in agents:
        (toolset,) = task.toolsets
        # What AgentOperator itself asks to tell a sandbox from another toolset.
        assert isinstance(toolset, ProviderToolset)
        assert toolset.agent_template_fields
    shared = bag.dags["shared_sandbox"]
    assert [shared.get_task(name).downstream_task_ids for name in ("make", "draft", "review")] == [
        {"draft", "end"},
        {"review"},
        {"end"},
    ]


def test_the_other_examples_of_the_readme_are_made() -> None:
    others = [block for block in blocks() if "with DAG(" not in block]
    assert len(others) == 4
    for block in others:
        exec(compile(block, "README.rst", "exec"), {"SandboxToolset": SandboxToolset, "backend": backend})
