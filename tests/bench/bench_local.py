# SPDX-License-Identifier: Apache-2.0
"""The local backend beside a bare bubblewrap, a shell's redirection and ``cp``.

The same machine, the same kernel, in turns. Memory is read where the kernel accounts it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import Row, seconds, side_by_side, size

from sandbox_native.backends.local import LocalSandboxBackend

GIGABYTE = 1_000_000_000
BACKEND = LocalSandboxBackend(workspace_bytes=3 << 30, memory_mb=4096)
CAP = 50 * 1024

# The least that runs a program in namespaces of its own.
BARE = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"]
BARE += ["--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]
BARE += ["--proc", "/proc", "--dev", "/dev", "true"]


def run(sandbox: str, command: str) -> str:
    result = BACKEND.run_command(sandbox, command, timeout=300, max_output_bytes=CAP)
    if result.exit_code != 0:
        raise RuntimeError(result)
    return result.stdout


def rows() -> Iterator[Row]:
    sandbox = BACKEND.create()
    try:
        yield from latency(sandbox)
        yield from many()
        yield from flood(sandbox)
        yield from exports(sandbox)
    finally:
        BACKEND.destroy(sandbox)


def latency(sandbox: str) -> Iterator[Row]:
    ours, bare = side_by_side(lambda: run(sandbox, "true"), lambda: subprocess.run(BARE, check=True))
    target = "0.3x of bare bwrap"
    shown = f"{seconds(bare)} (bare bwrap true)"
    yield Row("local: run_command('true')", target, seconds(ours), shown, bare / ours, ours < 0.3 * bare)

    made: list[str] = []

    def first_result() -> None:
        made.append(BACKEND.create())
        run(made[-1], "true")

    best = float("inf")
    for _ in range(30):
        begin = time.perf_counter()
        first_result()
        best = min(best, time.perf_counter() - begin)
        BACKEND.destroy(made.pop())
    yield Row("local: create to first result", "25 ms", seconds(best), met=best < 0.025)


def _memory_of(pids: list[str]) -> int:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def _descendants() -> list[str]:
    found, todo = [], [str(os.getpid())]
    while todo:
        pid = todo.pop()
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                found.append(child)
                todo.append(child)
    return found


def many(count: int = 64) -> Iterator[Row]:
    before = set(_descendants())
    handles = [BACKEND.create() for _ in range(count)]
    try:
        each = _memory_of([pid for pid in _descendants() if pid not in before]) / count
    finally:
        for handle in handles:
            BACKEND.destroy(handle)
    work = f"local: memory of one of {count} standing sandboxes (PSS)"
    yield Row(work, "300 KiB", size(each), met=each < 300 * 1024)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def flood(sandbox: str) -> Iterator[Row]:
    command = f"head -c {GIGABYTE} /dev/zero"
    run(sandbox, "head -c 20M /dev/zero")
    peak = 0

    def ours() -> None:
        nonlocal peak
        before = _resident()
        run(sandbox, command)
        peak = max(peak, _resident() - before)

    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/output"
        a, b = side_by_side(ours, lambda: subprocess.run(["sh", "-c", f"{command} > {target}"]), runs=3)
    shown = f"{seconds(b)} (cmd > file)"
    yield Row("local: a command that prints 1 GB", "1x of cmd > file", seconds(a), shown, b / a, a <= b)
    most = 2 * 2**20 + 2 * CAP
    yield Row("local: resident growth over it", "2 MiB and the caps", size(peak), met=peak < most)


def exports(sandbox: str) -> Iterator[Row]:
    run(sandbox, f"head -c {GIGABYTE} /dev/urandom > big")
    with tempfile.TemporaryDirectory() as folder:
        # What cp reads from lies in memory, as the sandbox's file does.
        source = Path("/dev/shm/sandbox-native-bench")
        out, copy = f"{folder}/export", f"{folder}/copy"
        try:
            export(sandbox, str(source))
            yield compared_with_cp(
                "local: export of 1 GB to a file", lambda: export(sandbox, out), ["cp", str(source), copy]
            )
            yield compared_with_cp(
                "local: the same with fsync",
                lambda: export(sandbox, out, sync=True),
                ["sh", "-c", f"cp {source} {copy} && sync {copy}"],
            )
        finally:
            source.unlink(missing_ok=True)


def compared_with_cp(work: str, ours: Callable[[], object], reference: list[str]) -> Row:
    a, b = side_by_side(ours, lambda: subprocess.run(reference, check=True), runs=4)
    return Row(
        work, "0.9x of cp", seconds(a), f"{seconds(b)} ({' '.join(reference)[:30]})", b / a, b / a >= 0.9
    )


def export(sandbox: str, path: str, sync: bool = False) -> None:
    with open(path, "wb") as dest:
        BACKEND.export_file(sandbox, "big", dest, max_bytes=2 * GIGABYTE)
        if sync:
            os.fsync(dest.fileno())
