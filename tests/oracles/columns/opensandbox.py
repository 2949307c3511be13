# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox's own SDK, and the provider's backend over it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
from airflow.providers.common.ai.sandbox.opensandbox import OpenSandboxBackend
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.filesystem import DirectoryListEntry

from sandbox_native.contract import SandboxExecResult
from suite import services
from suite.table import AnyOf, Column, Subject, Wrong


class Sdk:
    """The SDK dressed up as a backend, adding as little as can be."""

    def __init__(self, *, use_server_proxy: bool) -> None:
        self._config = ConnectionConfigSync(use_server_proxy=use_server_proxy)
        self._sandboxes: dict[str, SandboxSync] = {}

    def create(self, spec: Any = None) -> str:
        env = dict(spec.env) if spec is not None and spec.env else None
        sandbox = SandboxSync.create(
            "python:3.12-slim", timeout=timedelta(seconds=600), env=env, connection_config=self._config
        )
        self._sandboxes[sandbox.id] = sandbox
        return str(sandbox.id)

    def _get(self, sandbox: str) -> SandboxSync:
        if sandbox not in self._sandboxes:
            self._sandboxes[sandbox] = SandboxSync.connect(sandbox, connection_config=self._config)
        return self._sandboxes[sandbox]

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        opts = RunCommandOpts(timeout=timedelta(seconds=timeout))
        done = self._get(sandbox).commands.run(command, opts=opts)
        lines = [
            "".join(m.text if m.text == "\n" else m.text + "\n" for m in messages)
            for messages in (done.logs.stdout, done.logs.stderr)
        ]
        return SandboxExecResult(done.exit_code, *lines)

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        return b"".join(self._get(sandbox).files.read_bytes_stream(path))

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        self._get(sandbox).files.write_file(path, content, mode=644)

    def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
        found = self._get(sandbox).files.list_directory(DirectoryListEntry(path=path, depth=1))
        return [(os.path.basename(entry.path), entry.entry_type == "directory") for entry in found]

    def export_file(self, sandbox: str, path: str, dest: Any, *, max_bytes: int) -> int:
        data = self.read_file(sandbox, path, max_bytes=max_bytes)
        dest.write(data)
        return len(data)

    def destroy(self, sandbox: str) -> None:
        self._get(sandbox).kill()


def _classify(e: BaseException) -> str:
    if isinstance(e, SandboxApiException) and e.status_code:
        return f"HTTP {e.status_code}"
    if isinstance(e, SandboxException):
        return type(e).__name__
    if isinstance(e, httpx.TransportError):
        return type(e).__name__
    raise e


@contextlib.contextmanager
def _sdk(use_server_proxy: bool) -> Iterator[Subject]:
    services.opensandbox()
    with contextlib.closing(
        Subject(
            Sdk(use_server_proxy=use_server_proxy),
            another=lambda: Sdk(use_server_proxy=use_server_proxy),
            classify=_classify,
        )
    ) as subject:
        yield subject


@contextlib.contextmanager
def _provider() -> Iterator[Subject]:
    services.opensandbox()
    with contextlib.closing(
        Subject(OpenSandboxBackend(None), another=lambda: OpenSandboxBackend(None))
    ) as subject:
        yield subject


_LISTED = [
    *((".hidden", False), ("dir", True), ("fifo", False), ("file", False), ("gone", False), ("todir", False)),
]
_LINES = "an event a line, its end removed"
_STATUS = "the status"
_EXPANDED = "execd expands paths"

