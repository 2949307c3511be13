# SPDX-License-Identifier: Apache-2.0
"""More than 10,000 requests leave nothing behind; under AddressSanitizer its leak detector looks, too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).with_name("soak.py")
CALLS = 12_000  # some of each kind end before they reach the server

# Whose blocks a leak report blames: the first frame that is not of the allocator. What CPython itself never
# frees is not ours to count; objects that we would leak are counted by soak.py.
_RUN_TIME = re.compile(r"/lib(asan|lsan|ubsan|c|stdc\+\+)[.-][^/]*$")
_INTERPRETER = re.compile(r"/(lib)?python3[^/]*$|/lib-dynload/|/ld-linux[^/]*$")


def blamed(report: str) -> list[str]:
    """The leaks in a report that are not the interpreter's."""
    found = []
    for block in re.split(r"\n(?=(?:Direct|Indirect) leak of )", report)[1:]:
        modules = re.findall(r"^ +#\d+ 0x[0-9a-f]+ +\((.+?)(?:\+0x[0-9a-f]+)?\)", block, re.M)
        inner = next((module for module in modules if not _RUN_TIME.search(module)), "unknown")
        if not _INTERPRETER.search(inner):
            found.append(block)
    return found


def test_many_requests_leave_nothing_behind(tmp_path: Path) -> None:
    environment = dict(os.environ)
    sanitised = "SANDBOX_NATIVE_ASAN" in environment
    if sanitised:
        options = f"detect_leaks=1:symbolize=0:malloc_context_size=10:log_path={tmp_path / 'asan'}:exitcode=0"
        environment["ASAN_OPTIONS"] = f"{environment.get('ASAN_OPTIONS', '')}:{options}:abort_on_error=0"
        environment["LSAN_OPTIONS"] = "exitcode=0"
    ran = subprocess.run(
        [sys.executable, SOAK, str(CALLS)], env=environment, capture_output=True, text=True, timeout=280
    )
    reports = [path.read_text() for path in tmp_path.glob("asan*")]
    assert ran.returncode == 0, "\n".join([ran.stderr[-5000:], *reports])[:20_000]
    assert json.loads(ran.stdout)["requests"] > 10_000
    assert not any("ERROR: AddressSanitizer" in report for report in reports), reports
    assert not any(map(blamed, reports)), [blamed(report) for report in reports]


@pytest.mark.parametrize(
    ("frames", "ours"),
    [
        (["/usr/lib/libasan.so.8", "/home/x/python3.11", "/w/_sandbox_native.abi3.so"], False),
        (["/usr/lib/libasan.so.8", "/usr/lib/libpython3.11.so.1.0", "/w/_sandbox_native.abi3.so"], False),
        (["/usr/lib/libasan.so.8+0x12", "/w/_sandbox_native.abi3.so+0x34", "/home/x/python3.11+0x56"], True),
        (
            ["/usr/lib/libasan.so.8", "/usr/lib/libc.so.6", "/usr/lib/libcurl.so.4", "/home/x/python3.11"],
            True,
        ),
        (["<unknown module>"], True),
    ],
)
def test_whose_leak_it_is(frames: list[str], ours: bool) -> None:
    lines = [f"    #{i} 0x7f00{i}  ({module})" for i, module in enumerate(frames)]
    block = "\n".join(["Direct leak of 10 byte(s) in 1 object(s) allocated from:", *lines])
    assert bool(blamed(f"====ERROR: LeakSanitizer: detected memory leaks\n\n{block}\n")) == ours
