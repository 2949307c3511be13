# SPDX-License-Identifier: Apache-2.0
"""The scripted model of the demo. It answers to what the tools said: no result, no next step.

Its first program trusts the first lines of the data, where every hour has a temperature. The run fails on
the first hour that has none; the model reads the error, looks at the data, mends the line that the
traceback names, and goes on. Where a tool says something it cannot go on from, it says so and stops,
and the Dag then fails for want of the promised files.
"""

from __future__ import annotations

import re

from .endpoint import Call, Conversation

PROGRAM = '''\
"""Rides and weather by month: summary.csv and chart.png."""
import csv
import sys
from collections import defaultdict

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

rides, rain = defaultdict(int), defaultdict(float)
days, temps = defaultdict(lambda: [0, 0.0]), defaultdict(list)
with open(sys.argv[1], newline="") as file:
    for row in csv.DictReader(file):
        day, month = row["hour"][:10], row["hour"][:7]
        hired = int(row["members"]) + int(row["casual"])
        wet = float(row["rain_mm"])
        temps[month].append(float(row["temp_c"]))
        rides[month] += hired
        rain[month] += wet
        days[day][0] += hired
        days[day][1] += wet

def mean(values):
    return sum(values) / len(values) if values else None

def whole(value):
    return "" if value is None else round(value)

with open("summary.csv", "w", newline="") as file:
    out = csv.writer(file)
    out.writerow(["month", "rides", "mean_temp_c", "rain_mm", "rides_dry_day", "rides_wet_day"])
    for month in sorted(rides):
        dry = mean([n for day, (n, mm) in days.items() if day.startswith(month) and mm == 0])
        wet = mean([n for day, (n, mm) in days.items() if day.startswith(month) and mm > 0])
        weather = [f"{mean(temps[month]):.1f}", f"{rain[month]:.1f}"]
        out.writerow([month, rides[month], *weather, whole(dry), whole(wet)])

months = sorted(rides)
figure, bars = plt.subplots(figsize=(9, 4.5))
bars.bar([m[5:] for m in months], [rides[m] / 1000 for m in months], color="#4c72b0")
bars.set(xlabel="month", ylabel="rides, thousands", title=f"Bike rides of {months[0][:4]}")
line = bars.twinx()
line.plot([m[5:] for m in months], [mean(temps[m]) for m in months], "o-", color="#c44e52")
line.set_ylabel("mean temperature, °C", color="#c44e52")
figure.tight_layout()
figure.savefig("chart.png", dpi=110)

wet_days = mean([n for n, mm in days.values() if mm > 0])
dry_days = mean([n for n, mm in days.values() if mm == 0])
best, worst = max(rides, key=rides.get), min(rides, key=rides.get)
print(f"best {best} {rides[best]}")
print(f"worst {worst} {rides[worst]}")
print(f"wet/dry {wet_days / dry_days:.3f}")
'''
FILE = "bikes.py"


def analyst(talk: Conversation) -> Call | str:
    """The next step of the analysis."""
    data = _only(r"^(/\S+\.csv) has a line", talk.prompt)
    python = _only(r"Python with matplotlib is (\S+)\. ", talk.system)
    run = Call("run_command", {"command": f"{python} {FILE} {data}"})
    if not talk.turns:
        return Call("run_command", {"command": f"wc -l {data} && head -4 {data}"})
    last, steps = talk.last, len(talk.turns)
    if "[exit code:" in last and "Traceback" not in last:
        return f"I could not go on: {talk.turns[-1].args} gave {last[-300:]!r}"
    if steps == 1:
        return Call("write_file", {"path": FILE, "content": PROGRAM})
    if steps in (2, 5):
        return run
    if steps == 3:
        # What a person does with a ValueError on an empty text: look whether the data has gaps.
        if "could not convert string to float: ''" not in last:
            return f"I could not read this error: {last[-300:]!r}"
        return Call("run_command", {"command": f"grep -c ',,' {data}; grep -n -m 3 ',,' {data}"})
    if steps == 4:
        # The traceback of the run says where, and grep said that hours without a reading are real.
        number = int(_only(rf'{FILE}", line (\d+), in <module>', talk.turns[2].result))
        lines = PROGRAM.splitlines(keepends=True)
        indent = re.match(r" *", lines[number - 1])
        assert indent is not None
        lines[number - 1] = (
            f'{indent.group()}if row["temp_c"]:  # blank: the thermometer was out\n    {lines[number - 1]}'
        )
        return Call("write_file", {"path": FILE, "content": "".join(lines)})
    if "best " in last:
        return Call(
            "run_command", {"command": "cat summary.csv && ls -l chart.png && head -c 8 chart.png | od -c"}
        )
    if steps == 7 and "P   N   G" in last:
        printed = talk.turns[5].result
        best, most = re.findall(r"^best (\S+) (\d+)", printed, re.M)[0]
        worst, least = re.findall(r"^worst (\S+) (\d+)", printed, re.M)[0]
        ratio = float(_only(r"^wet/dry ([\d.]+)", printed))
        gaps = _only(r"(\d+)", talk.turns[3].result)
        return (
            f"The best month was {best} with {int(most):,} rides, the worst {worst} with {int(least):,}. "
            f"A day with rain has {1 - ratio:.0%} fewer rides than a dry one. {gaps} hours have no "
            "temperature; they count as rides but not in the means. summary.csv and chart.png are written."
        )
    return f"I could not go on after: {last[-300:]!r}"


def _only(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.M)
    if found is None:
        raise ValueError(f"{pattern!r} is not in {text[:500]!r}")
    return found.group(1)