_SDK_WRONG = {
    "no final newline": Wrong(_LINES, "abc\n"),
    "carriage returns": Wrong(_LINES, "a\nb\nc\n"),
    "half a character at the end": Wrong(_LINES, "a\ufffd\n"),
    "timeout keeps output": Wrong("a timeout looks like a kill", (False, "begun\n", "bad\n")),
    "timeout ends the whole tree": Wrong("execd kills the process group only", "left\n"),
    "an empty command is not the end": Wrong("refused by the client", False),
    "no file is left behind": Wrong("execd leaves the output files", 2),
    "written name: variable": Wrong(_EXPANDED, "elsewhere"),
    "written name: variable in braces": Wrong(_EXPANDED, "elsewhere"),
    "written name: special parameters": Wrong(_EXPANDED, "elsewhere"),
    "read name: variable": Wrong(_EXPANDED, "HTTP 404"),
    "read name: variable in braces": Wrong(_EXPANDED, "HTTP 404"),
    "read name: special parameters": Wrong(_EXPANDED, "HTTP 404"),
    "read: missing": Wrong(_STATUS, "HTTP 404"),
    # Where its file system lets execd seek in a directory an absurd size is announced, and the body is cut.
    "read: a directory": Wrong(_STATUS, AnyOf("HTTP 500", "RemoteProtocolError")),
    "read: a link to a directory": Wrong(_STATUS, AnyOf("HTTP 500", "RemoteProtocolError")),
    "read: a link loop": Wrong(_STATUS, "HTTP 500"),
    "read: permission denied": Wrong(_STATUS, "HTTP 500"),
    "read: below a file": Wrong(_STATUS, "HTTP 500"),
    "read: procfs is not the end": Wrong(_STATUS, False),
    "read: no path": Wrong(_STATUS, "HTTP 400"),
    "write: onto a directory": Wrong(_STATUS, "HTTP 500"),
    "write: below a file": Wrong(_STATUS, "HTTP 500"),
    "write: permission denied": Wrong(_STATUS, "HTTP 500"),
    "write: a link loop": Wrong(_STATUS, "HTTP 500"),
    "write: no path": Wrong("refused by the client", "ValidationError"),
    "list": Wrong("links are links", _LISTED),
    "list: a link to a directory": Wrong(_STATUS, "HTTP 400"),
    "list: missing": Wrong(_STATUS, "HTTP 404"),
    "list: a file": Wrong(_STATUS, "HTTP 400"),
    "list: permission denied": Wrong(_STATUS, "HTTP 500"),
    "list: no path": Wrong("refused by the client", "ValidationError"),
    "export: missing": Wrong(_STATUS, ("HTTP 404", b"")),
    "export: a dangling link": Wrong(_STATUS, ("HTTP 404", b"")),
    "export: a link loop": Wrong(_STATUS, ("HTTP 500", b"")),
    "export: a directory": Wrong(_STATUS, AnyOf(("HTTP 500", b""), ("RemoteProtocolError", b""))),
    "export: a link to a directory": Wrong(_STATUS, AnyOf(("HTTP 500", b""), ("RemoteProtocolError", b""))),
    "export: a device": Wrong("a device has no size", (0, b"")),
    "export: permission denied": Wrong(_STATUS, ("HTTP 500", b"")),
    "destroyed twice": Wrong(_STATUS, (None, "HTTP 404")),
    "destroyed unknown": Wrong(_STATUS, "HTTP 404"),
    "used after its end": Wrong(_STATUS, ["HTTP 404"] * 5),
    "two are apart": Wrong(_STATUS, ("HTTP 404", b"x")),
}
_SDK_LACKS = {
    **dict.fromkeys(
        (
            *("exactly at the cap", "one over the cap", "far over the cap", "one long line"),
            *("one long line, ended", "a cap for each stream", "a character at the cut", "many lines"),
            *("cap of nothing", "too large to read", "read: a limit of nothing"),
            *("export: too large", "export: a limit of nothing"),
        ),
        "the SDK has no limits",
    ),
    "timeout of nothing": "no timeout is sent",
    "export: a FIFO": "execd waits for a writer",
}

_PROVIDER_WRONG = {
    "no final newline": Wrong("fault 23", "abc\n"),
    "carriage returns": Wrong("fault 23", "a\nb\nc\n"),
    "half a character at the end": Wrong("fault 23", "a\ufffd\n"),
    "exactly at the cap": Wrong("fault 23", ("2345678\n", True)),
    "one over the cap": Wrong("fault 23", ("2345678\n", True)),
    "one long line": Wrong("fault 23", ({"x", "\n"}, True, True)),
    "a character at the cut": Wrong("fault 23", ("é\n", True)),
    "timeout ends the whole tree": Wrong("execd kills the process group only", "left\n"),
    "an empty command is not the end": Wrong("fault 10", False),
    "no file is left behind": Wrong("fault 21", 2),
    "parents keep their mode": Wrong("fault 7", "755"),
    "written name: variable": Wrong("fault 15", "elsewhere"),
    "written name: variable in braces": Wrong("fault 15", "elsewhere"),
    "written name: special parameters": Wrong("fault 15", "elsewhere"),
    "read: a directory": Wrong("fault 9", "terminal"),
    "read: a link to a directory": Wrong("fault 9", "terminal"),
    "read: a link loop": Wrong("fault 8", "terminal"),
    "read: permission denied": Wrong("fault 8", "terminal"),
    "read: below a file": Wrong("fault 8", "terminal"),
    "read: procfs is not the end": Wrong("fault 8", False),
    "write: onto a directory": Wrong("fault 8", "terminal"),
    "write: below a file": Wrong("fault 8", "terminal"),
    "write: permission denied": Wrong("fault 7", None),
    "write: a link loop": Wrong("fault 8", "terminal"),
    "write: no path": Wrong("refused by the SDK", "terminal"),
    "list": Wrong("fault 14", _LISTED),
    "list: a link to a directory": Wrong("fault 14", "recoverable"),
    "list: permission denied": Wrong("fault 8", "terminal"),
    "list: no path": Wrong("fault 10", "terminal"),
    "export: a link loop": Wrong("fault 8", ("terminal", b"")),
    "export: a link to a directory": Wrong("fault 9", ("terminal", b"")),
    "export: permission denied": Wrong("fault 8", ("terminal", b"")),
}

COLUMNS = [
    Column("opensandbox-sdk", lambda: _sdk(True), _SDK_WRONG, _SDK_LACKS),
    Column(
        "opensandbox-sdk-direct",
        lambda: _sdk(False),
        {name: wrong for name, wrong in _SDK_WRONG.items() if name != "used after its end"},
        {
            **_SDK_LACKS,
            **dict.fromkeys(
                ("used after its end", "destroyed in a call that was cancelled"),
                "connections that are refused are tried again for long",
            ),
        },
    ),
    Column("opensandbox-provider", _provider, _PROVIDER_WRONG, {"many lines": "fault 12: takes a minute"}),
]
