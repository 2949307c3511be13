# SPDX-License-Identifier: Apache-2.0
"""Paths of the host that a local sandbox is shown."""

from __future__ import annotations

from pathlib import Path

from sandbox_native import SandboxSpec
from sandbox_native.backends.local import LocalSandboxBackend


def test_a_path_below_a_private_folder_is_shown_and_nothing_beside_it(tmp_path: Path) -> None:
    shown = tmp_path / "private" / "deep" / "shown"
    shown.mkdir(parents=True)
    (shown / "file").write_text("content")
    (tmp_path / "private" / "beside").write_text("hidden")
    # As the home of root: only its owner may pass. Commands have another user id.
    (tmp_path / "private").chmod(0o700)
    backend = LocalSandboxBackend(read_only_paths=[str(shown)])
    sandbox = backend.create(spec=SandboxSpec())
    try:
        line = f"cat {shown}/file; echo; ls -A {shown.parent.parent}; echo new > {shown}/file"
        result = backend.run_command(sandbox, line, timeout=30, max_output_bytes=10_000)
    finally:
        backend.destroy(sandbox)
    assert result.stdout == "content\ndeep\n"
    assert result.exit_code != 0
    assert "Read-only" in result.stderr
