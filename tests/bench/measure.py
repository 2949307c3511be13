# SPDX-License-Identifier: Apache-2.0
"""How the benchmark measures: time is the least of several runs, memory the resident growth in a new process.

As a program, ``measure.py FILE FUNCTION`` prints the resident growth in bytes of one call. ``FUNCTION`` of
the module in ``FILE`` takes nothing and returns two callables: the first warms up on a small input (so
that code and caches are in), the second is the call that is measured.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Row:
    """One line of the table.

    :param work: what was done.
    :param target: the target in words, as the project states it.
    :param ours: what was measured of this package, in words.
    :param reference: what was measured of the reference, and its name.
    :param ratio: reference by ours, where both are times; larger is better.
    :param met: whether the target is met; ``None`` when there is none.
    """

    work: str
    target: str
    ours: str
    reference: str = ""
    ratio: float | None = None
    met: bool | None = None


def seconds(value: float) -> str:
    """A time with a unit that suits it."""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def size(value: float) -> str:
    """A number of bytes in KiB or MiB."""
    return f"{value / 2**20:.1f} MiB" if abs(value) >= 2**20 else f"{value / 2**10:.0f} KiB"


def once(call: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def side_by_side(*calls: Callable[[], object], runs: int = 7, budget: float = 3.0) -> list[float]:
    """The least seconds of each call, measured in turns so that all see the same machine.

    :param runs: how many turns at least.
    :param budget: more turns are made until so many seconds are used up, at most 200.
    """
    best = [once(call) for call in calls]
    begin = time.perf_counter()
    turns = 1
    while turns < runs or (turns < 200 and time.perf_counter() - begin < budget):
        for i, call in enumerate(calls):
            # A call that is much faster than the others is given as many more tries.
            for _ in range(max(1, min(20, int(max(best) / max(best[i], 1e-9))))):
                best[i] = min(best[i], once(call))
        turns += 1
    return best


def compared(
    work: str,
    target: float,
    ours: Callable[[], object],
    reference: Callable[[], object],
    name: str = "provider",
    **options: float,
) -> Row:
    """A row that compares two calls; the target is the least ratio."""
    a, b = side_by_side(ours, reference, **options)  # type: ignore[arg-type]
    ratio = b / a
    return Row(work, f"{target:g}x", seconds(a), f"{seconds(b)} ({name})", ratio, ratio >= target)


def growth(file: str, function: str) -> int:
    """The resident growth of one call of ``function`` (see above), in a new process. Least of three."""
    command = [sys.executable, __file__, file, function]
    return min(
        int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)
    )


def load(file: str) -> ModuleType:
    """The module in ``file``, whatever its name."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {field}")
    return int(found[1]) * 1024


def _growth_here(file: str, function: str) -> int:
    warm, call = getattr(load(file), function)()
    warm()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    # Sets the peak to what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    kept = call()
    after = _status("VmHWM")
    del kept
    return after - before


if __name__ == "__main__":
    print(_growth_here(sys.argv[1], sys.argv[2]))
