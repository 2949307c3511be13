# SPDX-License-Identifier: Apache-2.0
"""The sbx backend's export beside the shell's redirection of the same output, and beside the provider's."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# First, so that the contract's classes are the provider's.
from airflow.providers.common.ai.sandbox import sbx

from measure import Row, growth, seconds, side_by_side, size  # isort: skip

from sandbox_native.backends.sbx import SbxSandboxBackend  # isort: skip

GB = 1_000_000_000
# All that an export needs of the program: `exec SANDBOX COMMAND...`, run here.
PROGRAM = '#!/bin/sh\n[ "$1" = exec ] || exit 2\nshift 2\nexec "$@"\n'
# In memory, so that reading costs as little as it can.
SOURCE = Path("/dev/shm/sandbox-native-bench-process")


def make(folder: str, size_: int) -> str:
    program = Path(folder, "sbx")
    program.write_text(PROGRAM)
    program.chmod(0o755)
    block = os.urandom(10_000_000)
    with SOURCE.open("wb") as file:
        for at in range(0, size_, len(block)):
            file.write(block[: size_ - at])
    return str(program)


def export(backend: SbxSandboxBackend | sbx.SbxSandboxBackend, dest: str, path: str = str(SOURCE)) -> None:
    with open(dest, "wb") as file:
        backend.export_file("box", path, file, max_bytes=2 * GB)


def grown() -> tuple[Callable[[], object], Callable[[], object]]:
    folder = tempfile.mkdtemp()
    backend = SbxSandboxBackend(sbx_path=make(folder, 200_000_000))
    small = Path(folder, "small")
    small.write_bytes(b"x")
    dest = str(Path(folder, "dest"))
    return lambda: export(backend, dest, str(small)), lambda: export(backend, dest)


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = make(folder, GB)
            dest = str(Path(folder, "dest"))
            ours, theirs = SbxSandboxBackend(sbx_path=program), sbx.SbxSandboxBackend(sbx_path=program)
            command = f"{program} exec box cat {SOURCE} > {dest}"
            a, shell, provider = side_by_side(
                lambda: export(ours, dest),
                lambda: subprocess.run(["sh", "-c", command], check=True),
                lambda: export(theirs, dest),
                runs=4,
            )
            work = "process export (sbx) of 1 GB to a file"
            yield Row(
                work, "0.95x", seconds(a), f"{seconds(shell)} (cmd > file)", shell / a, shell / a >= 0.95
            )
            yield Row(work, "", seconds(a), f"{seconds(provider)} (provider)", provider / a)
            memory = growth(__file__, "grown")
            yield Row(f"{work}: memory", "8 MiB", size(memory), met=memory < 8 * 2**20)
        finally:
            SOURCE.unlink(missing_ok=True)
