# SPDX-License-Identifier: Apache-2.0
"""The stand-in for the program ``sbx``, and a backend that drives it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sandbox_native.backends.sbx import SbxSandboxBackend
from sandbox_native.contract import SandboxExecResult, SandboxSpec

OPEN = SandboxSpec(block_network=False)


class Sbx:
    """A machine with ``sbx``: its state, the calls it got, its faults."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = folder / "state"
        self.state.mkdir(parents=True)
        self.program = folder / "sbx"
        shutil.copy(Path(__file__).with_name("sbx_program.sh"), self.program)
        self.program.chmod(0o755)
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("SBX_STATE", str(self.state))
        monkeypatch.setattr("tempfile.tempdir", str(self.temporary))
        self.backend = self.make()

    def make(self, **options: Any) -> SbxSandboxBackend:
        return SbxSandboxBackend(
            **{"sbx_path": str(self.program), "host_network_policy": "deny-all", **options}
        )

    def fault(self, verb: str, kind: str) -> None:
        """Make one verb misbehave from now on; ``""`` ends it."""
        self._monkeypatch.setenv(f"SBX_FAULT_{verb}", kind)

    def calls(self, verb: str) -> list[str]:
        lines = (self.state / "calls").read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{verb} ")]

    def standing(self) -> list[str]:
        return [path.name for path in self.state.iterdir() if path.is_dir()]

    def work(self, sandbox: str) -> Path:
        """The folder of a sandbox that its commands start in, seen from the host."""
        return self.state / sandbox / "work"

    def run(self, sandbox: str, command: str, **options: Any) -> SandboxExecResult:
        return self.backend.run_command(
            sandbox, command, **{"timeout": 60, "max_output_bytes": 1 << 20, **options}
        )
