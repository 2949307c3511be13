# SPDX-License-Identifier: Apache-2.0
"""Stands in for Modal's SDK and Airflow's hook for it, as far as the provider's ModalSandboxBackend uses it.

Its sandboxes are local ones, which start commands in /workspace as Modal's do. What one backend makes,
another finds by its id, as two tasks do.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import airflow  # noqa: F401  (before sandbox_native, which takes its contract's classes from it)

from sandbox_native.backends.local import LocalSandboxBackend
from sandbox_native.contract import SandboxExecResult, SandboxSpec


class Error(Exception):
    pass


_ERRORS = {
    name: type(name, (Error,), {})
    for name in (
        "AuthError",
        "ExecTimeoutError",
        "InvalidError",
        "NotFoundError",
        "PermissionDeniedError",
        "SandboxFilesystemError",
        "SandboxTerminatedError",
        "SandboxTimeoutError",
    )
}
_ERRORS["ConflictError"] = type("ConflictError", (_ERRORS["InvalidError"],), {})

_local = LocalSandboxBackend()
sandboxes: dict[str, Sandbox] = {}


class Process:
    """A command that was started."""

    def __init__(self, sandbox: Sandbox, command: str, timeout: float) -> None:
        self._ended = threading.Event()
        self._result: SandboxExecResult | None = None
        self.stdout = self._stream("stdout")
        self.stderr = self._stream("stderr")

        def run() -> None:
            self._result = _local.run_command(
                sandbox.handle, command, timeout=timeout, max_output_bytes=1 << 26
            )
            self._ended.set()

        threading.Thread(target=run, daemon=True).start()

    def _stream(self, name: str) -> Iterator[bytes]:
        self._ended.wait()
        data = getattr(self._result, name).encode()
        for at in range(0, len(data), 100_000):
            yield data[at : at + 100_000]

    def wait(self) -> int:
        self._ended.wait()
        assert self._result is not None
        if self._result.timed_out:
            raise _ERRORS["ExecTimeoutError"]("deadline")
        return self._result.exit_code


class Sandbox:
    """``modal.Sandbox``."""

    def __init__(self, tags: dict[str, str], options: dict[str, Any]) -> None:
        self.handle = _local.create(spec=SandboxSpec(env=options.get("env")))
        self.object_id = f"sb-{self.handle}"
        self.options = options
        self.tags = dict(tags)
        self.ended = False
        self.commands: list[str] = []
        self.filesystem = SimpleNamespace(write_bytes=self._write, list_files=self._list)

    def _alive(self) -> None:
        if self.ended:
            raise _ERRORS["SandboxTerminatedError"](self.object_id)

    def exec(self, shell: str, option: str, command: str, *, timeout: float, text: bool) -> Process:
        self._alive()
        assert (shell, option) == ("sh", "-c")
        self.commands.append(command)
        return Process(self, command, timeout)

    def _write(self, content: bytes, path: str) -> None:
        self._alive()
        _local.write_file(self.handle, path, content)

    def _list(self, path: str) -> list[Any]:
        self._alive()
        found = _local.list_directory(self.handle, path)
        return [SimpleNamespace(name=name, is_dir=lambda d=is_dir: d) for name, is_dir in found]

    def get_tags(self) -> dict[str, str]:
        self._alive()
        return dict(self.tags)

    def set_tags(self, tags: dict[str, str]) -> None:
        self._alive()
        self.tags = dict(tags)

    def poll(self) -> int | None:
        return 0 if self.ended else None

    def terminate(self) -> None:
        self.ended = True
        _local.destroy(self.handle)


class ModalHook:
    """``airflow.providers.modal.hooks.modal.ModalHook``."""

    default_conn_name = "modal_default"

    def __init__(self, modal_conn_id: str) -> None:
        self.modal_conn_id = modal_conn_id
        self.credentials = None

    def get_conn(self) -> object:
        return object()

    def create_sandbox(self, *, tags: dict[str, str], **options: Any) -> Sandbox:
        made = Sandbox(tags, options)
        sandboxes[made.object_id] = made
        return made

    def get_sandbox(self, sandbox: str) -> Sandbox:
        if sandbox not in sandboxes or sandboxes[sandbox].ended:
            raise _ERRORS["NotFoundError"](sandbox)
        return sandboxes[sandbox]


def install() -> None:
    """Put the stand-ins where the provider's module looks for the real ones."""
    exception = ModuleType("modal.exception")
    vars(exception).update(_ERRORS, Error=Error)
    modal = ModuleType("modal")
    image = SimpleNamespace(from_registry=lambda name: f"image {name}")
    vars(modal).update(exception=exception, Image=image, Sandbox=Sandbox)
    exceptions = ModuleType("airflow.providers.modal.exceptions")
    vars(exceptions).update(ModalConnectionError=type("ModalConnectionError", (Exception,), {}))
    hook = ModuleType("airflow.providers.modal.hooks.modal")
    vars(hook).update(ModalHook=ModalHook)
    for name in ("airflow.providers.modal", "airflow.providers.modal.hooks"):
        package = ModuleType(name)
        package.__path__ = []
        sys.modules.setdefault(name, package)
    for module in (modal, exception, exceptions, hook):
        sys.modules[module.__name__] = module
