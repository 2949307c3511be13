# SPDX-License-Identifier: Apache-2.0
"""Whose classes the contract takes where Airflow is loaded but its provider is of no use.

A package of ours stands in for Airflow: what is tested here is only what is made of its answers. With the
real one: tests/airflow/test_contract_homes.py.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# `bodies` maps the name of a module to its source; a module without one is not installed.
CODE = """
import importlib.abc, importlib.machinery, sys
bodies = {bodies!r}
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in bodies:
            return importlib.machinery.ModuleSpec(name, self, is_package=not name.endswith(".base"))
        if name.split(".")[0] == "airflow":
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
    def create_module(self, spec): return None
    def exec_module(self, module): exec(bodies[module.__name__], vars(module))
sys.meta_path.insert(0, Finder())
import airflow
import sandbox_native.contract as c
assert c.home == "own", c.home
class B(c.SandboxBackend):
    name = "b"
    def create(self, *, spec=None): return "s"
    def run_command(self, sandbox, command, *, timeout, max_output_bytes): ...
    def destroy(self, sandbox): ...
B()
try:
    c.require_airflow_home()
except ImportError as e:
    print("REASON", e)
"""
PACKAGES = dict.fromkeys(["airflow", "airflow.providers", "airflow.providers.common"], "")
PROVIDER = PACKAGES | {"airflow.providers.common.ai": ""}
PACKAGE = "airflow.providers.common.ai.sandbox"
BASE = f"{PACKAGE}.base"
ASKS_FOR_MORE = """
from abc import ABC, abstractmethod
class SandboxError(Exception): pass
SandboxTerminalError = SandboxFileTooLargeError = SandboxSpec = SandboxError
SandboxExecResult = AttachedSandbox = AttachableSandboxBackend = SandboxError
class SandboxBackend(ABC):
    @abstractmethod
    def snapshot(self): ...
"""


@pytest.mark.parametrize(
    ("bodies", "reason", "warned"),
    [
        ({"airflow": ""}, "is not installed (pip install", False),
        (PACKAGES, "is not installed (pip install", False),
        (PROVIDER, "is not installed (pip install", False),
        (PROVIDER | {PACKAGE: "raise RuntimeError('needs Airflow 9')"}, "imported: needs Airflow 9", True),
        (PROVIDER | {PACKAGE: "import no_such"}, "imported: No module named 'no_such'", True),
        (PROVIDER | {PACKAGE: "", BASE: "class SandboxError(Exception): pass"}, "has no SandboxTerm", True),
        (PROVIDER | {PACKAGE: "", BASE: ASKS_FOR_MORE}, "asks backends for snapshot", True),
    ],
    ids=["alone", "no provider", "too old", "refuses", "broken", "incomplete", "asks for more"],
)
def test_airflow_without_a_usable_provider_gets_the_own_home_and_a_reason(
    bodies: dict[str, str], reason: str, warned: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(bodies=bodies)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("REASON")]
    assert reason in said
    # A provider that is there but unusable is a surprise; one that is not there is a choice.
    assert ("sandbox_native uses its own contract classes" in done.stderr) is warned
