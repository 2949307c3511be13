# SPDX-License-Identifier: Apache-2.0
"""Disposable sandboxes for LLM agents: Airflow tasks and pydantic-ai programs, with a C core.

Importing the package loads nothing. Each public name is loaded from its module on first use, which is
also when the process decides whose contract classes it has: in an Airflow program ``airflow`` is to be
imported before that (see :mod:`sandbox_native.contract`).
"""

from __future__ import annotations

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without loading typing

if TYPE_CHECKING:
    from sandbox_native.contract import (
        AttachableSandboxBackend,
        AttachedSandbox,
        SandboxBackend,
        SandboxError,
        SandboxExecResult,
        SandboxFileTooLargeError,
        SandboxSpec,
        SandboxTerminalError,
        dag_run_owner,
        is_sandbox_handle,
    )
    from sandbox_native.registry import backend
    from sandbox_native.toolset import SandboxToolset

    __version__: str

_CONTRACT = "sandbox_native.contract"
# Public name -> the module that has it. SandboxToolset and __version__ are found by rules of their own.
_MODULES = {
    "AttachableSandboxBackend": _CONTRACT,
    "AttachedSandbox": _CONTRACT,
    "SandboxBackend": _CONTRACT,
    "SandboxError": _CONTRACT,
    "SandboxExecResult": _CONTRACT,
    "SandboxFileTooLargeError": _CONTRACT,
    "SandboxSpec": _CONTRACT,
    "SandboxTerminalError": _CONTRACT,
    "backend": "sandbox_native.registry",
    "dag_run_owner": _CONTRACT,
    "is_sandbox_handle": _CONTRACT,
}

__all__ = [
    "AttachableSandboxBackend",
    "AttachedSandbox",
    "SandboxBackend",
    "SandboxError",
    "SandboxExecResult",
    "SandboxFileTooLargeError",
    "SandboxSpec",
    "SandboxTerminalError",
    "SandboxToolset",
    "__version__",
    "backend",
    "dag_run_owner",
    "is_sandbox_handle",
]


def __getattr__(name: str) -> object:
    # importlib is imported here, not above: the first use pays for it.
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("sandbox-native")
    elif name == "SandboxToolset" or name in _MODULES:
        from importlib import import_module

        value = getattr(import_module(_MODULES.get(name) or _toolset_module()), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _toolset_module() -> str:
    """The toolset that fits the classes this process' contract consists of."""
    from sandbox_native.contract import home

    return "sandbox_native.airflow" if home == "airflow" else "sandbox_native.toolset"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
