# SPDX-License-Identifier: Apache-2.0
"""TailKeeper: the last whole lines of a stream, and how much was dropped."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from sandbox_native import _sandbox_native as native


def expected(stream: bytes, cap: int) -> bytes:
    if len(stream) <= cap:
        return stream
    kept = stream[-cap:]
    if stream[-cap - 1 : -cap] == b"\n":
        return kept
    whole = kept.partition(b"\n")[2]
    if whole:
        return whole
    text = stream.decode(errors="replace")
    # The longest end of the decoded whole that begins at a character.
    while len(text.encode()) > cap:
        text = text[1:]
    return text.encode() if b"\xff" not in stream else kept


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"a\nbb\nccc\n",
        b"no newline at all " * 10,
        b"\n" * 50,
        "éa\nßb\n中文".encode(),
        "😀".encode() * 20,
        "😀".encode() * 20 + b"\n",
        b"50%\r60%\r100%\n" * 9,
    ],
    ids=["empty", "lines", "one", "blank", "mixed", "wide", "wide-ended", "progress"],
)
def test_the_result_is_the_last_whole_lines(stream: bytes, piece: int) -> None:
    for cap in range(1, 60):
        keeper = native.TailKeeper(cap)
        for begin in range(0, len(stream), piece):
            keeper.feed(stream[begin : begin + piece])
        result = keeper.result()
        assert result == expected(stream, cap)
        assert keeper.total_bytes == len(stream)
        assert keeper.total_lines == stream.count(b"\n")
        assert keeper.dropped_bytes == len(stream) - len(result)
        assert keeper.dropped_lines == stream.count(b"\n") - result.count(b"\n")


def test_a_character_over_two_pieces_is_one_and_bad_bytes_are_kept() -> None:
    keeper = native.TailKeeper(5)
    for byte in b"x" + "é".encode() + b"\xff\x80\xff" + "é".encode():
        keeper.feed(bytes([byte]))
    assert keeper.result() == b"\xff\x80\xff" + "é".encode()
    keeper.feed(b"y")
    assert keeper.result() == b"\x80\xff" + "é".encode() + b"y"


def test_memory_stays_near_the_cap() -> None:
    held = native.allocated_bytes()
    keeper = native.TailKeeper(100_000)
    block = memoryview(bytearray(b"x" * 79 + b"\n") * 10_000)
    for _ in range(100):
        keeper.feed(block)
    assert native.allocated_bytes() - held < 110_000
    assert keeper.total_lines == 10_000 * 100
    assert len(keeper.result()) == 100_000
    del keeper
    gc.collect()
    assert native.allocated_bytes() == held


def test_several_threads_may_feed_one_keeper() -> None:
    keeper = native.TailKeeper(1000)
    block = b"line\n" * 40_000

    def feed() -> None:
        for _ in range(50):
            keeper.feed(block)
            keeper.feed(b"line\n")
            assert set(keeper.result().split(b"\n")) == {b"line", b""}

    threads = [threading.Thread(target=feed) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert keeper.total_lines == 4 * 50 * 40_001
    assert keeper.total_bytes == keeper.total_lines * 5


def test_caps_and_arguments_are_checked() -> None:
    for cap in (0, -1, -(2**70)):
        with pytest.raises(ValueError, match="max_bytes must be at least 1"):
            native.TailKeeper(cap)
    for bad in (1.5, "1", None):
        with pytest.raises(TypeError, match="max_bytes must be an int"):
            native.TailKeeper(bad)  # type: ignore[arg-type]
    keeper = native.TailKeeper(2**200)
    keeper.feed(b"abc")
    assert keeper.result() == b"abc"
    with pytest.raises(TypeError):
        keeper.feed("text")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        keeper.total_bytes = 5  # type: ignore[misc]


def test_nothing_is_left_behind() -> None:
    def work() -> None:
        keeper = native.TailKeeper(10)
        keeper.feed(b"some text\n" * 20)
        keeper.result()
        with pytest.raises(ValueError, match="max_bytes"):
            native.TailKeeper(0)

    work()
    gc.collect()
    held, references = native.allocated_bytes(), sys.getrefcount(native.TailKeeper)
    for _ in range(500):
        work()
    gc.collect()
    assert native.allocated_bytes() == held
    assert sys.getrefcount(native.TailKeeper) - references < 50
