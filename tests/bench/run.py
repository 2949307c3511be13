# SPDX-License-Identifier: Apache-2.0
"""Run every ``bench_*.py`` beside this file, print one table and write it as JSON below ``build``.

Each module has ``rows()`` that yields :class:`measure.Row`. Words on the command line choose modules whose
name contains one of them. The exit code is 1 when a target is missed or a module fails.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from measure import Row, load  # noqa: E402

HEADINGS = ("work", "ours", "reference", "ratio", "target", "")


def cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}x"
    met = {None: "", True: "met", False: "MISSED"}[row.met]
    return (row.work, row.ours, row.reference, ratio, row.target, met)


def table(rows: list[Row]) -> str:
    lines = [HEADINGS, *map(cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    shown.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in shown)


def main(words: list[str]) -> int:
    rows: list[Row] = []
    failed: list[str] = []
    for path in sorted(HERE.glob("bench_*.py")):
        if words and not any(word in path.stem for word in words):
            continue
        print(f"{path.stem} ...", file=sys.stderr, flush=True)
        try:
            rows.extend(load(str(path)).rows())
        except Exception:
            traceback.print_exc()
            failed.append(path.stem)
    print(table(rows))
    target = HERE.parent.parent / "build" / "bench.json"
    target.parent.mkdir(exist_ok=True)
    about = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
    target.write_text(
        json.dumps({**about, "rows": [asdict(row) for row in rows], "failed": failed}, indent=1)
    )
    print(f"written to {target}", file=sys.stderr)
    for name in failed:
        print(f"{name} failed", file=sys.stderr)
    return 1 if failed or any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
