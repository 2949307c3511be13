# SPDX-License-Identifier: Apache-2.0
"""A progress bar for the file that is being copied, on a terminal."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from sandbox_native.watching import Copy, Progress

REDRAW_SECONDS = 0.1


class Bar(Progress):
    """Draws a line for each copy, from a thread of its own, and leaves its last state standing.

    :param terminal: where to draw.
    """

    def __init__(self, terminal: TextIO) -> None:
        super().__init__(every=REDRAW_SECONDS)
        self._terminal = terminal
        # Of the copies under way; the terminal's last line is that of the first.
        self._drawing = threading.Lock()

    @contextlib.contextmanager
    def on(self, name: str, copy: Copy) -> Iterator[None]:
        with super().on(name, copy):
            try:
                yield
            finally:
                self._draw(name, copy, "\n")

    def show(self, copies: list[tuple[str, Copy]]) -> None:
        for name, copy in copies[:1]:
            self._draw(name, copy, "")

    def _draw(self, name: str, copy: Copy, end: str) -> None:
        text = line(name, copy.done, copy.total, time.monotonic() - copy.began)
        with self._drawing:
            self._terminal.write(f"\r{text}{end}")
            self._terminal.flush()


def line(name: str, done: int, total: int | None, seconds: float) -> str:
    """The bar for ``done`` bytes, as wide as the terminal less one column."""
    width = shutil.get_terminal_size().columns - 1
    figures = f" {megabytes(done)} MB, {megabytes(done / max(seconds, 1e-3))} MB/s"
    if total:
        figures = f" {min(1.0, done / total):4.0%}{figures}"
    name = "".join(c if c.isprintable() else "?" for c in name)[: max(8, width // 3)]
    room = width - len(name) - len(figures) - 3
    if not total or room < 4:
        return f"{name}{figures}"[:width].ljust(width)
    full = int(room * min(1.0, done / total))
    return f"{name} [{'#' * full}{' ' * (room - full)}]{figures}"


def megabytes(count: float) -> str:
    return f"{count / 1e6:.1f}"
