# SPDX-License-Identifier: Apache-2.0
"""What runs inside a sandbox of the test server and does its work there: commands and files.

Speaks HTTP of its own with the server: ``POST /run`` (JSON in and out, streams in base64), ``GET`` and ``PUT
/file?path=``.
"""

from __future__ import annotations

import base64
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

from servers.http1 import Request, Response, Server, answer_json, error

STREAM_CAP = 1024 * 1024
_BLOCK = 64 * 1024
# Of the agent's own, not for commands.
_hidden: list[str] = []


class _Tail(threading.Thread):
    """Reads a stream to its end and keeps the last of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.data = b""
        self.cut = False
        self.start()

    def run(self) -> None:
        while block := os.read(self._stream.fileno(), _BLOCK):
            self.data += block
            if len(self.data) > STREAM_CAP:
                self.data = self.data[-STREAM_CAP:]
                self.cut = True


def run(body: dict[str, Any]) -> Response:
    """Run a command until its streams end, which a background process that holds them puts off."""
    env = {name: value for name, value in os.environ.items() if name not in _hidden}
    try:
        process = subprocess.Popen(
            body["command"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=body.get("workdir"),
            env={**env, **(body.get("env") or {})},
            start_new_session=True,
        )
    except (OSError, ValueError) as e:
        return answer_json(
            {"status": "failed", "exit_code": None, "stdout": "", "stderr": _b64(str(e).encode())}
        )
    assert process.stdout is not None and process.stderr is not None
    tails = _Tail(process.stdout), _Tail(process.stderr)
    status = "completed"
    timer = threading.Timer(body["timeout_secs"], lambda: os.killpg(process.pid, signal.SIGKILL))
    if body.get("timeout_secs"):
        timer.start()
    code: int | None = process.wait()
    for tail in tails:
        tail.join(body.get("timeout_secs") or None)
    if body.get("timeout_secs") and not timer.is_alive():
        status, code = "timeout", None
    timer.cancel()
    return answer_json(
        {
            "status": status,
            "exit_code": 128 - code if code is not None and code < 0 else code,
            "stdout": _b64(tails[0].data),
            "stderr": _b64(tails[1].data),
            "truncated": any(tail.cut for tail in tails),
        }
    )


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read(path: str) -> Response:
    """A regular file; a missing one and a directory are the same to the service."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as e:
        missing = e.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO)
        return _missing(path) if missing else _bare()
    info = os.fstat(file)
    if not stat.S_ISREG(info.st_mode):
        os.close(file)
        return _missing(path)

    def body() -> Iterator[bytes]:
        with os.fdopen(file, "rb") as source:
            while block := source.read(_BLOCK * 4):
                yield block

    headers = {"Content-Type": "application/octet-stream", "X-Size": str(info.st_size)}
    return Response(200, body(), headers=headers)


def write(path: str, content: bytes) -> Response:
    if path.startswith(("/proc/", "/sys/")):
        return _bare()
    try:
        with open(path, "wb") as file:
            file.write(content)
    except FileNotFoundError:
        return _missing(path)
    except OSError:
        return _bare()
    return answer_json({"status": "ok"})


def _missing(path: str) -> Response:
    return error(404, "FILE_NOT_FOUND", f"file not found: {path}")


def _bare() -> Response:
    return error(500, "INTERNAL_ERROR", "internal error")


def handle(request: Request) -> Response:
    if request.path == "/run":
        return run(request.json())
    path = request.argument("path")
    if "\0" in path:
        return error(400, "INVALID_PATH", "path must not contain NUL")
    return read(path) if request.method == "GET" else write(path, request.body)


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(0)


def main(descriptor: int, lifeline: int, hidden: list[str]) -> None:
    _hidden[:] = hidden
    sys.stdin.close()
    os.set_inheritable(lifeline, False)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    listener = socket.socket(fileno=descriptor)
    listener.set_inheritable(False)
    Server(listener, handle).run()
