# SPDX-License-Identifier: Apache-2.0
"""Sandboxes on an OpenSandbox server (Docker or Kubernetes behind one HTTP interface), without its SDK."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from sandbox_native import validate
from sandbox_native.contract import (
    EXPIRES_AT_TAG,
    NETWORK_TAG,
    OWNER_TAG,
    WORKDIR_TAG,
    AttachableSandboxBackend,
    AttachedSandbox,
    SandboxError,
    SandboxExecResult,
    SandboxSpec,
    SandboxTerminalError,
    encode_network_policy,
)

if TYPE_CHECKING:
    from sandbox_native.backends._opensandbox_commands import Commands
    from sandbox_native.backends._opensandbox_files import Files
    from sandbox_native.backends._opensandbox_lifecycle import Sandbox
    from sandbox_native.backends._opensandbox_service import Service

log = logging.getLogger(__name__)

# As the provider's, so that whoever looks for one on a shared server finds the other's, too.
_CREATED_BY = {"created-by": "airflow"}
# Of an image: nothing to keep running but the sandbox.
_ENTRYPOINT = ["tail", "-f", "/dev/null"]
_EXPORT_SLICE = 3 * 1024 * 1024
_WORKDIR_TIMEOUT = 30.0


class _State:
    """What is made on first use, and stays with the process that made it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.service: Service | None = None
        self.sandboxes: dict[str, Sandbox] = {}
        self.attached: set[str] = set()


