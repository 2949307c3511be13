# SPDX-License-Identifier: Apache-2.0
"""A ``.tar.gz`` written as its members come, in constant memory.

Composed on this side, so that what is in it was checked on this side: regular files only, under the names
they were listed by, each with the bytes it was announced with.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Self, cast

from sandbox_native.destination import write_all

# Of gzip(1): its usual compromise.
LEVEL = 6


class Member:
    """Where the bytes of one member go. Takes as many as were announced and no more."""

    def __init__(self, put: Callable[[Any], None], size: int) -> None:
        self._put = put
        self._size = size
        self.written = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """:raises OSError: these are more bytes than the member has."""
        size = memoryview(data).nbytes
        if self.written + size > self._size:
            raise OSError(f"more than the {self._size} bytes came that the file has")
        self._put(data)
        self.written += size
        return size

    def flush(self) -> None:
        pass

    def writable(self) -> bool:
        return True


class Archive:
    """Writes members one after the other; :meth:`close` makes it complete.

    The bytes depend on names, modes and contents alone: the times in it are 0.

    :param dest: where it goes; not closed.
    """

    def __init__(self, dest: BinaryIO) -> None:
        self._dest = dest
        # 16 more than the window: with the header and the checksum of gzip.
        self._gzip = zlib.compressobj(LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._bytes = 0

    def add(self, name: str, mode: int, size: int, fill: Callable[[BinaryIO], int]) -> None:
        """Write one member.

        :param name: its path in the archive.
        :param mode: permission bits.
        :param size: how many bytes ``fill`` is going to write.
        :raises OSError: it wrote more, or fewer.
        """
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, mode & 0o777
        self._put(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        member = Member(self._compress, size)
        fill(cast(BinaryIO, member))
        if member.written != size:
            raise OSError(f"{member.written} bytes came of the {size} that the file has")
        self._bytes += size
        self._put(b"\0" * (-size % tarfile.BLOCKSIZE))

    def close(self) -> None:
        """Write the end of the archive."""
        self._put(b"\0" * (2 * tarfile.BLOCKSIZE))
        self._put(b"\0" * (-self._bytes % tarfile.RECORDSIZE))
        write_all(self._dest, self._gzip.flush())

    def _put(self, data: bytes) -> None:
        self._compress(data)
        self._bytes += len(data)

    def _compress(self, data: bytes | bytearray | memoryview) -> None:
        write_all(self._dest, self._gzip.compress(data))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After a failure it gets no end: what is there must not pass for an archive.
        if kind is None:
            self.close()
