# SPDX-License-Identifier: Apache-2.0
"""Sandboxes at Islo (islo.dev): virtual machines behind a hosted API, reached over HTTP without its SDK."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any, BinaryIO, ClassVar, Literal

from sandbox_native import calls, command_files
from sandbox_native.backends import _islo_commands as commands
from sandbox_native.backends import _islo_files as files
from sandbox_native.backends import _islo_token as tokens
from sandbox_native.backends._islo_calls import (
    Api,
    CallError,
    again,
    arrived,
    fields,
    not_acted_upon,
    sandbox_path,
    unusable,
    worth_repeating,
)
from sandbox_native.contract import (
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxSpec,
    SandboxTerminalError,
)
from sandbox_native.names import new_sandbox_name
from sandbox_native.validate import positive_finite

log = logging.getLogger(__name__)

_TIMEOUT = command_files.OPERATION_TIMEOUT
# Seconds that the end of a sandbox may take which nobody waits for any more: after a cancel, a timeout, a
# failure.
_CLEANUP_TIMEOUT = 30.0
_HELPER_OUTPUT = commands.LARGEST_BUDGET
_AUTO_RESUME = ("never", "on_activity")
_CREATE = "create a sandbox"
# Of an open list: an unknown status is taken for one that serves, and the calls will tell.
_UNUSABLE = frozenset({"stopping", "stopped", "deleting", "deleted", "error", "failed"})


class IsloSandboxBackend(SandboxBackend):
    """Runs commands in virtual machines of `islo.dev <https://islo.dev>`__.

    Credentials are those of the worker's environment, read at the first use: ``ISLO_API_KEY``, and where they
    are set ``ISLO_BASE_URL`` and ``ISLO_COMPUTE_URL``.

    File contents move through the service's own calls. Everything else is a command, so the image needs
    ``sh`` with ``mkdir``, ``rm``, ``tail`` and ``wc``; listings and exports ``base64`` or ``od``, ``stat``. A
    command's output is kept in the sandbox and its last bytes are sent.

    The service cannot stop a command. One whose time is up, or that is cancelled, is ended by deleting its
    sandbox; a result says so by ``sandbox_terminated``.

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
                positive_finite(value, parameter)
        if auto_resume not in _AUTO_RESUME:
            raise ValueError(f"auto_resume must be one of {list(_AUTO_RESUME)}, got {auto_resume!r}.")
        if image == "":
            raise ValueError("image must not be empty.")
        self._image = image
        self._vcpus = vcpus
        self._memory_mb = memory_mb
        self._pause_after_idle = pause_after_idle
        self._auto_resume = auto_resume
        self._delete_after = delete_after
        self._made: Api | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The key stays in this process; a copy reads its own environment.
        return {**self.__dict__, "_made": None}

    def _api(self) -> Api:
        made = self._made
        if made is None:
            made = self._made = Api(tokens.account())
        return made

    # -- life -------------------------------------------------------------------------------

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        """Make a sandbox and return its name.

        The call is not made twice unless the service refused it. One that fails is followed by a delete of
        the name it asked for.

        :param spec: None is the default spec: no network.
        :raises SandboxTerminalError: it could not be made, or the spec asks for what cannot be enforced or
            recorded here: an egress list, an owner, ``PATH``.
        """
        env = _check_spec(spec)
        api = self._api()
        asked = new_sandbox_name()
        body = self._creation(asked, env, internet=spec is not None and not spec.block_network)
        deadline = time.monotonic() + _TIMEOUT
        try:
            answer = again(
                lambda: api.call("POST", "/sandboxes", json_body=body, deadline=deadline),
                deadline=deadline,
                worth=not_acted_upon,
            )
        except BaseException as e:
            error = e.terminal(_CREATE) if isinstance(e, CallError) else e
            if arrived(e):
                self._clean_up(asked, "A sandbox that was being made", error)
            if error is e:
                raise
            raise error from e
        made: str = asked
        try:
            info = fields(answer, _CREATE)
            name = info.get("name")
            if not isinstance(name, str) or name in ("", ".", ".."):
                raise unusable(_CREATE)
            made = name
            self._check_usable(info, name)
        except SandboxTerminalError as e:
            self._clean_up(made, "A sandbox that is of no use", e)
            raise
        return made

    def _creation(self, name: str, env: Mapping[str, str], *, internet: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": name,
            "internet_enabled": internet,
            "lifecycle": {
                "pause_after_idle": self._pause_after_idle,
                "auto_resume": self._auto_resume,
                "delete_after": self._delete_after,
            },
        }
        for key, value in (
            ("image", self._image),
            ("vcpus", self._vcpus),
            ("memory_mb", self._memory_mb),
            ("env", dict(env) or None),
        ):
            if value is not None:
                body[key] = value
        return body

    def _check_usable(self, info: Mapping[str, Any], name: str) -> None:
        status = info.get("status")
        paused = status == "paused" and self._auto_resume != "on_activity"
        if info.get("deleted_at") is not None or status in _UNUSABLE or paused:
            raise SandboxTerminalError(f"Islo sandbox {name!r} cannot serve requests (status={status!r}).")

    def destroy(self, sandbox: str) -> None:
        """Delete a sandbox. One that is gone is fine, whatever the body of the answer that says so.

        :raises SandboxTerminalError: it could not be confirmed that the sandbox is gone.
        """
        self._delete(sandbox, _TIMEOUT)

    def _delete(self, sandbox: str, timeout: float) -> None:
        api = self._api()
        path = sandbox_path(sandbox)
        deadline = time.monotonic() + timeout
        try:
            again(
                lambda: api.call("DELETE", path, deadline=deadline),
                deadline=deadline,
                worth=worth_repeating(),
            )
        except CallError as e:
            if e.status not in (404, 410):
                raise e.terminal("delete a sandbox") from e

    def _clean_up(self, sandbox: str, what: str, cause: BaseException | None = None) -> bool:
        """Delete a sandbox that must not live on, cancelled or not; whether it is known to be gone."""
        try:
            with calls.uncancellable():
                self._delete(sandbox, _CLEANUP_TIMEOUT)
            return True
        except SandboxError as e:
            text = f"{what} ({sandbox}): could not confirm its deletion; {self._reclaimed()}."
            log.warning("%s", text, exc_info=e)
            if cause is not None:
                cause.add_note(text)
            return False

    def _reclaimed(self) -> str:
        if self._delete_after is None:
            return "delete_after is disabled, so it persists until deleted by hand"
        return f"its delete_after policy removes it {self._delete_after}s after creation"

    # -- commands ---------------------------------------------------------------------------

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
        positive_finite(timeout, "timeout")
        positive_finite(max_output_bytes, "max_output_bytes")
        api = self._api()
        budget = commands.budget_of(max_output_bytes)
        running = False
        try:
            started = commands.start(api, sandbox, command, timeout=timeout, budget=budget)
            running = True
            outcome = commands.wait(api, started)
        except CallError as e:
            error = e.terminal("poll a sandbox command" if running else "start a sandbox command")
            # When its time is up and nothing is known of it, nobody may count on its having ended.
            if running and e.transient and self._clean_up(sandbox, "A command that may still run", error):
                error.add_note(f"Sandbox {sandbox} was deleted, for its command could still run.")
            raise error from e
        except Exception:
            raise
        except BaseException as e:
            # A cancel, or an exception of a signal handler.
            if running or arrived(e):
                self._stop(sandbox, e)
            raise
        if outcome is not None and outcome.status != "timeout":
            return SandboxExecResult(
                exit_code=-1 if outcome.exit_code is None else outcome.exit_code,
                stdout=outcome.stdout,
                stderr=outcome.stderr,
                stdout_truncated=outcome.stdout_cut,
                stderr_truncated=outcome.stderr_cut,
            )
        self._clean_up(sandbox, "Timed out running a command in an Islo sandbox")
        return SandboxExecResult(
            exit_code=-1,
            stdout=outcome.stdout if outcome else "",
            stderr=outcome.stderr if outcome else "",
            timed_out=True,
            stdout_truncated=outcome.stdout_cut if outcome else False,
            stderr_truncated=outcome.stderr_cut if outcome else False,
            sandbox_terminated=True,
        )

    def _stop(self, sandbox: str, why: BaseException) -> None:
        """End a command that nobody waits for any more, with its sandbox, and say so."""
        if self._clean_up(sandbox, "A command was cancelled in an Islo sandbox", why):
            why.add_note(f"Sandbox {sandbox} was deleted: Islo has no other way to stop a command.")
            log.info("Deleted Islo sandbox %s to stop a cancelled command.", sandbox)

    # -- files ------------------------------------------------------------------------------

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        """Read a regular file, by the service's own call.

        :param path: absolute; the service refuses others.
        :raises ValueError: ``max_bytes`` is not positive.
        :raises SandboxFileTooLargeError: it is larger than ``max_bytes``.
        :raises SandboxError: it cannot be read; the text says why.
        :raises SandboxTerminalError: the service or the sandbox does not serve.
        """
        positive_finite(max_bytes, "max_bytes")
        run, look = self._helper(sandbox, f"sizing {path!r}"), self._look(sandbox)
        content: bytes = files.read(self._api(), run, look, sandbox, path, int(max_bytes))
        return content

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        """Create or replace a file of any size, by the service's own call, with its missing parents.

        :param path: absolute; the service refuses others.
        :raises SandboxError: it cannot be written; the text says why.
        :raises SandboxTerminalError: the service or the sandbox does not serve.
        """
        run = self._helper(sandbox, f"creating the parent directory for {path!r}")
        files.write(self._api(), run, self._look(sandbox), sandbox, path, content)

    def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
        """The names in a directory and whether each is one; a link to a directory counts as one.

        :raises SandboxError: it cannot be listed; the text says why.
        :raises SandboxTerminalError: the service or the sandbox does not serve.
        """
        run = self._helper(sandbox, f"listing {path!r}")
        return command_files.list_directory(run, path, part_bytes=files.LISTING_PART)

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        """Copy a regular file to ``dest`` and return its size; straight to its descriptor where it has one.

        :param path: absolute, or relative to where commands start.
        :param max_bytes: the largest file that is exported.
        :raises ValueError: ``max_bytes`` is not positive.
        :raises SandboxFileTooLargeError: it is larger.
        :raises SandboxError: it is no regular file, changed meanwhile, or took longer than allowed.
        :raises SandboxTerminalError: the service or the sandbox does not serve.
        """
        positive_finite(max_bytes, "max_bytes")
        run, look = self._helper(sandbox, f"looking at {path!r}"), self._look(sandbox)
        size: int = files.export(self._api(), run, look, sandbox, path, dest, int(max_bytes))
        return size

    def _helper(self, sandbox: str, operation: str) -> command_files.Run:
        """Runs the commands of a file operation; one that takes too long has cost the sandbox."""

        def run(command: str, *, timeout: float, max_output_bytes: int) -> SandboxExecResult:
            result = self.run_command(
                sandbox, command, timeout=timeout, max_output_bytes=min(max_output_bytes, _HELPER_OUTPUT)
            )
            if result.timed_out or result.sandbox_terminated:
                raise SandboxTerminalError(f"The sandbox was destroyed after it timed out while {operation}.")
            return result

        return run

    def _look(self, sandbox: str) -> files.Look:
        def look(operation: str) -> None:
            api = self._api()
            deadline = time.monotonic() + _TIMEOUT
            try:
                answer = again(
                    lambda: api.call("GET", sandbox_path(sandbox), deadline=deadline),
                    deadline=deadline,
                    worth=worth_repeating(),
                )
            except CallError as e:
                raise e.terminal(operation) from e
            self._check_usable(fields(answer, operation), sandbox)

        return look


