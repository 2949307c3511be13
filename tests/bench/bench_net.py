# SPDX-License-Identifier: Apache-2.0
"""HTTP beside the curl program, from a local nginx; what the first client and request cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measure import Row, seconds, size
from nginx import serving

GB = 1_000_000_000
RUNS = 5

# Each measurement is a process of its own, so that memory and CPU are those of the download alone. The
# first, small download brings the code in.
DOWNLOAD = """
import json, os, resource, sys, time
from pathlib import Path
from sandbox_native.http import Client
url, dest, how = sys.argv[1:]
client = Client()

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

def run(name):
    with open(dest, "wb") as file:
        if how == "httpx":
            # As OpenSandbox's SDK reads a file for the provider.
            import httpx
            with httpx.stream("GET", url + name) as response:
                return sum(file.write(chunk) for chunk in response.iter_bytes(chunk_size=64 * 1024))
        from sandbox_native.watching import Hashed
        to = {"fd": file.fileno(), "write": file.write, "sha256": Hashed(file).write}[how]
        return client.download(url + name, to, deadline=time.monotonic() + 600).taken

run("small")
Path("/proc/self/clear_refs").write_text("5")
before, cpu, begin = resident("VmRSS"), time.process_time(), time.perf_counter()
taken = run("large")
elapsed = time.perf_counter() - begin
print(json.dumps([elapsed, time.process_time() - cpu, resident("VmHWM") - before, taken]))
"""

FIRST = """
import json, sys, time
from pathlib import Path

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))

import sandbox_native.contract, subprocess, urllib.parse, json, weakref, typing
url = sys.argv[1]
start, begin = resident(), time.perf_counter()
from sandbox_native.http import Client
client = Client()
client._native()
mid, half = resident(), time.perf_counter()
assert "libcurl" not in Path("/proc/self/maps").read_text()
half2 = time.perf_counter()
client.request("GET", url + "tiny", deadline=time.monotonic() + 60)
end = time.perf_counter()
print(json.dumps([half - begin, mid - start, end - half2, resident() - mid]))
"""


def python(source: str, *args: str) -> list[float]:
    command = [sys.executable, "-c", source, *args]
    values: list[float] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return values


def curl(url: str, dest: str) -> list[float]:
    """Seconds and CPU seconds of ``curl -o``."""
    before = os.times()
    subprocess.run(["curl", "-sS", "-o", dest, url], check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return [after.elapsed - before.elapsed, cpu]


def downloads(url: str, folder: Path) -> Iterator[Row]:
    dest = str(folder / "dest")
    for how, words in (("fd", "descriptor"), ("write", "file.write")):
        ours: list[list[float]] = []
        theirs: list[list[float]] = []
        for _ in range(RUNS):  # in turns, so that both see the same machine
            theirs.append(curl(url + "large", dest))
            ours.append(python(DOWNLOAD, url, dest, how))
        assert all(run[3] == GB for run in ours)
        elapsed, cpu, memory = (min(run[i] for run in ours) for i in range(3))
        reference, reference_cpu = (min(run[i] for run in theirs) for i in range(2))
        work = f"download 1 GB over loopback to a {words}"
        ratio = reference / elapsed
        yield Row(work, "0.95x", seconds(elapsed), f"{seconds(reference)} (curl -o)", ratio, ratio >= 0.95)
        yield Row(f"{work}: memory", "8 MiB", size(memory), met=memory < 8 * 2**20)
        yield Row(f"{work}: CPU", "0.6 s", seconds(cpu), f"{seconds(reference_cpu)} (curl -o)", met=cpu < 0.6)


def beside_the_provider(url: str, folder: Path) -> Iterator[Row]:
    """What the provider's export comes down to, on the same server, and what a checksum adds to ours."""
    ways: dict[str, list[list[float]]] = {"fd": [], "sha256": [], "httpx": []}
    for _ in range(3):
        for how, runs in ways.items():
            runs.append(python(DOWNLOAD, url, str(folder / "dest"), how))
    assert all(run[3] == GB for runs in ways.values() for run in runs)
    (ours, _cpu), (_, hashed_cpu), (theirs, their_cpu) = (
        (min(run[0] for run in runs), min(run[1] for run in runs)) for runs in ways.values()
    )
    work, shown = "download 1 GB over loopback to a file", f"{seconds(theirs)} (httpx, as the provider's SDK)"
    yield Row(work, "2.5x", seconds(ours), shown, theirs / ours, theirs >= 2.5 * ours)
    shown = f"{seconds(their_cpu)} (httpx, without)"
    yield Row(f"{work}: CPU with sha256", "1.2 s", seconds(hashed_cpu), shown, met=hashed_cpu < 1.2)


def first_use(url: str) -> Iterator[Row]:
    runs = [python(FIRST, url) for _ in range(7)]
    load, load_memory, request, memory = (min(run[i] for run in runs) for i in range(4))
    yield Row("import sandbox_native.http and make a client", "5 ms", seconds(load), met=load < 0.005)
    yield Row("the same: memory", "1 MiB", size(load_memory), met=load_memory < 2**20)
    yield Row("first request of the process", "15 ms", seconds(request), met=request < 0.015)
    yield Row("the same: memory", "5 MiB", size(memory), met=memory < 5 * 2**20)


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "files")
        folder.mkdir()
        block = os.urandom(10_000_000)
        with (folder / "large").open("wb") as file:
            for _ in range(GB // len(block)):
                file.write(block)
        (folder / "small").write_bytes(block[:2_000_000])
        (folder / "tiny").write_bytes(b"x")
        with serving(folder) as url:
            yield from downloads(url, Path(name))
            yield from beside_the_provider(url, Path(name))
            yield from first_use(url)
