# SPDX-License-Identifier: Apache-2.0
"""Files out of a sandbox by ``run_command`` alone, beside the provider's default export on the same channel.

The channel is a local sandbox that is asked for nothing but commands; the slow one is the same with a brake.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# First, so that the contract's classes are the provider's, which its export makes results of.
from airflow.providers.common.ai.sandbox import base

from measure import Row, compared, growth, seconds, side_by_side, size  # isort: skip

from sandbox_native import contract, default_export, guest  # isort: skip
from sandbox_native.backends.local import LocalSandboxBackend  # isort: skip
from sandbox_native.contract import SandboxBackend, SandboxExecResult  # isort: skip

MB = 1_000_000
BYTES = 200 * MB
SLOW_BYTES = 60 * MB
BUDGET = 1 << 30
# What is shown of text: lines of a log.
TEXT = (
    'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo "2026-11-30 23:59:$((i%60)) worker-$((i%7)) INFO task '
    'number $i of queue $((i*7919%1000)) took $((i*i%977)) ms and wrote $((i*31%65536)) rows"; done >part; '
    "for n in $(seq 120); do cat part; done | head -c SIZE >text"
)


class Channel(SandboxBackend):
    """A backend with nothing but commands, of which two may run at a time."""

    name = "channel"
    concurrent_commands = 2

    def __init__(self, rate: float | None = None) -> None:
        self._local = LocalSandboxBackend(workspace_bytes=1 << 30)
        self._rate = rate
        self.sandbox = self._local.create()

    def create(self, *, spec: Any = None) -> str:
        return self.sandbox

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        begin = time.perf_counter()
        result = self._local.run_command(sandbox, command, timeout=timeout, max_output_bytes=max_output_bytes)
        if self._rate is not None:
            # The command runs while the channel carries what it prints, so the longer of the two counts.
            needed = len(result.stdout) / self._rate
            time.sleep(max(0.0, begin + needed - time.perf_counter()))
        return result

    def destroy(self, sandbox: str) -> None:
        self._local.destroy(sandbox)

    def make(self, random: int, text: int) -> None:
        for command in (
            f"head -c {random} /dev/urandom >random",
            TEXT.replace("SIZE", str(text)),
            "true >small; echo x >small",
        ):
            result = self._local.run_command(self.sandbox, command, timeout=300, max_output_bytes=1000)
            if result.exit_code:
                raise RuntimeError(result)


def ours(channel: Channel, path: str, dest: str) -> None:
    with open(dest, "wb") as file:
        channel.export_file(channel.sandbox, path, file, max_bytes=BUDGET)


def provider(channel: Channel, path: str, dest: str) -> None:
    with open(dest, "wb") as file:
        base.SandboxBackend.export_file(channel, channel.sandbox, path, file, max_bytes=BUDGET)


def slices_alone(channel: Channel, path: str) -> None:
    """The commands of our export, with nothing done about what they bring."""

    class Undecoded(default_export._Export):
        def _write(self, frame: guest.Frame, length: int, *unused: Any) -> int:
            return length

    run = functools.partial(channel.run_command, channel.sandbox)
    export = Undecoded(run, path, BUDGET, contract._EXPORT_CHUNK_BYTES // channel.concurrent_commands, 600.0)
    with open("/dev/null", "wb") as nothing:
        export.copy(nothing, channel.concurrent_commands, False)


def grown() -> tuple[Callable[[], object], Callable[[], object]]:
    channel = Channel()
    channel.make(50 * MB, MB)
    dest = tempfile.mkstemp()[1]
    return lambda: ours(channel, "small", dest), lambda: ours(channel, "random", dest)


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        a, b = str(Path(folder, "ours")), str(Path(folder, "provider"))
        channel = Channel()
        try:
            channel.make(BYTES, BYTES)
            for kind in ("random", "text"):
                work = f"default export, {BYTES // MB} MB of {kind}"
                yield compared(
                    work,
                    3,
                    functools.partial(ours, channel, kind, a),
                    functools.partial(provider, channel, kind, b),
                    runs=3,
                )
                if Path(a).read_bytes() != Path(b).read_bytes():
                    raise RuntimeError("the two copies differ")
                export, alone = side_by_side(
                    functools.partial(ours, channel, kind, a),
                    functools.partial(slices_alone, channel, kind),
                    runs=5,
                )
                shown = f"{seconds(alone)} (its slices, not decoded)"
                yield Row(work, "0.9x", seconds(export), shown, alone / export, alone / export >= 0.9)
        finally:
            channel.destroy(channel.sandbox)
        slow = Channel(rate=10 * MB)
        try:
            slow.make(MB, SLOW_BYTES)
            yield compared(
                f"default export, {SLOW_BYTES // MB} MB of text at 10 MB/s",
                3,
                functools.partial(ours, slow, "text", a),
                functools.partial(provider, slow, "text", b),
                runs=1,
                budget=0,
            )
        finally:
            slow.destroy(slow.sandbox)
    memory = growth(__file__, "grown")
    yield Row("default export: memory", "16 MiB", size(memory), met=memory < 16 * 2**20)
