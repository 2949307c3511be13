# SPDX-License-Identifier: Apache-2.0
"""A progress bar for one file on a terminal."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, Self, TextIO

from sandbox_native.destination import write_all

REDRAW_SECONDS = 0.1


class Counted:
    """A writable binary file that counts what passes through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.written = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        write_all(self._stream, data)
        self.written += memoryview(data).nbytes
        return memoryview(data).nbytes

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True


class Progress:
    """Draws the bar inside a ``with`` block, from a thread of its own, and leaves its last state standing.

    :param terminal: where to draw.
    :param name: of the file.
    :param total: its size in bytes, None when unknown.
    :param done: asked now and then how many bytes have been copied.
    """

    def __init__(self, terminal: TextIO, name: str, total: int | None, done: Callable[[], int]) -> None:
        self._terminal = terminal
        self._name = name
        self._total = total
        self._done = done
        self._start = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw_on, name="sandbox-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._terminal.write(f"\r{self.line(self._done())}\n")
        self._terminal.flush()

    def _draw_on(self) -> None:
        while not self._ended.wait(REDRAW_SECONDS):
            self._terminal.write(f"\r{self.line(self._done())}")
            self._terminal.flush()

    def line(self, done: int) -> str:
        """The bar for ``done`` bytes, as wide as the terminal less one column."""
        width = shutil.get_terminal_size().columns - 1
        seconds = max(time.monotonic() - self._start, 1e-3)
        figures = f" {megabytes(done)} MB, {megabytes(done / seconds)} MB/s"
        if self._total:
            figures = f" {min(1.0, done / self._total):4.0%}{figures}"
        name = "".join(c if c.isprintable() else "?" for c in self._name)[: max(8, width // 3)]
        room = width - len(name) - len(figures) - 3
        if not self._total or room < 4:
            return f"{name}{figures}"[:width].ljust(width)
        full = int(room * min(1.0, done / self._total))
        return f"{name} [{'#' * full}{' ' * (room - full)}]{figures}"


def megabytes(count: float) -> str:
    return f"{count / 1e6:.1f}"
