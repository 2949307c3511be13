# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox_native import calls

GUARD = 30.0
name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="unset")


@pytest.fixture(autouse=True)
def descriptors_are_given_back() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


class Waits:
    """A call that waits for its token, as a wait in C does, and counts."""

    def __init__(self, ending: Callable[[], object] | None = None) -> None:
        self.started = threading.Event()
        self.inside = 0
        self.ending = ending

    def __call__(self) -> object:
        self.inside += 1
        try:
            fd = calls.cancel_fd()
            assert fd >= 0
            self.started.set()
            ready, _, _ = select.select([fd], [], [], GUARD)
            assert ready, "never cancelled"
            if self.ending is not None:
                return self.ending()
            raise calls.CallCancelled("stopped")
        finally:
            self.inside -= 1


def started_call(fn: Callable[[], Any]) -> calls.Call[Any]:
    call = calls.prepare(fn)
    call.start()
    return call


async def until(event: threading.Event) -> None:
    while not event.is_set():
        await asyncio.sleep(0.001)


@pytest.mark.asyncio
async def test_result_arguments_and_context_travel() -> None:
    name.set("caller")

    def fn(a: int, *, b: int) -> tuple[int, str, str]:
        name.set("callee")
        return a + b, threading.current_thread().name, name.get()

    assert await calls.run(fn, 1, b=2) == (3, "sandbox-call", "callee")
    assert name.get() == "caller"


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [ValueError("no"), calls.CallCancelled("x"), asyncio.CancelledError()])
async def test_the_same_exception_object_comes_out(error: BaseException) -> None:
    def fn() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await calls.run(fn)
    assert caught.value is error
    with pytest.raises(type(error)) as caught:
        calls.run_sync(fn)
    assert caught.value is error


@pytest.mark.asyncio
async def test_stop_iteration_does_not_hang_the_await() -> None:
    def fn() -> None:
        raise StopIteration(3)

    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(calls.run(fn), GUARD)


@pytest.mark.asyncio
async def test_a_cancelled_await_ends_the_thread_first() -> None:
    waits = Waits()
    task = asyncio.create_task(calls.run(waits))
    await until(waits.started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waits.inside == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("ending", [lambda: "a result all the same", lambda: 1 / 0])
async def test_a_cancel_wins_over_what_the_call_made_of_it(ending: Callable[[], object]) -> None:
    waits = Waits(ending)
    task = asyncio.create_task(calls.run(waits))
    await until(waits.started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waits.inside == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("cancels", [2, 5])
async def test_cancelled_again_while_the_thread_ends(cancels: int) -> None:
    let_go = threading.Event()
    inside = threading.Event()

    def deaf() -> None:
        inside.set()
        assert let_go.wait(GUARD)

    task = asyncio.create_task(calls.run(deaf))
    await until(inside)
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0.005)
        assert not task.done(), "a function that does not look at its token is waited for"
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_an_anyio_scope_that_cancels_does_not_spin() -> None:
    anyio = pytest.importorskip("anyio")
    inside, let_go, turns = threading.Event(), threading.Event(), 0

    def deaf() -> None:
        inside.set()
        assert let_go.wait(GUARD)

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(calls.run, deaf)
            await until(inside)
            scope.cancel()
            with anyio.CancelScope(shield=True):
                for _ in range(200):
                    turns += 1
                    await asyncio.sleep(0)
                let_go.set()
    assert scope.cancelled_caught


@pytest.mark.asyncio
async def test_a_cancel_before_the_first_step_starts_nothing() -> None:
    ran = False

    def fn() -> None:
        nonlocal ran
        ran = True

    task = asyncio.create_task(calls.run(fn))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ran


@pytest.mark.asyncio
async def test_a_shared_call_is_cancelled_by_its_last_waiter_only() -> None:
    waits = Waits()
    call = started_call(waits)
    first, second = (asyncio.create_task(call.wait_async()) for _ in range(2))
    await until(waits.started)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not call.cancelled and waits.inside == 1
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert call.cancelled and waits.inside == 0


def test_loops_of_two_threads_wait_for_one_call() -> None:
    let_go = threading.Event()
    call = started_call(lambda: let_go.wait(GUARD))
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(asyncio.run(call.wait_async()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    let_go.set()
    for thread in threads:
        thread.join(GUARD)
    assert results == [True] * 4


def test_a_closed_coroutine_ends_its_thread() -> None:
    waits = Waits()

    async def never_finished() -> None:
        task = asyncio.ensure_future(asyncio.sleep(0))
        await task
        coroutine = calls.run(waits)
        coroutine.send(None)
        await until(waits.started)
        coroutine.close()
        assert waits.inside == 0

    asyncio.run(never_finished())


def test_more_calls_than_any_pool_run_at_once() -> None:
    async def main() -> None:
        everyone = threading.Barrier(100)
        await asyncio.gather(*(calls.run(everyone.wait, GUARD) for _ in range(100)))

    asyncio.run(main())


def test_idle_threads_are_used_again_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(calls, "_executor", calls._Executor())
    seen = {calls.run_sync(threading.get_ident) for _ in range(50)}
    assert len(seen) < 50
    deadline = time.monotonic() + GUARD
    while calls._executor._idle and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not calls._executor._idle
    assert calls.run_sync(lambda: "again") == "again"


def test_a_call_that_arrives_as_its_thread_goes_idle_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "IDLE_SECONDS", 0.0)
    for n in range(500):
        assert calls.run_sync(lambda n=n: n) == n


def test_nothing_is_kept_of_a_finished_call() -> None:
    class Big:
        def method(self) -> None:
            pass

    big = Big()
    gone = weakref.ref(big)
    calls.run_sync(big.method)
    del big
    deadline = time.monotonic() + GUARD
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert gone() is None


def test_no_token_outside_a_call_nor_in_an_uncancellable_block() -> None:
    assert calls.cancel_fd() == -1
    calls.check_cancelled()

    def inside() -> tuple[int, int, bool]:
        with calls.uncancellable():
            hidden = calls.cancel_fd()
        fd = calls.cancel_fd()
        return hidden, fd, calls.cancel_fd() == fd

    hidden, fd, same = calls.run_sync(inside)
    assert hidden == -1 and fd >= 0 and same


def test_a_descriptor_asked_for_after_the_cancel_is_readable() -> None:
    cancelled = threading.Event()

    def late() -> bool:
        assert cancelled.wait(GUARD)
        with pytest.raises(calls.CallCancelled):
            calls.check_cancelled()
        return bool(select.select([calls.cancel_fd()], [], [], 0)[0])

    call = started_call(late)
    call.cancel()
    cancelled.set()
    assert call.wait()


def test_a_cancel_after_the_end_touches_no_descriptor() -> None:
    call = started_call(calls.cancel_fd)
    fd = call.wait()
    reused, other = os.pipe()
    try:
        assert fd in (reused, other), "the number is in use again"
        call.cancel()
        assert not select.select([reused], [], [], 0)[0]
    finally:
        os.close(reused)
        os.close(other)


def test_a_call_abandoned_before_it_began_never_runs() -> None:
    call = calls.prepare(lambda: pytest.fail("ran"))
    call.abandon()
    call.start()
    with pytest.raises(calls.CallCancelled):
        call.wait()


def test_a_call_within_a_call_is_under_the_same_token() -> None:
    def outer() -> bool:
        return calls.run_sync(calls.cancel_fd) == calls.cancel_fd()

    assert calls.run_sync(outer)


def test_without_a_thread_the_call_runs_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(calls, "_executor", calls._Executor())
    monkeypatch.setattr(calls.threading.Thread, "start", refuse)
    assert calls.run_sync(lambda: calls.cancel_fd() >= 0)
    monkeypatch.setattr(calls._thread, "start_new_thread", refuse)
    assert calls.run_sync(lambda: calls.cancel_fd() >= 0)
    assert asyncio.run(calls.run(threading.get_ident)) == threading.get_ident()


class _Alarm(Exception):
    pass


def test_an_exception_at_any_point_of_a_call_leaves_nothing_running() -> None:
    """A timer raises in the main thread at random points; afterwards every call that began has ended."""
    inside = 0

    def handler(*_: object) -> None:
        raise _Alarm

    def fn() -> None:
        nonlocal inside
        inside += 1
        try:
            select.select([calls.cancel_fd()], [], [], GUARD)
        finally:
            inside -= 1

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        for n in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + n * 2e-6)
                calls.run_sync(fn)
            except _Alarm:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert inside == 0
    finally:
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("alarms", [1, 3])
def test_an_exception_of_a_signal_handler_cancels_a_waiting_call(alarms: int) -> None:
    waits = Waits(lambda: time.sleep(0.05 * alarms))

    def handler(*_: object) -> None:
        raise _Alarm

    def send() -> None:
        assert waits.started.wait(GUARD)
        for _ in range(alarms):
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.02)

    previous = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(_Alarm):
            calls.run_sync(waits)
        assert waits.inside == 0
    finally:
        while sender.is_alive():
            try:
                sender.join()
            except _Alarm:
                continue
        signal.signal(signal.SIGUSR1, previous)


