# SPDX-License-Identifier: Apache-2.0
"""What a backend promises and a toolset relies on.

One contract with two homes: in a process where Airflow was loaded before this module, the errors, the
spec and the results *are* the classes of ``airflow.providers.common.ai.sandbox.base`` and the two base
classes derive from its own. In any other process this package defines the same names itself.
:data:`home` says which it was.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from sandbox_native import _attach, _home
from sandbox_native._home import (
    AttachedSandbox,
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
    home,
    require_airflow_home,
)
from sandbox_native._tags import (
    EXPIRES_AT_TAG,
    HOLDER_TAG,
    NETWORK_TAG,
    OWNER_TAG,
    WORKDIR_TAG,
    dag_run_owner,
    decode_network_policy,
    encode_network_policy,
    is_sandbox_handle,
)
from sandbox_native.names import new_sandbox_name as _new_sandbox_name  # noqa: F401 (the provider's name)
from sandbox_native.validate import positive_finite as _validate_positive_finite  # noqa: F401 (likewise)

# What does the file operations is loaded at the first of them: every parse of a Dag imports this module.
if TYPE_CHECKING:
    from sandbox_native.command_files import Run

# The provider's name for it. About three times as much is held while a slice is on its way and decoded.
_EXPORT_CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes that the commands of the default export have on their way together."""
_EXPORT_LEAST_BYTES = 1024 * 1024
"""What one of them reads at least: less is spent on starting it."""


def _export_allowance(max_bytes: int) -> float:
    """Seconds that an export of ``max_bytes`` may take; the provider's name for it."""
    from sandbox_native import command_files

    return command_files.export_allowance(max_bytes)


