# SPDX-License-Identifier: Apache-2.0
"""Commands in a sandbox, by execd's ``POST /command``.

execd answers with a stream of events and keeps it open for a second after the last. The command itself runs
under the script of :mod:`sandbox_native.captured`, so the events carry one frame, whatever it prints; the
call is over with the terminal event. The time limit is kept here, by a clock that starts when execd says
that the command was started, and execd is given a later one in case this process vanishes. What execd does
at its limit looks like a kill by the command itself, and ends its process group only.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox_native import calls, captured
from sandbox_native.backends import _opensandbox_lifecycle as lifecycle
from sandbox_native.backends._opensandbox_lifecycle import Sandbox
from sandbox_native.backends._opensandbox_service import RefusedError, Service
from sandbox_native.contract import SandboxError, SandboxExecResult, SandboxTerminalError
from sandbox_native.http import Answer, Event, RequestCancelled, TransportError
from sandbox_native.retries import with_retries

log = logging.getLogger(__name__)

OPERATION = "run a sandbox command"
# execd sends a ping every 3 s, so a connection that is quiet for so long is dead.
_STALL = 30.0
# Seconds for execd to say that it started the command.
_ACCEPT = 60.0
# How much later than ours execd's own time limit is.
_GRACE = 30.0
# Seconds for stopping a command: finding and killing its processes, and sending what it had printed.
_STOP_TIMEOUT = 30.0
# What execd says on standard error while it has trouble of its own with a script.
_OWN_TROUBLE_CHARS = 500
_LOST_OUTPUT = "The command ended, but what it printed was lost: its files were removed."
_NO_STATUS = "The command ended without reporting an exit status."
# execd keeps its time limit in an int64 of nanoseconds.
_LONGEST_MS = 9_000_000_000_000


@dataclass
class _Stream:
    """What has come of one command's event stream."""

    room: int
    """Bytes of lines that are still kept."""
    timeout: float | None = None
    on_started: Callable[[], None] | None = None
    id: str = ""
    started: float | None = None
    lines: list[str] = field(default_factory=list)
    errors: str = ""
    done: bool = False
    error: dict[str, Any] | None = None

    def take(self, events: list[Event]) -> bool | float:
        deadline: float | None = None
        for _, data, size in events:
            if size > len(data):
                continue  # over any frame of ours, so not one
            try:
                event = json.loads(data)
                kind = event.get("type")
            except (ValueError, AttributeError, RecursionError):
                continue
            if kind == "init" and self.started is None:
                self.started = time.monotonic()
                self.id = text_of(event.get("text"))
                if self.timeout is not None:
                    deadline = self.started + self.timeout
            elif kind == "stdout":
                self._keep(text_of(event.get("text")))
            elif kind == "stderr":
                self.errors = f"{self.errors}{text_of(event.get('text')).rstrip()}\n"[-_OWN_TROUBLE_CHARS:]
            elif kind == "execution_complete":
                self.done = True
            elif kind == "error":
                error = event.get("error")
                self.error = error if isinstance(error, dict) else {}
                self.done = True
            if self.done:
                return True
        return False if deadline is None else float(deadline)

    def _keep(self, line: str) -> None:
        if self.room >= 0:
            self.room -= len(line) + 1
            self.lines.append(line)

    def exit_code(self) -> int | None:
        """What the terminal event says; None if there was none, or no number in it."""
        if self.error is None:
            return 0 if self.done else None
        try:
            return int(text_of(self.error.get("evalue")))
        except ValueError:
            return None

    def error_text(self) -> str:
        if self.error is None:
            return ""
        traceback = self.error.get("traceback")
        lines = [text_of(line) for line in traceback] if isinstance(traceback, list) else []
        return "\n".join(line for line in lines if line) or text_of(self.error.get("evalue"))


def text_of(value: object) -> str:
    """A text of the peer's, empty where it sent something else."""
    return value if isinstance(value, str) else ""