PROGRAM = """
import os, select, sys, threading, time
from sandbox_native import calls
started = threading.Event()
def waits():
    fd = calls.cancel_fd()
    started.set()
    select.select([fd], [], [], 600)
call = calls.prepare(waits)
call.start()
assert started.wait(30)
"""


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("os._exit(4)", 4),
        # A child forked while calls run starts afresh and leaves the parent's call alone.
        (
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    assert calls.run_sync(lambda: 5) == 5\n"
            "    call.cancel()\n"
            "    os._exit(0)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
            "assert not call.finished\n"
            "call.cancel(); call.wait()\n",
            0,
        ),
        # Forked inside a call: the parent's token is not the child's.
        (
            "def fork():\n"
            "    assert calls.cancel_fd() >= 0\n"
            "    pid = os.fork()\n"
            "    if pid == 0:\n"
            "        os._exit(0 if calls.cancel_fd() == -1 else 1)\n"
            "    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
            "assert calls.run_sync(fork) == 0\n"
            "call.cancel(); call.wait()\n",
            0,
        ),
    ],
)
def test_exit_and_fork_while_a_call_runs(rest: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM + rest],
        timeout=GUARD * 2,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (code, "")


class LateThreads:
    """An executor whose threads come only when told, so that a cancel is always first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[calls.Call[Any]] = []
        monkeypatch.setattr(calls._executor, "submit", self.waiting.append)

    def come(self) -> None:
        for call in self.waiting:
            threading.Thread(target=call._run).start()


@pytest.mark.asyncio
@pytest.mark.parametrize(("how", "expected"), [(calls.run, []), (calls.complete, ["ran"])])
async def test_a_cancel_before_the_call_has_its_thread(
    how: Callable[..., Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = LateThreads(monkeypatch)
    ran: list[str] = []
    task = asyncio.create_task(how(ran.append, "ran"))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    threads.come()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, GUARD)
    assert ran == expected


@pytest.mark.parametrize(("how", "expected"), [(calls.run_sync, []), (calls.complete_sync, ["ran"])])
def test_an_interrupt_before_the_call_has_its_thread(
    how: Callable[..., Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(call: calls.Call[Any]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(calls._executor, "submit", interrupted)
    ran: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        how(ran.append, "ran")
    assert ran == expected
