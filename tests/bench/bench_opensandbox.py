# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox beside the provider with OpenSandbox's SDK, on the same test server; what loading costs.

The server holds a command's stream open for a second after the last event, as execd does. The two commands
with much output take the provider a minute each, so they are run once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loading import program
from measure import Row, seconds, size

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "net"))

from servers.opensandbox.handle import OpenSandboxServer

# Run in processes of their own.
LOAD = program(
    'registry.backend("opensandbox", opensandbox_conn_id=None)',
    [
        "from airflow.providers.common.ai.sandbox.opensandbox import OpenSandboxBackend",
        "backend = OpenSandboxBackend(None)",
        "backend._get_connection_config()",
    ],
)

COMMAND = """
import json, sys, time
from pathlib import Path
whose, command, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
if whose == "provider":
    from airflow.providers.common.ai.sandbox.opensandbox import OpenSandboxBackend
else:
    import pydantic_ai
    from sandbox_native.backends.opensandbox import OpenSandboxBackend

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

backend = OpenSandboxBackend(None)
box = backend.create()
run = lambda text: backend.run_command(box, text, timeout=300, max_output_bytes=50 * 1024)
if whose == "bare":
    from sandbox_native import captured
    # The same call, with nothing around the command.
    captured.run_script = lambda command, *rest, **options: command
    captured.parse = lambda lines, *rest: BARE
    nothing = captured.Stream("", 0, False)
    BARE = captured.Captured(nothing, nothing, 0, 0)
run("true")
Path("/proc/self/clear_refs").write_text("5")
before, best, cpu = resident("VmRSS"), 1e9, 1e9
for _ in range(runs):
    begin, used = time.perf_counter(), time.process_time()
    result = run(command)
    best, cpu = min(best, time.perf_counter() - begin), min(cpu, time.process_time() - used)
grown = resident("VmHWM") - before
backend.destroy(box)
print(json.dumps([best, cpu, grown, int(result.sandbox_terminated)]))
"""

EXPORT = """
import json, sys, time
from pathlib import Path
whose, bytes_, dest = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if whose == "provider":
    from airflow.providers.common.ai.sandbox.opensandbox import OpenSandboxBackend
else:
    from sandbox_native.backends.opensandbox import OpenSandboxBackend

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

def export(path):
    with open(dest, "wb") as file:
        return backend.export_file(box, path, file, max_bytes=2 * bytes_)

backend = OpenSandboxBackend(None)
box = backend.create()
try:
    made = f"head -c 2000000 /dev/urandom >/tmp/small; head -c {bytes_} /dev/urandom >/tmp/large; sleep 1"
    assert backend.run_command(box, made, timeout=300, max_output_bytes=1000).exit_code == 0
    export("/tmp/small")
    Path("/proc/self/clear_refs").write_text("5")
    before, best, cpu = resident("VmRSS"), 1e9, 1e9
    for _ in range(3):
        begin, used = time.perf_counter(), time.process_time()
        assert export("/tmp/large") == bytes_
        best, cpu = min(best, time.perf_counter() - begin), min(cpu, time.process_time() - used)
    grown = resident("VmHWM") - before
finally:
    backend.destroy(box)
print(json.dumps([best, cpu, grown]))
"""
GB = 1_000_000_000

# 1.5 M lines of 6.9 bytes on average.
LINES = "seq 1 1500000"
LINE = r"head -c 50000000 /dev/zero | tr '\0' x"


def python(source: str, *arguments: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments], check=True, capture_output=True, text=True
    )
    values: list[float] = json.loads(done.stdout.splitlines()[-1])
    return values


def least(source: str, *arguments: str, runs: int = 5) -> list[float]:
    return [min(values) for values in zip(*(python(source, *arguments) for _ in range(runs)), strict=True)]


def loading() -> Iterator[Row]:
    for home, name in (("pydantic", "on pydantic-ai"), ("airflow", "on Airflow and the provider")):
        ours = least(LOAD, home, "ours")
        theirs = least(LOAD, "airflow", "provider", runs=3)
        yield Row(
            f"OpenSandbox, import and construct, {name}",
            "5 ms, 1 MiB",
            f"{seconds(ours[0])}, {size(ours[1])}",
            f"{seconds(theirs[0])}, {size(theirs[1])} (provider)",
            theirs[0] / ours[0],
            ours[0] < 0.005 and ours[1] < 2**20,
        )
        yield Row(
            f"OpenSandbox, first client and request, {name}",
            "15 ms, 5 MiB",
            f"{seconds(ours[2])}, {size(ours[3])}",
            f"{seconds(theirs[2])}, {size(theirs[3])} (provider)",
            None,
            ours[2] < 0.015 and ours[3] < 5 * 2**20,
        )


def commands() -> Iterator[Row]:
    ours = python(COMMAND, "ours", "true", "60")
    theirs = python(COMMAND, "provider", "true", "5")
    bare = python(COMMAND, "bare", "true", "60")
    yield Row(
        "OpenSandbox run_command('true')",
        "50x",
        seconds(ours[0]),
        f"{seconds(theirs[0])} (provider)",
        theirs[0] / ours[0],
        theirs[0] >= 50 * ours[0],
    )
    yield Row(
        "OpenSandbox run_command('true'), what the guest script adds",
        "8 ms",
        seconds(max(0.0, ours[0] - bare[0])),
        f"{seconds(bare[0])} (without it)",
        None,
        ours[0] - bare[0] < 0.008,
    )
    for name, command, target in (("1.5 M lines, 10.9 MB", LINES, 500), ("one line of 50 MB", LINE, 200)):
        ours = python(COMMAND, "ours", command, "5")
        theirs = python(COMMAND, "provider", command, "1")
        lost = ", sandbox lost" if theirs[3] else ""
        yield Row(
            f"OpenSandbox, a command that prints {name}",
            f"{target}x, 1 MiB",
            f"{seconds(ours[0])}, CPU {seconds(ours[1])}, {size(ours[2])}",
            f"{seconds(theirs[0])}, CPU {seconds(theirs[1])}, {size(theirs[2])} (provider{lost})",
            theirs[0] / ours[0],
            theirs[0] >= target * ours[0] and ours[2] < 2**20,
        )


def exports() -> Iterator[Row]:
    """The server, in Python, is what limits the speed; ``bench_net`` has one that does not."""
    with tempfile.TemporaryDirectory() as folder:
        dest = str(Path(folder, "dest"))
        ours, theirs = (python(EXPORT, whose, str(GB), dest) for whose in ("ours", "provider"))
    work = "OpenSandbox, export of 1 GB to a file"
    shown = f"{seconds(theirs[0])} (provider)"
    yield Row(f"{work}, test server", "", seconds(ours[0]), shown, theirs[0] / ours[0])
    shown = f"{size(theirs[2])} (provider)"
    yield Row(f"{work}: memory", "8 MiB", size(ours[2]), shown, met=ours[2] < 8 * 2**20)
    shown = f"{seconds(theirs[1])} (provider)"
    yield Row(f"{work}: CPU", "", seconds(ours[1]), shown, theirs[1] / ours[1])


def rows() -> Iterator[Row]:
    with OpenSandboxServer(linger=1.0) as server:
        os.environ["OPEN_SANDBOX_DOMAIN"] = server.domain
        os.environ["OPEN_SANDBOX_API_KEY"] = server.api_key
        os.environ["OPENSANDBOX_DISABLE_METRICS"] = "1"
        yield from loading()
        yield from commands()
        yield from exports()
