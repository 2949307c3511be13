# SPDX-License-Identifier: Apache-2.0
"""Sandboxes and stores that several modules of tests work in. A module may have its own of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from guests import NAMES, guest
from sandbox_native import registry
from sandbox_native.contract import SandboxBackend
from shell_backend import ShellBackend


@pytest.fixture(params=NAMES)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> ShellBackend:
    """A guest of every kind, reached by commands alone."""
    (tmp_path / "work").mkdir()
    return ShellBackend(tmp_path / "work", **guest(request.param, tmp_path / "tools"))


@pytest.fixture
def plain(tmp_path: Path) -> ShellBackend:
    """A guest with the tools of this machine, reached by commands alone."""
    (tmp_path / "work").mkdir()
    return ShellBackend(tmp_path / "work")


@pytest.fixture(params=[*NAMES, "local"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[SandboxBackend, str]]:
    """A backend with a standing sandbox: a guest of every kind, and the local one."""
    if request.param != "local":
        (tmp_path / "root").mkdir()
        yield ShellBackend(tmp_path / "root", **guest(request.param, tmp_path / "tools")), "box"
        return
    local = registry.backend("local")
    sandbox = local.create()
    yield local, sandbox
    local.destroy(sandbox)


@pytest.fixture
def memory() -> Iterator[Any]:
    """The file system of ``memory://``; what is in its folder ``dest`` goes in the end."""
    fs = fsspec.filesystem("memory")
    yield fs
    if fs.exists("/dest"):
        fs.rm("/dest", recursive=True)
