# SPDX-License-Identifier: Apache-2.0
"""Cutting a file into the parts of an upload, with a store that only remembers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_native import uploads
from sandbox_native.uploads import MAX_PARTS, MIN_PART, PART, Upload, part_size


class Sender:
    """Takes parts; fails where it is told to."""

    def __init__(self, part_size: int, in_flight: int, alone: bool) -> None:
        self.part_size, self.in_flight, self.alone = part_size, in_flight, alone
        self.parts: list[bytearray] = []
        self.done: list[str] = []
        self.fail: dict[str, BaseException] = {}

    def _reach(self, what: str) -> None:
        self.done.append(what)
        if what in self.fail:
            raise self.fail.pop(what)

    def send(self, part: bytearray) -> None:
        assert len(part) == self.part_size
        self._reach("send")
        self.parts.append(part)

    def seal(self, last: bytearray) -> None:
        assert len(last) < self.part_size
        self._reach("seal")
        self.parts.append(last)

    def commit(self) -> None:
        self._reach("commit")

    def abort(self) -> None:
        self._reach("abort")

    @property
    def leftover(self) -> str:
        return "the upload"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Sender]:
    monkeypatch.setattr(uploads, "PART", 100)
    monkeypatch.setattr(uploads, "MIN_PART", 10)
    return []


def upload(begun: list[Sender], max_bytes: int = 10_000, **options: Any) -> Upload:
    def begin(part_size: int, in_flight: int, alone: bool, whole: bool) -> Sender:
        begun.append(Sender(part_size, in_flight, alone))
        return begun[-1]

    return Upload(begin, max_bytes, **options)


@given(st.integers(0, 5 << 40))
def test_parts_are_few_enough_large_enough_and_leave_little(size: int) -> None:
    part = part_size(size)
    whole, rest = divmod(size, part)
    assert part >= MIN_PART
    assert whole + (rest > 0) <= MAX_PARTS
    if size >= MIN_PART:
        assert rest < MAX_PARTS, "what is left fits in memory"
    if size <= PART * (MAX_PARTS - 1):
        assert part < 2 * PART


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 250, 1000, 1234])
@pytest.mark.parametrize("piece", [1, 7, 100, 333, 5000])
@pytest.mark.parametrize("announced", [True, False])
def test_what_is_written_is_what_is_sent(begun: list[Sender], size: int, piece: int, announced: bool) -> None:
    data = bytes(i % 251 for i in range(size))
    dest = upload(begun)
    if announced:
        dest.announce(size)
    buffer = bytearray(piece)
    for at in range(0, size, piece):
        part = data[at : at + piece]
        buffer[: len(part)] = part
        assert dest.write(memoryview(buffer)[: len(part)]) == len(part)
        # Its owner uses it again.
        buffer[:] = bytes(piece)
    assert dest.tell() == size
    dest.seal()
    assert b"".join(begun[0].parts) == data and "commit" not in begun[0].done
    dest.commit()
    assert begun[0].done[-1] == "commit" and dest.leftover == "" and len(begun) == 1


def test_nothing_begins_before_there_is_a_part(begun: list[Sender]) -> None:
    dest = upload(begun)
    dest.announce(250)
    dest.write(b"x" * 100)
    assert begun == [] and dest.leftover == ""
    dest.discard()
    assert begun == []
    with pytest.raises(ValueError, match="no more"):
        dest.write(b"x")


def test_more_than_the_most_is_refused(begun: list[Sender]) -> None:
    dest = upload(begun, max_bytes=5)
    dest.write(b"12345")
    with pytest.raises(OSError, match="more than the 5 bytes"):
        dest.write(b"6")


def test_what_is_announced_cannot_be_more_than_the_most(begun: list[Sender]) -> None:
    dest = upload(begun, max_bytes=500)
    dest.announce(1 << 50)
    dest.write(b"x" * 500)
    assert begun[0].part_size == part_size(500)


def test_large_parts_are_sent_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Sender] = []
    monkeypatch.setattr(uploads, "MEMORY", 12 << 20)
    dest = upload(begun, max_bytes=1 << 30)
    dest.write(bytes(17 << 20))
    assert begun[0].in_flight == 1
    dest = upload(begun, max_bytes=1 << 30, alone=True)
    dest.seal()
    assert begun[1].alone and not begun[0].alone


@pytest.mark.parametrize("point", ["send", "seal", "commit"])
def test_a_failed_upload_is_aborted_once_and_only_that(begun: list[Sender], point: str) -> None:
    dest = upload(begun)
    dest.announce(100)
    dest.write(b"x" * 99)
    dest._sending()
    begun[0].fail[point] = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        dest.write(b"x")
        dest.seal()
        dest.commit()
    assert dest.leftover == "the upload"
    dest.discard()
    dest.discard()
    assert begun[0].done.count("abort") == 1 and dest.leftover == ""


def test_an_abort_that_failed_is_tried_again(begun: list[Sender]) -> None:
    dest = upload(begun)
    dest.seal()
    begun[0].fail["abort"] = OSError("busy")
    with pytest.raises(OSError, match="busy"):
        dest.discard()
    assert dest.leftover == "the upload"
    dest.discard()
    assert dest.leftover == "" and begun[0].done.count("abort") == 2


def test_dropping_or_closing_it_publishes_nothing(begun: list[Sender]) -> None:
    dest = upload(begun)
    dest.write(b"x" * 300)
    sender = begun[0]
    dest.close()
    with pytest.raises(ValueError, match="no more"):
        dest.write(b"x")
    del dest
    assert "commit" not in sender.done and "seal" not in sender.done
