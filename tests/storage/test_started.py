# SPDX-License-Identifier: Apache-2.0
"""What starts the stores of these tests leaves nothing of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from started import started


def alive(process: int) -> bool:
    try:
        # A zombie whose parent has gone is nobody's any more.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("deaf", [False, True])
def test_a_server_ends_with_what_it_started(tmp_path: Path, deaf: bool) -> None:
    ready = tmp_path / "ready"
    child = tmp_path / "child"
    child.write_text(f"trap '{'' if deaf else 'exit'}' TERM; echo $$ >{ready}; while :; do sleep 1; done\n")
    command = ["/bin/sh", "-c", f"sh {child} & wait"]
    with started(command, dict(os.environ), tmp_path / "log", lambda: int(ready.read_text())):
        process = int(ready.read_text())
        assert alive(process)
    deadline = time.monotonic() + 60
    while alive(process):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_that_ends_at_once_is_told_with_its_log(tmp_path: Path) -> None:
    def answers() -> None:
        raise OSError("no")

    with (
        pytest.raises(RuntimeError, match="did not start: no such store"),
        started(["/bin/sh", "-c", "echo no such store"], dict(os.environ), tmp_path / "log", answers),
    ):
        pass