class OpenSandboxBackend(AttachableSandboxBackend):
    """Runs commands in sandboxes of an OpenSandbox server.

    The server is named by an Airflow connection (host, port, schema ``http`` or ``https``, the API key as
    password, and the extras ``request_timeout`` in seconds and ``use_server_proxy``), or without one by the
    environment: ``OPEN_SANDBOX_DOMAIN`` and ``OPEN_SANDBOX_API_KEY``. It is looked up at the first call.

    A spec that blocks the network needs a server whose egress sidecar runs in ``dns+nft`` mode: the policy is
    read back after the creation, and a sandbox that does not enforce it is destroyed. Without a spec there is
    no policy.

    The sandboxes live on the server, at most ``sandbox_timeout`` seconds: handles work in other processes,
    and one created with ``SandboxSpec.owner`` can be attached to. Its tags are the server's metadata, which
    has no conditional write: two runs that attach at the very same moment can both be let in, unless one
    reads its claim back after the other's write.

    A command that is over its time limit, or cancelled, is ended with all that it started. Where that cannot
    be confirmed the sandbox is destroyed, and the result says so (``sandbox_terminated``); one that was
    attached to is left as it is, and the call fails. A timeout is told apart from a command that kills itself
    by a clock that starts when the server says that it was started.

    :param opensandbox_conn_id: Airflow connection; None for the environment.
    :param image: container image of the sandboxes; needs a shell and the usual tools.
    :param cpu: limit in CPUs, as Kubernetes writes it.
    :param memory: limit, as Kubernetes writes it.
    :param sandbox_timeout: seconds a sandbox may live on the server, which has limits of its own for it.
    :param ready_timeout: seconds a new sandbox may take until it serves.
    :param use_server_proxy: reach sandboxes through the server (True) or at their own addresses (False); None
        for the connection's extra, else True.
    :raises ValueError: a value is empty or not a positive number; the text names the parameter.
    """

    name: ClassVar[str] = "opensandbox"
    concurrent_exports: ClassVar[int] = 4

    def __init__(
        self,
        opensandbox_conn_id: str | None = "opensandbox_default",
        *,
        image: str = "python:3.12-slim",
        cpu: str = "1",
        memory: str = "2Gi",
        sandbox_timeout: float = 3600.0,
        ready_timeout: float = 120.0,
        use_server_proxy: bool | None = None,
    ) -> None:
        for name, value in (("image", image), ("cpu", cpu), ("memory", memory)):
            validate.text(value, name)
        validate.positive_finite(sandbox_timeout, "sandbox_timeout")
        validate.positive_finite(ready_timeout, "ready_timeout")
        validate.connection(opensandbox_conn_id, "opensandbox_conn_id")
        if use_server_proxy is not None:
            validate.flag(use_server_proxy, "use_server_proxy")
        self.opensandbox_conn_id = opensandbox_conn_id
        self.image = image
        self.cpu = cpu
        self.memory = memory
        self.sandbox_timeout = sandbox_timeout
        self.ready_timeout = ready_timeout
        self.use_server_proxy = use_server_proxy
        self._state = _State()

    @classmethod
    def from_environment(cls, **options: Any) -> OpenSandboxBackend:
        """One for a program without Airflow connections; takes the other arguments of the constructor."""
        return cls(None, **options)

    # -- what is not copied ------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_state"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._state = _State()

    def _own(self) -> _State:
        state = self._state
        if state.pid != os.getpid():
            # The parent's connections are the parent's; handles work here as those of any other process.
            state = self._state = _State()
        return state

    def _service(self) -> Service:
        state = self._own()
        if state.service is None:
            from sandbox_native import __version__
            from sandbox_native.backends import _opensandbox_service as service

            settings = service.resolve(self.opensandbox_conn_id, self.use_server_proxy)
            # Two threads may get here at once: the later one's replaces a client without connections.
            state.service = service.Service(settings, __version__)
        return state.service

    def _sandbox(self, handle: str) -> Sandbox:
        state = self._own()
        found = state.sandboxes.get(handle)
        if found is None:
            from sandbox_native.backends import _opensandbox_lifecycle as lifecycle

            found = lifecycle.connect(
                self._service(), handle, ready_timeout=self.ready_timeout, operation="connect to a sandbox"
            )
            state.sandboxes[handle] = found
        return found

    def _forget(self, handle: str) -> None:
        self._own().sandboxes.pop(handle, None)

    # -- life --------------------------------------------------------------------------------------------

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        """Create a sandbox, wait until it serves, and return the server's id for it.

        :param spec: ``None`` is a sandbox with no network policy.
        :raises SandboxTerminalError: it could not be created as asked; then none is left on the server, or
            the error's notes say that one may be.
        """
        from sandbox_native import spec_check
        from sandbox_native.backends import _opensandbox_lifecycle as lifecycle
        from sandbox_native.backends import _opensandbox_policy as policy
        from sandbox_native.names import new_sandbox_name

        spec_check.refuse(spec)
        network = policy.requested(spec)
        metadata = {**_CREATED_BY, "name": new_sandbox_name()}
        if spec is not None and spec.owner is not None:
            metadata.update(self._owner_metadata(spec))
        body: dict[str, Any] = {
            "image": {"uri": self.image},
            "timeout": _json_seconds(self.sandbox_timeout),
            "resourceLimits": {"cpu": self.cpu, "memory": self.memory},
            "metadata": metadata,
            "entrypoint": _ENTRYPOINT,
            "secureAccess": False,
        }
        if spec is not None and spec.env:
            body["env"] = dict(spec.env)
        if network is not None:
            body["networkPolicy"] = network
        sandbox = lifecycle.create(self._service(), body, ready_timeout=self.ready_timeout)
        handle: str = sandbox.id
        self._own().sandboxes[handle] = sandbox
        if OWNER_TAG in metadata:
            try:
                self._stamp_workdir(handle)
            except BaseException as e:
                self._discard(handle, e)
                raise
        return handle

    def _owner_metadata(self, spec: SandboxSpec) -> dict[str, str]:
        from sandbox_native.backends import _opensandbox_tags as tags

        if not spec.owner:
            raise SandboxTerminalError("SandboxSpec.owner is an empty text, which owns nothing.")
        return _encoded(
            tags,
            {
                OWNER_TAG: spec.owner,
                NETWORK_TAG: encode_network_policy(spec),
                # From before the request, so that it is never later than the server's own.
                EXPIRES_AT_TAG: str(int(time.time() + self.sandbox_timeout)),
            },
        )

    def _stamp_workdir(self, handle: str) -> None:
        """Record where relative paths start, for those who attach."""
        found = self.run_command(handle, "pwd -P && echo x", timeout=_WORKDIR_TIMEOUT, max_output_bytes=8192)
        workdir = found.stdout.removesuffix("\nx\n")
        if found.exit_code == 0 and workdir.startswith("/"):
            self.write_tags(handle, {**self.read_tags(handle), WORKDIR_TAG: workdir})

    def _discard(self, handle: str, error: BaseException) -> None:
        try:
            self.destroy(handle)
        except SandboxError as again:
            error.add_note(f"Sandbox {handle} stays until its server-side lifetime ends: {again}")

    def destroy(self, sandbox: str) -> None:
        """End a sandbox and everything in it. One that is gone is fine, whoever created it.

        :raises SandboxTerminalError: it may still be there.
        """
        from sandbox_native import calls
        from sandbox_native.backends import _opensandbox_lifecycle as lifecycle

        self._forget(sandbox)
        with calls.uncancellable():
            lifecycle.destroy(self._service(), sandbox)

    # -- commands ----------------------------------------------------------------------------------------

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        """Run a shell command where the image's commands start; its background children live on.

        :param command: for ``bash -c``, or ``sh -c`` where there is no bash.
        :param timeout: seconds; then the command and all that it started are killed, and what it had printed
            is kept.
        :param max_output_bytes: how much of the end of each stream is kept.
        :raises ValueError: ``timeout`` or ``max_output_bytes`` is not positive.
        :raises SandboxError: the command cannot be run as given.
        :raises SandboxTerminalError: there is no such sandbox, or the server does not answer.
        """
        validate.positive_finite(timeout, "timeout")
        validate.positive_finite(max_output_bytes, "max_output_bytes")
        found = self._sandbox(sandbox)
        result: SandboxExecResult = self._commands().run(
            found, command, timeout=timeout, max_output_bytes=max(1, int(max_output_bytes))
        )
        return result

    def _commands(self) -> Commands:
        from sandbox_native.backends._opensandbox_commands import Commands

        return Commands(self._service(), self._abandon)

    def _abandon(self, handle: str, why: str) -> bool:
        """End a sandbox in which something may still run, unless it is another task's."""
        if handle in self._own().attached:
            return False
        if not why:
            self._forget(handle)
            return True
        log.warning("Destroying OpenSandbox sandbox %s: a command in it could not be ended: %s", handle, why)
        try:
            self.destroy(handle)
        except SandboxError:
            log.warning(
                "OpenSandbox sandbox %s could not be destroyed; its server-side lifetime ends it",
                handle,
                exc_info=True,
            )
        return True

    # -- files -------------------------------------------------------------------------------------------

    def _files(self, handle: str) -> Files:
        from sandbox_native.backends._opensandbox_files import Files

        return Files(self._service(), self._sandbox(handle), self._runner(handle))

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        """Read a file; a relative path starts where commands do.

        :param max_bytes: refuse a larger file.
        :raises SandboxFileTooLargeError: it is larger.
        :raises SandboxError: it cannot be read; the text says why.
        :raises SandboxTerminalError: the sandbox is gone.
        """
        validate.positive_finite(max_bytes, "max_bytes")
        content: bytes = self._files(sandbox).read(path, max_bytes=int(max_bytes))
        return content

    def file_stamp(self, sandbox: str, path: str) -> object | None:
        """Size and times of a file; None for a link, and for one that changed in the last two seconds.

        :raises SandboxError: there is no such file, or it cannot be looked at; the text says why.
        :raises SandboxTerminalError: the sandbox is gone.
        """
        stamp: object | None = self._files(sandbox).stamp(path)
        return stamp

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        """Make ``content`` the content of a file, made with its parents where it is missing.

        An existing file keeps its mode and owner, existing directories theirs.

        :raises SandboxError: it cannot be written; the text says why.
        :raises SandboxTerminalError: the sandbox is gone.
        """
        self._files(sandbox).write(path, content)

    def import_file(self, sandbox: str, path: str, source: BinaryIO, *, size: int) -> None:
        """Make ``size`` bytes of ``source`` the content of a file, made with its parents where it is missing.

        :raises EOFError: ``source`` has fewer bytes; its own exceptions come out as they are.
        :raises SandboxError: it cannot be written, or it took longer than allowed.
        :raises SandboxTerminalError: the sandbox is gone.
        """
        self._files(sandbox).import_from(path, source, size)

    def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
        """The names in a directory and whether each is one; a link to a directory counts as one.

        :raises SandboxError: it cannot be listed; the text says why.
        :raises SandboxTerminalError: the sandbox is gone.
        """
        entries: list[tuple[str, bool]] = self._files(sandbox).listing(path)
        return entries

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        """Copy a regular file to ``dest`` and return its size; straight to its descriptor where it has one.

        :param max_bytes: refuse a larger file.
        :raises SandboxFileTooLargeError: it is larger.
        :raises SandboxError: it cannot be read, it changed meanwhile, or it took longer than allowed.
        :raises SandboxTerminalError: the sandbox is gone.
        """
        validate.positive_finite(max_bytes, "max_bytes")
        size: int = self._files(sandbox).export(
            path, dest, max_bytes=max(1, int(max_bytes)), slice_bytes=_EXPORT_SLICE
        )
        return size

    # -- attaching ---------------------------------------------------------------------------------------

    def read_tags(self, sandbox: str) -> Mapping[str, str]:
        """The tags a sandbox carries: its metadata, but for what every sandbox of Airflow has.

        :raises SandboxTerminalError: there is no such sandbox, or it has ended.
        """
        from sandbox_native.backends import _opensandbox_tags as tags

        found: dict[str, str] = tags.decode(self._metadata(sandbox))
        return found

    def _metadata(self, sandbox: str) -> dict[str, str]:
        from sandbox_native.backends import _opensandbox_lifecycle as lifecycle

        found = lifecycle.info(self._service(), sandbox, "read the tags of a sandbox").get("metadata")
        pairs = found.items() if isinstance(found, dict) else ()
        return {str(name): value for name, value in pairs if isinstance(value, str)}

    def write_tags(self, sandbox: str, tags: Mapping[str, str]) -> None:
        """Replace the tags of a sandbox.

        The server merges key by key and has no conditional write; what another writer changes in between is
        overwritten where this one changes it too.

        :raises SandboxTerminalError: there is no such sandbox, it has ended, or it cannot carry such tags.
        """
        from sandbox_native.backends import _opensandbox_lifecycle as lifecycle
        from sandbox_native.backends import _opensandbox_tags as encoding

        operation = "write the tags of a sandbox"
        before = self._metadata(sandbox)
        try:
            changes = encoding.patch(before, tags)
        except ValueError as e:
            raise SandboxTerminalError(f"OpenSandbox could not {operation}: {e}.") from e
        if not changes:
            return
        service = self._service()
        answer = service.lifecycle(
            operation,
            "PATCH",
            f"{lifecycle.path_of(sandbox)}/metadata",
            json_body=changes,
            idempotent=True,  # the same merge twice is one
        )
        if not answer.ok:
            raise service.failure(operation, answer)

    def attach(self, sandbox: str, *, owner: str, holder: str) -> AttachedSandbox:
        """Claim a sandbox for one run; see ``AttachableSandboxBackend.attach``."""
        found = super().attach(sandbox, owner=owner, holder=holder)
        self._own().attached.add(sandbox)
        return found

    def release(self, sandbox: str, *, holder: str) -> None:
        """Give up the claim of ``holder``; see ``AttachableSandboxBackend.release``."""
        super().release(sandbox, holder=holder)
        self._own().attached.discard(sandbox)


def diagnose() -> list[tuple[str, bool, str, str]]:
    """What of this backend works from here: (check, works, detail, what to do). Creates nothing."""
    from sandbox_native import __version__
    from sandbox_native.backends import _opensandbox_diagnose

    checks: list[tuple[str, bool, str, str]] = _opensandbox_diagnose.diagnose(__version__)
    return checks


def _encoded(tags: Any, values: Mapping[str, str]) -> dict[str, str]:
    try:
        encoded: dict[str, str] = tags.encode(values)
    except ValueError as e:
        raise SandboxTerminalError(f"OpenSandbox cannot record who owns a sandbox: {e}.") from e
    return encoded


def _json_seconds(seconds: float) -> int:
    # The server refuses a fraction; rounded down, as the vendor's SDK does.
    return int(seconds)
