# SPDX-License-Identifier: Apache-2.0
"""Requests that are under way on an event loop while more are made."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Coroutine
from typing import Any

from sandbox_native import calls

CANCEL_CHECK = 0.2
"""How soon a wait for a store notices that the call was cancelled, in seconds."""
LAST_WAIT = 10.0
"""How long an upload that is given up waits for what it has sent, in seconds.

S3 and those like it may keep a part that arrives after the upload was aborted.
"""


class InFlight:
    """Up to a number of requests at once; their answers in the order they were made in.

    :param limit: how many.
    :param loop: where they are made; runs in another thread.
    """

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self._limit = limit
        self._loop = loop
        self._pending: deque[concurrent.futures.Future[Any]] = deque()
        self._answers: list[Any] = []
        # Known to the loop alone, so one that an interrupt kept from being taken note of is among them.
        self._running: set[asyncio.Task[Any]] = set()

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

    def add(self, request: Coroutine[Any, Any, Any]) -> None:
        """Make a request, after :meth:`make_room`."""
        self._pending.append(asyncio.run_coroutine_threadsafe(self._run(request), self._loop))

    async def _run(self, request: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await request
        finally:
            self._running.discard(task)

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

    def end(self) -> bool:
        """Wait for what is under way, for :data:`LAST_WAIT`, and cut off what takes longer.

        :return: whether each had its answer. One that was cut off may still reach the store.
        """
        answered: bool = asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._pending.clear()
        return answered

    async def _end(self) -> bool:
        if not self._running:
            return True
        _, late = await asyncio.wait(set(self._running), timeout=LAST_WAIT)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return not late
