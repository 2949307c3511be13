# SPDX-License-Identifier: Apache-2.0
"""The event loop that obstore's uploads run on, in a thread of its own, and their end with the program.

Obstore's threads call into Python by this loop's ``call_soon_threadsafe``. One that waits for the interpreter
lock when the interpreter is taken down is ended in the middle of Rust code, which aborts the process. So
before that, what is still under way is ended, and the last thread seen out of the call.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

# How long the end of the program may wait for the uploads that it ends, in seconds.
_END_SECONDS = 30


class _Loop(asyncio.SelectorEventLoop):
    """A loop that knows which threads are calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.calling: set[int] = set()

    def call_soon_threadsafe(  # type: ignore[override]  # the same, with less precise types
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        # The call wakes the loop and releases the interpreter lock for it, so what this thread brought may
        # have been dealt with, to the end of the program, before it goes on.
        me = threading.get_ident()
        self.calling.add(me)
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        finally:
            # Nothing between this and the return lets another thread run.
            self.calling.discard(me)


class Uploads:
    """The loop of this process and the uploads that run on it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.loop = _Loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="sandbox-obstore", daemon=True)
        self._thread.start()
        self._live: dict[concurrent.futures.Future[Any], Callable[[], None]] = {}
        atexit.register(self._end)

    def start(
        self, upload: Coroutine[Any, Any, Any], give_up: Callable[[], None]
    ) -> concurrent.futures.Future[Any]:
        """Run ``upload``; ``give_up`` makes it end soon."""
        future = asyncio.run_coroutine_threadsafe(upload, self.loop)
        self._live[future] = give_up
        future.add_done_callback(lambda done: self._live.pop(done, None))
        return future

    def _end(self) -> None:
        if os.getpid() != self._pid:
            return
        deadline = time.monotonic() + _END_SECONDS
        live = list(self._live.items())
        for _, give_up in live:
            give_up()
        concurrent.futures.wait([future for future, _ in live], timeout=_END_SECONDS)
        while self.loop.calling and time.monotonic() < deadline:
            time.sleep(0.001)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(max(0, deadline - time.monotonic()))


_uploads: Uploads | None = None
_lock = threading.Lock()


def uploads() -> Uploads:
    """Those of this process. Not for one that was forked from a process that had some."""
    global _uploads
    with _lock:
        if _uploads is None:
            _uploads = Uploads()
        return _uploads


def forked() -> bool:
    """Whether the uploads were another process's, whose threads are not here."""
    return _uploads is not None and _uploads._pid != os.getpid()
