# SPDX-License-Identifier: Apache-2.0
"""Sandboxes at Islo (islo.dev): virtual machines behind a hosted API, reached over HTTP without its SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal

from sandbox_native import validate
from sandbox_native.contract import SandboxBackend, SandboxExecResult, SandboxSpec

if TYPE_CHECKING:
    from sandbox_native.backends._islo_service import Service

_AUTO_RESUME = ("never", "on_activity")


class IsloSandboxBackend(SandboxBackend):
    """Runs commands in virtual machines of `islo.dev <https://islo.dev>`__.

    Credentials are those of the worker's environment, read at the first use: ``ISLO_API_KEY``, and where they
    are set ``ISLO_BASE_URL`` and ``ISLO_COMPUTE_URL``.

    File contents move through the service's own calls. Everything else is a command: the image needs ``sh``
    with ``mkdir``, ``rm``, ``tail``, ``head``, ``wc`` and ``stat``, and ``base64`` or ``od``. A command's
    output is kept in the sandbox and its last bytes are sent.

    The service cannot stop a command. One whose time is up, or that is cancelled, is ended by deleting its
    sandbox; a result says so by ``sandbox_terminated``. What a command printed before its time was up is
    kept.

    A copy or an unpickled backend has the same options. Handles of another process work.

    :param image: of the sandbox; None: the service's default.
    :param vcpus: virtual processors; None: the service's default.
    :param memory_mb: memory in MB; None: the service's default.
    :param pause_after_idle: seconds without a call after which the service pauses the machine; None: never.
    :param auto_resume: ``"on_activity"``: a call resumes a paused sandbox. ``"never"``: a paused sandbox is
        lost for the run.
    :param delete_after: seconds after its creation at which the service deletes the sandbox, in use or not;
        None: never.
    :raises ValueError: a value is out of its range; the text names the parameter.
    """

    name: ClassVar[str] = "islo"
    concurrent_exports: ClassVar[int] = 4

    def __init__(
        self,
        *,
        image: str | None = None,
        vcpus: int | None = None,
        memory_mb: int | None = None,
        pause_after_idle: int | None = 600,
        auto_resume: Literal["never", "on_activity"] = "on_activity",
        delete_after: int | None = 86400,
    ) -> None:
        for parameter, value in (
            ("vcpus", vcpus),
            ("memory_mb", memory_mb),
            ("pause_after_idle", pause_after_idle),
            ("delete_after", delete_after),
        ):
            if value is not None:
                validate.positive_whole(value, parameter)
        if auto_resume not in _AUTO_RESUME:
            raise ValueError(f"auto_resume must be one of {list(_AUTO_RESUME)}, got {auto_resume!r}.")
        if image is not None:
            validate.text(image, "image")
        self._image = image
        self._vcpus = vcpus
        self._memory_mb = memory_mb
        self._pause_after_idle = pause_after_idle
        self._auto_resume = auto_resume
        self._delete_after = delete_after
        self._made: Service | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The key stays in this process; a copy reads its own environment.
        return {**self.__dict__, "_made": None}

    def _service(self) -> Service:
        made = self._made
        if made is None:
            from sandbox_native.backends._islo_service import Service

            made = self._made = Service(self)
        return made

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        """Make a sandbox and return its name.

        The call is not made twice unless the service refused it. One that fails is followed by a delete of
        the name it asked for.

        :param spec: None is the default spec: no network.
        :raises SandboxTerminalError: it could not be made, or the spec asks for what cannot be enforced or
            recorded here: an egress list, an owner, ``PATH``.
        """
        from sandbox_native import spec_check

        spec_check.refuse(spec)
        result: str = self._service().create(spec=spec)
        return result

    def destroy(self, sandbox: str) -> None:
        """Delete a sandbox. One that is gone is fine, whatever the body of the answer that says so.

        :raises SandboxTerminalError: it could not be confirmed that the sandbox is gone.
        """
        self._service().destroy(sandbox)

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        """Run a shell command and wait for its end; its background children live on.

        When its time is up, the sandbox is deleted: ``timed_out`` and ``sandbox_terminated``.

        :param command: for ``sh -c``.
        :param timeout: seconds from when the service has accepted the command.
        :param max_output_bytes: how much of the end of each stream is kept; at most a MiB less one byte.
        :raises ValueError: ``timeout`` or ``max_output_bytes`` is not positive.
        :raises SandboxError: the command cannot be given to a shell.
        :raises SandboxTerminalError: the service or the sandbox does not serve, or it cannot be known how the
            command did. If that was so when its time was up, the sandbox was deleted.
        :raises CallCancelled: cancelled; the sandbox was deleted.
        """
        result: SandboxExecResult = self._service().run_command(
            sandbox, command, timeout=timeout, max_output_bytes=max_output_bytes
        )
        return result

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        """Read a regular file, by the service's own call.

        :param path: absolute, or relative to where commands start.
        :raises ValueError: ``max_bytes`` is not positive.
        :raises SandboxFileTooLargeError: it is larger than ``max_bytes``.
        :raises SandboxError: it cannot be read; the text says why.
        :raises SandboxTerminalError: the service or the sandbox does not serve.
        """
        result: bytes = self._service().read_file(sandbox, path, max_bytes=max_bytes)
        return result

    # No file_stamp: the service only tells of a file by a command, whose start and polls cost more than the
    # one request that fetches a page's whole file.

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        """Create or replace a file of any size, by the service's own call, with its missing parents.

        :param path: absolute, or relative to where commands start.
        :raises SandboxError: it cannot be written; the text says why.
        :raises SandboxTerminalError: the service or the sandbox does not serve.
        """
        self._service().write_file(sandbox, path, content)

    def import_file(self, sandbox: str, path: str, source: BinaryIO, *, size: int) -> None:
        """Create or replace a file by ``size`` bytes of ``source``, by the service's own call.

        :raises EOFError: ``source`` has fewer bytes; its own exceptions come out as they are.
        :raises SandboxError: the file cannot be written, or it took longer than allowed.
        :raises SandboxTerminalError: the service or the sandbox does not serve.
        """
        self._service().import_file(sandbox, path, source, size)

    def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
        """The names in a directory and whether each is one; a link to a directory counts as one.

        :raises SandboxError: it cannot be listed; the text says why.
        :raises SandboxTerminalError: the service or the sandbox does not serve.
        """
        result: list[tuple[str, bool]] = self._service().list_directory(sandbox, path)
        return result

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        """Copy a regular file to ``dest`` and return its size; straight to its descriptor where it has one.

        :param path: absolute, or relative to where commands start.
        :param max_bytes: the largest file that is exported.
        :raises ValueError: ``max_bytes`` is not positive.
        :raises SandboxFileTooLargeError: it is larger.
        :raises SandboxError: it is no regular file, changed meanwhile, or took longer than allowed.
        :raises SandboxTerminalError: the service or the sandbox does not serve.
        """
        result: int = self._service().export_file(sandbox, path, dest, max_bytes=max_bytes)
        return result


def diagnose() -> list[tuple[str, bool, str, str]]:
    """Whether Islo can be reached with the environment's key: (check, works, detail, what to do).

    Makes no sandbox, and shows neither key nor token.
    """
    from sandbox_native.backends import _islo_service

    checks: list[tuple[str, bool, str, str]] = _islo_service.diagnose()
    return checks
