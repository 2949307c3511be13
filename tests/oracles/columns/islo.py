# SPDX-License-Identifier: Apache-2.0
"""Islo's own SDK, and the provider's backend over it."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
from airflow.providers.common.ai.sandbox import islo as provider
from airflow.providers.common.ai.sandbox.islo import IsloSandboxBackend
from islo import Islo
from islo.core.api_error import ApiError

from sandbox_native.contract import SandboxExecResult
from suite import rows, services
from suite.table import Column, Subject, Wrong


class Sdk:
    """The SDK dressed up as a backend, adding as little as can be. It has no call that lists a directory."""

    def __init__(self) -> None:
        self._calls = Islo().sandboxes

    def create(self, spec: Any = None) -> str:
        env = {} if spec is None or not spec.env else {"env": dict(spec.env)}
        name = self._calls.create_sandbox(name=f"sdk-{uuid.uuid4().hex[:12]}", **env).name
        return str(name)

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        started = self._calls.exec_in_sandbox(
            sandbox, command=["sh", "-c", command], timeout_secs=max(1, round(timeout))
        )
        deadline = time.monotonic() + timeout
        while True:
            result = self._calls.get_exec_result(sandbox, started.exec_id)
            if result.status not in ("pending", "queued", "starting", "running"):
                return SandboxExecResult(
                    result.exit_code, result.stdout, result.stderr, timed_out=result.status == "timeout"
                )
            if time.monotonic() > deadline:
                return SandboxExecResult(-1, result.stdout, result.stderr, timed_out=True)
            time.sleep(0.02)

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        return b"".join(self._calls.download_file(sandbox, path=path))

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        self._calls.upload_file(sandbox, path=path, file=("upload", content, "application/octet-stream"))

    def export_file(self, sandbox: str, path: str, dest: Any, *, max_bytes: int) -> int:
        data = self.read_file(sandbox, path, max_bytes=max_bytes)
        dest.write(data)
        return len(data)

    def destroy(self, sandbox: str) -> None:
        self._calls.delete_sandbox(sandbox)


def _classify(e: BaseException) -> str:
    if isinstance(e, ApiError):
        return f"HTTP {e.status_code}"
    if isinstance(e, httpx.TransportError):
        return type(e).__name__
    raise e


@contextlib.contextmanager
def _sdk() -> Iterator[Subject]:
    services.islo()
    with contextlib.closing(Subject(Sdk(), another=Sdk, classify=_classify)) as subject:
        yield subject


@contextlib.contextmanager
def _provider() -> Iterator[Subject]:
    services.islo()
    # Each command takes a poll at least; a fifth of a second apiece makes a minute here.
    provider._POLL_INITIAL = 0.02
    with contextlib.closing(Subject(IsloSandboxBackend(), another=IsloSandboxBackend)) as subject:
        yield subject


_DELETED = "Islo ends a command only with its sandbox"
_FIND = "what find says"
_LISTED = [
    *((".hidden", False), ("dir", True), ("fifo", False), ("file", False), ("gone", False), ("todir", False)),
]

_STATUS = "the status"
_NO_LIST = "the SDK lists no directories"

_SDK_WRONG = {
    "a write makes parents": Wrong(_STATUS, "HTTP 404"),
    "relative paths start where commands do": Wrong(_STATUS, "HTTP 400"),
    "read: missing": Wrong(_STATUS, "HTTP 404"),
    "read: a directory": Wrong(_STATUS, "HTTP 404"),
    "read: a link to a directory": Wrong(_STATUS, "HTTP 404"),
    "read: a link loop": Wrong(_STATUS, "HTTP 500"),
    "read: permission denied": Wrong(_STATUS, "HTTP 500"),
    "read: below a file": Wrong(_STATUS, "HTTP 404"),
    "read: no path": Wrong(_STATUS, "HTTP 400"),
    "write: onto a directory": Wrong(_STATUS, "HTTP 500"),
    "write: below a file": Wrong(_STATUS, "HTTP 500"),
    "write: permission denied": Wrong(_STATUS, "HTTP 500"),
    "write: a link loop": Wrong(_STATUS, "HTTP 500"),
    "write: no path": Wrong(_STATUS, "HTTP 400"),
    "export: missing": Wrong(_STATUS, ("HTTP 404", b"")),
    "export: a dangling link": Wrong(_STATUS, ("HTTP 404", b"")),
    "export: a link loop": Wrong(_STATUS, ("HTTP 500", b"")),
    "export: a directory": Wrong(_STATUS, ("HTTP 404", b"")),
    "export: a link to a directory": Wrong(_STATUS, ("HTTP 404", b"")),
    "export: a FIFO": Wrong(_STATUS, ("HTTP 404", b"")),
    "export: a device": Wrong(_STATUS, ("HTTP 404", b"")),
    "export: permission denied": Wrong(_STATUS, ("HTTP 500", b"")),
    "destroyed twice": Wrong(_STATUS, (None, "HTTP 404")),
    "destroyed unknown": Wrong(_STATUS, "HTTP 404"),
    "two are apart": Wrong(_STATUS, ("HTTP 404", b"x")),
}
_SDK_LACKS = {
    **{row.name: _NO_LIST for row in rows.ROWS if row.name.startswith(("list", "written name"))},
    **dict.fromkeys(("no file is left behind", "used after its end"), _NO_LIST),
    **dict.fromkeys(
        (
            *("one over the cap", "far over the cap", "one long line", "one long line, ended"),
            *("a cap for each stream", "a character at the cut", "many lines"),
            *("timeout of nothing", "cap of nothing", "too large to read", "read: a limit of nothing"),
            *("export: too large", "export: a limit of nothing"),
        ),
        "the SDK has no limits",
    ),
    **dict.fromkeys(
        ("timeout keeps output", "timeout spares the sandbox", "timeout ends the whole tree"),
        "the time limit of an exec is a hint",
    ),
    "a background child lives on": "an exec lasts until its streams are closed",
    "a background child holds nothing": "an exec lasts until its streams are closed",
}

COLUMNS = [
    Column("islo-sdk", _sdk, _SDK_WRONG, _SDK_LACKS),
    Column(
        "islo-provider",
        _provider,
        {
            "a character at the cut": Wrong("fault 30", ("\ufffdé", True)),
            "timeout keeps output": Wrong(_DELETED, (True, "", "")),
            "timeout spares the sandbox": Wrong(_DELETED, (True, "terminal")),
            "timeout ends the whole tree": Wrong(_DELETED, "the sandbox is gone"),
            "relative paths start where commands do": Wrong("Islo takes absolute paths only", "recoverable"),
            "list": Wrong(_FIND, _LISTED),
            "list: a link to a directory": Wrong(_FIND, []),
            "list: missing": Wrong(_FIND, "recoverable, without 'does not exist'"),
            "list: a file": Wrong(_FIND, []),
        },
    ),
]
