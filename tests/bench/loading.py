# SPDX-License-Identifier: Apache-2.0
"""A program that measures what a backend costs before its first command."""

from __future__ import annotations

_PROGRAM = """
import json, sys, time
from pathlib import Path

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))

# What a program of the kind has loaded anyway.
if sys.argv[1] == "airflow":
    import airflow.providers.common.ai.toolsets.sandbox
else:
    import pydantic_ai
begin, before = time.perf_counter(), resident()
if sys.argv[2] == "ours":
    from sandbox_native import registry
    backend = {ours}
    assert "libcurl" not in Path("/proc/self/maps").read_text()
else:
    {provider}
elapsed, grown = time.perf_counter() - begin, resident() - before
begin, before = time.perf_counter(), resident()
backend.destroy("nothing")
print(json.dumps([elapsed, grown, time.perf_counter() - begin, resident() - before]))
"""


def program(ours: str, provider: list[str]) -> str:
    """Its source.

    Its arguments are ``airflow`` or another word for what is loaded before, and ``ours`` or another for whose
    backend it is. It prints seconds and resident growth in bytes, of import and construction and then of the
    first request.

    :param ours: an expression that makes this package's backend, of ``registry``.
    :param provider: lines that import the provider's and leave it in ``backend``, with the client it needs.
    """
    return _PROGRAM.format(ours=ours, provider="\n    ".join(provider))
