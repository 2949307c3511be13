# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_program import cli
from sandbox_native.cli import doctor
from sbx_tools import Sbx


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """One that every user may enter: bubblewrap is not started by root, even where root starts a sandbox."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_machine_that_runs_sandboxes_is_told_so() -> None:
    done = cli("doctor")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stdout.decode()
    assert [line for line in lines if line.startswith(f"ok      {'sandbox':<37}")]
    version = importlib.metadata.version("pydantic-ai-slim")
    assert f"ok      {'pydantic-ai-slim':<37}{version}" in lines
    assert lines[-1] == "A local sandbox works here."


def test_the_command_that_mends_a_fault_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *args, **kwargs: None)
    monkeypatch.setattr(doctor, "knob", {"/proc/sys/user/max_user_namespaces": "0"}.get)
    assert doctor.doctor() == 1
    text = capsys.readouterr().out
    faults = [line.split()[1] for line in text.splitlines() if line.startswith("FAULT")]
    assert faults == ["user", "seccomp", "bubblewrap", "sandbox"]
    assert "apt-get install bubblewrap" in text
    assert "sysctl -w user.max_user_namespaces=" in text


def test_a_sandbox_that_does_not_start_is_a_fault_with_its_reason(public_folder: Path) -> None:
    bwrap = public_folder / "bwrap"
    bwrap.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo bubblewrap 0.8.0; exit; fi\n'
        "echo 'bwrap: No permissions to create new namespace' >&2\n"
        "exit 1\n"
    )
    bwrap.chmod(0o755)
    done = cli("doctor", PATH=f"{public_folder}:{os.environ['PATH']}")
    text = done.stdout.decode()
    assert done.returncode == 1
    assert str(bwrap) in text
    (fault,) = [line for line in text.splitlines() if line.startswith("FAULT")]
    assert fault.startswith("FAULT   sandbox ")
    assert "namespace" in fault
    assert text.endswith("A local sandbox does not work here; see above.\n")


def test_the_program_of_the_sbx_backend_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Sbx(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert doctor.sbx().state == "ok" and "0.0 (stand-in)" in doctor.sbx().detail
    machine.fault("version", "fail")
    assert doctor.sbx().state == "limited" and "it does not work" in doctor.sbx().detail
    machine.program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.sbx().state == "absent"
