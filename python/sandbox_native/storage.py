# SPDX-License-Identifier: Apache-2.0
"""One destination of an export and where the file is staged, on a local disk or on an fsspec store.

A slot knows how to write the staged file, how to make it the destination, and how to remove every trace.
What happens in which order is :mod:`sandbox_native.exports`'. A file is staged at a key beside its
destination, or where the store has them as an unfinished upload to the destination itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, BinaryIO, cast

from sandbox_native import uploads
from sandbox_native.destination import discard

# So that a consumer that globs for the destination's extension never finds an unfinished file.
STAGING_SUFFIX = ".partial"
# The longest file name on Linux's file systems, in bytes (NAME_MAX).
_NAME_MAX = 255
# Parts of a multipart upload: S3's limit, the lowest among the stores.
_MAX_PARTS = 10_000


class StagingLeft(Exception):
    """The destination is complete, but its staging key could not be removed."""


def staging_name(name: str) -> str:
    """A name beside ``name`` that nobody else uses: ``<name>.<12 hex digits>.partial``."""
    suffix = f".{uuid.uuid4().hex[:12]}{STAGING_SUFFIX}"
    room = _NAME_MAX - len(suffix)
    encoded = os.fsencode(name)
    if len(encoded) > room:
        name = encoded[:room].decode("utf-8", "ignore")
    return name + suffix


class Slot(ABC):
    """Where one file goes. For one file only, and for one thread at a time."""

    def __init__(self, label: str) -> None:
        self.label = label
        """The destination as the user knows it."""
        self.staging = ""
        """The staging key, or what else there would be to delete by hand, while there is any."""
        self.in_place = False
        """Whether the destination is the new file."""

    @property
    def any_thread(self) -> bool:
        """Whether it may be filled on another thread than the one it was made on, beside others."""
        return True

    @property
    @abstractmethod
    def identity(self) -> tuple[object, ...]:
        """Equal for two slots that are one destination."""

    @abstractmethod
    def problem(self) -> str | None:
        """Why nothing can be published here, or None. Looks at the store where that costs one look."""

    @abstractmethod
    def open(self, max_bytes: int, *, alone: bool = False) -> BinaryIO:
        """Create the staging key.

        :param max_bytes: the most that will be written.
        :param alone: no other file is to be published together with this one.
        """

    @abstractmethod
    def seal(self, stream: BinaryIO, size: int) -> None:
        """Finish the staging key, durably. ``size`` is how many bytes it must have."""

    def discard(self, stream: BinaryIO) -> None:
        """Give up an unfinished staging key; nothing written to it will appear."""
        discard(stream)

    @abstractmethod
    def publish(self) -> None:
        """Make the staging key the destination, replacing what is there.

        :raises StagingLeft: that was done, but the staging key is still there, too.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the staging key, if there is one."""


class LocalSlot(Slot):
    """A file on this machine."""

    def __init__(self, path: str, label: str) -> None:
        super().__init__(label)
        self.path = path
        self._parent, name = os.path.split(path)
        self._name = name
        self.made: list[str] = []
        """The folders that were missing and made, outermost first."""

    @property
    def identity(self) -> tuple[object, ...]:
        return ("file", os.path.join(os.path.realpath(self._parent), self._name))

    def problem(self) -> str | None:
        if not os.path.isabs(self.path):
            return "the path of a file URL has to be absolute, as in file:///path"
        if self._name in ("", ".", ".."):
            return "it does not end in a file name"
        try:
            mode = os.stat(self.path).st_mode
        except OSError as e:
            if e.errno in (errno.ENAMETOOLONG, errno.EACCES):
                return os.strerror(e.errno)
            return self._parent_problem()
        if stat.S_ISDIR(mode):
            return "it is an existing directory"
        return None if stat.S_ISREG(mode) else "it exists and is not a regular file"

    def _parent_problem(self) -> str | None:
        parent = self._parent
        while not os.path.lexists(parent):
            parent = os.path.dirname(parent)
        return None if os.path.isdir(parent) else f"{parent} is not a directory"

    def open(self, max_bytes: int, *, alone: bool = False) -> BinaryIO:
        self._make_parents()
        self.staging = os.path.join(self._parent, staging_name(self._name))
        # A new file, so its permissions are what the umask says.
        return open(self.staging, "xb")

    def _make_parents(self) -> None:
        missing = []
        parent = self._parent
        while not os.path.lexists(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        for folder in reversed(missing):
            # Another task may make it at the same time: then it is not ours to remove.
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
                self.made.append(folder)

    def seal(self, stream: BinaryIO, size: int) -> None:
        with stream:
            stream.flush()
            actual = os.fstat(stream.fileno()).st_size
            if actual != size:
                raise OSError(
                    errno.EIO, f"{actual} bytes arrived in the file where {size} were copied", self.staging
                )
            os.fsync(stream.fileno())

    def publish(self) -> None:
        os.replace(self.staging, self.path)
        self.in_place = True
        self.staging = ""
        # The rename itself has to survive a crash of the machine, where the file system can promise that.
        with contextlib.suppress(OSError):
            folder = os.open(self._parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def remove(self) -> None:
        if self.staging:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.staging)
            self.staging = ""


def remove_folders(slots: Iterable[Slot]) -> None:
    """Remove the folders that were made for files that did not appear, after all their staging keys."""
    made = [
        folder for slot in slots if isinstance(slot, LocalSlot) and not slot.in_place for folder in slot.made
    ]
    # One that several slots have files in was made for the first of them, and may hold one of another's.
    for folder in sorted(made, key=lambda folder: os.path.normpath(folder).count("/"), reverse=True):
        # Not empty: a file that did appear is in it, or somebody else uses it by now.
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def store_slot(fs: Any, path: str, label: str, *, account: object = None) -> StoreSlot:
    """The slot of a key on an fsspec store.

    :param path: the key as ``fs`` takes it.
    :param label: as the user knows it.
    :param account: what tells two stores of one protocol apart.
    """
    begin = uploads.begin_for(fs, path)
    if begin is None:
        return StoreSlot(fs, path, label, account=account)
    return UploadSlot(fs, path, label, account=account, begin=begin)


class StoreSlot(Slot):
    """A key on an fsspec store. Only ever puts, gets, copies and deletes the keys it names itself."""

    def __init__(self, fs: Any, path: str, label: str, *, account: object = None) -> None:
        super().__init__(label)
        self._fs = fs
        self.path = path
        self._account = account

    @property
    def any_thread(self) -> bool:
        # Those that are asynchronous inside do their work on one loop. Others may have a connection that one
        # thread at a time can use.
        return bool(getattr(self._fs, "async_impl", False))

    @property
    def identity(self) -> tuple[object, ...]:
        protocol = self._fs.protocol
        name = protocol if isinstance(protocol, str) else protocol[0]
        # Some stores take a//b and a/./b for a/b. On one that does not, such a pair is a slip all the same.
        return (name, self._account, posixpath.normpath("/" + self.path.lstrip("/")))

    def problem(self) -> str | None:
        folder, _, name = self.path.rpartition("/")
        if name in ("", ".", ".."):
            return "it does not end in a file name"
        if not folder and not self.path.startswith("/"):
            return "it is the root of a bucket"
        try:
            is_folder = self._fs.isdir(self.path)
        except Exception:
            return None  # a role that may not list; the store itself will refuse what it cannot take
        return "it is an existing directory" if is_folder else None

    def open(self, max_bytes: int, *, alone: bool = False) -> BinaryIO:
        folder, slash, name = self.path.rpartition("/")
        self.staging = f"{folder}{slash}{staging_name(name)}"
        stream: BinaryIO = self._fs.open(self.staging, "wb", **self._part_size(max_bytes))
        return stream

    def _part_size(self, max_bytes: int) -> dict[str, int]:
        default = getattr(self._fs, "default_block_size", None) or self._fs.blocksize
        needed = -(-max_bytes // _MAX_PARTS)
        return {"block_size": needed} if needed > default else {}

    def seal(self, stream: BinaryIO, size: int) -> None:
        stream.close()

    def publish(self) -> None:
        if self._has_own_move():
            self._fs.mv(self.staging, self.path)
            if self._fs.exists(self.staging):
                raise OSError(errno.EEXIST, "the store did not rename it", self.staging)
            self.in_place = True
            self.staging = ""
            return
        # Not the generic mv and copy: they take the name for a pattern and put files into directories.
        self._fs.cp_file(self.staging, self.path)
        self.in_place = True
        try:
            self.remove()
        except Exception as e:
            raise StagingLeft(str(e)) from e

    def _has_own_move(self) -> bool:
        from fsspec.spec import AbstractFileSystem

        # A store that can rename has its own; many of those cannot copy on the server. A file system before
        # another only passes the names on, to be taken for patterns there if that one has none.
        fs, own = self._fs, True
        while own and isinstance(fs, AbstractFileSystem):
            own = type(fs).mv is not AbstractFileSystem.mv
            fs = getattr(fs, "fs", None)
        return own

    def remove(self) -> None:
        if self.staging:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self.staging)
            self.staging = ""


class UploadSlot(StoreSlot):
    """A key on a store that keeps an upload to itself until it is completed. No other key is touched."""

    def __init__(
        self, fs: Any, path: str, label: str, *, account: object = None, begin: uploads.Begin
    ) -> None:
        super().__init__(fs, path, label, account=account)
        self._begin = begin
        self._upload: uploads.Upload | None = None

    def open(self, max_bytes: int, *, alone: bool = False) -> BinaryIO:
        self._upload = uploads.Upload(self._begin, max_bytes, alone=alone)
        return cast(BinaryIO, self._upload)

    def seal(self, stream: BinaryIO, size: int) -> None:
        upload = self._opened()
        if upload.size != size:
            raise OSError(errno.EIO, f"{upload.size} bytes were written where {size} were copied", self.path)
        try:
            upload.seal()
        finally:
            self.staging = upload.leftover

    def discard(self, stream: BinaryIO) -> None:
        self._end()

    def publish(self) -> None:
        self._opened().commit()
        self.in_place = True
        self.staging = ""
        # Who lists the folder afterwards is to see the file.
        self._fs.invalidate_cache(self._fs._parent(self.path))

    def remove(self) -> None:
        if not self.in_place and self._upload is not None:
            self._end()

    def _opened(self) -> uploads.Upload:
        if self._upload is None:
            raise ValueError("the slot is not open")
        return self._upload

    def _end(self) -> None:
        upload = self._opened()
        try:
            upload.discard()
        finally:
            self.staging = upload.leftover
