# SPDX-License-Identifier: Apache-2.0
"""Commands in a local sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_native.backends.local import LocalSandboxBackend
from sandbox_native.contract import SandboxExecResult, SandboxTerminalError

BACKEND = LocalSandboxBackend()


@pytest.fixture(scope="module")
def box() -> Iterator[str]:
    handle = BACKEND.create()
    yield handle
    BACKEND.destroy(handle)


def run(box: str, command: str, timeout: float = 30, max_output_bytes: int = 1 << 20) -> SandboxExecResult:
    return BACKEND.run_command(box, command, timeout=timeout, max_output_bytes=max_output_bytes)


def test_streams_and_status_come_back_apart(box: str) -> None:
    assert run(box, "echo out; echo err >&2; exit 3") == SandboxExecResult(3, "out\n", "err\n")


def test_a_timeout_keeps_what_was_printed(box: str) -> None:
    result = run(box, "echo begun; sleep 600", timeout=0.5)
    assert (result.stdout, result.timed_out, result.sandbox_terminated) == ("begun\n", True, False)


def test_an_unknown_handle_is_terminal(box: str) -> None:
    with pytest.raises(SandboxTerminalError, match="no local sandbox 'airflow-sandbox-000000000000'"):
        run("airflow-sandbox-000000000000", "true")