def export_by_commands(
    backend: _home.SandboxBackend,
    sandbox: str,
    path: str,
    dest: BinaryIO,
    *,
    max_bytes: int,
    verify: bool = False,
) -> int:
    """Do what :meth:`SandboxBackend.export_file` does, with nothing but a backend's ``run_command``.

    :param backend: any backend of the contract, also one that does not derive from this module's.
    :param sandbox: a handle of it.
    :param path: as :meth:`SandboxBackend.export_file` has it, and so ``dest`` and ``max_bytes``.
    :param verify: as :attr:`SandboxBackend.verify_exports`.
    """
    from sandbox_native import default_export

    in_flight = getattr(backend, "concurrent_commands", 1)
    return default_export.export_file(
        functools.partial(backend.run_command, sandbox),
        path,
        dest,
        max_bytes=max_bytes,
        slice_bytes=max(_EXPORT_CHUNK_BYTES // in_flight, min(_EXPORT_CHUNK_BYTES, _EXPORT_LEAST_BYTES)),
        allowance=_export_allowance(max_bytes),
        in_flight=in_flight,
        verify=verify,
    )


__all__ = [
    "EXPIRES_AT_TAG",
    "HOLDER_TAG",
    "NETWORK_TAG",
    "OWNER_TAG",
    "WORKDIR_TAG",
    "AttachableSandboxBackend",
    "AttachedSandbox",
    "SandboxBackend",
    "SandboxError",
    "SandboxExecResult",
    "SandboxFileTooLargeError",
    "SandboxSpec",
    "SandboxTerminalError",
    "dag_run_owner",
    "decode_network_policy",
    "encode_network_policy",
    "home",
    "is_sandbox_handle",
    "require_airflow_home",
]


class SandboxBackend(_home.SandboxBackend):
    """Creates sandboxes on one service and works in them.

    A subclass sets ``name`` and brings ``create``, ``run_command`` and ``destroy``. Constructors do no
    I/O: they run whenever a Dag is parsed. All methods block; toolsets call them from threads.

    The file operations need nothing but ``run_command`` and a POSIX shell with the usual tools in the sandbox
    (:mod:`sandbox_native.guest` names them). A backend with a better way overrides them.
    """

    concurrent_commands: ClassVar[int] = 1
    """How many commands of one sandbox the default export may run at a time. More pays where a command mostly
    waits for its service."""

    concurrent_exports: ClassVar[int] = 1
    """How many small files of one sandbox may be exported at a time. More pays where an export mostly waits
    for the service, or for the store that the files go to."""

    verify_exports: bool = False
    """Whether the default export compares a checksum of what arrived with one computed in the sandbox, which
    needs a ``sha256sum``, ``sha1sum`` or ``md5sum`` there."""

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        """The content of a file.

        :param path: absolute, or relative to where commands start.
        :param max_bytes: the most that may be read, in bytes.
        :raises SandboxFileTooLargeError: the file holds more than ``max_bytes``.
        :raises SandboxError: there is no such file, it is a directory, or it cannot be read.
        :raises SandboxTerminalError: the sandbox ended.
        :raises ValueError: ``max_bytes`` is no positive number.
        """
        from sandbox_native import command_files

        return command_files.read_file(self._runner(sandbox), path, max_bytes=max_bytes)

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        """Create or replace a file, and the directories above it that are missing.

        A link is followed. A file that is there keeps its mode and owner. Nothing is changed by a failure.

        :param path: absolute, or relative to where commands start.
        :param content: all of the file.
        :raises SandboxError: it cannot be written.
        :raises SandboxTerminalError: the sandbox ended.
        """
        from sandbox_native import command_files

        command_files.write_file(self._runner(sandbox), path, content)

    def import_file(self, sandbox: str, path: str, source: BinaryIO, *, size: int) -> None:
        """Create or replace a file by ``size`` bytes read from ``source``, in constant memory.

        :param path: as :meth:`write_file` has it.
        :param source: a binary file open for reading; may be at more than its beginning. Its exceptions come
            out as they are.
        :param size: bytes the file is to have.
        :raises EOFError: it has fewer bytes.
        :raises SandboxError: the file cannot be written, or it took too long.
        :raises SandboxTerminalError: the sandbox ended.
        """
        from sandbox_native import command_files

        command_files.import_into(self, sandbox, path, source, size=size)

    def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
        """The entries of a directory, ``.`` and ``..`` left out, each with whether it is a directory.

        A link counts as what it leads to.

        :param path: absolute, or relative to where commands start.
        :return: name and whether it is a directory, in no order.
        :raises SandboxError: there is no such directory, or it cannot be read.
        :raises SandboxTerminalError: the sandbox ended.
        """
        from sandbox_native import command_files

        return command_files.list_directory(self._runner(sandbox), path)

    def file_stamp(self, sandbox: str, path: str) -> object | None:
        """A value that is another one when the file may have another content; None if that cannot be told.

        Only compared with ``==``. With it the next page of a file need not be read again from the sandbox. A
        backend whose clock is too coarse for a file that was written just now returns None for it.

        :param path: absolute, or relative to where commands start.
        :raises SandboxError: there is no such file, or it cannot be looked at.
        :raises SandboxTerminalError: the sandbox ended.
        """
        return None

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        """Copy a regular file to ``dest``, whatever its size, in constant memory.

        :param path: absolute, or relative to where commands start.
        :param dest: a binary file open for writing. Its exceptions come out as they are.
        :param max_bytes: the largest file that is exported, in bytes.
        :return: bytes written.
        :raises SandboxFileTooLargeError: the file holds more; nothing was written.
        :raises SandboxError: it is no regular file, it changed meanwhile, or it took too long.
        :raises SandboxTerminalError: the sandbox ended.
        :raises ValueError: ``max_bytes`` is no positive number.
        """
        return export_by_commands(self, sandbox, path, dest, max_bytes=max_bytes, verify=self.verify_exports)

    def _runner(self, sandbox: str) -> Run:
        return functools.partial(self.run_command, sandbox)


class AttachableSandboxBackend(SandboxBackend, _home.AttachableSandboxBackend):
    """A backend whose sandboxes can be found again by another process, by the tags they carry.

    A subclass brings ``read_tags`` and ``write_tags`` too, stamps :data:`OWNER_TAG`, :data:`EXPIRES_AT_TAG`,
    :data:`NETWORK_TAG` and :data:`WORKDIR_TAG` in ``create``, and inherits the rules. They guard against
    mistakes, such as a handle of another Dag run; whoever has the service's credentials can rewrite tags.
    """

    def attach(self, sandbox: str, *, owner: str, holder: str) -> AttachedSandbox:
        """Claim a sandbox for one run.

        The same ``holder`` may claim again, so a retried task finds its files.

        :param sandbox: the handle.
        :param owner: must equal the owner the sandbox was created for.
        :param holder: who uses it from now on.
        :return: what its creator recorded about it.
        :raises SandboxTerminalError: another owner, another holder, or the sandbox is gone.
        """
        return _attach.claim(self, sandbox, owner=owner, holder=holder)

    def release(self, sandbox: str, *, holder: str) -> None:
        """Give up the claim of ``holder``; a claim of anybody else stays. Never ends the sandbox.

        :raises SandboxTerminalError: the sandbox is gone.
        """
        _attach.release(self, sandbox, holder=holder)
