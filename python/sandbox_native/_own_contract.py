# SPDX-License-Identifier: Apache-2.0
"""The contract's classes as this package defines them, for a process without Airflow.

Names, fields and defaults are those of ``airflow.providers.common.ai.sandbox.base`` (provider 1.0.0);
``tests/airflow/test_contract_homes.py`` compares the two. Nobody imports this module but ``_home``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

# Pickles and error texts name the public module, where the other home's class is found in its turn.
_PUBLIC_MODULE = "sandbox_native.contract"


class SandboxError(Exception):
    """An operation failed in a way the model can react to: a wrong path, a file that is too large.

    A toolset answers the model's call with its text. Raised while a sandbox is created it is final,
    because the model has no say in how one is made.
    """

    __module__ = _PUBLIC_MODULE


class SandboxTerminalError(SandboxError):
    """The sandbox cannot be used, and calling again would not change that; the run ends with it.

    For example: rejected credentials, a service that cannot be reached, a sandbox that has ended, a
    restriction the backend cannot enforce.
    """

    __module__ = _PUBLIC_MODULE


class SandboxFileTooLargeError(SandboxError):
    """A file was not transferred because it holds more than the caller allowed.

    :param path: the file, as the caller named it.
    :param size_bytes: its size in bytes, or what is known of it: at least this many.
    :param max_bytes: the caller's limit in bytes.
    """

    __module__ = _PUBLIC_MODULE

    def __init__(self, path: str, size_bytes: int, max_bytes: int) -> None:
        super().__init__(f"{path!r} holds {size_bytes} bytes; the limit is {max_bytes} bytes.")
        self.path = path
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own way would call the class with the finished text alone.
        return type(self), (self.path, self.size_bytes, self.max_bytes)


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox is to be created with. A backend that cannot enforce a field must refuse it.

    :param env: environment variables inside the sandbox. Whatever is here, the model's code can read.
    :param block_network: no outbound network, except what the two lists allow.
    :param allow_egress_to: host names that may be reached while ``block_network`` is on.
    :param allow_egress_to_cidrs: IPv4 ranges in CIDR notation that may be reached on any port while
        ``block_network`` is on.
    :param owner: who may attach to the sandbox later; see :func:`sandbox_native.contract.dag_run_owner`.
        None for a sandbox that nobody else attaches to.
    """

    env: Mapping[str, str] | None = None
    block_network: bool = True
    allow_egress_to: Sequence[str] | None = None
    allow_egress_to_cidrs: Sequence[str] | None = None
    owner: str | None = None


@dataclass(frozen=True)
class AttachedSandbox:
    """What is known of a sandbox that was just claimed. None means that its creator recorded nothing.

    :param remaining_lifetime: seconds until the service ends the sandbox, 0.0 when that time is past.
    :param network: a spec that carries the network policy of its creation and nothing else.
    :param workdir: the directory that relative paths start from.
    """

    remaining_lifetime: float | None
    network: SandboxSpec | None
    workdir: str | None


@dataclass(frozen=True)
class SandboxExecResult:
    """How one command ended.

    :param exit_code: the command's exit status; meaningless when ``timed_out``.
    :param stdout: standard output, its last part when ``stdout_truncated``.
    :param stderr: standard error, its last part when ``stderr_truncated``.
    :param timed_out: the command reached its time limit and was stopped.
    :param stdout_truncated: the backend dropped a part of standard output.
    :param stderr_truncated: the backend dropped a part of standard error.
    :param sandbox_terminated: the sandbox ended with, or because of, this command.
    :param applied_timeout: the time limit in seconds where it was another than the one asked for.
    """

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    sandbox_terminated: bool = False
    applied_timeout: float | None = None


for _cls in (SandboxSpec, AttachedSandbox, SandboxExecResult):
    _cls.__module__ = _PUBLIC_MODULE
del _cls


class SandboxBackend(ABC):
    """The operations every backend has to bring; see :class:`sandbox_native.contract.SandboxBackend`."""

    name: ClassVar[str]
    """Short name of the backend, as in ``"local"``."""

    @abstractmethod
    def create(self, *, spec: SandboxSpec | None = None) -> str:
        """Make one sandbox.

        :param spec: what it must be like; None leaves everything to the backend.
        :return: the handle that the other operations take.
        :raises SandboxTerminalError: it cannot be made, or not as ``spec`` demands.
        """

    @abstractmethod
    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        """Run ``command`` by a POSIX shell in the sandbox and wait for its end.

        :param sandbox: a handle from :meth:`create`.
        :param command: shell text; may hold newlines.
        :param timeout: seconds until the command is stopped.
        :param max_output_bytes: bytes to keep of each of the two streams.
        :raises SandboxError: the command could not be run, for a reason the model can mend.
        :raises SandboxTerminalError: the sandbox is gone, or its service does not answer.
        """

    @abstractmethod
    def destroy(self, sandbox: str) -> None:
        """End the sandbox and all that runs in it. Ending one that is gone is no error."""


class AttachableSandboxBackend(SandboxBackend):
    """Adds the two primitives that attaching is built on."""

    @abstractmethod
    def read_tags(self, sandbox: str) -> Mapping[str, str]:
        """The tags the sandbox carries.

        :raises SandboxTerminalError: there is no such sandbox, or it has ended.
        """

    @abstractmethod
    def write_tags(self, sandbox: str, tags: Mapping[str, str]) -> None:
        """Replace all tags of the sandbox by ``tags``."""
