# SPDX-License-Identifier: Apache-2.0
"""Requests that are under way on an event loop while more are made."""

from __future__ import annotations

import concurrent.futures
from collections import deque
from typing import Any

from sandbox_native import calls

CANCEL_CHECK = 0.2
"""How soon a wait for a store notices that the call was cancelled, in seconds."""


class InFlight:
    """Up to a number of requests at once; their answers in the order they were made in."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending: deque[concurrent.futures.Future[Any]] = deque()
        self._answers: list[Any] = []

    @property
    def count(self) -> int:
        """How many requests were made."""
        return len(self._answers) + len(self._pending)

    def make_room(self) -> None:
        """Wait until there may be one more.

        :raises CallCancelled: the call was cancelled; the requests go on.
        :raises Exception: a request failed.
        """
        self._wait(self._limit - 1)

    def add(self, request: concurrent.futures.Future[Any]) -> None:
        """Take note of a request that was made, after :meth:`make_room`."""
        self._pending.append(request)

    def answers(self) -> list[Any]:
        """All answers, waited for as in :meth:`make_room`."""
        self._wait(0)
        return self._answers

    def _wait(self, most: int) -> None:
        while len(self._pending) > most:
            oldest = self._pending[0]
            concurrent.futures.wait([oldest], timeout=CANCEL_CHECK)
            if oldest.done():
                self._answers.append(oldest.result())
                self._pending.popleft()
            else:
                calls.check_cancelled()

    def cancel(self) -> None:
        """End the requests that are under way."""
        for request in self._pending:
            request.cancel()
        concurrent.futures.wait(self._pending)
        self._pending.clear()
