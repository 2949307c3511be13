# SPDX-License-Identifier: Apache-2.0
"""The tags of the lines that tests claim to cover."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PARITY = Path(__file__).resolve().parents[1] / "parity"


def coverage(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import coverage, pathlib, sys; coverage.TESTS = pathlib.Path(sys.argv[1]); "
    return subprocess.run(
        [sys.executable, "-c", code + "sys.exit(coverage.main(sys.argv[2:]))", str(folder), *arguments],
        cwd=PARITY,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_line_has_a_test_and_every_tag_is_a_line() -> None:
    done = coverage(PARITY.parent, "--strict")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_missing_unknown_and_superseded(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n@pytest.mark.parity('B Run#5', 'A Export#3')\ndef test_x(): pass\n"
    )
    done = coverage(tmp_path, "--strict")
    assert done.returncode == 1
    without = [line.split(" ")[3:5] for line in done.stdout.splitlines() if line.startswith("  without:")]
    assert ["B", "Run#4"] in without
    assert ["A", "Run#14"] in without  # only its second case is superseded
    assert ["B", "File#6"] in without
    for covered_or_superseded in ("B Run#5", "A Export#3", "B Run#2", "B Run#10", "A Run#24", "A Cred#5"):
        assert covered_or_superseded.split(" ") not in without
    (tmp_path / "test_other.py").write_text(
        "import pytest\nX = pytest.param(1, marks=pytest.mark.parity('B Runn#5'))\n"
    )
    done = coverage(tmp_path)
    assert done.returncode == 1
    assert "no such tag in backends.md: 'B Runn#5' (test_other.py:2)" in done.stdout


@pytest.mark.parametrize("tag", ["NAME", "'B ' + 'Run#5'"])
def test_a_tag_has_to_be_written_out(tmp_path: Path, tag: str) -> None:
    (tmp_path / "test_some.py").write_text(f"import pytest\npytestmark = pytest.mark.parity({tag})\n")
    assert "has to be written out" in coverage(tmp_path).stderr