class Commands:
    """Runs commands in sandboxes of one server.

    :param abandon: ends a sandbox in which a command could not be stopped; says whether it may.
    """

    def __init__(self, service: Service, abandon: Callable[[str, str], bool]) -> None:
        self._service = service
        self._abandon = abandon

    def run(
        self, sandbox: Sandbox, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        """Run a command and wait for its end, its time limit or a cancel; see the contract."""
        token = captured.new_token()
        stream = _Stream(2 * captured.frame_cap(max_output_bytes), timeout)
        leftovers = _taken(sandbox)
        script = _script(sandbox, command, token, max_output_bytes, leftovers)
        may_run = True
        try:
            try:
                answer = self._stream(sandbox, script, stream, timeout, max_output_bytes)
            except RequestCancelled as e:
                may_run = e.sent
                raise calls.CallCancelled("the command was cancelled") from e
            except TransportError as e:
                return self._broken(sandbox, token, stream, timeout, max_output_bytes, e)
            except ValueError as e:
                # Before anything was sent: an address or header that the server named and that cannot be one.
                raise SandboxTerminalError(f"OpenSandbox could not {OPERATION}: {e}.") from e
            finally:
                if stream.started is None:
                    sandbox.leftovers.extend(leftovers)  # nobody removed them
                self._note_leftovers(sandbox, stream)
            if not answer.ok:
                raise self._service.failure(OPERATION, answer)
            if not stream.done:
                return self._lost(sandbox, token, stream, max_output_bytes, None)
            return self._ended(sandbox, token, stream, max_output_bytes)
        except SandboxError:
            raise
        except BaseException:
            # A cancel, or an exception of a signal handler: of the command, or of what followed on it.
            if may_run:
                self._cancelled(sandbox, token, stream)
            raise

    # -- one exchange ------------------------------------------------------------------------------------

    def _stream(
        self, sandbox: Sandbox, script: str, stream: _Stream, timeout: float, max_output_bytes: int
    ) -> Answer:
        accept = time.monotonic() + _ACCEPT
        milliseconds = min(math.ceil((timeout + _GRACE) * 1000), _LONGEST_MS)
        body = json.dumps({"command": script, "timeout": milliseconds}).encode()
        headers = {**sandbox.headers, "Content-Type": "application/json", "Accept": "text/event-stream"}
        cancel_fd = calls.cancel_fd()
        answer: Answer = with_retries(
            lambda: self._service.client.events(
                "POST",
                f"{sandbox.url}/command",
                stream.take,
                deadline=accept,
                headers=headers,
                body=body,
                stall=_STALL,
                cancel_fd=cancel_fd,
                idempotent=False,
                # As JSON, a line of base64 or hexadecimal is as long as it is.
                max_event=captured.frame_cap(max_output_bytes) + 4096,
            ),
            deadline=accept,
            idempotent=False,  # so only one that did not reach the server is made again
            cancel_fd=cancel_fd,
        )
        return answer

    @staticmethod
    def _note_leftovers(sandbox: Sandbox, stream: _Stream) -> None:
        # Where execd keeps what a script prints. The id is a word of its own making, so no path.
        if stream.id and "/" not in stream.id:
            sandbox.leftovers.extend((f"{stream.id}.stdout", f"{stream.id}.stderr"))

    # -- endings -----------------------------------------------------------------------------------------

    def _broken(
        self,
        sandbox: Sandbox,
        token: str,
        stream: _Stream,
        timeout: float,
        max_output_bytes: int,
        error: TransportError,
    ) -> SandboxExecResult:
        if not error.sent:
            raise SandboxTerminalError(f"OpenSandbox could not {OPERATION}: {error}.") from error
        if stream.started is None:
            return self._unaccepted(sandbox, token, stream, error)
        if error.kind == "deadline":
            return self._timed_out(sandbox, token, stream, timeout, max_output_bytes)
        return self._lost(sandbox, token, stream, max_output_bytes, error)

    def _ended(
        self, sandbox: Sandbox, token: str, stream: _Stream, max_output_bytes: int
    ) -> SandboxExecResult:
        frame = captured.parse(stream.lines, token, max_output_bytes)
        if frame is not None and frame.exit_status is not None:
            return _result(frame, frame.exit_status)
        if [captured.REFUSED, token] in (line.split() for line in stream.lines):
            reason = stream.errors.strip() or "no directory could be made for its output"
            raise SandboxError(f"The command could not be run: {reason}")
        # The script was killed along with the command (`kill -9 0`), or what it printed was removed.
        code = stream.exit_code()
        try:
            frame = self._stop(sandbox, token, max_output_bytes, stream)
        except SandboxTerminalError as e:
            log.debug("Nothing came of a command in sandbox %s", sandbox.id, exc_info=e)
            frame = None
        if frame is None and code is not None and stream.error is None:
            return _told(code, stderr=_LOST_OUTPUT)
        said = stream.error_text() or stream.errors.strip()
        if frame is None:
            return _told(1 if code is None else code, stderr=said)
        if frame.left:
            return self._unstopped(sandbox, frame, timed_out=False)
        code = frame.exit_status if frame.exit_status is not None else code
        return _result(frame, 1 if code is None else code, stderr=frame.stderr.text or said)

    def _timed_out(
        self, sandbox: Sandbox, token: str, stream: _Stream, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        try:
            frame = self._stop(sandbox, token, max_output_bytes, stream)
        except SandboxTerminalError as e:
            log.debug("Stopping a command in sandbox %s failed", sandbox.id, exc_info=e)
            return self._unstopped(sandbox, None, timed_out=True)
        if frame is None:
            # Ended and cleaned up after its time and before it was stopped; what it printed went with that.
            return _told(-1, stderr="", timed_out=True)
        if frame.left:
            return self._unstopped(sandbox, frame, timed_out=True)
        if frame.exit_status is not None:
            return _result(frame, frame.exit_status)
        return _result(frame, -1, timed_out=True)

    def _lost(
        self,
        sandbox: Sandbox,
        token: str,
        stream: _Stream,
        max_output_bytes: int,
        error: TransportError | None,
    ) -> SandboxExecResult:
        """The stream broke, or ended without a terminal event: whether the command has ended is not known."""
        frame = captured.parse(stream.lines, token, max_output_bytes)
        if frame is not None and frame.exit_status is not None:
            return _result(frame, frame.exit_status)  # all there is to know had come before
        cause = "its connection ended" if error is None else str(error)
        unknown: SandboxTerminalError | None = None
        try:
            lifecycle.info(self._service, sandbox.id, "find out how a command ended")
        except lifecycle.EndedError as e:
            return self._gone(sandbox, str(e))
        except SandboxTerminalError as e:
            if isinstance(e, RefusedError) and e.status == 404:
                return self._gone(sandbox, "")
            unknown = e  # which does not keep execd from answering
        try:
            frame = self._stop(sandbox, token, max_output_bytes, stream)
        except SandboxTerminalError as e:
            if unknown is not None:
                raise SandboxTerminalError(
                    f"OpenSandbox could not {OPERATION}: {cause}, and whether the command goes on could not "
                    f"be found out: {unknown}"
                ) from e
            # The sandbox is listed, and nothing runs in it: a container that stopped, or whose execd died.
            log.debug("Stopping a command in sandbox %s failed", sandbox.id, exc_info=e)
            return self._unstopped(sandbox, None, timed_out=False)
        if frame is None:
            return _told(-1, stderr=f"{_NO_STATUS} ({cause})")
        if frame.left:
            return self._unstopped(sandbox, frame, timed_out=False)
        if frame.exit_status is not None:
            return _result(frame, frame.exit_status)
        return _result(frame, -1, stderr=_with_line(frame.stderr.text, _NO_STATUS))

    def _gone(self, sandbox: Sandbox, why: str) -> SandboxExecResult:
        self._abandon(sandbox.id, why)
        return _told(-1, stderr="The sandbox ended while the command was running.", terminated=True)

    def _unaccepted(
        self, sandbox: Sandbox, token: str, stream: _Stream, error: TransportError
    ) -> SandboxExecResult:
        """No word from execd at all. The command may come to run later, so that is prevented."""
        trouble = ""
        try:
            with calls.uncancellable():
                frame = self._stop(sandbox, token, 1, stream)
            if frame is not None and frame.left:
                trouble = " Some of its processes could not be ended."
        except SandboxTerminalError as e:
            trouble = f" Whether it runs could not be found out: {e}"
        raise SandboxTerminalError(
            f"OpenSandbox could not {OPERATION}: {error}, before it was known to be running.{trouble}"
        ) from error

    def _cancelled(self, sandbox: Sandbox, token: str, stream: _Stream) -> None:
        try:
            with calls.uncancellable():
                frame = self._stop(sandbox, token, 1, stream)
            left = 0 if frame is None else frame.left
            if not left:
                return
            why = f"{left} of its processes could not be ended"
        except SandboxError as e:
            why = str(e)
        log.warning(
            "A cancelled command in OpenSandbox sandbox %s may still run; it ends with the sandbox: %s",
            sandbox.id,
            why,
        )

    def _unstopped(
        self, sandbox: Sandbox, frame: captured.Captured | None, *, timed_out: bool
    ) -> SandboxExecResult:
        """A command that could not be confirmed to have ended: end it with its sandbox."""
        why = "it did not answer" if frame is None else f"{frame.left} processes were left"
        if not self._abandon(sandbox.id, why):
            raise SandboxTerminalError(
                f"A command in OpenSandbox sandbox {sandbox.id} could not be confirmed to have ended "
                f"({why}). The sandbox belongs to another task, so it was left as it is."
            )
        if frame is None:
            return _told(-1, stderr="", timed_out=timed_out, terminated=True)
        return _result(frame, -1, timed_out=timed_out, terminated=True)

    # -- stopping ----------------------------------------------------------------------------------------

    def _stop(
        self, sandbox: Sandbox, token: str, max_output_bytes: int, of: _Stream
    ) -> captured.Captured | None:
        """End a command; what it left, or None if there was nothing of it.

        :param of: what came of the command's own stream.
        :raises CallCancelled: the call was cancelled, which ends the command, too.
        :raises SandboxTerminalError: that could not be done, or not be confirmed.
        """
        operation = "stop a sandbox command"
        script = captured.stop_script(
            token, max_output_bytes, began=of.started is not None, kept=f"{of.id}.stdout" if of.id else None
        )
        stream = _Stream(2 * captured.frame_cap(max_output_bytes))
        try:
            answer = self._stream(sandbox, script, stream, _STOP_TIMEOUT, max_output_bytes)
        except RequestCancelled as e:
            raise calls.CallCancelled("the command was cancelled") from e
        except TransportError as e:
            raise SandboxTerminalError(f"OpenSandbox could not {operation}: {e}.") from e
        finally:
            self._note_leftovers(sandbox, stream)
        if not answer.ok:
            raise self._service.failure(operation, answer)
        frame = captured.parse(stream.lines, token, max_output_bytes)
        if frame is None and [captured.ABSENT, token] not in (line.split() for line in stream.lines):
            said = stream.errors.strip() or stream.error_text() or "it did not answer as it should"
            raise SandboxTerminalError(f"OpenSandbox could not {operation}: {said}.")
        return frame


# ---- results -------------------------------------------------------------------------------------------


def _result(
    frame: captured.Captured,
    exit_code: int,
    *,
    stderr: str | None = None,
    timed_out: bool = False,
    terminated: bool = False,
) -> SandboxExecResult:
    return SandboxExecResult(
        exit_code=exit_code,
        stdout=frame.stdout.text,
        stderr=frame.stderr.text if stderr is None else stderr,
        timed_out=timed_out,
        stdout_truncated=frame.stdout.truncated,
        stderr_truncated=frame.stderr.truncated,
        sandbox_terminated=terminated,
    )


def _told(
    exit_code: int, *, stderr: str, timed_out: bool = False, terminated: bool = False
) -> SandboxExecResult:
    """The result of a command of which nothing that it printed is left."""
    return SandboxExecResult(
        exit_code=exit_code, stdout="", stderr=stderr, timed_out=timed_out, sandbox_terminated=terminated
    )


def _script(sandbox: Sandbox, command: str, token: str, max_output_bytes: int, leftovers: list[str]) -> str:
    """The script around a command, which removes ``leftovers`` where there is room for that.

    :raises SandboxError: no shell can be given this command; the leftovers are those of the next.
    """
    try:
        return captured.run_script(command, token, max_output_bytes, leftovers=leftovers)
    except SandboxError:
        sandbox.leftovers.extend(leftovers)
        leftovers.clear()
        return captured.run_script(command, token, max_output_bytes)


def _taken(sandbox: Sandbox) -> list[str]:
    """What earlier commands left, for the one who removes it: another thread gets none of these."""
    names: list[str] = []
    while sandbox.leftovers:
        try:
            names.append(sandbox.leftovers.popleft())
        except IndexError:
            break
    return names


def _with_line(text: str, line: str) -> str:
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}"
