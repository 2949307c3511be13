# SPDX-License-Identifier: Apache-2.0
"""Files that a store takes in parts, and shows only once it is told that they are complete.

S3 keeps the parts of a multipart upload to itself until the upload is completed, and Azure the blocks of a
blob until their list is committed. So an upload to the destination's own key is as good a staging place as
a key beside it, and a better one: nothing has to be copied, whatever the size, and nothing deleted; nobody
sees, and no event or version is made of, a key that is no destination; and the role needs no more than to
put. All files are sent first, and only then are their uploads completed, one request each.
"""

from __future__ import annotations

import io
from typing import Any, Protocol

KIB = 1024
MIB = 1024 * KIB

MIN_PART = 5 * MIB
"""The least size of any part but the last that S3 takes."""
MAX_PARTS = 10_000
"""The most parts of one upload that S3 takes."""
PART = 8 * MIB
"""The size of a part, if the file is not so large that it would make too many of them."""
IN_FLIGHT = 3
"""Parts on their way at once."""
MEMORY = 64 * MIB
"""What the parts on their way take at most, if parts are not larger than that themselves."""


class Sender(Protocol):
    """One upload in progress. Used by one thread at a time.

    A part that is sent belongs to the sender, which may keep it until the upload ends.
    """

    def send(self, part: bytearray) -> None:
        """Send a part of the agreed size. Returns when the store may still be receiving it."""

    def seal(self, last: bytearray) -> None:
        """Send what is left, less than a part or nothing; returns when the store has all whole parts."""

    def commit(self) -> None:
        """Make the object of the parts. Only after :meth:`seal`."""

    def abort(self) -> None:
        """End the upload; nothing of it is left in the store. May be called again if it failed."""

    @property
    def leftover(self) -> str:
        """What there is to remove by hand while the upload is neither committed nor aborted."""


class Begin(Protocol):
    """Starts an upload with parts of ``part_size`` bytes, ``in_flight`` of them at once.

    ``alone``: no other file is to appear together with this one, so that a part that failed need not be known
    of before the end. ``whole``: the file is less than a part, so :meth:`Sender.seal` brings all of it.
    """

    def __call__(self, part_size: int, in_flight: int, alone: bool, whole: bool) -> Sender: ...


def part_size(size: int) -> int:
    """The size of the parts of a file of up to ``size`` bytes.

    Such that what is left after the last whole part is next to nothing if the file has just that size: less
    bytes than there are parts. A sender that can only keep the last part in memory until the upload is
    completed has little to keep then.
    """
    parts = min(max(1, size // PART), MAX_PARTS - 1)
    return max(MIN_PART, size // parts if size % parts < MIN_PART else -(-size // parts))


class Upload(io.RawIOBase):
    """The file that the bytes of an upload are written to. Appears in the store by :meth:`commit` alone.

    The upload begins with the first part, or at the end of a file that is smaller; until then a source may
    announce how large it is.
    """

    def __init__(self, begin: Begin, max_bytes: int, *, alone: bool = False) -> None:
        """
        :param begin: starts the upload.
        :param max_bytes: the most that will be written.
        :param alone: no other file is to appear together with this one.
        """
        super().__init__()
        self._alone = alone
        self._begin = begin
        self._max_bytes = max_bytes
        self._expected = max_bytes
        self._part_size = 0
        self._buffer = bytearray()
        self._sender: Sender | None = None
        self._dead = False
        self.size = 0
        """Bytes written so far."""

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def announce(self, size: int) -> None:
        """Told by the source how many bytes it is going to write. Without effect after the first part."""
        if 0 <= size <= self._max_bytes:
            self._expected = size

    def write(self, data: Any) -> int:
        """Take all of ``data``, which may be changed afterwards.

        :raises ValueError: the upload was sealed or given up.
        :raises OSError: the store refused a part, this one or one before it, or more is written than
            ``max_bytes``. So may the store's package raise exceptions of its own.
        """
        if self._dead or self.closed:
            raise ValueError("the upload takes no more data")
        view = memoryview(data).cast("B")
        if self.size + view.nbytes > self._max_bytes:
            raise OSError(f"more than the {self._max_bytes} bytes that were announced")
        self.size += view.nbytes
        size = self._size_of_parts()
        while len(self._buffer) + view.nbytes >= size:
            room = size - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            part, self._buffer = self._buffer, bytearray()
            self._sending().send(part)
        self._buffer += view
        return memoryview(data).nbytes

    def _size_of_parts(self) -> int:
        if not self._part_size:
            self._part_size = part_size(self._expected)
        return self._part_size

    def _sending(self, whole: bool = False) -> Sender:
        if self._sender is None:
            size = self._size_of_parts()
            self._sender = self._begin(size, max(1, min(IN_FLIGHT, MEMORY // size)), self._alone, whole)
        return self._sender

    def seal(self) -> None:
        """Send what is left. Afterwards the upload lacks nothing but its completion."""
        self._dead = True
        last, self._buffer = self._buffer, bytearray()
        self._sending(whole=True).seal(last)

    def commit(self) -> None:
        """Let the file appear. Only after :meth:`seal`."""
        self._sending().commit()
        self._sender = None

    def discard(self) -> None:
        """Give the upload up. May be called at any time before :meth:`commit`, and again if it failed.

        :raises Exception: the store refused to end it; :attr:`leftover` says what is left.
        """
        self._dead = True
        self._buffer = bytearray()
        # Kept if this raises: there is something left then.
        if self._sender is not None:
            self._sender.abort()
            self._sender = None

    @property
    def leftover(self) -> str:
        """What is in the store and not the destination; empty if nothing is."""
        return "" if self._sender is None else self._sender.leftover


def begin_for(fs: Any, path: str) -> Begin | None:
    """How uploads to ``path`` begin; ``None`` where the store has none or they are not known to be safe.

    :raises ValueError: the file system would take ``path`` for another key.
    """
    # By name and exactly: a subclass may do more on its way to the store, and the package need not be there.
    name = f"{type(fs).__module__}.{type(fs).__qualname__}"
    if name not in ("s3fs.core.S3FileSystem", "adlfs.spec.AzureBlobFileSystem"):
        return None
    if fs.split_path(path)[2] is not None:
        raise ValueError("its end is read as the version of an object, and only new ones can be made")
    if name == "s3fs.core.S3FileSystem":
        from sandbox_native import _s3

        return _s3.beginning(fs, path)
    from sandbox_native import _azure

    return _azure.beginning(fs, path)
