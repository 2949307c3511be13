# SPDX-License-Identifier: Apache-2.0
"""The demo's data: a year of hourly rides and weather of a city's bike hire, the same on every machine."""

from __future__ import annotations

import csv
import datetime as dt
import math
import random
from pathlib import Path

COLUMNS = ("hour", "members", "casual", "temp_c", "rain_mm")
YEAR = 2025
SEED = 20250101


def write(path: Path) -> int:
    """Write the data set to ``path`` (about 8,760 lines) and return its number of rows.

    Only ``random.Random.random`` is drawn from: its sequence for a seed is the one that Python promises
    to keep.
    """
    draw = random.Random(SEED).random
    hours = int((dt.datetime(YEAR + 1, 1, 1) - dt.datetime(YEAR, 1, 1)).total_seconds()) // 3600
    rain = 0.0
    outage = 0
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for n in range(hours):
            hour = dt.datetime(YEAR, 1, 1) + dt.timedelta(hours=n)
            season = -math.cos(2 * math.pi * (n / hours - 0.05))
            temp = 11 + 9 * season + 4 * math.sin(2 * math.pi * (hour.hour - 9) / 24) + 5 * (draw() - 0.5)
            # Rain comes in spells: it goes on with some chance, and starts with a smaller one.
            rain = 3.5 * draw() ** 2 if draw() < (0.75 if rain else 0.035) else 0.0
            # The thermometer is out from time to time, for some hours. Never on the first days of the
            # year, so that a look at the first lines does not show it.
            if not outage and n > 24 * 17 and draw() < 0.0012:
                outage = 2 + int(draw() * 9)
            reading = "" if outage else f"{temp:.1f}"
            outage = max(0, outage - 1)
            weather = max(0.08, (1 + temp / 22) / 2) * (0.45 if rain else 1.0)
            members = weather * _commuters(hour) * (0.85 + 0.3 * draw())
            casual = weather * _visitors(hour) * (0.7 + 0.6 * draw())
            out.writerow(
                [hour.isoformat(timespec="minutes"), int(members), int(casual), reading, f"{rain:.1f}"]
            )
    return hours


def _commuters(hour: dt.datetime) -> float:
    if hour.weekday() >= 5:
        return 60 * max(0.05, math.sin(math.pi * (hour.hour - 6) / 18))
    rush = math.exp(-((hour.hour - 8) ** 2) / 3) + math.exp(-((hour.hour - 17.5) ** 2) / 5)
    return 15 + 340 * rush


def _visitors(hour: dt.datetime) -> float:
    weekend = 2.4 if hour.weekday() >= 5 else 1.0
    return weekend * 70 * max(0.03, math.sin(math.pi * (hour.hour - 7) / 16)) if hour.hour >= 7 else 3.0
