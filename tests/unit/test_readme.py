# SPDX-License-Identifier: Apache-2.0
"""What the README shows is what is tested."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path

from cli_program import cli

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = Path(__file__).parent / "examples" / "primes_agent.py"


def blocks(language: str) -> list[str]:
    """The code blocks of the README in ``language``, without their indentation."""
    found = []
    parts = (ROOT / "README.rst").read_text().split(f".. code-block:: {language}\n")
    for part in parts[1:]:
        lines = []
        for line in part.splitlines()[1:]:
            if line and not line.startswith("    "):
                break
            lines.append(line)
        found.append(textwrap.dedent("\n".join(lines)).strip() + "\n")
    return found


def test_the_agent_is_the_tested_example() -> None:
    shown = EXAMPLE.read_text().partition("# [README\n")[2].partition("# README]\n")[0]
    assert shown.strip() + "\n" in blocks("python")


def test_the_command_line_works_as_shown(tmp_path: Path) -> None:
    (line,) = [
        line.removeprefix("$ ")
        for block in blocks("console")
        for line in block.splitlines()
        if line.startswith("$ sandbox-native run ")
    ]
    (tmp_path / "data.csv").write_text("b\na\n")
    arguments = [
        word.replace("s3://reports/", f"file://{tmp_path}/").replace("data.csv:", f"{tmp_path}/data.csv:")
        for word in shlex.split(line)[1:]
    ]
    done = cli(*arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "result.csv").read_text() == "a\nb\n"
