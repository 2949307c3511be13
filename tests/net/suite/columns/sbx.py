# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbx_tools import Sbx
from suite.table import Column, Subject


@contextlib.contextmanager
def _open() -> Iterator[Subject]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        machine = Sbx(Path(folder), monkeypatch)
        with contextlib.closing(Subject(machine.backend, another=machine.make)) as subject:
            yield subject


# The stand-in's commands are the user's who runs the tests, to whom nothing is forbidden if that is root.
_ROOT = "the stand-in's commands are root's"
_DENIED = [f"{what}: permission denied" for what in ("read", "write", "list", "export")]

COLUMNS = [Column("sbx", _open, lacks=dict.fromkeys(_DENIED, _ROOT) if os.geteuid() == 0 else {})]
