# SPDX-License-Identifier: Apache-2.0
"""What an Islo backend does, over the calls; loaded at its first use."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol

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
from sandbox_native.contract import SandboxError, SandboxExecResult, SandboxSpec, SandboxTerminalError
from sandbox_native.multipart import slice_of
from sandbox_native.names import new_sandbox_name
from sandbox_native.validate import positive_finite

log = logging.getLogger("sandbox_native.backends.islo")

_TIMEOUT = command_files.OPERATION_TIMEOUT
# Seconds that the end of a sandbox may take which nobody waits for any more: after a cancel, a timeout, a
# failure.
_CLEANUP_TIMEOUT = 30.0
_HELPER_OUTPUT = commands.LARGEST_BUDGET
_CREATE = "create a sandbox"
# Of an open list: an unknown status is taken for one that serves, and the calls will tell.
_UNUSABLE = frozenset({"stopping", "stopped", "deleting", "deleted", "error", "failed"})


class Options(Protocol):
    """The backend, as far as the service needs it."""

    _image: str | None
    _vcpus: int | None
    _memory_mb: int | None
    _pause_after_idle: int | None
    _auto_resume: str
    _delete_after: int | None

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult: ...


class Service:
    """Islo, with the environment's account. The public methods are those of the backend."""

    def __init__(self, backend: Options) -> None:
        self._backend = backend
        self._made: Api | None = None

    @property
    def api(self) -> Api:
        """:raises SandboxTerminalError: the environment names no account."""
        made = self._made
        if made is None:
            made = self._made = Api(tokens.account())
        return made

    # -- life -------------------------------------------------------------------------------

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        env = _check_spec(spec)
        api = self.api
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
        except BaseException as e:
            # An exception of a signal handler counts: nobody else knows the name.
            self._clean_up(made, "A sandbox that is of no use", e)
            raise
        return made

    def _creation(self, name: str, env: Mapping[str, str], *, internet: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": name,
            "internet_enabled": internet,
            "lifecycle": {
                "pause_after_idle": self._backend._pause_after_idle,
                "auto_resume": self._backend._auto_resume,
                "delete_after": self._backend._delete_after,
            },
        }
        for key, value in (
            ("image", self._backend._image),
            ("vcpus", self._backend._vcpus),
            ("memory_mb", self._backend._memory_mb),
            ("env", dict(env) or None),
        ):
            if value is not None:
                body[key] = value
        return body

    def _check_usable(self, info: Mapping[str, Any], name: str) -> None:
        status = info.get("status")
        paused = status == "paused" and self._backend._auto_resume != "on_activity"
        if info.get("deleted_at") is not None or status in _UNUSABLE or paused:
            raise SandboxTerminalError(f"Islo sandbox {name!r} cannot serve requests (status={status!r}).")

    def destroy(self, sandbox: str) -> None:
        with calls.uncancellable():
            self._delete(sandbox, _TIMEOUT)

    def _delete(self, sandbox: str, timeout: float) -> None:
        api = self.api
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
        if self._backend._delete_after is None:
            return "delete_after is disabled, so it persists until deleted by hand"
        return f"its delete_after policy removes it {self._backend._delete_after}s after creation"

    # -- commands ---------------------------------------------------------------------------

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        positive_finite(timeout, "timeout")
        positive_finite(max_output_bytes, "max_output_bytes")
        api = self.api
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
        try:
            if outcome is None or not (outcome.stdout or outcome.stderr):
                outcome = commands.collect(api, started) or outcome
        finally:
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
        positive_finite(max_bytes, "max_bytes")
        run, look = self._helper(sandbox, f"sizing {path!r}"), self._look(sandbox)
        content: bytes = files.read(self.api, run, look, sandbox, path, int(max_bytes))
        return content

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        run = self._helper(sandbox, f"creating the parent directory for {path!r}")
        files.write(self.api, run, self._look(sandbox), sandbox, path, content)

    def import_file(self, sandbox: str, path: str, source: BinaryIO, size: int) -> None:
        run = self._helper(sandbox, f"creating the parent directory for {path!r}")
        allowance = command_files.export_allowance(size)
        if not size:
            files.write(self.api, run, self._look(sandbox), sandbox, path, b"")
            return
        with slice_of(source, size) as content:
            files.write(self.api, run, self._look(sandbox), sandbox, path, content, allowance)

    def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
        run = self._helper(sandbox, f"listing {path!r}")
        found = command_files.list_directory(run, path, part_bytes=files.LISTING_PART)
        # The listing is a command as well.
        return [entry for entry in found if not commands.is_scratch(entry[0])]

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        positive_finite(max_bytes, "max_bytes")
        run, look = self._helper(sandbox, f"looking at {path!r}"), self._look(sandbox)
        size: int = files.export(self.api, run, look, sandbox, path, dest, int(max_bytes))
        return size

    def _helper(self, sandbox: str, operation: str) -> command_files.Run:
        """Runs the commands of a file operation; one that takes too long has cost the sandbox."""

        def run(command: str, *, timeout: float, max_output_bytes: int) -> SandboxExecResult:
            result = self._backend.run_command(
                sandbox, command, timeout=timeout, max_output_bytes=min(max_output_bytes, _HELPER_OUTPUT)
            )
            if result.timed_out or result.sandbox_terminated:
                raise SandboxTerminalError(f"The sandbox was destroyed after it timed out while {operation}.")
            return result

        return run

    def _look(self, sandbox: str) -> files.Look:
        def look(operation: str) -> None:
            api = self.api
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
