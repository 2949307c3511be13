# SPDX-License-Identifier: Apache-2.0
"""Files that are in the sandbox before the model's first command.

They are looked at when a run begins, which costs no sandbox and no model call, and copied when the sandbox
is made.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from sandbox_native import calls, command_files
from sandbox_native.contract import SandboxBackend, SandboxTerminalError
from sandbox_native.exports import Resolve, local_path, sentence
from sandbox_native.input_plan import Input
from sandbox_native.output import format_size
from sandbox_native.watching import Progress, ProgressLog

# Bytes that a store is asked for at a time; s3fs would hold 50 MiB.
_BLOCK = 8 << 20
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Seed:
    """One file to be in the sandbox.

    :param path: there.
    :param size: in bytes.
    :param open: opens it for reading; what it raises names the store's reason.
    """

    path: str
    size: int
    open: Callable[[], BinaryIO]


@dataclass(frozen=True)
class Found:
    """What one key of ``inputs`` stands for.

    :param path: the key.
    :param url: where it comes from, None where it was given.
    :param seeds: its files.
    """

    path: str
    url: str | None
    seeds: Sequence[Seed]

    @property
    def size(self) -> int:
        return sum(seed.size for seed in self.seeds)


class _Missing(Exception):
    """There is nothing at the URL."""


def look(entries: Iterable[Input], resolve: Resolve, log: logging.Logger) -> list[Found]:
    """Find all inputs and their sizes; nothing is copied.

    :param resolve: gives the path object of a URL.
    :param log: told of what is not required and missing, and of links that are left out.
    :raises SandboxTerminalError: one is missing, cannot be read or is larger than allowed, or two would be
        one file.
    """
    found: list[Found] = []
    places: dict[str, str] = {}
    for entry in entries:
        try:
            one = _found(entry, resolve, log)
        except _Missing as e:
            if entry.required:
                raise SandboxTerminalError(f"{entry.argument} is missing: {sentence(e)}") from e
            log.info("%s is missing, and not required: %s", entry.argument, sentence(e))
            continue
        except SandboxTerminalError:
            raise
        except Exception as e:
            raise SandboxTerminalError(
                f"{entry.argument} cannot be read from {entry.url!r}: {sentence(e)}"
            ) from e
        for seed in one.seeds:
            place = os.path.normpath(seed.path)
            if place in places:
                raise SandboxTerminalError(
                    f"{entry.argument} and {places[place]} both bring {seed.path!r}: one would be lost."
                )
            places[place] = entry.argument
        found.append(one)
    return found


def _found(entry: Input, resolve: Resolve, log: logging.Logger) -> Found:
    if entry.url is None and entry.data is not None:
        data = entry.data.encode() if isinstance(entry.data, str) else entry.data
        if not isinstance(data, bytes):
            raise SandboxTerminalError(f"{entry.argument} rendered to {data!r}, which is no text.")
        seeds = [Seed(entry.path, len(data), lambda: io.BytesIO(data))]
    else:
        url = entry.url
        if not isinstance(url, str) or "://" not in url:
            raise SandboxTerminalError(
                f"{entry.argument} rendered to {url!r}, which is not a storage URL like s3://bucket/key or "
                'file:///path. Look at the template and at the value it takes; for text say {"text": ...}.'
            )
        if entry.is_tree != url.endswith("/"):
            raise SandboxTerminalError(
                f"{entry.argument} comes from {url!r}: for a folder both end in a slash, for a file neither "
                "does."
            )
        seeds = _stored(entry, url, resolve, log)
    _check_caps(entry, seeds)
    return Found(entry.path, entry.url, seeds)


def _check_caps(entry: Input, seeds: Sequence[Seed]) -> None:
    if len(seeds) > entry.max_files:
        raise SandboxTerminalError(
            f"{entry.argument} has {len(seeds)} files; the limit is {entry.max_files} (max_files)."
        )
    size = sum(seed.size for seed in seeds)
    if size > entry.max_bytes:
        raise SandboxTerminalError(
            f"{entry.argument} has {format_size(size)}; the limit is {format_size(entry.max_bytes)} "
            "(max_bytes, max_input_bytes)."
        )


def _stored(entry: Input, url: str, resolve: Resolve, log: logging.Logger) -> list[Seed]:
    from fsspec.implementations.local import LocalFileSystem

    target = resolve(url)
    fs = target.fs
    if type(fs) is LocalFileSystem:
        path = local_path(url, target.path)
        if not os.path.isabs(path):
            raise OSError("the path of a file URL has to be absolute, as in file:///path")
        return _local_tree(entry, path, log) if entry.is_tree else [_local_file(entry.path, path)]
    # What an earlier task wrote may be newer than what this process knows.
    with contextlib.suppress(Exception):
        fs.invalidate_cache()
    return (
        _store_tree(entry, fs, target.path) if entry.is_tree else [_store_file(entry.path, fs, target.path)]
    )


def local_seeds(path: str, source: str, log: logging.Logger) -> list[Seed]:
    """A file of this machine, or with a slash at the end of both paths the files of a folder.

    :raises OSError: it cannot be read, or is no such thing; the text says why.
    """
    if path.endswith("/") != source.endswith("/"):
        raise OSError("for a folder both end in a slash, for a file neither does")
    entry = Input(path, source, None, required=True, max_bytes=0, max_files=sys.maxsize)
    try:
        return _local_tree(entry, source, log) if entry.is_tree else [_local_file(path, source)]
    except _Missing as e:
        raise FileNotFoundError(str(e)) from None


def _local_file(path: str, source: str) -> Seed:
    try:
        info = os.stat(source)
    except FileNotFoundError:
        raise _Missing(f"there is no file {source}") from None
    if not stat.S_ISREG(info.st_mode):
        raise OSError(
            "a directory, not a regular file" if stat.S_ISDIR(info.st_mode) else "not a regular file"
        )
    if not os.access(source, os.R_OK):
        raise PermissionError("permission denied")
    return Seed(path, info.st_size, lambda: _open_local(source, info))


def _open_local(source: str, seen: os.stat_result) -> BinaryIO:
    stream = open(source, "rb")  # noqa: SIM115 (the caller closes it)
    now = os.fstat(stream.fileno())
    if (now.st_size, now.st_mtime_ns, now.st_ino) != (seen.st_size, seen.st_mtime_ns, seen.st_ino):
        stream.close()
        raise OSError("it has changed since the run began")
    return stream


def _local_tree(entry: Input, folder: str, log: logging.Logger) -> list[Seed]:
    if not os.path.isdir(folder):
        raise _Missing(f"there is no directory {folder}")

    def refuse(error: OSError) -> None:
        raise error

    seeds: list[Seed] = []
    left_out: list[str] = []
    for root, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        left_out += [os.path.join(root, name) for name in folders if os.path.islink(os.path.join(root, name))]
        for name in sorted(names):
            source = os.path.join(root, name)
            if not stat.S_ISREG(os.lstat(source).st_mode):
                left_out.append(source)
                continue
            seeds.append(_local_file(_below(entry, os.path.relpath(source, folder)), source))
            if len(seeds) > entry.max_files:
                return seeds  # more than enough to be refused
    if left_out:
        names_shown = ", ".join(map(repr, left_out[:_SHOWN])) + (", ..." if len(left_out) > _SHOWN else "")
        log.warning("Not taken as inputs, since they are links or no regular files: %s", names_shown)
    if not seeds:
        raise _Missing(f"there is no file in {folder}")
    return seeds


def _below(entry: Input, name: str) -> str:
    parts = name.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in name:
        raise OSError(f"no file in a directory can be called {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise OSError(f"the name {name!r} is not UTF-8") from None
    return entry.path + name


def _store_file(path: str, fs: Any, key: str, info: Any = None) -> Seed:
    try:
        info = fs.info(key) if info is None else info
    except FileNotFoundError as e:
        raise _Missing(str(e) or "there is no such object") from e
    if info.get("type") == "directory":
        raise OSError("it is a folder, not a file")
    size = info.get("size")
    if not isinstance(size, int) or size < 0:
        raise OSError("its store does not say how large it is")
    return Seed(path, size, lambda: cast(BinaryIO, Exactly(fs.open(key, "rb", block_size=_BLOCK), size)))


def _store_tree(entry: Input, fs: Any, key: str) -> list[Seed]:
    folder = key.rstrip("/") + "/"
    try:
        listed = fs.find(folder, detail=True)
    except FileNotFoundError:
        listed = {}
    seeds = []
    for name, info in sorted(listed.items()):
        # Stores with folders name them by keys that end in a slash, and some list the folder itself.
        if name.endswith("/") or info.get("type") == "directory" or not name.startswith(folder):
            continue
        seeds.append(_store_file(_below(entry, name.removeprefix(folder)), fs, name, info))
    if not seeds:
        raise _Missing("there is no object below it")
    return seeds


class Exactly(io.RawIOBase):
    """Reads a stream that has to have a given size, and says so where it has not."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream = stream
        self._size = size
        self.done = 0

    def readable(self) -> bool:
        return True

    def read(self, count: int | None = -1) -> bytes:
        """:raises OSError: the stream ends too early, or does not end."""
        left = self._size - self.done
        if left == 0:
            if self._size and count and self._stream.read(1):
                raise OSError(f"it has more than the {self._size} bytes it had when the run began")
            return b""
        data: bytes = self._stream.read(left if count is None or count < 0 else min(count, left))
        if not data and count != 0:
            raise OSError(f"it ended after {self.done} of the {self._size} bytes it had when the run began")
        self.done += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class _Reading:
    """A copy into a sandbox, as a display of progress looks at it."""

    def __init__(self, source: BinaryIO, size: int) -> None:
        self._source = source
        self.began = time.monotonic()
        self.total: int | None = size

    @property
    def done(self) -> int:
        if isinstance(self._source, Exactly):
            return self._source.done
        if isinstance(self._source, io.BytesIO):
            return self._source.tell()
        # Its bytes may go by its descriptor, whose position tells.
        return os.lseek(self._source.fileno(), 0, os.SEEK_CUR)


