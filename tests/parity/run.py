# SPDX-License-Identifier: Apache-2.0
"""Runs the provider's tests that are listed here and have a module of ours to answer them. See README.md."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "parity"
PROVIDER = "airflow.providers.common.ai"


def exists(module: str) -> bool:
    """Whether our ``module`` can be imported; looked up without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def lines(name: str) -> list[str]:
    return [line for line in (HERE / name).read_text().splitlines() if line]


def tested_module(test_id: str) -> str:
    """The provider's module that a test is about: ``…/sandbox/test_base.py::…`` -> ``….sandbox.base``."""
    path = Path(test_id.partition("::")[0])
    return f"{PROVIDER}.{path.parent.name}.{path.stem.removeprefix('test_')}"


def main() -> int:
    """Lay out the tests, choose them, and hand over to pytest, whose last line is the last line."""
    subprocess.run([str(HERE / "fetch_peer_tests.sh"), str(BUILD), sys.executable], check=True)
    wanted: dict[str, str] = json.loads((HERE / "map.json").read_text())
    modules = {theirs: ours for theirs, ours in wanted.items() if exists(ours)}
    (BUILD / "map.json").write_text(json.dumps(modules))

    lists = {"behavioural": lines("behavioural.txt"), "conditional": lines("behavioural_conditional.txt")}
    chosen = {
        name: [test_id for test_id in ids if tested_module(test_id) in modules] for name, ids in lists.items()
    }
    left_out = Counter(
        tested_module(test_id).removeprefix(f"{PROVIDER}.")
        for ids in lists.values()
        for test_id in ids
        if tested_module(test_id) not in modules
    )
    plan = {
        "lists": chosen,
        "expected": lines("conditional_expected.txt"),
        "left_out": left_out,
    }
    (BUILD / "plan.json").write_text(json.dumps(plan))
    (BUILD / "ids.txt").write_text("\n".join(test_id for ids in chosen.values() for test_id in ids))

    environment = {
        **os.environ,
        "PEER_ALIAS_MAP": str(BUILD / "map.json"),
        "PARITY_PLAN": str(BUILD / "plan.json"),
        "PYTHONPATH": str(HERE),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "alias_plugin", "-p", "plan_plugin"]
    os.chdir(BUILD)
    os.execve(sys.executable, [*command, *sys.argv[1:], f"@{BUILD / 'ids.txt'}"], environment)


if __name__ == "__main__":
    main()
