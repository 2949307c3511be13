# SPDX-License-Identifier: Apache-2.0
"""Several small files copied at a time: the same files, records and errors as one after the other."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from upath import UPath

from sandbox_native import calls, exports, storage
from sandbox_native.contract import SandboxTerminalError
from sandbox_native.exports import SMALL, Export, Item, Source

log = logging.getLogger("exports")
GUARD = 60
NAMES = [f"f{number}" for number in range(12)]


class Copies:
    """What stands for a sandbox; sees how many copies are under way at a time."""

    def __init__(self, before: Callable[[str], None] = lambda name: None) -> None:
        self._before = before
        self._lock = threading.Lock()
        self.now = 0
        self.most = 0
        self.begun: list[str] = []

    def copy(self, name: str, dest: BinaryIO) -> int:
        with self._lock:
            self.begun.append(name)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            self._before(name)
            return dest.write(name.encode())
        finally:
            with self._lock:
                self.now -= 1

    def export(self, folder: str, names: list[str] = NAMES, most: int = 100, **options: Any) -> Export:
        items = [
            Item(name, f"{folder}/{name}", lambda dest, name=name: self.copy(name, dest), most)
            for name in names
        ]
        options = {"at_once": 3, "resolve": UPath, **options}
        return Export(items, source=Source("box-1", "mem"), log=log, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "new" / "folder"
    assert not [path for path in tmp_path.rglob("*.partial")]


def url(folder: Path) -> str:
    return f"file://{folder}"


def test_as_many_as_is_said_are_copied_at_a_time(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    together = threading.Barrier(3)
    # Nobody gets on before three are there: fewer would wait for ever, and more be seen.
    copies = Copies(lambda name: together.wait(GUARD) and None)
    records = copies.export(url(folder)).run()
    assert copies.most == 3
    assert [record.path for record in records] == NAMES
    assert {path.name: path.read_text() for path in folder.iterdir()} == {name: name for name in NAMES}
    for word in ("Exported", "Published"):
        told = [message.split()[1].rpartition("/")[2] for message in caplog.messages if word in message]
        assert told == NAMES


@pytest.mark.parametrize("case", ["large", "not allowed", "one thread"])
def test_what_may_not_be_beside_others_is_copied_by_itself(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = Copies()
    if case == "one thread":
        monkeypatch.setattr(storage.Slot, "any_thread", False)
    at_once = 1 if case == "not allowed" else 3
    copies.export(url(folder), most=SMALL + 1 if case == "large" else SMALL, at_once=at_once).run()
    assert copies.most == 1 and copies.begun == NAMES


def test_a_large_file_waits_for_those_before_it_and_those_after_it_for_it(folder: Path) -> None:
    alone: list[int] = []
    copies = Copies(lambda name: alone.append(copies.now) if name == "f5" else None)
    export = copies.export(url(folder))
    export._items = [
        exports.Item(i.path, i.destination, i.write, SMALL + 1 if i.path == "f5" else 9)
        for i in export._items
    ]
    assert [record.path for record in export.run()] == NAMES
    assert alone == [1]
    assert set(copies.begun[:5]) == set(NAMES[:5]) and copies.begun[5] == "f5"


def test_the_first_that_failed_is_told_and_the_others_end(folder: Path) -> None:
    later_failed = threading.Event()

    def fail(name: str) -> None:
        if name == "f4":
            assert later_failed.wait(GUARD)
            raise OSError("the fourth")
        if name == "f5":
            later_failed.set()
            raise OSError("the fifth")

    copies = Copies(fail)
    with pytest.raises(SandboxTerminalError, match=r"Could not export 'f4'.*the fourth"):
        copies.export(url(folder)).run()
    assert copies.now == 0 and "f7" not in copies.begun
    assert not folder.parent.exists()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_an_exception_of_any_kind_ends_all_and_comes_out(folder: Path, kind: type[BaseException]) -> None:
    error = kind("injected")

    def fail(name: str) -> None:
        if name == "f4":
            raise error

    copies = Copies(fail)
    with pytest.raises(kind) as caught:
        copies.export(url(folder)).run()
    assert caught.value is error and copies.now == 0
    assert not folder.parent.exists()


def test_a_cancel_reaches_each_of_them(folder: Path) -> None:
    together = threading.Barrier(4)

    def until_cancelled(name: str) -> None:
        together.wait(GUARD)
        fd = calls.cancel_fd()
        import select

        assert select.select([fd], [], [], GUARD)[0]
        calls.check_cancelled()

    copies = Copies(until_cancelled)
    call = calls.prepare(copies.export(url(folder)).run)
    call.start()
    together.wait(GUARD)
    call.abandon()
    assert copies.begun and copies.now == 0 and len(copies.begun) == 3
    with pytest.raises(calls.CallCancelled):
        call.wait()
    assert not folder.parent.exists()


@pytest.mark.parametrize("at_once", [1, 3])
def test_folders_that_were_made_for_several_files_are_removed(folder: Path, at_once: int) -> None:
    def refuse() -> None:
        raise RuntimeError("not as it was")

    names = ["a", "deep/er/b", "deep/c", "d"]
    with pytest.raises(RuntimeError, match="not as it was"):
        Copies().export(url(folder), names, at_once=at_once, verify=refuse).run()
    assert not folder.parent.exists()


def test_a_folder_that_a_published_file_is_in_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = storage.os.replace

    def fail(source: str, target: str) -> None:
        if target.endswith("/b"):
            raise OSError("no")
        replace(source, target)

    monkeypatch.setattr(storage.os, "replace", fail)
    with pytest.raises(SandboxTerminalError, match=r"Already in place: file://\S*/in/a\."):
        Copies().export(url(folder), ["in/a", "in/other/b"]).run()
    assert [str(path.relative_to(folder)) for path in folder.rglob("*")] == ["in", "in/a"]
