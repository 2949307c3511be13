# SPDX-License-Identifier: Apache-2.0
"""A program that fails an export at each call it makes, by each kind of exception.

``walking.py STORE ARGUMENTS``, which depend on the store.

The k-th call of an export fails, for k from 0 on until one gets through; after each the store has to be as it
was. All exceptions are kept, and with them the frames and files of the failed exports, to the end of the
program: who started it looks at the store once more then.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import boto3
import fsspec
from azure.storage.blob import BlobServiceClient
from botocore.config import Config
from upath import UPath

from sandbox_native import _azure, _in_flight, _obstore, _s3, calls, storage, uploads
from sandbox_native.contract import SandboxError, SandboxTerminalError
from sandbox_native.exports import Export, Item, Source

KINDS: list[type[BaseException]] = [
    *[OSError, SandboxError, SandboxTerminalError, RuntimeError, MemoryError, EOFError],
    *[KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, calls.CallCancelled],
]
uploads.PART = uploads.MIN_PART
kept: list[BaseException] = []


class Walk:
    """Counts calls, and fails one of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._at = -1
        self._error: BaseException | None = None
        self.reached = ""

    def start(self, at: int, error: BaseException) -> None:
        self._count, self._at, self._error, self.reached = 0, at, error, ""

    def reach(self, name: str) -> None:
        with self._lock:
            mine = self._count == self._at
            self._count += 1
            if mine:
                self.reached = name
        if mine and self._error is not None:
            raise self._error

    def patch(self, owner: Any, *names: str) -> None:
        """Have these functions come by here first."""
        for name in names:
            real = getattr(owner, name)

            def call(*args: Any, _real: Any = real, _name: str = name, **kwargs: Any) -> Any:
                self.reach(_name)
                return _real(*args, **kwargs)

            setattr(owner, name, call)


walk = Walk()


class Store:
    """What lies in a store. ``before`` is there from the beginning."""

    sizes = (50, 5, 0)
    piece = 20
    before: ClassVar = {"two": b"as it was", "other": b"somebody else's"}

    def url(self, name: str) -> str:
        raise NotImplementedError

    def resolve(self, url: str) -> Any:
        return UPath(url)

    def objects(self) -> dict[str, bytes]:
        raise NotImplementedError

    def reset(self) -> None:
        raise NotImplementedError

    def uploads(self) -> list[str]:
        return []


