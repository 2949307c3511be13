# SPDX-License-Identifier: Apache-2.0
"""Docker Sandboxes: one microVM for each sandbox, driven by the program ``sbx`` of this machine.

For development on a machine of one's own. The image needs a POSIX shell, ``env``, ``timeout``, ``stat``,
``head``, ``cat`` and ``base64``, as Debian, Ubuntu and Alpine images have.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Literal

from sandbox_native import calls, command_files, contract, guest, guest_write, spec_check, validate
from sandbox_native.backends._sbx_cli import INSTALL, CallTimedOut, SbxProgram, whole_seconds, words
from sandbox_native.contract import (
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
)
from sandbox_native.destination import descriptor_of, write_all
from sandbox_native.names import new_sandbox_name

if TYPE_CHECKING:
    from sandbox_native._sandbox_native import CommandOutcome

HostNetworkPolicy = Literal["unknown", "deny-all", "allow-all"]

# Seconds, all of them. Beyond the time of a command, for the program and the virtual machine around it.
_EXEC_GRACE = 30.0
# From the end of a command's time, when it is asked to end, to when it is killed.
_KILL_AFTER = 10
_HELPER_TIMEOUT = 120.0
_STOP_TIMEOUT = 20.0
# An export without a byte for so long is given up. The whole has the contract's allowance.
_EXPORT_STALL_TIMEOUT = 120.0

# How timeout(1) ends when it ended a command: coreutils, busybox, and a command that had to be killed.
_TIMEOUT_STATUS = 124
_TERMINATED_STATUS = 128 + 15
_KILLED_STATUS = 128 + 9

_CALL = "SANDBOX_NATIVE_CALL"
_WORKSPACE_PREFIX = "airflow-sandbox-ws-"
_HANDLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HOST = re.compile(r"[A-Za-z0-9*][A-Za-z0-9*._:-]*\Z")

log = logging.getLogger(__name__)


class SbxSandboxBackend(SandboxBackend):
    """Runs commands in Docker Sandboxes on this machine.

    ``sbx`` decides about the network for the machine as a whole (``sbx policy``). A list of hosts only means
    something on a machine that denies everything, and no single sandbox can be cut off, so a spec that asks
    for either is refused unless ``host_network_policy`` says that this machine denies all.

    The service ends no sandbox by itself: when a worker is killed, its microVMs (``airflow-sandbox-*`` in
    ``sbx ls``) stay until somebody removes them.

    The constructor only checks its arguments. Nothing is held between calls, so copies of a backend, in other
    processes too, can work in a sandbox that one of them made.

    :param image: container image of a sandbox.
    :param memory: memory of a sandbox in binary units, as in ``"2g"``; ``sbx`` wants 1 GiB at least.
    :param cpus: processors of a sandbox; ``None`` leaves it to ``sbx``, which gives all.
    :param sbx_path: the program, a path or a name to look up in ``PATH``.
    :param create_timeout: seconds that making a sandbox may take, its image included.
    :param host_network_policy: what ``sbx policy`` was set to on this machine: ``"deny-all"``,
        ``"allow-all"``, or ``"unknown"``.
    :raises ValueError: a value is not usable; the text names the parameter.
    """

    name: ClassVar[str] = "sbx"
    concurrent_exports: ClassVar[int] = 4

    def __init__(
        self,
        *,
        image: str = "python:3.12-slim",
        memory: str = "2g",
        cpus: int | None = None,
        sbx_path: str = "sbx",
        create_timeout: float = 600.0,
        host_network_policy: HostNetworkPolicy = "unknown",
    ) -> None:
        for parameter, value in (("image", image), ("memory", memory), ("sbx_path", sbx_path)):
            validate.text(value, parameter)
        if cpus is not None:
            validate.positive_whole(cpus, "cpus")
        validate.positive_finite(create_timeout, "create_timeout")
        if host_network_policy not in ("unknown", "deny-all", "allow-all"):
            raise ValueError(
                "host_network_policy must be 'unknown', 'deny-all' or 'allow-all', got "
                f"{host_network_policy!r}."
            )
        self._image = image
        self._memory = memory
        self._cpus = cpus
        self._create_timeout = create_timeout
        self._host_network_policy = host_network_policy
        self._sbx = SbxProgram(sbx_path)

    # -- life -------------------------------------------------------------------------------

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        """Make a microVM and return its name.

        :param spec: what it must be like; ``None`` leaves everything to ``sbx``.
        :raises SandboxTerminalError: ``sbx`` is not there or failed, with what it said; or the spec asks for
            what it cannot enforce.
        """
        spec_check.refuse(spec)
        self._refuse(spec)
        hosts = _hosts(spec)
        profile = _profile(spec)
        if shutil.which(self._sbx.path) is None:
            raise SandboxTerminalError(f"The {self._sbx.path!r} binary was not found on PATH. {INSTALL}")
        name = new_sandbox_name()
        workspace = _workspace(name)
        # sbx wants a folder of the host to share; an empty one shares nothing.
        try:
            os.mkdir(workspace, 0o700)
        except OSError as e:
            raise SandboxTerminalError(f"Could not make the folder {workspace}: {e.strerror}.") from e
        try:
            limits = ["--memory", self._memory, "--template", self._image]
            if self._cpus is not None:
                limits += ["--cpus", str(max(1, int(self._cpus)))]
            self._must(
                ["create", "--name", name, *limits, "shell", workspace],
                "'sbx create' failed",
                timeout=self._create_timeout,
            )
            if hosts:
                self._must(
                    ["policy", "allow", "network", "--sandbox", name, *hosts],
                    "The hosts of SandboxSpec.allow_egress_to could not be allowed",
                )
            if profile:
                self._must(
                    ["exec", "-i", name, "sh", "-c", "cat >> /etc/profile"],
                    "The variables of SandboxSpec.env could not be set in the sandbox",
                    stdin=profile,
                )
        except BaseException as e:
            # Whatever it was, a timeout included: the microVM may be there, and nobody else would end it.
            with calls.uncancellable():
                try:
                    self.destroy(name)
                except Exception as again:
                    e.add_note(f"Removing sandbox {name} failed, too: {again}")
            raise
        return name

    def _refuse(self, spec: SandboxSpec | None) -> None:
        if spec is None:
            return
        denies = self._host_network_policy == "deny-all"
        if spec.owner is not None:
            raise SandboxTerminalError(
                "SandboxSpec.owner is for a sandbox that another task attaches to, and no other task can "
                "reach a microVM of this machine. Leave owner out, or use a backend that can be attached to."
            )
        if spec.allow_egress_to_cidrs:
            raise SandboxTerminalError(
                "sbx cannot enforce SandboxSpec.allow_egress_to_cidrs: it knows no rule for a range of "
                "addresses. Name hosts in allow_egress_to on a machine that denies all, or use a backend "
                "that filters addresses."
            )
        if spec.allow_egress_to and not denies:
            raise SandboxTerminalError(
                "SandboxSpec.allow_egress_to means nothing on this machine: a sandbox's list only narrows a "
                "deny-all host policy. Run 'sbx policy init deny-all' here and pass "
                "host_network_policy='deny-all'."
            )
        if spec.block_network and not denies:
            raise SandboxTerminalError(
                "SandboxSpec.block_network cannot be enforced: sbx cannot cut off a single sandbox, and the "
                "host policy has not been declared to deny all. Run 'sbx policy init deny-all' here and pass "
                "host_network_policy='deny-all', or accept an open network by "
                "SandboxSpec(block_network=False)."
            )

    def _must(
        self, args: Sequence[str], problem: str, *, timeout: float | None = None, stdin: bytes = b""
    ) -> None:
        """Run sbx.

        :raises SandboxTerminalError: it failed or did not end; begins with ``problem``.
        """
        timeout = _HELPER_TIMEOUT if timeout is None else timeout
        try:
            outcome = self._sbx.run(args, timeout=timeout, stdin=stdin)
        except CallTimedOut as e:
            said = words(e.outcome.stderr)
            raise SandboxTerminalError(
                f"{problem}: it took longer than {timeout:g} s.{' It said: ' if said else ''}{said}"
            ) from None
        if outcome.value:
            said = words(outcome.stderr) or words(outcome.stdout)
            raise SandboxTerminalError(f"{problem} ({outcome.value}): {said}")

    def destroy(self, sandbox: str) -> None:
        """Remove a microVM, in a call that was cancelled, too. One that is gone is no error.

        :raises SandboxTerminalError: it could not be confirmed that it is gone.
        """
        _check_handle(sandbox)
        with calls.uncancellable():
            self._remove(sandbox)

    def _remove(self, sandbox: str) -> None:
        try:
            try:
                outcome = self._sbx.run(["rm", "-f", sandbox], timeout=_HELPER_TIMEOUT)
                problem = None if outcome.value == 0 else words(outcome.stderr) or f"status {outcome.value}"
            except CallTimedOut:
                problem = f"'sbx rm' took longer than {_HELPER_TIMEOUT:g} s"
            # It fails for a sandbox that is gone, too; the list tells.
            if problem is not None and self._is_listed(sandbox):
                raise SandboxTerminalError(f"Sandbox {sandbox!r} could not be removed: {problem}.")
        finally:
            shutil.rmtree(_workspace(sandbox), ignore_errors=True)

    def _is_listed(self, sandbox: str) -> bool:
        try:
            outcome = self._sbx.run(["ls"], timeout=_HELPER_TIMEOUT, max_output_bytes=4 * 1024 * 1024)
        except (CallTimedOut, SandboxError):
            return True
        return outcome.value != 0 or sandbox.encode() in outcome.stdout.split()

    # -- commands ---------------------------------------------------------------------------

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        """Run a command by a login shell in the microVM and wait for it; its background children live on.

        :param command: for ``sh -lc``.
        :param timeout: seconds, rounded up to whole ones; then the command and all it started is killed.
        :param max_output_bytes: how much of the end of each stream is kept.
        :raises ValueError: ``timeout`` or ``max_output_bytes`` is not positive.
        :raises SandboxError: the command is too long.
        :raises SandboxTerminalError: ``sbx`` cannot be run.
        """
        validate.positive_finite(max_output_bytes, "max_output_bytes")
        return self._run(sandbox, command, timeout, int(max_output_bytes), -1, -1)

    def stream_command(
        self, sandbox: str, command: str, *, timeout: float, stdout: int, stderr: int
    ) -> SandboxExecResult:
        """Like :meth:`run_command`, but what is printed is written to two descriptors as it comes.

        :param stdout: descriptor for the command's standard output.
        :param stderr: descriptor for its standard error.
        :return: a result whose own ``stdout`` and ``stderr`` are empty.
        :raises BrokenPipeError: a reader has gone; the command is stopped.
        """
        result = self._run(sandbox, command, timeout, 1, stdout, stderr)
        return replace(result, stdout="", stderr="", stdout_truncated=False, stderr_truncated=False)

    def _run(
        self, sandbox: str, command: str, timeout: float, max_output_bytes: int, stdout: int, stderr: int
    ) -> SandboxExecResult:
        validate.positive_finite(timeout, "timeout")
        _check_handle(sandbox)
        if "\0" in command:
            raise SandboxError("The command contains a NUL character.")
        seconds = whole_seconds(timeout)
        # Everything the command starts inherits the variable, so all of it can be found again.
        variable = f"{_CALL}={secrets.token_hex(8)}"
        limited = ["env", variable, "timeout", "-k", str(_KILL_AFTER), str(seconds), "sh", "-lc", command]
        begin = time.monotonic()
        try:
            outcome = self._sbx.run(
                ["exec", sandbox, *limited],
                timeout=seconds + _KILL_AFTER + _EXEC_GRACE,
                max_output_bytes=max_output_bytes,
                stdout=stdout,
                stderr=stderr,
            )
        except CallTimedOut as e:
            # sbx does not end: what it runs may run on, and the sandbox is good for nothing.
            self._abandon(sandbox)
            return _result(e.outcome, exit_code=-1, timed_out=True, terminated=True, seconds=seconds)
        except (SandboxError, UnicodeEncodeError) as e:
            if isinstance(e, UnicodeEncodeError):
                raise SandboxError(f"The command is not valid text: {e.reason}.") from e
            raise
        except BaseException:
            with calls.uncancellable():
                self._stop(sandbox, variable)
            raise
        elapsed = time.monotonic() - begin
        self._check_standing(sandbox, outcome)
        timed_out = _timed_out(outcome.value, elapsed, seconds)
        if timed_out:
            # timeout(1) kills a process group; what left it has the variable still.
            self._stop(sandbox, variable)
        return _result(
            outcome,
            exit_code=outcome.value,
            timed_out=timed_out,
            seconds=seconds if seconds != timeout else None,
        )

    def _check_standing(self, sandbox: str, outcome: CommandOutcome) -> None:
        """Tell a sandbox that is gone from a command that failed, which have the same statuses.

        :raises SandboxTerminalError: sbx spoke of this sandbox, and does not list it.
        """
        if outcome.value and sandbox.encode() in outcome.stderr and not self._is_listed(sandbox):
            raise SandboxTerminalError(f"Sandbox {sandbox!r} is gone: {words(outcome.stderr)}")

    def _abandon(self, sandbox: str) -> None:
        try:
            self.destroy(sandbox)
        except Exception:
            log.warning(
                "A command in sandbox %s did not end in its time, and the sandbox could not be removed; the "
                "command may still be running there, and the sandbox needs manual cleanup",
                sandbox,
                exc_info=True,
            )

    def _stop(self, sandbox: str, variable: str) -> None:
        """Kill what a command started. Best effort: what led here is what is to be told."""
        with contextlib.suppress(CallTimedOut, SandboxError):
            outcome = self._sbx.run(
                ["exec", sandbox, "sh", "-c", guest.stop_script(variable)], timeout=_STOP_TIMEOUT
            )
            if outcome.value == 0:
                return
        log.warning("A command in sandbox %s was stopped, and may still be running there", sandbox)

    # -- files ------------------------------------------------------------------------------

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        """Create or replace a file of any size, which travels on standard input.

        :raises SandboxError: it cannot be written; the target is as it was.
        :raises SandboxTerminalError: ``sbx`` cannot be run.
        """
        _check_handle(sandbox)
        if path.endswith("/"):
            raise SandboxError(f"{path!r} is a directory; name the file to write.")
        token = secrets.token_hex(8)
        script = guest_write.store_script(path, token, len(content))
        discard = ["exec", sandbox, "sh", "-c", guest_write.discard_script(path, token)]
        try:
            outcome = self._sbx.run(
                # Without -i it has no standard input, which is as much as nothing.
                ["exec", *(["-i"] if content else []), sandbox, "sh", "-c", script],
                timeout=command_files.export_allowance(len(content)),
                stdin=content,
            )
        except CallTimedOut:
            with contextlib.suppress(CallTimedOut, SandboxError):
                self._sbx.run(discard, timeout=_STOP_TIMEOUT)
            raise SandboxError(f"Could not write {path!r}: it took too long.") from None
        except SandboxError:
            raise
        except BaseException:
            # A cancel, or what a signal handler raised.
            with calls.uncancellable(), contextlib.suppress(CallTimedOut, SandboxError):
                self._sbx.run(discard, timeout=_STOP_TIMEOUT)
            raise
        self._check_standing(sandbox, outcome)
        command_files.check_result(_result(outcome, exit_code=outcome.value), path, "write", None)

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        """Copy a regular file to ``dest`` out of one ``sbx exec``, straight to its descriptor if it has one.

        :param max_bytes: the largest file that is exported.
        :return: bytes written.
        :raises SandboxFileTooLargeError: the file holds more.
        :raises SandboxError: it is no regular file, it changed meanwhile, it stalled or took too long.
        :raises SandboxTerminalError: ``sbx`` cannot be run.
        """
        validate.positive_finite(max_bytes, "max_bytes")
        _check_handle(sandbox)
        limit = int(max_bytes)
        script = guest.stream_script(path, limit)
        allowance: float = contract._export_allowance(limit)
        deadline = time.monotonic() + allowance
        target = descriptor_of(dest)
        taken: int
        try:
            outcome, taken = self._sbx.stream(
                ["exec", sandbox, "sh", "-c", script],
                functools.partial(write_all, dest) if target is None else target,
                most=limit,
                deadline=deadline,
                stall=_EXPORT_STALL_TIMEOUT,
            )
        except CallTimedOut:
            if time.monotonic() >= deadline:
                raise command_files.too_slow(path, allowance, limit) from None
            raise SandboxError(
                f"Exporting {path!r} stalled: no data arrived for {_EXPORT_STALL_TIMEOUT:g} s."
            ) from None
        except OverflowError:
            raise SandboxFileTooLargeError(path, limit + 1, limit) from None
        self._check_standing(sandbox, outcome)
        report = outcome.stderr.decode("utf-8", "replace")
        stamps = guest.streamed_stamps(report)
        if outcome.value == guest.Status.TOO_LARGE:
            size = guest.stamped_size(stamps[0]) if stamps else None
            raise SandboxFileTooLargeError(path, size or limit + 1, limit)
        command_files.check_result(_result(outcome, exit_code=outcome.value), path, "export", limit)
        _check_stamps(path, stamps, taken, limit)
        return taken


def _check_stamps(path: str, stamps: Sequence[str], taken: int, limit: int) -> None:
    """Compare what the guest said of a file before and after with what came."""
    if len(stamps) < 2:
        raise SandboxError(
            f"Could not export {path!r}: the sandbox did not report the file's size to the end."
        )
    first, last = guest.stamped_size(stamps[0]), guest.stamped_size(stamps[-1])
    if last is not None and last > limit:
        raise SandboxFileTooLargeError(path, last, limit)
    if any(stamp != stamps[0] for stamp in stamps[1:]):
        raise SandboxError(
            f"{path!r} changed while it was exported (from {first} to {last} bytes, {taken} copied). A "
            "process in the sandbox may still be writing it."
        )
    if taken != first:
        # A file of the kernel, or something on the way added to the data or took from it.
        raise SandboxError(
            f"Could not export {path!r}: its size is given as {first} bytes, and {taken} came. If it is a "
            "file of the system, as in /proc, copy it to an ordinary file first."
        )


def _timed_out(status: int, elapsed: float, seconds: int) -> bool:
    # A command may end with these for reasons of its own, but hardly at the end of its time. Clocks of a
    # microVM run a little differently.
    if status in (_TIMEOUT_STATUS, _TERMINATED_STATUS):
        return elapsed >= 0.9 * seconds
    return status == _KILLED_STATUS and elapsed >= seconds + 0.9 * _KILL_AFTER


def _result(
    outcome: CommandOutcome,
    *,
    exit_code: int,
    timed_out: bool = False,
    terminated: bool = False,
    seconds: float | None = None,
) -> SandboxExecResult:
    return SandboxExecResult(
        exit_code=exit_code,
        stdout=outcome.stdout.decode("utf-8", "replace"),
        stderr=outcome.stderr.decode("utf-8", "replace"),
        timed_out=timed_out,
        stdout_truncated=outcome.stdout_dropped > 0,
        stderr_truncated=outcome.stderr_dropped > 0,
        sandbox_terminated=terminated,
        applied_timeout=float(seconds) if timed_out and seconds is not None else None,
    )


def _check_handle(sandbox: str) -> None:
    # It becomes a word of a command line and a part of a path.
    if not isinstance(sandbox, str) or not _HANDLE.match(sandbox):
        raise SandboxTerminalError(f"{sandbox!r} is not the name of a sandbox.")


def _workspace(name: str) -> str:
    return os.path.join(tempfile.gettempdir(), _WORKSPACE_PREFIX + name)


def _hosts(spec: SandboxSpec | None) -> list[str]:
    hosts = list(spec.allow_egress_to or ()) if spec is not None else []
    for host in hosts:
        if not isinstance(host, str) or not _HOST.match(host):
            raise SandboxTerminalError(f"SandboxSpec.allow_egress_to has {host!r}, which is not a host name.")
    return hosts


def _profile(spec: SandboxSpec | None) -> bytes:
    """Lines for the login profile, which every command's shell reads; sbx takes no variables itself."""
    lines = []
    env: Mapping[str, str] = (spec.env if spec is not None else None) or {}
    for name, value in env.items():
        if not _VARIABLE.match(name):
            raise SandboxTerminalError(f"SandboxSpec.env has {name!r}, which is not the name of a variable.")
        lines.append(f"export {name}={shlex.quote(value)}")
    return ("\n" + "\n".join(lines) + "\n").encode() if lines else b""
