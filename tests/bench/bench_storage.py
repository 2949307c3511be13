# SPDX-License-Identifier: Apache-2.0
"""Exports to S3 on loopback, with and without obstore, beside the provider's toolset.

The server is a process of its own and not counted. The producer is the same for all: a block of memory, over
and over. Measured in a process where Airflow is loaded, which has to come before this package.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import Row, seconds, size

SIZE = 400_000_000
RUNS = 3


def rows() -> Iterator[Row]:
    command = [sys.executable, __file__]
    measured = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    theirs, their_cpu, their_memory = measured["provider"]
    for name, faster, cpu_share in (("obstore", 2.0, 0.25), ("s3fs", 1.0, None)):
        ours, cpu, memory = measured[name]
        shown = f"{seconds(theirs)}, {SIZE / theirs / 1e6:.0f} MB/s (provider)"
        yield Row(
            f"S3: export of 400 MB by {name}",
            f"{faster:g}x",
            f"{seconds(ours)}, {SIZE / ours / 1e6:.0f} MB/s",
            shown,
            theirs / ours,
            theirs / ours >= faster,
        )
        target = "" if cpu_share is None else f"{1 / cpu_share:g}x"
        met = None if cpu_share is None else cpu <= cpu_share * their_cpu
        shown = f"{seconds(their_cpu)} (provider)"
        yield Row(f"S3: processor time of it by {name}", target, seconds(cpu), shown, their_cpu / cpu, met)
        yield Row(f"S3: memory of it by {name}", "", size(memory), f"{size(their_memory)} (provider)")


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _measure() -> dict[str, tuple[float, ...]]:
    """Seconds, processor seconds and resident growth of each way, the least of several runs in turns."""
    import asyncio
    import ctypes
    import logging
    import os
    import resource
    import tempfile
    import time
    from typing import Any, BinaryIO

    home = tempfile.TemporaryDirectory(prefix="sandbox-native-bench-")
    os.environ["AIRFLOW_HOME"] = home.name
    os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"
    sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
    from airflow.providers.common.ai.toolsets.sandbox import SandboxToolset as Provider

    import gateway
    from sandbox_native import _obstore
    from sandbox_native.airflow import SandboxToolset
    from sandbox_native.contract import SandboxBackend, SandboxExecResult
    from sandbox_native.destination import announce

    logging.disable(logging.CRITICAL)
    block = os.urandom(1 << 20)
    trim = ctypes.CDLL(None).malloc_trim

    class Memory(SandboxBackend):
        name = "memory"
        size = 0

        def create(self, *, spec: Any = None) -> str:
            return "box"

        def run_command(self, *_: Any, **__: Any) -> SandboxExecResult:
            return SandboxExecResult(0, "", "")

        def destroy(self, sandbox: str) -> None:
            pass

        def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
            announce(dest, self.size)
            for at in range(0, self.size, len(block)):
                dest.write(block[: self.size - at])
            return self.size

    def export(kind: Any, size: int, key: str) -> tuple[float, ...]:
        backend = Memory()
        backend.size = size
        trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        resident = _resident("VmRSS")
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        with kind(backend, exports={"f": f"s3://bench@{bucket}/{key}"}) as toolset:
            tool = {tool.name: tool for tool in toolset.airflow_tools()}["run_command"]
            asyncio.run(tool.call({"command": "true"}))
        took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return took, cpu, _resident("VmHWM") - resident

    with gateway.running(Path(home.name) / "s3") as server:
        os.environ["AIRFLOW_CONN_BENCH"] = server.root.connection()
        bucket = server.bucket()
        ways = {
            "obstore": (SandboxToolset, True),
            "s3fs": (SandboxToolset, False),
            "provider": (Provider, False),
        }
        best: dict[str, tuple[float, ...]] = {}
        for turn in range(RUNS + 1):
            for name, (kind, installed) in ways.items():
                _obstore.installed = lambda installed=installed: installed  # type: ignore[assignment]
                # The first turn makes the clients.
                spent = export(kind, SIZE if turn else 1, name)
                if turn:
                    best[name] = tuple(map(min, spent, best.get(name, spent)))
                server.client.delete_object(Bucket=bucket, Key=name)
    return best


if __name__ == "__main__":
    print(json.dumps(_measure()))
