# SPDX-License-Identifier: Apache-2.0
"""Bounded text beside the provider's ``sandbox.output`` and the machine's ``memchr``."""

from __future__ import annotations

import base64
import binascii
import importlib.metadata
import random
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

from measure import Row, compared, growth, load, seconds, side_by_side, size

from sandbox_native import _sandbox_native as native
from sandbox_native import output

LINES = 2000
CAP = 50 * 1024
Pair = tuple[Callable[[], object], Callable[[], object]]


def provider() -> ModuleType:
    files = importlib.metadata.files("apache-airflow-providers-common-ai") or []
    [path] = [file for file in files if str(file).endswith("common/ai/sandbox/output.py")]
    return load(str(path.locate()))


def ascii_log(limit: int) -> str:
    """A log of about 75 characters a line."""
    numbers = random.Random(1)
    lines = []
    total = 0
    while total < limit:
        message = "x" * numbers.randrange(60)
        line = f"2026-01-01 10:{numbers.randrange(60):02}:07 INFO step[{numbers.random()}] {message}\n"
        lines.append(line)
        total += len(line)
    return "".join(lines)[:limit]


def mixed_log(limit: int) -> str:
    """``limit`` bytes of lines that are half not ASCII: two, three and four bytes a character."""
    numbers = random.Random(2)
    text = "журнал строка été naïve 中文输出 結果 Größe done error"
    words = [*text.split(), "\u2014", "\u201cok\u201d", "✓", "🚀"]
    lines = []
    total = 0
    while total < limit:
        line = " ".join(numbers.choices(words, k=9)) + f" {numbers.randrange(10**6)}\n"
        lines.append(line)
        total += len(line.encode())
    return "".join(lines)


def tail(module: ModuleType, text: str) -> Callable[[], object]:
    return lambda: module.truncate_output(text, max_lines=LINES, max_bytes=CAP)


def window(module: ModuleType, data: bytes, offset: int) -> Callable[[], object]:
    caps = {"max_lines": LINES, "max_bytes": CAP}
    return lambda: module.render_file_window(data, offset=offset, limit=None, **caps)


# What measure.growth calls, in a process of its own.
def _tails(module: ModuleType, text: str) -> Pair:
    return tail(module, text[:200_000]), tail(module, text)


def _windows(module: ModuleType, text: str) -> Pair:
    return window(module, text[:200_000].encode(), 1), window(module, text.encode(), 1)


def ours_tail_ascii() -> Pair:
    return _tails(output, ascii_log(5 << 20))


def theirs_tail_ascii() -> Pair:
    return _tails(provider(), ascii_log(5 << 20))


def ours_tail_mixed() -> Pair:
    return _tails(output, mixed_log(5 << 20))


def theirs_tail_mixed() -> Pair:
    return _tails(provider(), mixed_log(5 << 20))


def ours_window_ascii() -> Pair:
    return _windows(output, ascii_log(5 << 20))


def theirs_window_ascii() -> Pair:
    return _windows(provider(), ascii_log(5 << 20))


def memory(work: str, times: int, name: str) -> Row:
    ours, theirs = growth(__file__, f"ours_{name}"), growth(__file__, f"theirs_{name}")
    limit = times * CAP
    used = f"{size(theirs)} (provider)"
    return Row(f"{work}: memory", f"under {size(limit)}", size(ours), used, None, ours < limit)


def scan() -> Row:
    """The pass over a file that counts its lines, beside ``bytes.find`` of a byte that is not there."""
    data = ascii_log(8 << 20).encode() * 8
    ours, memchr, theirs = side_by_side(
        window(output, data, 2**62),
        lambda: data.find(b"\0"),
        lambda: data.splitlines(),
        runs=5,
    )
    speeds = [len(data) / value / 1e9 for value in (ours, memchr)]
    return Row(
        "line scan, 64 MiB",
        "half of memchr",
        f"{seconds(ours)} = {speeds[0]:.1f} GB/s",
        f"{seconds(memchr)} = {speeds[1]:.1f} GB/s (memchr); {seconds(theirs)} (splitlines)",
        memchr / ours,
        memchr / ours >= 0.5,
    )


def tail_keeper() -> Row:
    """A gigabyte through TailKeeper beside a copy of it."""
    block = ascii_log(1 << 16).encode()
    view = memoryview(bytearray(len(block)))

    def feed() -> None:
        keeper = native.TailKeeper(100_000)
        for _ in range(1 << 14):
            keeper.feed(block)

    def copy() -> None:
        for _ in range(1 << 14):
            view[:] = block

    ours, theirs = side_by_side(feed, copy, runs=3, budget=0)
    work = "TailKeeper, 1 GiB in 64 KiB pieces"
    return Row(work, "", seconds(ours), f"{seconds(theirs)} (memcpy)", theirs / ours)


def rows() -> Iterator[Row]:
    reference = provider()
    plain, mixed = ascii_log(5 << 20), mixed_log(5 << 20)
    small = plain[:CAP]
    yield compared("truncate_output, 5 MiB", 300, tail(output, plain), tail(reference, plain))
    yield memory("truncate_output, 5 MiB", 2, "tail_ascii")
    yield compared("truncate_output, 5 MiB not ASCII", 100, tail(output, mixed), tail(reference, mixed))
    yield memory("truncate_output, 5 MiB not ASCII", 4, "tail_mixed")
    yield compared("truncate_output, 50 KiB", 15, tail(output, small), tail(reference, small))
    for name, text, target in (("5 MiB", plain, 60), ("5 MiB not ASCII", mixed, 100)):
        data = text.encode()
        last = len(text.splitlines()) - 500
        for page, offset in (("first", 1), ("last", last)):
            yield compared(
                f"render_file_window, {name}, {page} page",
                target,
                window(output, data, offset),
                window(reference, data, offset),
            )
    yield memory("render_file_window, 5 MiB", 4, "window_ascii")
    yield scan()
    yield tail_keeper()
    data = random.Random(3).randbytes(8 << 20)
    coded, wrapped = base64.b64encode(data), base64.encodebytes(data)
    for shape, lines in (("one line", coded), ("lines of 76", wrapped)):
        ours, theirs = partial(native.b64decode, lines), partial(binascii.a2b_base64, lines)
        yield compared(f"b64decode, 8 MiB, {shape}", 1, ours, theirs, "binascii")
    yield compared(
        "b64encode, 8 MiB", 1, lambda: native.b64encode(data), lambda: base64.b64encode(data), "base64"
    )
