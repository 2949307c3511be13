# SPDX-License-Identifier: Apache-2.0
"""Whether the exported files are what the data says: worked out again, and in another way."""

from __future__ import annotations

import csv
import struct
import zlib
from collections import Counter
from pathlib import Path

COLUMNS = ["month", "rides", "mean_temp_c", "rain_mm", "rides_dry_day", "rides_wet_day"]


def check(data: Path, folder: Path) -> list[str]:
    """What is wrong with ``summary.csv`` and ``chart.png`` in ``folder``; empty when they are right."""
    faults: list[str] = []
    files = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if files != ["chart.png", "summary.csv"]:
        faults.append(f"{folder} holds {files}, not chart.png and summary.csv alone")
    if "summary.csv" in files:
        faults += check_summary(data, folder / "summary.csv")
    if "chart.png" in files:
        faults += check_png(folder / "chart.png")
    return faults


def check_summary(data: Path, path: Path) -> list[str]:
    """Compare the summary with the data, a unit in the last digit allowed for another order of sums."""
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    if reader.fieldnames != COLUMNS:
        return [f"{path.name} has the columns {reader.fieldnames}"]
    wanted = expected(data)
    if [row["month"] for row in rows] != [row[0] for row in wanted]:
        return [f"{path.name} has the months {[row['month'] for row in rows]}"]
    faults = []
    for row, values in zip(rows, wanted, strict=True):
        for name, value, slack in zip(COLUMNS[1:], values[1:], (0, 0.11, 0.11, 1, 1), strict=True):
            text = row[name]
            if (text == "") != (value is None) or (value is not None and abs(float(text) - value) > slack):
                faults.append(f"{path.name}, {row['month']}: {name} is {text!r}, the data says {value}")
    return faults


def expected(data: Path) -> list[tuple[str, int, float, float, float | None, float | None]]:
    """The summary, a row a month."""
    with data.open(newline="") as file:
        hours = [
            (
                row["hour"],
                int(row["members"]) + int(row["casual"]),
                row["temp_c"],
                round(10 * float(row["rain_mm"])),
            )
            for row in csv.DictReader(file)
        ]
    by_day: Counter[str] = Counter()
    tenths: Counter[str] = Counter()
    for hour, rides, _, rain in hours:
        by_day[hour[:10]] += rides
        tenths[hour[:10]] += rain
    rows = []
    for month in sorted({hour[:7] for hour, *_ in hours}):
        days = [day for day in by_day if day.startswith(month)]
        dry = [by_day[day] for day in days if not tenths[day]]
        wet = [by_day[day] for day in days if tenths[day]]
        temps = [float(temp) for hour, _, temp, _ in hours if hour.startswith(month) and temp]
        rows.append(
            (
                month,
                sum(by_day[day] for day in days),
                sum(temps) / len(temps),
                sum(tenths[day] for day in days) / 10,
                sum(dry) / len(dry) if dry else None,
                sum(wet) / len(wet) if wet else None,
            )
        )
    return rows


def check_png(path: Path) -> list[str]:
    """Read the whole image: signature, each chunk's checksum, size, and that it is not one colour."""
    data = path.read_bytes()
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return [f"{path.name} is not a PNG: it starts with {data[:8]!r}"]
    chunks: list[tuple[bytes, bytes]] = []
    at = 8
    while at + 12 <= len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        (checksum,) = struct.unpack(">I", data[at + 8 + size : at + 12 + size].ljust(4, b"\0"))
        if zlib.crc32(kind + body) != checksum:
            return [f"{path.name} is damaged in the chunk {kind!r} at byte {at}"]
        chunks.append((kind, body))
        at += 12 + size
    if not chunks or chunks[-1][0] != b"IEND" or at != len(data):
        return [f"{path.name} is cut: {len(data)} bytes, the last chunk is {chunks[-1:] and chunks[-1][0]!r}"]
    width, height = struct.unpack(">II", chunks[0][1][:8])
    pixels = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    if width < 300 or height < 200 or len(set(pixels)) < 16:
        return [f"{path.name} is {width} x {height} and nearly empty"]
    return []
