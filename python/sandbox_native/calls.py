# SPDX-License-Identifier: Apache-2.0
"""The threads that blocking backend calls run on, and the tokens that cancel them.

``asyncio.to_thread`` shares a handful of workers with the user's program and abandons the thread when the
await is cancelled. Here every call gets a thread at once, carries a cancel token that waits in C poll, and
is always waited for: once an await of a call has ended, in whatever way, no thread is left working for it.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import contextvars
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

# A worker without work ends after this many seconds, so a burst of agents does not leave its threads behind.
IDLE_SECONDS = 10.0
# Signal handlers written in Python only run in the main thread, between two of its steps.
SIGNAL_CHECK_SECONDS = 0.2


class CallCancelled(BaseException):
    """A backend stopped a call because its cancel token was set.

    A ``BaseException``, as ``asyncio.CancelledError`` is, so that no ``except Exception`` on the way takes
    a cancel for a failure it could report or retry.
    """


class _Token:
    """Whether a call is to stop. Its descriptor is made when a wait asks for it and closed with the call."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._fd = -1
        self._ended = False
        self.cancelled = False
        # Those of calls that end with this one. Appended to and copied in one step each, without the lock.
        self.parts: list[_Token] = []

    def descriptor(self) -> int:
        # A forked child shares the eventfd with its parent: using it there would cancel the parent's call.
        if os.getpid() != self._pid:
            return -1
        with self._lock:
            if self._fd < 0 and not self._ended:
                self._fd = os.eventfd(1 if self.cancelled else 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return self._fd

    def cancel(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            if not self.cancelled:
                self.cancelled = True
                if self._fd >= 0:
                    os.eventfd_write(self._fd, 1)
        for part in [*self.parts]:
            part.cancel()

    def end(self) -> None:
        # Under the lock, so that a late cancel never writes to a number that is another file by then.
        with self._lock:
            self._ended = True
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


_token: contextvars.ContextVar[_Token | None] = contextvars.ContextVar("sandbox_native_call", default=None)


def cancel_fd() -> int:
    """Return the descriptor that becomes readable when the current call is cancelled, or -1.

    The descriptor belongs to the call: it is valid until the call returns, and not the caller's to read,
    write or close. -1 where nothing can cancel: outside a call, in :func:`uncancellable`, in a forked child.

    :raises OSError: the process is out of descriptors.
    """
    token = _token.get()
    return -1 if token is None else token.descriptor()


def is_cancelled() -> bool:
    """Return whether the current call has been asked to stop."""
    token = _token.get()
    return token is not None and token.cancelled


def check_cancelled() -> None:
    """Raise :class:`CallCancelled` if the current call has been asked to stop.

    For loops in Python that never come by a wait in C.
    """
    if is_cancelled():
        raise CallCancelled("the call was cancelled")


@contextlib.contextmanager
def uncancellable() -> Iterator[None]:
    """Hide the cancel token inside the block, for clean-up that has to happen all the same."""
    reset = _token.set(None)
    try:
        yield
    finally:
        _token.reset(reset)


class Call(Generic[R]):
    """One function running on a thread of its own, which any thread or event loop may wait for.

    Lock-free where the main thread takes part, so an exception out of a signal handler at any bytecode
    leaves nothing locked.
    """

    def __init__(self, fn: Callable[[], R], *, certain: bool = False, part: bool = False) -> None:
        """
        :param certain: ``fn`` runs whatever happens; otherwise a cancel that comes first spares it.
        :param part: a cancel of the call that this one is made in cancels it, too.
        """
        self._fn = fn
        self._certain = certain
        self._started = False
        self._context = contextvars.copy_context()
        self._token = _Token()
        self._whole = _token.get() if part else None
        if self._whole is not None:
            self._whole.parts.append(self._token)
            if self._whole.cancelled:
                self._token.cancel()
        # Whoever pops it has the call: its worker, to run it, or one who gave up before it ran.
        self._claim = deque([None])
        self._callbacks: deque[Callable[[], None]] = deque()
        self._waiters: set[object] = set()
        self._value: R | None = None
        self._error: BaseException | None = None
        self.finished = False

    def start(self) -> None:
        """Have it run on a thread, once. Where no thread can be started, it runs here and now."""
        global _executor
        if _executor.pid != os.getpid():
            _executor = _Executor()
        try:
            _executor.submit(self)
        except RuntimeError as e:
            # A limit, or the interpreter is ending: clean-up still has to happen.
            log.debug("Running a call in place", exc_info=e)
            self._run()
        self._started = True

    def cancel(self) -> None:
        """Ask the call to stop. Returns at once; the call ends when its backend has seen to it."""
        self._token.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether the call was asked to stop."""
        return self._token.cancelled

    def wait(self) -> R:
        """Wait in this thread and return what the call returned, or raise what it raised.

        An exception that interrupts the wait (from a signal handler) cancels the call, unless others wait
        for it too; the exception comes out when the call has ended. Further ones meanwhile are dropped.
        """
        me = object()
        try:
            self._waiters.add(me)
            self._sleep()
        except BaseException:
            if self._leave(me):
                self.abandon()
            raise
        return self._outcome()

    async def wait_async(self) -> R:
        """Await what :meth:`wait` waits for; a cancelled await cancels the call and waits for its end."""
        me = object()
        try:
            self._waiters.add(me)
            await self._sleep_async()
        except GeneratorExit:
            # The coroutine is being closed and may not await again.
            if self._leave(me):
                self.abandon()
            raise
        except BaseException:
            if self._leave(me):
                await self.abandon_async()
            raise
        return self._outcome()

    def abandon(self) -> None:
        """Cancel the call and wait in this thread until it has ended, whatever interrupts the wait."""
        while not self.finished:
            try:
                self.cancel()
                self._withdraw()
                self._sleep()
            except BaseException as e:
                log.debug("Interrupted again while waiting for a call to end", exc_info=e)

    async def abandon_async(self) -> None:
        """Cancel the call and await its end, whatever cancels the await."""
        with _shield_from_anyio():
            while not self.finished:
                try:
                    self.cancel()
                    self._withdraw()
                    await self._sleep_async()
                except GeneratorExit:
                    self.abandon()
                    raise
                except BaseException as e:
                    log.debug("Cancelled again while waiting for a call to end", exc_info=e)

    def _leave(self, me: object) -> bool:
        """Stop counting as a waiter; whether that was the last."""
        self._waiters.discard(me)
        return not self._waiters

    def _outcome(self) -> R:
        error = self._error
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame
        return self._value  # type: ignore[return-value]

    def _sleep(self) -> None:
        latch = threading.Lock()
        latch.acquire()
        self._when_finished(latch.release)
        if threading.current_thread() is threading.main_thread():
            # A signal that comes just before the thread sleeps does not wake it: look for its handler.
            while not latch.acquire(timeout=SIGNAL_CHECK_SECONDS):
                pass
        else:
            latch.acquire()

    async def _sleep_async(self) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def finished() -> None:
            # The loop of an abandoned waiter may be closed by now.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(wake)

        self._when_finished(finished)
        try:
            await waiter
        finally:
            with contextlib.suppress(ValueError):
                self._callbacks.remove(finished)

    def _when_finished(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        if self.finished:
            self._notify()

    def _notify(self) -> None:
        # Called by the worker and by a waiter that came as it finished: popping makes it once for each.
        while True:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return
            callback()

    def _withdraw(self) -> None:
        if self._certain:
            if not self._started:
                self._run()  # what interrupted the start kept it from a thread
        elif self._take():
            self._error = CallCancelled("the call was cancelled before it began")
            self._end()

    def _take(self) -> bool:
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True

    def _run(self) -> None:
        if not self._take():
            return
        try:
            self._value = self._context.run(self._run_in_context)
        except BaseException as e:
            self._error = e
        self._end()

    def _run_in_context(self) -> R:
        # In the copy of the caller's context, so nothing has to be put back.
        _token.set(self._token)
        return self._fn()

    def _end(self) -> None:
        del self._fn
        self._token.end()
        if self._whole is not None:
            with contextlib.suppress(ValueError):
                self._whole.parts.remove(self._token)
        self.finished = True
        self._notify()


@contextlib.contextmanager
def _shield_from_anyio() -> Iterator[None]:
    # A cancelled anyio scope cancels its task again at every turn of the loop, which would spin.
    anyio = sys.modules.get("anyio")
    if anyio is None:
        yield
        return
    with anyio.CancelScope(shield=True):
        yield


class _Executor:
    """Threads that grow with demand. One per process: a forked child starts with none."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Call[Any]]] = []

    def submit(self, call: Call[Any]) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            # One step, where threading.Thread.start() is many and an exception out of a signal handler in
            # the midst of them breaks the thread.
            _thread.start_new_thread(self._grow, (call,))
            return
        try:
            inbox.put(call)
        except BaseException:
            inbox.put(call)  # its thread counts as busy, so it has to get one; a call runs once only
            raise

    def _grow(self, call: Call[Any]) -> None:
        inbox: SimpleQueue[Call[Any]] = SimpleQueue()
        inbox.put(call)
        try:
            # A daemon, so that a command nobody waits for any more never holds up the interpreter's exit.
            threading.Thread(target=self._work, args=(inbox,), name="sandbox-call", daemon=True).start()
        except RuntimeError:
            call._run()

    def _work(self, inbox: SimpleQueue[Call[Any]]) -> None:
        while True:
            call = self._next(inbox)
            if call is None:
                return
            call._run()
            del call
            with self._lock:
                if inbox not in self._idle:
                    self._idle.append(inbox)

    def _next(self, inbox: SimpleQueue[Call[Any]]) -> Call[Any] | None:
        try:
            return inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            pass
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                return None
        # Taken off the idle list already: its call is on the way.
        return inbox.get()


_executor = _Executor()


def prepare(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
    """Make the call of ``fn``, in a copy of the current context, without starting it.

    For whoever has to know the call before anything can happen in it.
    """
    return Call(lambda: fn(*args, **kwargs))


def prepare_part(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
    """Make a call like :func:`prepare`, as a part of the current one: its cancel cancels this one, too.

    For a function that has several things done at once. It has to wait for each, or abandon it.
    """
    return Call(lambda: fn(*args, **kwargs), part=True)


async def run(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run the blocking ``fn`` on a thread and await its result.

    A cancelled await sets the call's token, waits for the thread to end, cancelled again or not, and then
    raises ``asyncio.CancelledError``. A function that does not look at the token is simply waited for.

    :raises BaseException: whatever ``fn`` raises.
    """
    return await finish(prepare(fn, *args, **kwargs))


async def complete(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Do what :func:`run` does for an ``fn`` that must run, such as clean-up, however early a cancel comes.

    :raises BaseException: whatever ``fn`` raises.
    """
    return await finish(Call(lambda: fn(*args, **kwargs), certain=True))


async def finish(call: Call[R]) -> R:
    """Do for a prepared call what :func:`run` does.

    :raises BaseException: whatever its function raises; :class:`CallCancelled` if others abandoned it.
    """
    try:
        call.start()
        return await call.wait_async()
    except BaseException:
        call.abandon()  # has ended, unless a signal handler raised on the way to the wait
        raise


def run_sync(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run the blocking ``fn`` on a thread and wait for it in this one.

    What a cancel does to :func:`run`, an exception from a signal handler does to this wait. Within a call,
    ``fn`` is called directly: that call's token is the one to look at.

    :raises BaseException: whatever ``fn`` raises.
    """
    return _run_sync(lambda: fn(*args, **kwargs), certain=False)


def complete_sync(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Do what :func:`run_sync` does for an ``fn`` that must run, as :func:`complete` does.

    :raises BaseException: whatever ``fn`` raises.
    """
    return _run_sync(lambda: fn(*args, **kwargs), certain=True)


def _run_sync(fn: Callable[[], R], *, certain: bool) -> R:
    if _token.get() is not None:
        return fn()
    call = Call(fn, certain=certain)
    try:
        call.start()
        return call.wait()
    except BaseException:
        call.abandon()
        raise
