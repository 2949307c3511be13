# SPDX-License-Identifier: Apache-2.0
"""An import of files of any size, as each hosted backend has to do it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox_native import command_files
from sandbox_native.contract import SandboxBackend


def check_import(backend: SandboxBackend, sandbox: str, folder: Path, kind: str) -> None:
    """Files come whole into a new and an old place, from where the source is; one that ends early fails.

    :param folder: where the sources are made.
    :param kind: ``file`` for a source with a descriptor, ``stream`` for one without.
    """
    source_path = folder / "source"
    for size in (0, 1, 100_000, command_files.IMPORT_AT_ONCE_BYTES + 1):
        content = os.urandom(size)
        source_path.write_bytes(b"before" + content + b"after")
        for _ in range(2 if size <= 100_000 else 1):
            with open(source_path, "rb") as file:
                file.read(6)
                source: Any = io.BytesIO(content + b"after") if kind == "stream" else file
                backend.import_file(sandbox, f"new dir/{size}", source, size=size)
                assert source.read() == b"after"
            assert backend.read_file(sandbox, f"new dir/{size}", max_bytes=1 << 24) == content
    with open(source_path, "rb") as file, pytest.raises(EOFError):
        backend.import_file(sandbox, "short", file, size=1 << 24)
