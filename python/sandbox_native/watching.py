# SPDX-License-Identifier: Apache-2.0
"""Looking at a copy while it is made: how far it is, how fast, and the checksum of what passed."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol, Self

from sandbox_native.destination import announce, regular_file_under, write_all

LOG_SECONDS = 10.0
"""Between two lines in the log on one copy."""


class Copy(Protocol):
    """A copy that is under way."""

    @property
    def began(self) -> float:
        """When, on the monotonic clock."""

    @property
    def total(self) -> int | None:
        """Bytes it will have, if that is known."""

    @property
    def done(self) -> int:
        """Bytes it has so far."""


class Watched:
    """A writable binary file in front of another, for one copy.

    ``destination.descriptor_of`` sees through it, so bytes may go around it to the file's descriptor.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.total: int | None = None
        """Bytes the copy will have, once its source has said so."""
        self.began = time.monotonic()
        self._written = 0
        self._descriptor = regular_file_under(stream)

    @property
    def sha256(self) -> str | None:
        """The checksum of what was written so far, in hexadecimal, if one is made."""
        return None

    @property
    def done(self) -> int:
        """Bytes copied so far. Not to be asked once the file is closed."""
        if self._descriptor is None:
            return self._written
        return max(self._written, os.fstat(self._descriptor).st_size)

    def announce(self, size: int) -> None:
        """Told by the source how many bytes there will be."""
        self.total = size
        announce(self.stream, size)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        write_all(self.stream, data)
        size = memoryview(data).nbytes
        self._written += size
        return size

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self.stream.flush()

    def tell(self) -> int:
        return self.stream.tell()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        return self.stream.closed


class Hashed(Watched):
    """The same with a checksum. Nothing goes around this one."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes | bytearray | memoryview) -> int:
        size = super().write(data)
        self._hash.update(data)
        return size


class Progress:
    """Looks at the copies under way, inside a ``with`` block from a thread of its own.

    :param every: seconds between two looks.
    """

    def __init__(self, *, every: float) -> None:
        self._every = every
        self._lock = threading.Lock()
        self._copies: dict[Copy, str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="sandbox-progress", daemon=True)

    def show(self, copies: list[tuple[str, Copy]]) -> None:
        """Called at every look with the names of the files and their copies."""

    def __enter__(self) -> Self:
        # Without a thread to spare there is nothing to see, which nobody waits for.
        with contextlib.suppress(RuntimeError):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    @contextlib.contextmanager
    def on(self, name: str, copy: Copy) -> Iterator[None]:
        """Look at ``copy``, of the file ``name``, inside the block."""
        with self._lock:
            self._copies[copy] = name
        try:
            yield
        finally:
            # From here on the file may be closed, and its descriptor another's.
            with self._lock:
                del self._copies[copy]

    def _look_on(self) -> None:
        while not self._ended.wait(self._every):
            with self._lock:
                self.show([(name, copy) for copy, name in self._copies.items()])


class ProgressLog(Progress):
    """Logs a line on a copy whenever it has gone on for a while more.

    :param log: where to.
    :param every: seconds between two lines.
    """

    def __init__(self, log: logging.Logger, *, every: float = LOG_SECONDS) -> None:
        # A copy that began just after a look is told a tenth too late.
        super().__init__(every=every / 10)
        self._log = log
        self._pause = every
        self._told: weakref.WeakKeyDictionary[Copy, float] = weakref.WeakKeyDictionary()

    def show(self, copies: list[tuple[str, Copy]]) -> None:
        now = time.monotonic()
        for name, copy in copies:
            if now - self._told.get(copy, copy.began) >= self._pause:
                self._told[copy] = now
                with contextlib.suppress(OSError):
                    self._log.info("%s", line(name, copy.done, copy.total, now - copy.began))


def line(name: str, done: int, total: int | None, seconds: float) -> str:
    """How far a copy is: bytes, percent where the size is known, and MB/s."""
    rate = f"{done / max(seconds, 1e-3) / 1e6:.1f} MB/s"
    if not total:
        return f"Copying {name}: {done} bytes, {rate}"
    return f"Copying {name}: {done} of {total} bytes, {min(done / total, 1):.0%}, {rate}"
