# SPDX-License-Identifier: Apache-2.0
"""Whatever fails in an export, however: every destination is as it was, and nothing else is there."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from sandbox_native import calls, storage
from sandbox_native.contract import SandboxError, SandboxTerminalError
from sandbox_native.exports import Export, Item, Source

log = logging.getLogger("exports")

KINDS: list[type[BaseException]] = [
    OSError,
    SandboxError,
    SandboxTerminalError,
    RuntimeError,
    KeyboardInterrupt,
    SystemExit,
    calls.CallCancelled,
    asyncio.CancelledError,
    GeneratorExit,
    MemoryError,
]


class UploadFile(AbstractBufferedFile):  # type: ignore[misc]
    """Uploads in parts as S3 does: a part lands when the buffer is full, the object when it is closed."""

    def _initiate_upload(self) -> None:
        self.fs.reach("initiate", self.path)
        self.fs.uploads[self.path] = b""

    def _upload_chunk(self, final: bool = False) -> bool:
        self.fs.reach("chunk", self.path)
        self.fs.uploads[self.path] += self.buffer.getvalue()
        if final:
            self.fs.reach("commit", self.path)
            self.fs.objects[self.path] = self.fs.uploads.pop(self.path)
        return True

    def discard(self) -> None:
        self.fs.reach("discard", self.path)
        self.fs.uploads.pop(self.path, None)


class Store(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """An object store that fails where it is told to: at the n-th call of an operation."""

    protocol = "faulty"
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.fail: dict[tuple[str, int], BaseException] = {}

    def reach(self, operation: str, path: str) -> None:
        count = sum(1 for name, _ in self.calls if name == operation)
        self.calls.append((operation, path))
        error = self.fail.get((operation, count))
        if error is not None:
            raise error

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> Any:
        self.reach("open", path)
        return UploadFile(self, path, mode, block_size=block_size or 16, **options)

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        raise PermissionError("this role may not list")

    def mkdir(self, path: str, *_: Any, **__: Any) -> None:
        raise AssertionError("mkdir on an object store")

    makedirs = mkdir

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        self.reach("copy", path2)
        self.objects[path2] = self.objects[path1]

    def _rm(self, path: str) -> None:
        self.reach("remove", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        del self.objects[path]


class Target:
    """What stands for a UPath."""

    def __init__(self, fs: Any, url: str) -> None:
        self.fs = fs
        self.url = url
        self.path = url.partition("://")[2]

    def __str__(self) -> str:
        return self.url


CONTENT = {"one": b"1" * 50, "two": b"2" * 5, "three": b""}
BEFORE = {"bucket/two": b"as it was"}
URLS = {name: f"faulty://bucket/{name}" for name in CONTENT}


def items(urls: dict[str, str], copy: Callable[[str, BinaryIO], int]) -> list[Item]:
    return [Item(path, url, functools.partial(copy, path), 1000) for path, url in urls.items()]


def export(store: Store, **options: Any) -> Export:
    def copy(path: str, dest: BinaryIO) -> int:
        store.reach("read", path)
        for at in range(0, len(CONTENT[path]), 7):
            dest.write(CONTENT[path][at : at + 7])
            store.reach("write", path)
        return len(CONTENT[path])

    return Export(
        items(URLS, copy),
        source=Source("box-1", "mem"),
        resolve=lambda url: Target(store, url),
        log=log,
        **options,
    )


def steps() -> list[tuple[str, int]]:
    """Every point at which something can fail in a good export, in order."""
    store = Store()
    export(store).run()
    seen: dict[str, int] = {}
    points = []
    for operation, _ in store.calls:
        points.append((operation, seen.get(operation, 0)))
        seen[operation] = seen.get(operation, 0) + 1
    return points


POINTS = steps()


def test_a_good_export_is_complete_and_leaves_no_staging_key() -> None:
    store = Store()
    store.objects.update(BEFORE)
    published: list[str] = []
    export(store, on_published=published.append).run()
    assert store.objects == {f"bucket/{name}": data for name, data in CONTENT.items()}
    assert store.uploads == {}
    assert published == list(URLS.values())
    assert {"open", "initiate", "chunk", "commit", "read", "write", "copy", "remove"} == {
        op for op, _ in POINTS
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", POINTS, ids=lambda p: f"{p[0]}-{p[1]}")
def test_provider_fault_31_anything_failing_anywhere(
    point: tuple[str, int], kind: type[BaseException]
) -> None:
    operation, _ = point
    error = kind("injected")
    store = Store()
    store.objects.update(BEFORE)
    store.fail[point] = error
    with pytest.raises(BaseException) as caught:
        export(store).run()
    raised = caught.value
    if issubclass(kind, Exception):
        assert isinstance(raised, SandboxTerminalError) and "injected" in str(raised)
        assert raised.__cause__ is error or operation == "remove"
    elif operation == "remove":
        assert raised is error
    else:
        assert raised is error, "what ended the run comes out as it is"
    assert store.uploads == {}, "no multipart upload is left open"
    said = str(raised) + "".join(getattr(raised, "__notes__", []))
    left = {path for path in store.objects if path.endswith(".partial")}
    assert all(path in said for path in left), "what is left is named"
    if operation not in ("copy", "remove"):
        assert store.objects == BEFORE and not left
    else:
        if operation == "remove" and kind is not KeyboardInterrupt and not left:
            assert "Left behind" not in said
        done = {path: data for path, data in store.objects.items() if path not in left}
        for path, data in done.items():
            assert data in (CONTENT[path.removeprefix("bucket/")], BEFORE.get(path)), "whole, or as it was"
        if operation == "copy":
            assert not left
        if point[1] > 0 and operation == "copy":
            assert "Already in place: faulty://bucket/one" in said


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_committed_later_either(kind: type[BaseException]) -> None:
    """The file object of a failed copy, dropped and collected: fsspec would upload what it holds."""
    import gc

    store = Store()
    store.fail["write", 3] = kind("injected")
    with pytest.raises(BaseException) as caught:
        export(store).run()
    del caught
    gc.collect()
    assert store.objects == {} and store.uploads == {}
    assert not [call for call in store.calls if call[0] == "commit"]


def test_the_first_error_comes_first_and_those_of_clean_up_are_notes() -> None:
    store = Store()
    store.fail = {
        ("write", 3): SandboxError("first"),
        ("discard", 0): OSError("second"),
        ("remove", 0): OSError("third"),
    }
    store.objects["other"] = b""
    with pytest.raises(SandboxTerminalError) as caught:
        export(store).run()
    assert "Could not export 'one' from sandbox box-1 on backend 'mem' to faulty://bucket/one: first." in str(
        caught.value
    )
    assert "Left behind, to delete by hand: bucket/one." in str(caught.value)
    notes = "\n".join(caught.value.__notes__)
    assert "second" in notes and "third" in notes


def test_a_clean_up_that_is_interrupted_goes_on_with_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.fail = {("open", 2): OSError("first"), ("remove", 0): KeyboardInterrupt("second")}
    with pytest.raises(SandboxTerminalError, match="first") as caught:
        export(store).run()
    left = [path for path in store.objects if path.endswith(".partial")]
    assert len(left) == 1 and left[0] in str(caught.value)
    assert any("Could not remove bucket/one" in m and "after a failed export" in m for m in caplog.messages)


def test_a_refused_delete_of_the_staging_key_says_that_the_files_are_complete() -> None:
    store = Store()
    store.fail = {("remove", n): PermissionError("no deletes") for n in range(9)}
    with pytest.raises(SandboxTerminalError, match="complete and in place") as caught:
        export(store).run()
    for name, data in CONTENT.items():
        assert store.objects[f"bucket/{name}"] == data
    left = [path for path in store.objects if path.endswith(".partial")]
    assert len(left) == 3 and all(path in str(caught.value) for path in left)


def test_a_cancel_before_the_first_file_is_published_stops_it() -> None:
    store = Store()

    def cancel_at_the_last_read(operation: str, path: str) -> None:
        reach(operation, path)
        if (operation, path) == ("read", "three"):
            calls._token.get().cancel()  # type: ignore[union-attr]

    reach, store.reach = store.reach, cancel_at_the_last_read  # type: ignore[method-assign]
    with pytest.raises(calls.CallCancelled):
        export(store).run()
    assert store.objects == {} and store.uploads == {}


def test_parts_are_as_large_as_ten_thousand_of_them_have_to_be() -> None:
    slot = storage.StoreSlot(Store(), "bucket/key", "faulty://bucket/key")
    assert slot._part_size(1000) == {}
    store_default = MemoryFileSystem().blocksize
    huge = store_default * 10_000 + 1
    assert slot._part_size(huge)["block_size"] * 10_000 >= huge


# ---- the same on a local disk


class FaultyOs:
    """Stands for ``os`` in :mod:`sandbox_native.storage`; one function fails at its n-th call."""

    def __init__(self, function: str, nth: int, error: BaseException) -> None:
        import os

        self._os = os
        self._function = function
        self._left = nth
        self._error = error
        self.reached = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._os, name)
        if name != self._function:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self.reached:
                self.reached = True
                raise self._error
            return real(*args, **kwargs)

        return call


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"/" for p in folder.rglob("*")}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    from upath import UPath

    (tmp_path / "one").write_bytes(b"as it was")
    urls = {"one": f"file://{tmp_path}/one", "two": f"file://{tmp_path}/new/deep/two"}

    def run() -> None:
        Export(
            items(urls, lambda path, dest: dest.write(CONTENT[path])),
            source=Source("box-1", "mem"),
            resolve=UPath,
            log=log,
        ).run()

    yield tmp_path, run


def test_local_a_good_export(local: tuple[Path, Callable[[], None]]) -> None:
    folder, run = local
    run()
    assert listing(folder) == {
        "one": CONTENT["one"],
        "new": b"/",
        "new/deep": b"/",
        "new/deep/two": CONTENT["two"],
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("function", "nth"),
    list(itertools.product(["mkdir", "fstat", "fsync", "replace"], [0, 1])),
)
def test_local_anything_failing_anywhere(
    local: tuple[Path, Callable[[], None]],
    function: str,
    nth: int,
    kind: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, run = local
    before = listing(folder)
    faulty = FaultyOs(function, nth, kind("injected"))
    monkeypatch.setattr(storage, "os", faulty)
    with pytest.raises(BaseException) as caught:
        run()
    monkeypatch.undo()
    assert faulty.reached
    assert isinstance(caught.value, SandboxTerminalError if issubclass(kind, Exception) else kind)
    after = listing(folder)
    if (function, nth) == ("replace", 1):
        said = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
        assert "Already in place" in said and after == {"one": CONTENT["one"]}
    else:
        assert after == before


@pytest.mark.parametrize("kind", KINDS)
def test_local_a_copy_that_fails_midway(tmp_path: Path, kind: type[BaseException]) -> None:
    from upath import UPath

    (tmp_path / "one").write_bytes(b"as it was")

    def copy(path: str, dest: BinaryIO) -> int:
        dest.write(b"half")
        raise kind("injected")

    with pytest.raises(BaseException, match="injected"):
        Export(
            items({"one": f"file://{tmp_path}/one"}, copy),
            source=Source("box-1", "mem"),
            resolve=UPath,
            log=log,
        ).run()
    assert listing(tmp_path) == {"one": b"as it was"}


@pytest.mark.parametrize("claimed", [3, 5, 0])
def test_local_a_size_that_does_not_fit_what_arrived(tmp_path: Path, claimed: int) -> None:
    from upath import UPath

    def copy(path: str, dest: BinaryIO) -> int:
        dest.write(b"four")
        return claimed

    with pytest.raises(SandboxTerminalError, match="4 bytes arrived"):
        Export(
            items({"one": f"file://{tmp_path}/one"}, copy),
            source=Source("box-1", "mem"),
            resolve=UPath,
            log=log,
        ).run()
    assert listing(tmp_path) == {}


def test_memory_a_failure_at_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec's own memory store: files appear as they are opened, and cannot be discarded."""
    from upath import UPath

    fs = fsspec.filesystem("memory")

    def run(copy: Any) -> None:
        Export(
            items({"one": "memory://faults/one", "two": "memory://faults/two"}, copy),
            source=Source("box-1", "mem"),
            resolve=UPath,
            log=log,
        ).run()

    def good(path: str, dest: BinaryIO) -> int:
        return dest.write(CONTENT[path])

    def fails_at_two(path: str, dest: BinaryIO) -> int:
        dest.write(b"half")
        if path == "two":
            raise error
        return 4

    def there() -> dict[str, bytes]:
        return {path: fs.cat_file(path) for path in fs.find("/faults")}

    fs.pipe_file("/faults/one", b"as it was")
    for kind in KINDS:
        error = cast("BaseException", kind("injected"))
        with pytest.raises(BaseException, match="injected"):
            run(fails_at_two)
        assert there() == {"/faults/one": b"as it was"}
        for name in ("_open", "cp_file"):
            with monkeypatch.context() as patch:

                def refuse(*_: Any, error: BaseException = error, **__: Any) -> None:
                    raise error

                patch.setattr(MemoryFileSystem, name, refuse)
                with pytest.raises(BaseException, match="injected"):
                    run(good)
            assert there() == {"/faults/one": b"as it was"}
    run(good)
    assert there() == {
        "/faults/one": CONTENT["one"],
        "/faults/two": CONTENT["two"],
    }
    fs.rm("/faults", recursive=True)
