# SPDX-License-Identifier: Apache-2.0
"""The end of requests that are under way: nothing of an upload may reach the store after it was aborted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_native import _in_flight
from sandbox_native._in_flight import InFlight


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_the_end_waits_for_what_is_under_way(loop: asyncio.AbstractEventLoop) -> None:
    arrived: list[int] = []

    async def request(number: int) -> None:
        await asyncio.sleep(0.05)
        arrived.append(number)

    sent = InFlight(4, loop)
    for number in range(3):
        sent.make_room()
        sent.add(request(number))
    assert sent.end() and arrived == [0, 1, 2]


def test_the_end_waits_for_a_request_that_an_interrupt_hid(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made, and the interrupt came before anybody had taken note of it."""
    arrived: list[bool] = []
    real = asyncio.run_coroutine_threadsafe

    def interrupted(*args: Any) -> None:
        real(*args)
        raise KeyboardInterrupt

    async def request() -> None:
        await asyncio.sleep(0.05)
        arrived.append(True)

    sent = InFlight(4, loop)
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sent.add(request())
    assert sent.end() and arrived == [True]


def test_what_takes_too_long_is_cut_off_and_has_ended(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_in_flight, "LAST_WAIT", 0.05)
    ended: list[bool] = []

    async def request() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.append(True)

    sent = InFlight(4, loop)
    sent.add(request())
    assert not sent.end() and ended == [True]
    assert sent.end()
