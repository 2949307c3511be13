# SPDX-License-Identifier: Apache-2.0
"""Everything about the local backend once more, run by an ordinary user where this run is root's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent

# The interpreter may lie below the home of root, which nobody else may pass. In a mount namespace of its own
# the home is replaced by one that shows the interpreter and nothing else. $1 is the home, $2 what to show.
PRIVATE = """
set -e
hold=$(mktemp -d)
if [ -n "$1" ]; then
    mount --bind "$1/$2" "$hold"
    mount -t tmpfs -o mode=755 none "$1"
    mkdir -p "$1/$2"
    mount --move "$hold" "$1/$2"
fi
shift 2
exec setpriv --reuid nobody --regid nogroup --clear-groups "$@"
"""


def closed_home(path: str) -> tuple[str, str]:
    """The first folder on the way to ``path`` that only root may pass, and what is to be seen below it."""
    parts = Path(path).resolve().parts
    for depth in range(2, len(parts)):
        folder = Path(*parts[:depth])
        if not folder.stat().st_mode & 0o001:
            return str(folder), parts[depth]
    return "", ""


@pytest.mark.timeout(1200)
@pytest.mark.skipif(os.geteuid() != 0, reason="this run is an ordinary user's already")
def test_all_of_it_as_an_ordinary_user(capsys: pytest.CaptureFixture[str]) -> None:
    files = [*TESTS.glob("unit/test_local_*.py"), *HERE.glob("test_local_isolation_*.py")]
    # pytest's own temporary folders are for their owner alone.
    with tempfile.TemporaryDirectory() as work:
        shutil.chown(work, "nobody", "nogroup")
        pytest_line = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--basetemp={work}/tmp",
        ]
        script = ["unshare", "--mount", "--propagation", "private", "bash", "-c", PRIVATE, "ordinary"]
        command = [*script, *closed_home(sys.executable), *pytest_line, *map(str, sorted(files))]
        environment = {**os.environ, "HOME": work, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": work}
        done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True)
    with capsys.disabled():
        print(f"\nas an ordinary user: {done.stdout.splitlines()[-1] if done.stdout else done.stderr}")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]
