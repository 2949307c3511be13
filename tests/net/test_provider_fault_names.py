# SPDX-License-Identifier: Apache-2.0
"""Every numbered fault of the provider has a test with its number: ``test_provider_fault_<N>_...``."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
NUMBERS = set(range(1, 37))


def numbered(folder: Path) -> set[int]:
    """The numbers that the names of test functions carry."""
    found = set()
    for path in folder.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                match = re.match(r"test_provider_fault_([1-9][0-9]*)_", node.name)
                if match:
                    found.add(int(match[1]))
    return found


def test_every_fault_of_the_provider_has_a_test() -> None:
    assert numbered(TESTS) >= NUMBERS, f"without a test: {sorted(NUMBERS - numbered(TESTS))}"


def test_no_number_is_that_of_no_fault() -> None:
    assert numbered(TESTS) <= NUMBERS


def test_only_a_test_counts(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "# test_provider_fault_7_x\nclass A:\n    def test_provider_fault_8_x(self): ...\n"
        "async def test_provider_fault_12_x(): ...\n"
        "def test_fault_9_x(): ...\ndef provider_fault_10_x(): ...\n"
    )
    assert numbered(tmp_path) == {8, 12}
