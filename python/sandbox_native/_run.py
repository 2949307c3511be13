# SPDX-License-Identifier: Apache-2.0
"""The state of a toolset between enter and exit: its sandbox, and the calls that work in it.

Kept apart from the toolset, which holds plain values only and so can be copied and pickled at any time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sandbox_native import calls
from sandbox_native._pages import LastFile
from sandbox_native.contract import SandboxError, SandboxTerminalError

if TYPE_CHECKING:
    from sandbox_native.inputs import Found

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


class Run:
    """One run. Several threads and event loops may make calls in it at once."""

    def __init__(self, handling: BaseException | None) -> None:
        """:param handling: the exception that was being handled when the run began, if any."""
        self.handling = handling
        # How often it was entered: a toolset that two agents hold open has one run until the last leaves.
        self.depth = 1
        self.failed = False
        self.open = False
        self.sandbox: str | None = None
        # While attached: whom the sandbox was claimed as, when it ends on the monotonic clock, and what
        # the model is told of it, fixed for the run so that prompts can be cached.
        self.holder: str | None = None
        self.expires_at: float | None = None
        self.note: str | None = None
        # What is to be in the sandbox from the beginning, once it was looked at.
        self.inputs: Sequence[Found] | None = None
        self.last_file = LastFile()
        # Guards all below, and sandbox and open together. Never held during a backend's call.
        self._lock = threading.Lock()
        self._creation: calls.Call[str] | None = None
        self._live: set[calls.Call[Any]] = set()

    async def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await ``fn`` on a thread; when the run is closed meanwhile, it is cancelled and waited for.

        :raises SandboxTerminalError: the run was closed.
        """
        call = calls.prepare(fn, *args, **kwargs)
        with self._lock:
            if not self.open:
                raise SandboxTerminalError("The sandbox was closed before the call could begin.")
            self._live.add(call)
        try:
            return await calls.finish(call)
        except calls.CallCancelled as e:
            # Not by a cancel of this await, which ends in CancelledError.
            raise SandboxTerminalError("The sandbox was closed while a call was running in it.") from e
        finally:
            self._live.discard(call)

    async def ensure_sandbox(self, create: Callable[[], str], destroy: Callable[[str], None]) -> str:
        """Return the sandbox, creating it if there is none. However many ask at once: one creation.

        :param create: makes a sandbox; called on a thread.
        :param destroy: ends one that came too late, the run being closed.
        :raises SandboxError: whatever ``create`` raises; terminal if the run was closed.
        """
        while True:
            with self._lock:
                if not self.open:
                    raise _closed()
                if self.sandbox is not None:
                    return self.sandbox
                creation = self._creation
                if creation is None or creation.finished:
                    creation = self._creation = calls.prepare(self._create, create, destroy)
                    creation.start()
            try:
                return await creation.wait_async()
            except calls.CallCancelled:
                # By the close, or by the last of those that waited for it before this one came.
                if not creation.cancelled:
                    raise SandboxError("The backend ended the creation of its own accord.") from None

    def _create(self, create: Callable[[], str], destroy: Callable[[str], None]) -> str:
        sandbox = create()
        with self._lock:
            if self.open:
                self.sandbox = sandbox
                return sandbox
        with calls.uncancellable():
            destroy(sandbox)
        raise _closed()

    def lost(self, sandbox: str) -> None:
        """Take note that ``sandbox`` has ended; the next call needs another."""
        with self._lock:
            if self.sandbox == sandbox:
                self.sandbox = None

    def close(self) -> str | None:
        """Let no call begin any more, end those that run, and give up the sandbox to the caller."""
        with self._lock:
            self.open = False
            pending: list[calls.Call[Any]] = [*self._live]
            if self._creation is not None:
                pending.append(self._creation)
        for call in pending:
            call.cancel()
        for call in pending:
            call.abandon()
        sandbox, self.sandbox = self.sandbox, None
        return sandbox


def _closed() -> SandboxTerminalError:
    return SandboxTerminalError("The sandbox was closed while it was being provisioned.")
