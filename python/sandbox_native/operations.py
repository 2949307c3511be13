# SPDX-License-Identifier: Apache-2.0
"""The file operations of any backend of the contract, the provider's and a user's own included.

What such a backend brings itself is used. Where it only has the defaults that it inherits from the provider,
which send a file in one argument, list by GNU find and export slowly, this package's defaults do the same
work over its ``run_command``.
"""

from __future__ import annotations

import functools
from typing import BinaryIO

from sandbox_native import _home, command_files, contract


def _inherits(backend: _home.SandboxBackend, name: str) -> bool:
    """Whether an operation is the default of the contract's home, which is Airflow's provider then."""
    default = getattr(_home.SandboxBackend, name, None)
    return default is not None and getattr(getattr(backend, name), "__func__", None) is default


def _runner(backend: _home.SandboxBackend, sandbox: str) -> command_files.Run:
    return functools.partial(backend.run_command, sandbox)


def read_file(backend: contract.SandboxBackend, sandbox: str, path: str, *, max_bytes: int) -> bytes:
    """See ``SandboxBackend.read_file``."""
    if _inherits(backend, "read_file"):
        return command_files.read_file(_runner(backend, sandbox), path, max_bytes=max_bytes)
    return backend.read_file(sandbox, path, max_bytes=max_bytes)


def write_file(backend: contract.SandboxBackend, sandbox: str, path: str, content: bytes) -> None:
    """See ``SandboxBackend.write_file``."""
    if _inherits(backend, "write_file"):
        command_files.write_file(_runner(backend, sandbox), path, content)
    else:
        backend.write_file(sandbox, path, content)


def list_directory(backend: contract.SandboxBackend, sandbox: str, path: str) -> list[tuple[str, bool]]:
    """See ``SandboxBackend.list_directory``."""
    if _inherits(backend, "list_directory"):
        return command_files.list_directory(_runner(backend, sandbox), path)
    return backend.list_directory(sandbox, path)


def export_file(
    backend: contract.SandboxBackend, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int
) -> int:
    """See ``SandboxBackend.export_file``."""
    if _inherits(backend, "export_file"):
        verify = getattr(backend, "verify_exports", False)
        return contract.export_by_commands(backend, sandbox, path, dest, max_bytes=max_bytes, verify=verify)
    return backend.export_file(sandbox, path, dest, max_bytes=max_bytes)
