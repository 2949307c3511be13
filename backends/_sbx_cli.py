# SPDX-License-Identifier: Apache-2.0
"""The program ``sbx`` as a partner that is not trusted to answer, to end, or to be there.

Every call has a deadline, an empty or a given standard input, no terminal, and bounded output; what does not
end is killed with all it started.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence

from sandbox_native import _sandbox_native as native
from sandbox_native import calls
from sandbox_native.contract import SandboxError, SandboxTerminalError
from sandbox_native.process import run_process, stream_process

INSTALL = (
    "Install Docker Sandboxes (https://docs.docker.com/ai/sandboxes/), sign in with 'sbx login' and set a "
    "network policy with 'sbx policy init'. It needs a machine that can run virtual machines, which an "
    "unprivileged container cannot."
)
# Standard error that is kept of a call, and what of it is quoted.
_KEPT_BYTES = 64 * 1024
_QUOTED_CHARS = 2000


class CallTimedOut(Exception):
    """The program did not end in its time, and was killed."""

    def __init__(self, outcome: native.CommandOutcome) -> None:
        self.outcome = outcome


def words(output: bytes) -> str:
    """What the program said, for an error text: its end, where the reason stands."""
    return output.decode("utf-8", "replace").strip()[-_QUOTED_CHARS:]


class SbxProgram:
    """The program at a path or name. Holds nothing else, so it may be copied."""

    def __init__(self, path: str) -> None:
        self.path = path

    def run(
        self,
        args: Sequence[str],
        *,
        timeout: float,
        max_output_bytes: int = _KEPT_BYTES,
        stdin: bytes = b"",
        stdout: int = -1,
        stderr: int = -1,
    ) -> native.CommandOutcome:
        """Run it to its end, whatever its exit status.

        :param timeout: seconds.
        :param max_output_bytes: how much of the end of each stream is kept.
        :param stdin: what it reads.
        :param stdout: a descriptor that its standard output is written to as it comes; -1: none.
        :param stderr: the same for its standard error.
        :raises CallTimedOut: it did not end.
        :raises SandboxTerminalError: it cannot be run.
        :raises SandboxError: the arguments are too long.
        :raises calls.CallCancelled: the call was cancelled; the program was killed.
        """
        with self._explained():
            outcome = run_process(
                [self.path, *args],
                timeout=timeout,
                max_output_bytes=max_output_bytes,
                cancel_fd=calls.cancel_fd(),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
        return self._ended(outcome)

    def stream(
        self,
        args: Sequence[str],
        to: int | Callable[[bytes], object],
        *,
        most: int,
        deadline: float,
        stall: float,
    ) -> tuple[native.CommandOutcome, int]:
        """Run it and give its standard output whole to ``to``; see ``stream_process``.

        :param most: bytes that ``to`` gets at most.
        :param deadline: of ``time.monotonic()``.
        :param stall: seconds without a byte after which it is killed.
        :return: the outcome and the number of bytes.
        :raises OverflowError: there was more than ``most``.
        :raises OSError: ``to`` is a descriptor that takes no more; an exception of a callable comes out, too.
        :raises CallTimedOut: it did not end, or nothing came.
        :raises SandboxTerminalError: it cannot be run.
        """
        outcome, taken = stream_process(
            [self.path, *args],
            to,
            most=most,
            timeout=max(0.001, deadline - time.monotonic()),
            stall=stall,
            max_output_bytes=_KEPT_BYTES,
            cancel_fd=calls.cancel_fd(),
        )
        return self._ended(outcome), taken

    def _ended(self, outcome: native.CommandOutcome) -> native.CommandOutcome:
        if outcome.ending == "timeout":
            raise CallTimedOut(outcome)
        if outcome.ending == "cancel":
            raise calls.CallCancelled(f"{self.path!r} was stopped")
        if outcome.ending == "failed":
            if outcome.value == errno.E2BIG:
                raise SandboxError("The command is too long for a command line.")
            if outcome.value == errno.ENOENT:
                raise SandboxTerminalError(f"The {self.path!r} binary was not found on PATH. {INSTALL}")
            raise SandboxTerminalError(f"{self.path!r} cannot be run: {os.strerror(outcome.value)}.")
        if outcome.ending == "lost":
            raise SandboxTerminalError(f"{self.path!r} was running and what watched it was killed.")
        return outcome

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OverflowError as e:
            raise SandboxError("The command is too long for a command line.") from e
        except BrokenPipeError:
            raise
        except OSError as e:
            raise SandboxTerminalError(f"{self.path!r} cannot be run: {e.strerror or e}.") from e


def whole_seconds(timeout: float) -> int:
    """Seconds for ``timeout`` of coreutils: at least 1, since 0 means no limit to it."""
    return max(1, math.ceil(timeout))
