# SPDX-License-Identifier: Apache-2.0
"""Islo: threads, cancels, signals, forks, copies, and what never shows."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from net_tools import run_python
from sandbox_native import calls
from sandbox_native.backends import _islo_token
from sandbox_native.backends._islo_calls import CallError
from sandbox_native.backends.islo import IsloSandboxBackend
from sandbox_native.contract import SandboxTerminalError
from servers.islo.fixtures import Sandbox
from servers.islo.handle import IsloServer

SECRET = "sk-very-secret-key-0123456789"


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def together(*functions: Callable[[], Any]) -> list[Any]:
    """What each returned or raised; all called at once."""
    results: list[Any] = [None] * len(functions)
    start = threading.Barrier(len(functions))

    def work(number: int) -> None:
        start.wait(100)
        try:
            results[number] = functions[number]()
        except Exception as e:
            results[number] = e

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
        assert not thread.is_alive()
    return results


# ---- threads -------------------------------------------------------------------------------------


def test_many_threads_make_one_exchange(box: Sandbox) -> None:
    box.server.act(box.name, "revoke")
    _islo_token._sessions.clear()
    box.server.faults.add("token", "hang", seconds=0.5)
    others = [IsloSandboxBackend() for _ in range(4)]
    results = together(
        *(
            lambda n=n: (
                others[n % 4].run_command(box.name, f"echo {n}", timeout=100, max_output_bytes=10).stdout
            )
            for n in range(20)
        )
    )
    assert results == [f"{n}\n" for n in range(20)]
    assert box.server.count("token") == 1


def test_many_threads_replace_a_dead_token_once(box: Sandbox) -> None:
    box.server.act(box.name, "revoke")
    box.server.faults.add("token", "hang", seconds=0.3, times=None)
    results = together(*(lambda: box.run("echo ran", timeout=100).stdout for _ in range(12)))
    assert results == ["ran\n"] * 12
    # A call that was answered 401 for the old token after the new one came does not cost another.
    assert box.server.count("token") == 1


def test_a_refused_key_is_one_exchange_for_all_that_wait(islo: IsloServer) -> None:
    islo.faults.add("token", "hang", seconds=1.0)
    islo.set(api_key="another")
    backend = IsloSandboxBackend()
    results = together(*(backend.create for _ in range(8)))
    assert all(isinstance(e, SandboxTerminalError) and "rejected ISLO_API_KEY" in str(e) for e in results)
    assert islo.count("token") < 8


def test_those_who_wait_for_an_exchange_that_fails_have_an_error_each() -> None:
    session = _islo_token.Session()
    begun, go = threading.Event(), threading.Event()

    def fail() -> tuple[str, float]:
        begun.set()
        assert go.wait(100)
        raise CallError(503, "later", retry_after=7.0, transient=True)

    def ask() -> str:
        return session.token(fail, deadline=time.monotonic() + 100)

    def follow() -> str:
        assert begun.wait(100)
        threading.Timer(0.3, go.set).start()
        return ask()

    errors = together(ask, follow, follow, follow)
    assert [(type(e), e.status, e.detail, e.retry_after, e.transient) for e in errors] == [
        (CallError, 503, "later", 7.0, True)
    ] * 4
    assert len({id(e) for e in errors}) == 4


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"session_token":null}',
        '{"session_token":""}',
        '{"session_token":"a\\nb"}',
        "<html>",
    ],
)
def test_an_exchange_that_brings_no_token_is_the_end(islo: IsloServer, answer: str) -> None:
    islo.faults.add("token", "body", text=answer, times=None)
    with pytest.raises(SandboxTerminalError, match="no usable session token"):
        IsloSandboxBackend().create()
    assert islo.count() == islo.count("token") == 1


@pytest.mark.parametrize("life", [0, 30, 60, None, "600", -1, True, 1e300])
def test_any_life_of_a_token(islo: IsloServer, life: Any) -> None:
    islo.faults.add("token", "json", set={"cookie_max_age": life}, times=None)
    backend = IsloSandboxBackend()
    backend.destroy(backend.create())
    assert not islo.sandboxes()
    assert islo.count("token") == (2 if life == 0 and life is not False else 1)


# ---- cancel --------------------------------------------------------------------------------------


class Cancelled:
    """A call that another thread cancels when ``when`` holds."""

    def __init__(self, function: Callable[[], Any], when: Callable[[], object]) -> None:
        call = calls.prepare(function)

        def cancel() -> None:
            wait_for(when)
            call.cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        call.start()
        self.error: BaseException | None = None
        try:
            self.result = call.wait()
        except BaseException as e:
            self.error = e
        thread.join()


def test_a_cancelled_command_ends_with_its_sandbox_and_says_so(
    box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    done = Cancelled(lambda: box.run("sleep 1000", timeout=900), lambda: box.server.count("result") > 2)
    assert isinstance(done.error, calls.CallCancelled)
    assert f"Sandbox {box.name} was deleted" in done.error.__notes__[0]
    assert "to stop a cancelled command" in caplog.text
    assert not box.stands()
    assert box.server.count("delete") == 1


def test_a_cancel_while_the_last_output_is_fetched(box: Sandbox) -> None:
    box.server.faults.add("exec", "hang", nth=2, seconds=600)
    done = Cancelled(lambda: box.run("sleep 1000", timeout=0.5), lambda: box.server.count("exec") == 2)
    assert isinstance(done.error, calls.CallCancelled)
    assert not box.stands()


def test_a_cancel_while_the_start_is_not_answered(box: Sandbox) -> None:
    box.server.faults.add("exec", "hang", seconds=600)
    done = Cancelled(lambda: box.run("sleep 1000", timeout=900), lambda: box.server.count("exec"))
    assert isinstance(done.error, calls.CallCancelled)
    assert not box.stands()


def test_a_cancel_before_anything_was_sent_costs_nothing(box: Sandbox) -> None:
    box.server.act(box.name, "revoke")
    _islo_token._sessions.clear()
    box.server.faults.add("token", "hang", seconds=600)
    done = Cancelled(lambda: box.run("true", timeout=900), lambda: box.server.count("token"))
    assert isinstance(done.error, calls.CallCancelled)
    assert box.stands()
    assert not box.server.count("exec")


def test_a_cancelled_follower_does_not_wait_for_the_exchange(box: Sandbox) -> None:
    box.server.act(box.name, "revoke")
    _islo_token._sessions.clear()
    box.server.faults.add("token", "hang", seconds=3)
    leader = threading.Thread(target=box.run, args=("true",))
    leader.start()
    wait_for(lambda: box.server.count("token"))
    done = Cancelled(lambda: box.run("true"), lambda: True)
    assert isinstance(done.error, calls.CallCancelled)
    leader.join()
    assert box.server.count("exec") == 1


def test_a_cancelled_leader_leaves_the_exchange_to_the_next(box: Sandbox) -> None:
    box.server.act(box.name, "revoke")
    _islo_token._sessions.clear()
    box.server.faults.add("token", "hang", seconds=600)
    results: list[str] = []
    follower = threading.Thread(target=lambda: results.append(box.run("echo ran").stdout))

    def ready() -> bool:
        if not box.server.count("token"):
            return False
        if follower.ident is None:
            follower.start()
            time.sleep(0.2)
        return True

    done = Cancelled(lambda: box.run("true"), ready)
    assert isinstance(done.error, calls.CallCancelled)
    follower.join(100)
    assert results == ["ran\n"]


@pytest.mark.parametrize("made", [False, True])
def test_a_cancelled_create_leaves_no_sandbox(islo: IsloServer, made: bool) -> None:
    islo.faults.add("create", "hang", seconds=600, after=made)
    backend = IsloSandboxBackend()
    done = Cancelled(backend.create, lambda: islo.count("create") and bool(islo.sandboxes()) == made)
    assert isinstance(done.error, calls.CallCancelled)
    assert not islo.sandboxes()


def test_a_signal_while_a_create_is_looked_at_leaves_no_sandbox(
    islo: IsloServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = IsloSandboxBackend()

    def interrupted(*_: object) -> None:
        assert islo.sandboxes()
        raise KeyboardInterrupt

    monkeypatch.setattr(backend._service(), "_check_usable", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.create()
    assert not islo.sandboxes()


def test_a_cancel_whose_delete_fails_says_so(box: Sandbox, pauses: list[float]) -> None:
    box.server.faults.add("delete", "status", status=503, times=None)
    done = Cancelled(lambda: box.run("sleep 1000", timeout=900), lambda: box.server.count("result") > 2)
    assert isinstance(done.error, calls.CallCancelled)
    assert "could not confirm its deletion" in done.error.__notes__[0]


def test_a_cancelled_download_leaves_the_sandbox(box: Sandbox) -> None:
    box.run("head -c 1000000 /dev/zero >/srv/f")
    box.server.faults.add("download", "cut", after_bytes=1000, stall=600)
    done = Cancelled(
        lambda: box.backend.read_file(box.name, "/srv/f", max_bytes=10**7),
        lambda: box.server.count("download"),
    )
    assert isinstance(done.error, calls.CallCancelled)
    assert box.stands()


def test_a_cancelled_await_waits_for_the_end_of_the_command(box: Sandbox) -> None:
    async def main() -> None:
        task = asyncio.create_task(calls.run(box.run, "sleep 1000", timeout=900))
        while box.server.count("result") < 2:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not box.stands()


def test_an_exception_of_a_signal_handler_ends_the_command(box: Sandbox) -> None:
    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        kill = threading.Thread(
            target=lambda: (
                wait_for(lambda: box.server.count("result") > 2),
                os.kill(os.getpid(), signal.SIGUSR1),
            )
        )
        kill.start()
        with pytest.raises(KeyboardInterrupt) as caught:
            box.run("sleep 1000", timeout=900)
        kill.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "was deleted" in caught.value.__notes__[0]
    assert not box.stands()


# ---- copies, forks, cost ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_a_copy_has_the_options_and_no_key(
    islo: IsloServer, monkeypatch: pytest.MonkeyPatch, how: Callable[[IsloSandboxBackend], IsloSandboxBackend]
) -> None:
    monkeypatch.setenv("ISLO_API_KEY", SECRET)
    islo.set(api_key=SECRET)
    backend = IsloSandboxBackend(vcpus=3)
    name = backend.create()
    assert SECRET.encode() not in pickle.dumps(backend)
    other = how(backend)
    assert (other._vcpus, other._made) == (3, None)
    # The handle of another backend, as that of another process, works.
    assert other.run_command(name, "echo ran", timeout=60, max_output_bytes=10).stdout == "ran\n"
    assert backend.run_command(name, "echo ran", timeout=60, max_output_bytes=10).stdout == "ran\n"


FORK = """
import os, sys, threading
from sandbox_native.backends.islo import IsloSandboxBackend
from sandbox_native.backends import _islo_token
backend = IsloSandboxBackend()
name = backend.create()
run = lambda text: backend.run_command(name, f"echo {text}", timeout=60, max_output_bytes=100).stdout
assert run("parent") == "parent\\n"
(session,) = _islo_token._sessions.values()
session._lock.acquire()  # as if another thread were in it
child = os.fork()
if child == 0:
    ok = run("child") == "child\\n"
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
session._lock.release()
assert run("again") == "again\\n"
backend.destroy(name)
"""


def test_a_forked_child_works_and_the_parent_goes_on(islo: IsloServer) -> None:
    done = run_python(FORK, **islo.environment)
    assert done.returncode == 0, done.stderr
    assert not islo.sandboxes()


COST = """
import asyncio, sys  # which a program with agents has loaded
before = set(sys.modules)
from sandbox_native import registry
backend = registry.backend("islo", image="x")
assert "libcurl" not in open("/proc/self/maps").read()
heavy = {"islo", "httpx", "airflow", "urllib.request", "http.client", "email", "xml"}
print(*sorted(heavy & (set(sys.modules) - before)))
"""


def test_an_import_and_a_constructor_load_little() -> None:
    done = run_python(COST)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


# ---- secrets -----------------------------------------------------------------------------------------


def test_no_secret_is_in_an_error_or_a_log(
    islo: IsloServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, pauses: list[float]
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ISLO_API_KEY", SECRET)
    islo.set(api_key=SECRET)
    backend = IsloSandboxBackend()
    name = backend.create()
    (session,) = _islo_token._sessions.values()
    body = {"code": "X", "message": f"bad header: Bearer {session._token} of {SECRET}"}
    said: list[str] = [
        repr(backend),
        repr(vars(backend)),
        repr(vars(backend._service())),
        repr(vars(backend._service().api)),
        repr(session),
    ]
    for status in (400, 401, 403, 409, 429, 500, 503):
        islo.faults.add("*", "status", status=status, body=body, times=None)
        for call in (
            backend.create,
            lambda: backend.run_command(name, "true", timeout=1, max_output_bytes=1),
            lambda: backend.read_file(name, "/f", max_bytes=1),
            lambda: backend.destroy(name),
        ):
            with pytest.raises(Exception) as caught:
                call()
            error: BaseException | None = caught.value
            while error is not None:
                said += [str(error), repr(error), *getattr(error, "__notes__", ())]
                error = error.__cause__ or error.__context__
        islo.faults.clear()
    said.append(caplog.text)
    for text in said:
        assert SECRET not in text
        assert "token-" not in text


def test_a_key_of_any_characters_is_sent_as_it_is(islo: IsloServer, monkeypatch: pytest.MonkeyPatch) -> None:
    key = 'k"\\é\n'
    monkeypatch.setenv("ISLO_API_KEY", key)
    with pytest.raises(SandboxTerminalError, match="rejected ISLO_API_KEY"):
        IsloSandboxBackend().create()
    islo.set(api_key=key)
    # The server's token holds the key, which no header can carry.
    with pytest.raises(SandboxTerminalError, match="no usable session token"):
        IsloSandboxBackend().create()