def _check_spec(spec: SandboxSpec | None) -> Mapping[str, str]:
    """The environment of a spec that can be carried out.

    :raises SandboxTerminalError: it cannot.
    """
    if spec is None:
        return {}
    if spec.owner is not None:
        raise SandboxTerminalError(
            "The Islo backend cannot record SandboxSpec.owner: the service keeps nothing about a sandbox "
            "that could say whose it is, so no other task could attach to it. Drop owner, or take a "
            "backend whose sandboxes can be attached to."
        )
    if spec.allow_egress_to:
        raise SandboxTerminalError(
            "The Islo backend cannot enforce a per-domain egress allowlist: it turns the network on or off. "
            "Drop SandboxSpec.allow_egress_to, or take a backend with rules for domains."
        )
    if spec.allow_egress_to_cidrs:
        raise SandboxTerminalError(
            "The Islo backend cannot enforce SandboxSpec.allow_egress_to_cidrs: it turns the network on or "
            "off. Drop it, or take a backend with rules for addresses."
        )
    env = spec.env or {}
    for key, value in env.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise SandboxTerminalError(
                f"SandboxSpec.env must map text to text, not {key!r} to {type(value).__name__}."
            )
        if not key or "=" in key or "\0" in key + value:
            raise SandboxTerminalError(f"SandboxSpec.env: {key!r} cannot be a variable with this value.")
        try:
            (key + value).encode()
        except UnicodeEncodeError:
            raise SandboxTerminalError(f"SandboxSpec.env[{key!r}] is not valid text.") from None
    if "PATH" in env:
        raise SandboxTerminalError(
            "Islo sets PATH itself for every command and drops one that is given when a sandbox is made: "
            "take PATH out of SandboxSpec.env."
        )
    return env


