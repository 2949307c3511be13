# SPDX-License-Identifier: Apache-2.0
"""Islo beside the provider with Islo's SDK, on the same test server; what loading and the first use cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from loading import program
from measure import Row, seconds, side_by_side, size

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "net"))

from servers.islo.handle import IsloServer

RUNS = 7

# Run in processes of their own.
LOAD = program(
    'registry.backend("islo")',
    [
        "from airflow.providers.common.ai.sandbox.islo import IsloSandboxBackend",
        "backend = IsloSandboxBackend()",
        "backend._get_client()",
    ],
)


def load(home: str, whose: str) -> list[float]:
    """Seconds and bytes of import and constructor, then of the first request: an exchange and a call."""
    command = [sys.executable, "-c", LOAD, home, whose]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    values: list[float] = json.loads(done.stdout.splitlines()[-1])
    return values


def loading() -> Iterator[Row]:
    for home, words in (("plain", "on pydantic-ai"), ("airflow", "with Airflow and the provider loaded")):
        ours: list[list[float]] = []
        theirs: list[list[float]] = []
        for _ in range(RUNS):
            ours.append(load(home, "ours"))
            if home == "airflow":  # theirs cannot be had without
                theirs.append(load(home, "provider"))
        least = [min(run[i] for run in ours) for i in range(4)]
        most = [min(run[i] for run in theirs) for i in range(4)] if theirs else None
        for i, work, target in (
            (0, f"Islo: import and construct, {words}", 0.005),
            (2, f"Islo: first request, {words}", 0.015),
        ):
            reference = f"{seconds(most[i])} (provider, SDK)" if most else ""
            ratio = most[i] / least[i] if most else None
            yield Row(work, seconds(target), seconds(least[i]), reference, ratio, least[i] < target)
            cap = 2**20 if i == 0 else 5 * 2**20
            reference = f"{size(most[i + 1])} (provider, SDK)" if most else ""
            yield Row(f"{work}: memory", size(cap), size(least[i + 1]), reference, met=least[i + 1] < cap)


def commands() -> Iterator[Row]:
    from airflow.providers.common.ai.sandbox.islo import IsloSandboxBackend as Provider

    from sandbox_native.backends.islo import IsloSandboxBackend

    ours, theirs = IsloSandboxBackend(), Provider()
    sandbox = ours.create()
    for work, command, target in (
        ("Islo: a command that ends in 10 ms", "sleep 0.01", 0.06),
        ("Islo: a command that prints 50 MB", "head -c 50000000 /dev/zero | tr '\\0' x", None),
    ):

        def run(backend: IsloSandboxBackend | Provider, command: str = command) -> None:
            result = backend.run_command(sandbox, command, timeout=60, max_output_bytes=100_000)
            assert result.exit_code == 0

        a, b = side_by_side(lambda: run(ours), lambda: run(theirs), runs=10)
        met = None if target is None else a < target
        words = "" if target is None else f"under {seconds(target)}"
        yield Row(work, words, seconds(a), f"{seconds(b)} (provider, SDK)", b / a, met)
    ours.destroy(sandbox)


def rows() -> Iterator[Row]:
    with IsloServer() as server:
        os.environ.update(server.environment)
        yield from loading()
        yield from commands()
