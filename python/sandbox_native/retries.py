# SPDX-License-Identifier: Apache-2.0
"""Asking again, where that cannot do anything twice, and never beyond the caller's deadline."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Collection
from typing import TypeVar

from sandbox_native.http import Answer, RequestCancelled, TransportError

A = TypeVar("A", bound=Answer)

#: Statuses by which a server says "later": too many requests, and those of gateways (RFC 6585, RFC 9110).
LATER = frozenset({429, 502, 503, 504})

# Failures that another attempt may not meet, by whether the request can have reached the server.
_UNSENT = frozenset({"resolve", "connect", "connect_timeout", "proxy"})
_SENT = frozenset({"send", "receive", "stalled"})


def with_retries(
    ask: Callable[[], A],
    *,
    deadline: float,
    idempotent: bool,
    attempts: int = 3,
    statuses: Collection[int] = LATER,
    refusals: Collection[int] = (),
    first_delay: float = 0.5,
    longest_delay: float = 8.0,
    cancel_fd: int = -1,
) -> A:
    """Call ``ask`` until it brings an answer that is not "later", and return that.

    A request that did not reach the server is made again in any case. One that may have is made again only
    if it is idempotent, or was answered with one of ``refusals``. Between attempts it waits as long as the
    answer's ``Retry-After`` says, else twice as long each time; if that would end after the deadline, or the
    attempts are used up, the last answer is returned or the last error raised at once.

    :param deadline: a value of ``time.monotonic()``; ``ask`` has to heed it itself.
    :param idempotent: whether making the request twice does no more than making it once.
    :param attempts: the most times ``ask`` is called, at least 1.
    :param statuses: ask an idempotent request again when it is answered so.
    :param refusals: ask any request again when it is answered so: statuses that prove it was not acted on.
    :param first_delay: seconds before the second attempt, give or take a tenth.
    :param longest_delay: cap on those delays in seconds; ``Retry-After`` may ask for more.
    :param cancel_fd: ends a wait when it becomes readable.
    :raises RequestCancelled: cancelled while waiting.
    :raises TransportError: of the last attempt.
    :raises ValueError: ``attempts`` is below 1.
    """
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, got {attempts}")
    delay = first_delay
    for left in range(attempts - 1, -1, -1):
        wanted: float | None = None
        sent = False
        try:
            answer = ask()
        except TransportError as e:
            again = e.kind in _UNSENT if not e.sent else idempotent and e.kind in _UNSENT | _SENT
            wait = _jittered(delay)
            if not (again and left and time.monotonic() + wait < deadline):
                raise
            sent = e.sent
        else:
            again = answer.status in refusals or (idempotent and answer.status in statuses)
            wanted = retry_after(answer) if again else None
            wait = _jittered(delay) if wanted is None else wanted
            if not (again and left and time.monotonic() + wait < deadline):
                return answer
            sent = True
        _sleep(wait, cancel_fd, sent)
        delay = min(delay * 2, longest_delay)
    raise AssertionError("unreachable")


def retry_after(answer: Answer) -> float | None:
    """Return the seconds the answer asks to wait, or None where it does not say so in a valid way.

    A number of seconds or a date (RFC 9110 section 10.2.3); a date in the past is 0.
    """
    value = answer.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        # More digits than any wait has would not fit a float.
        return float(value) if len(value) < 16 else float(10**15)
    if not value:
        return None
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _jittered(delay: float) -> float:
    # Clients that failed together should not come back together.
    return delay * (0.9 + 0.2 * os.urandom(1)[0] / 255)


def _sleep(seconds: float, cancel_fd: int, sent: bool) -> None:
    if cancel_fd < 0:
        time.sleep(seconds)
        return
    poll = select.poll()
    poll.register(cancel_fd, select.POLLIN)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if poll.poll(min(left, 3600) * 1000):
            raise RequestCancelled("the request was cancelled", kind="cancelled", sent=sent)