def diagnose() -> list[tuple[str, bool, str, str]]:
    """Whether Islo can be reached with the environment's key: (check, works, detail, what to do).

    Makes no sandbox, and shows neither key nor token.
    """
    if not os.environ.get("ISLO_API_KEY"):
        return [("ISLO_API_KEY", False, "not set", "export ISLO_API_KEY=... (islo.dev, API keys)")]
    try:
        account = tokens.account()
    except SandboxTerminalError as e:
        return [("Islo addresses", False, str(e), "unset it for the service's own address")]
    api = Api(account)
    found = [("ISLO_API_KEY", True, "set", "")]
    try:
        api.check_key(deadline=time.monotonic() + _CLEANUP_TIMEOUT)
    except CallError as e:
        mend = "make a new key at islo.dev" if e.key_refused else "check the network, proxies, ISLO_BASE_URL"
        return [*found, ("Islo control plane", False, str(e.terminal("exchange the key")), mend)]
    found.append(("Islo control plane", True, f"{account.control} took the key", ""))
    try:
        api.call("GET", "/sandboxes?limit=1", deadline=time.monotonic() + _CLEANUP_TIMEOUT)
    except CallError as e:
        mend = "check the network, proxies, ISLO_COMPUTE_URL"
        return [*found, ("Islo compute plane", False, str(e.terminal("list sandboxes")), mend)]
    return [*found, ("Islo compute plane", True, account.compute, "")]
