# SPDX-License-Identifier: Apache-2.0
"""The README's agent, run with a model that writes what a real one would."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import fsspec
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

EXAMPLE = Path(__file__).parent / "examples" / "primes_agent.py"
PROGRAM = """
limit=$LIMIT
for n in $(seq 2 $((limit - 1))); do
    prime=yes
    for d in $(seq 2 $((n - 1))); do [ $((n % d)) -eq 0 ] && prime= && break; done
    [ -n "$prime" ] && echo $n
done > primes.txt
wc -l < primes.txt
"""


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("primes_agent", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not results:
        assert {tool.name for tool in info.function_tools} == {
            *("run_command", "read_file", "write_file", "list_directory")
        }
        return ModelResponse([ToolCallPart("write_file", {"path": "primes.sh", "content": PROGRAM})])
    if len(results) == 1:
        return ModelResponse([ToolCallPart("run_command", {"command": "sh primes.sh"})])
    count = str(results[-1].content).removeprefix("[stdout]\n").strip()
    return ModelResponse([TextPart(f"There are {count} primes.")])


def test_the_agent_exports_what_it_built(example: ModuleType) -> None:
    with example.agent.override(model=FunctionModel(model)):
        assert example.main() == "There are 25 primes."
    with fsspec.open("memory://results/primes.txt") as file:
        primes = [int(line) for line in file]
    assert primes == [n for n in range(2, 100) if all(n % d for d in range(2, n))]
    assert fsspec.filesystem("memory").ls("/results", detail=False) == ["/results/primes.txt"]


def test_airflow_was_not_loaded() -> None:
    assert "airflow" not in sys.modules