class Module:
    """Stands for a module of which some functions come by the walk."""

    def __init__(self, real: Any, *names: str) -> None:
        self._real = real
        walk.patch(self, *names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class File:
    """A file on disk, each of whose calls comes by the walk."""

    def __init__(self, real: BinaryIO) -> None:
        self._real = real
        walk.patch(self, "write", "flush", "fileno", "close")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Files(Store):
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        storage.os = Module(  # type: ignore[assignment]
            storage.os, "mkdir", "fstat", "fsync", "replace", "open", "stat", "close"
        )

        def opened(*args: Any) -> File:
            walk.reach("open")
            return File(builtins.open(*args))

        storage.open = opened  # type: ignore[attr-defined]

    def url(self, name: str) -> str:
        # The first goes to a folder that is not there.
        return f"file://{self._folder}/{'new/deep/' if name == 'one' else ''}{name}"

    def objects(self) -> dict[str, bytes]:
        found = {str(path.relative_to(self._folder)): path for path in self._folder.rglob("*")}
        return {
            name.removeprefix("new/deep/"): path.read_bytes() if path.is_file() else b"a folder"
            for name, path in found.items()
            # Those of a file that is there are not looked at.
            if not (path.is_dir() and (self._folder / "new/deep/one").exists())
        }

    def reset(self) -> None:
        for path in sorted(self._folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        for name, data in self.before.items():
            (self._folder / name).write_bytes(data)


class Memory(Store):
    def __init__(self) -> None:
        from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

        self._fs = fsspec.filesystem("memory")
        walk.patch(MemoryFileSystem, "_open", "cp_file", "_rm", "isdir")
        walk.patch(MemoryFile, "close", "commit")

    def url(self, name: str) -> str:
        return f"memory://walk/{name}"

    def objects(self) -> dict[str, bytes]:
        store = self._fs.store
        return {name.removeprefix("/walk/"): file.getvalue() for name, file in store.items()}

    def reset(self) -> None:
        self._fs.store.clear()
        for name, data in self.before.items():
            self._fs.pipe_file(f"/walk/{name}", data)


class S3(Store):
    sizes = (uploads.MIN_PART + 1, 5, 0)
    piece = 3 << 20

    def __init__(self, bucket: str, options: str, writer: str) -> None:
        self._bucket = bucket
        self._options = json.loads(options)
        self._client = boto3.client(
            "s3",
            aws_access_key_id=self._options["key"],
            aws_secret_access_key=self._options["secret"],
            endpoint_url=self._options["endpoint_url"],
            region_name=self._options["client_kwargs"]["region_name"],
            config=Config(s3={"addressing_style": "path"}),
        )
        walk.patch(_s3.Bucket, "submit")
        walk.patch(_in_flight.InFlight, "make_room", "add", "answers")
        if writer == "s3fs":
            _obstore.installed = lambda: False  # type: ignore[assignment]
        else:
            walk.patch(_obstore, "begin")
            walk.patch(_obstore.ObstoreSender, "_await", "_hand_over", "commit")

    def url(self, name: str) -> str:
        return f"s3://{self._bucket}/{name}"

    def resolve(self, url: str) -> Any:
        return UPath(url, **self._options)

    def objects(self) -> dict[str, bytes]:
        listed = self._client.list_objects_v2(Bucket=self._bucket).get("Contents", ())
        read = partial(self._client.get_object, Bucket=self._bucket)
        return {one["Key"]: read(Key=one["Key"])["Body"].read() for one in listed}

    def reset(self) -> None:
        for name in ("one", "three"):
            self._client.delete_object(Bucket=self._bucket, Key=name)
        for name, data in self.before.items():
            self._client.put_object(Bucket=self._bucket, Key=name, Body=data)

    def uploads(self) -> list[str]:
        found = self._client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", ())
        return [one["Key"] for one in found]


class Azure(Store):
    sizes = ((1 << 16) + 1, 5, 0)
    piece = 50_000

    def __init__(self, container: str, connection: str) -> None:
        # It has no least size of a part.
        uploads.PART = uploads.MIN_PART = 1 << 16
        self._container = container
        self._options = {"connection_string": connection}
        client = BlobServiceClient.from_connection_string(connection)
        self._client = client.get_container_client(container)
        walk.patch(_azure.BlockSender, "_submit")
        walk.patch(_in_flight.InFlight, "make_room", "add", "answers")

    def url(self, name: str) -> str:
        return f"abfs://{self._container}/{name}"

    def resolve(self, url: str) -> Any:
        return UPath(url, **self._options)

    def objects(self) -> dict[str, bytes]:
        names = self._client.list_blob_names()
        return {name: self._client.download_blob(name).readall() for name in names}

    def reset(self) -> None:
        for name in self.objects():
            self._client.delete_blob(name)
        for name, data in self.before.items():
            self._client.upload_blob(name, data)


STORES: dict[str, Callable[..., Store]] = {
    "file": Files,
    "file-at-once": Files,
    "memory": Memory,
    "s3fs": partial(S3, writer="s3fs"),
    "obstore": partial(S3, writer="obstore"),
    "azure": Azure,
}


def export(store: Store, at_once: bool) -> None:
    def copy(size: int, dest: BinaryIO) -> int:
        walk.reach("read")
        dest.announce(size)  # type: ignore[attr-defined]
        for at in range(0, size, store.piece):
            walk.reach("write")
            dest.write(b"x" * min(store.piece, size - at))
            walk.reach("read")
        return size

    items = [
        Item(name, store.url(name), partial(copy, size), size if at_once else 1 << 30)
        for name, size in zip(("one", "two", "three"), store.sizes, strict=True)
    ]
    Export(
        items,
        source=Source("box", "walk"),
        resolve=store.resolve,
        log=logging.getLogger("walk"),
        at_once=3 if at_once else 1,
    ).run()


def check(store: Store, error: BaseException | None, kind: type[BaseException]) -> None:
    """What has to be there after an export that ended in ``error``."""
    there = store.objects()
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [link for link in links if link.exists() and ".partial" in os.readlink(link)], "a file is open"
    complete = {
        **store.before,
        **{n: b"x" * size for n, size in zip(("one", "two", "three"), store.sizes, strict=True)},
    }
    assert store.uploads() == [], "an upload is left open"
    if error is None:
        assert there == complete
        return
    said = str(error) + " ".join(getattr(error, "__notes__", ()))
    right = SandboxTerminalError if issubclass(kind, Exception) else kind
    assert type(error) is right and "injected" in said, f"it came out as {error!r}"
    in_place = said.partition("Already in place: ")[2]
    everywhere = "complete and in place" in said
    left = said.partition("Left behind")[2]
    for name, data in there.items():
        if name.endswith(".partial"):
            assert name in left, f"{name} is left and not named"
        elif data != store.before.get(name):
            assert data == complete[name], f"{name} is neither as it was nor whole"
            assert everywhere or store.url(name) in in_place, f"{name} is in place and not named"
    assert store.before.keys() <= there.keys()


def main(name: str, *arguments: str) -> None:
    store = STORES[name](*arguments)
    reached: set[str] = set()
    for kind in KINDS:
        at = 0
        while True:
            store.reset()
            walk.start(at, kind("injected"))
            error: BaseException | None = None
            try:
                export(store, name.endswith("at-once"))
            except BaseException as e:
                kept.append(e)
                error = e
            point, finished = walk.reached, not walk.reached
            # Only the export comes by the walk.
            walk.start(-1, kind())
            try:
                check(store, error if point else None, kind) if point or error is None else None
                if finished and error is not None:
                    raise error
            except BaseException as e:
                raise RuntimeError(f"{kind.__name__} at call {at}, {point!r}: {e}") from e
            reached.add(point)
            if finished:
                break
            at += 1
    store.reset()
    print(json.dumps(sorted(reached - {""})))


main(*sys.argv[1:])
