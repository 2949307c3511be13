# SPDX-License-Identifier: Apache-2.0
"""What is asked again, what never, and for how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate

import pytest

from net_tools import CancelFd, soon
from sandbox_native import retries
from sandbox_native.http import Answer, Client, RequestCancelled, TransportError
from sandbox_native.retries import retry_after, with_retries
from scripted import Peer, Server

Serve = Callable[..., Server]
QUICK = {"first_delay": 0.001}


def outcomes(*wanted: int | TransportError) -> tuple[Callable[[], Answer], list[int]]:
    """An ``ask`` with these answers and errors, and the list it counts in."""
    calls: list[int] = []
    rest: Iterator[int | TransportError] = iter(wanted)

    def ask() -> Answer:
        calls.append(1)
        outcome = next(rest)
        if isinstance(outcome, TransportError):
            raise outcome
        return Answer(outcome, b"HTTP/1.1 x\r\n\r\n", b"", False)

    return ask, calls


def failed(kind: str, sent: bool) -> TransportError:
    return TransportError("x", kind=kind, sent=sent)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_an_idempotent_request_is_made_again(status: int) -> None:
    ask, calls = outcomes(status, status, 200)
    assert with_retries(ask, deadline=soon(), idempotent=True, **QUICK).status == 200
    assert len(calls) == 3


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 403, 404, 409, 500])
def test_other_statuses_are_final(status: int) -> None:
    ask, calls = outcomes(status)
    assert with_retries(ask, deadline=soon(), idempotent=True, **QUICK).status == status
    assert len(calls) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_request_that_may_have_run_is_not_made_again(status: int) -> None:
    ask, calls = outcomes(status)
    assert with_retries(ask, deadline=soon(), idempotent=False, **QUICK).status == status
    assert len(calls) == 1


def test_a_refusal_by_agreement_is() -> None:
    ask, calls = outcomes(429, 503)
    answer = with_retries(ask, deadline=soon(), idempotent=False, refusals=(429,), **QUICK)
    assert (answer.status, len(calls)) == (503, 2)


@pytest.mark.parametrize("kind", ["resolve", "connect", "connect_timeout", "proxy"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_never_reached_the_server_is_made_again(kind: str, idempotent: bool) -> None:
    ask, calls = outcomes(failed(kind, False), failed(kind, False), 200)
    assert with_retries(ask, deadline=soon(), idempotent=idempotent, **QUICK).status == 200
    assert len(calls) == 3


# A connect that fails after sending: on the second try, when a kept connection had died.
@pytest.mark.parametrize("kind", ["send", "receive", "stalled", "connect"])
def test_what_may_have_reached_it_only_if_idempotent(kind: str) -> None:
    ask, calls = outcomes(failed(kind, True), 200)
    assert with_retries(ask, deadline=soon(), idempotent=True, **QUICK).status == 200
    ask, calls = outcomes(failed(kind, True))
    with pytest.raises(TransportError):
        with_retries(ask, deadline=soon(), idempotent=False, **QUICK)
    assert len(calls) == 1


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize(
    "kind", ["tls", "protocol", "deadline", "cancelled", "library", "too_large", "head_too_large", "source"]
)
def test_failures_that_would_come_again(kind: str, sent: bool) -> None:
    ask, calls = outcomes(failed(kind, sent))
    with pytest.raises(TransportError):
        with_retries(ask, deadline=soon(), idempotent=True, **QUICK)
    assert len(calls) == 1


def test_the_last_answer_or_error_is_the_result() -> None:
    ask, calls = outcomes(503, failed("connect", False), 502)
    assert with_retries(ask, deadline=soon(), idempotent=True, **QUICK).status == 502
    last = failed("receive", True)
    ask, calls = outcomes(503, last)
    with pytest.raises(TransportError) as error:
        with_retries(ask, deadline=soon(), idempotent=True, attempts=2, **QUICK)
    assert error.value is last and len(calls) == 2
    ask, calls = outcomes(503)
    assert with_retries(ask, deadline=soon(), idempotent=True, attempts=1, **QUICK).status == 503
    with pytest.raises(ValueError, match="attempts"):
        with_retries(ask, deadline=soon(), idempotent=True, attempts=0)


def answer_with(value: str) -> Answer:
    return Answer(503, f"HTTP/1.1 503 x\r\nRetry-After: {value}\r\n\r\n".encode(), b"", False)


@pytest.mark.parametrize(
    ("value", "want"),
    [("0", 0.0), ("7", 7.0), (" 120 ", 120.0), ("9" * 400, 1e15), (formatdate(0, usegmt=True), 0.0)]
    + [(odd, None) for odd in ("", "-1", "1.5", "soon", "1 s", "١٢", "Thu, 99 Foo 2020 00:00:00 GMT")],
)
def test_retry_after(value: str, want: float | None) -> None:
    assert retry_after(answer_with(value)) == want


def test_retry_after_a_date() -> None:
    wait = retry_after(answer_with(formatdate(time.time() + 500, usegmt=True)))
    assert wait is not None and 400 < wait <= 500


def test_waits_follow_retry_after_else_they_double(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(retries, "_sleep", lambda seconds, fd, sent: slept.append(seconds))
    later = iter([answer_with("30"), answer_with("x"), answer_with("0"), answer_with("-"), answer_with("")])
    with_retries(lambda: next(later), deadline=soon(), idempotent=True, attempts=5, longest_delay=3.0)
    assert slept[0] == 30 and slept[2] == 0
    assert 0.9 <= slept[1] <= 1.1  # the second of 0.5, 1, 2, 3, 3
    assert 2.7 <= slept[3] <= 3.3


@pytest.mark.parametrize("value", ["60", "101", "9" * 400])
def test_a_wait_beyond_the_deadline_is_not_begun(value: str) -> None:
    calls: list[int] = []

    def ask() -> Answer:
        calls.append(1)
        return answer_with(value)

    assert with_retries(ask, deadline=soon(50), idempotent=True).status == 503
    assert len(calls) == 1
    with pytest.raises(TransportError):
        with_retries(outcomes(failed("connect", False))[0], deadline=soon(0.1), idempotent=True)


def test_a_wait_can_be_cancelled(cancel: CancelFd) -> None:
    waiting = threading.Event()

    def ask() -> Answer:
        waiting.set()
        return answer_with("90")

    thread = cancel.set_when(waiting)
    with pytest.raises(RequestCancelled) as error:
        with_retries(ask, deadline=soon(), idempotent=True, cancel_fd=cancel.fd)
    thread.join()
    assert error.value.sent is True


def test_over_the_wire(serve: Serve, client: Client) -> None:
    def script(peer: Peer) -> None:
        for status in ("503 Later", "429 Slower", "200 OK"):
            peer.read_request()
            peer.answer(b"x", status, Retry_After="0")

    server = serve(script)
    deadline = soon()
    answer = with_retries(
        lambda: client.request("GET", server.url(), deadline=deadline), deadline=deadline, idempotent=True
    )
    assert (answer.status, len(server.requests)) == (200, 3)