def seed(
    backend: SandboxBackend,
    sandbox: str,
    found: Iterable[Found],
    log: logging.Logger,
    *,
    progress: Progress | None = None,
) -> None:
    """Copy all inputs into the sandbox.

    :raises SandboxTerminalError: one cannot be copied; the text says which and why.
    """
    with progress or ProgressLog(log) as looking:
        for one in found:
            for file in one.seeds:
                calls.check_cancelled()
                put(backend, sandbox, file, looking)
            log.info("Put %s into sandbox %s (%s)", one.path, sandbox, format_size(one.size))


def put(backend: SandboxBackend, sandbox: str, file: Seed, looking: Progress) -> None:
    """Copy one file into the sandbox.

    :raises SandboxTerminalError: that failed; the text says why.
    """
    try:
        with _closing(file.open()) as source:
            with looking.on(file.path, _Reading(source, file.size)):
                _import(backend, sandbox, file.path, source, file.size)
            # Nothing may follow.
            if source.read(1):
                raise OSError(f"it has more than the {file.size} bytes it had when the run began")
    except Exception as e:
        ended = isinstance(e, SandboxTerminalError)
        raise SandboxTerminalError(
            f"Could not put {file.path!r} into sandbox {sandbox} on backend {backend.name!r}: {sentence(e)}"
        ) from (None if ended else e)


@contextlib.contextmanager
def _closing(stream: BinaryIO) -> Iterator[BinaryIO]:
    try:
        yield stream
    except BaseException as e:
        try:
            stream.close()
        except Exception as again:
            e.add_note(f"Closing it failed, too: {sentence(again)}")
        raise
    stream.close()


def _import(backend: SandboxBackend, sandbox: str, path: str, source: BinaryIO, size: int) -> None:
    way = getattr(backend, "import_file", None)
    if way is not None:
        way(sandbox, path, source, size=size)
    else:
        command_files.import_into(backend, sandbox, path, source, size=size)
