# SPDX-License-Identifier: Apache-2.0
"""Commands: output into files of the sandbox, read every 100 ms, one event a line."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from typing import IO, Any

from servers.http1 import Request, Response, answer_json, error
from servers.opensandbox.execd.paths import expand

_READ_EVERY = 0.1
_PING_EVERY = 3.0
_TEMP = "/tmp"
_SIGNALS = {
    signal.SIGHUP: "hangup",
    signal.SIGINT: "interrupt",
    signal.SIGQUIT: "quit",
    signal.SIGILL: "illegal instruction",
    signal.SIGTRAP: "trace/breakpoint trap",
    signal.SIGABRT: "aborted",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "floating point exception",
    signal.SIGKILL: "killed",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGPIPE: "broken pipe",
    signal.SIGALRM: "alarm clock",
    signal.SIGTERM: "terminated",
}
# Go writes these three so, lest the text be taken for markup.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def frame(kind: str, **fields: Any) -> bytes:
    fields["timestamp"] = int(time.time() * 1000)
    text = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return text.translate(_ESCAPES).encode() + b"\n\n"


class Lines:
    """What a file holds beyond what was read of it, cut into lines."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._position = 0
        self._after_return = False

    def read(self, *, last: bool) -> list[str]:
        """The lines that are whole by now; with ``last`` the unfinished one, too."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return []
        lines: list[str] = []
        start = 0
        while True:
            ends = [end for end in (data.find(b"\n", start), data.find(b"\r", start)) if end >= 0]
            if not ends:
                break
            end = min(ends)
            if end > start:
                lines.append(data[start:end].decode("utf-8", "replace"))
            elif not (data[end : end + 1] == b"\n" and self._after_return):
                lines.append("\n")
            self._after_return = data[end : end + 1] == b"\r"
            start = end + 1
        if start < len(data):
            if last:
                lines.append(data[start:].decode("utf-8", "replace"))
                start = len(data)
            else:
                self._after_return = False
        self._position += start
        return lines


class Running:
    """A command that was started."""

    def __init__(self, command: str, process: subprocess.Popen[bytes], text: str) -> None:
        self.id = command
        self.process = process
        self.text = text
        self.started = time.time()
        self.finished: float | None = None
        self.background = False
        self.done = threading.Event()

    def kill_group(self, number: int) -> bool:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        return True


class Commands:
    """All commands of this sandbox.

    :param linger: seconds a stream stays open after its last event.
    """

    def __init__(self, *, linger: float) -> None:
        self._linger = linger
        self._known: dict[str, Running] = {}

    def handle(self, request: Request) -> Response:
        if request.method == "POST" and request.path == "/command":
            return self._run(request)
        if request.method == "DELETE" and request.path == "/command":
            return self._interrupt(request.argument("id"))
        parts = request.path.split("/")
        if request.method == "GET" and len(parts) == 4 and parts[2] == "status":
            return self._status(parts[3])
        if request.method == "GET" and len(parts) == 4 and parts[3] == "logs":
            return self._logs(parts[2], request.argument("cursor", "0"))
        return error(404, "NOT_FOUND", f"no route {request.method} {request.path}")

    def _run(self, request: Request) -> Response:
        try:
            body = request.json()
            if not isinstance(body, dict):
                raise ValueError("not an object")
            text, timeout = str(body.get("command", "")), int(body.get("timeout", 0))
        except (ValueError, TypeError) as e:
            return _bad(f"error parsing request, MAYBE invalid body format. {e}")
        if not text:
            return _bad("invalid request, validation error Key: 'RunCommandRequest.Command' is required")
        if timeout < 0:
            return _bad("invalid request, validation error Key: 'RunCommandRequest.TimeoutMs' is negative")
        try:
            cwd = expand(body.get("cwd") or "") or os.getcwd()
        except ValueError as e:
            return error(500, "RUNTIME_ERROR", f"error running commands resolve request cwd: {e}")
        if not os.path.isdir(cwd):
            return _bad(f"invalid request, validation error cwd {cwd} does not exist")
        env = {**_environment(), **{str(k): str(v) for k, v in (body.get("envs") or {}).items()}}
        # Milliseconds; what is below one has been cut to none on its way.
        limit = timeout / 1000 if timeout else None
        try:
            running, files = self._start(text, cwd, env, background=bool(body.get("background")))
        except OSError as e:
            return error(500, "RUNTIME_ERROR", f"error running commands open {e.filename}: {_words(e)}")
        self._known[running.id] = running
        pieces = self._detached(running, limit) if running.background else self._stream(running, files, limit)
        return Response(
            200, pieces, headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )

    def _start(
        self, text: str, cwd: str, env: dict[str, str], *, background: bool
    ) -> tuple[Running, tuple[str, ...]]:
        command = uuid.uuid4().hex
        os.makedirs(_TEMP, exist_ok=True)
        names = ("output",) if background else ("stdout", "stderr")
        files = tuple(f"{_TEMP}/{command}.{name}" for name in names)
        with contextlib.ExitStack() as opened:
            streams: list[IO[bytes]] = [
                opened.enter_context(open(path, "wb", opener=_opener)) for path in files
            ]
            process = subprocess.Popen(
                [shutil.which("bash") or "sh", "-c", text],
                stdin=subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[-1],
                cwd=cwd,
                env=env,
                process_group=0,
            )
        running = Running(command, process, text)
        running.background = background
        threading.Thread(target=self._wait, args=(running,), daemon=True).start()
        return running, files

    @staticmethod
    def _wait(running: Running) -> None:
        running.process.wait()
        running.finished = time.time()
        running.done.set()

    def _stream(self, running: Running, files: tuple[str, ...], limit: float | None) -> Iterator[bytes]:
        began = time.monotonic()
        yield frame("init", text=running.id)
        yield frame("ping", text="pong")
        pinged = began
        outputs = [(name, Lines(path)) for name, path in zip(("stdout", "stderr"), files, strict=True)]
        killed = False
        while True:
            wait = _READ_EVERY
            if limit is not None and not killed:
                wait = min(wait, max(0.0, began + limit - time.monotonic()))
            done = running.done.wait(wait)
            if limit is not None and not done and not killed and time.monotonic() - began >= limit:
                killed = True
                running.kill_group(signal.SIGKILL)
            for name, lines in outputs:
                # Many events travel in one piece, as they do where somebody reads slower than they are made.
                batch = b"".join(frame(name, text=line) for line in lines.read(last=done))
                if batch:
                    yield batch
            if done:
                break
            if time.monotonic() - pinged >= _PING_EVERY:
                pinged = time.monotonic()
                yield frame("ping", text="pong")
        yield _end(running, time.monotonic() - began)
        time.sleep(self._linger)

    def _detached(self, running: Running, limit: float | None) -> Iterator[bytes]:
        def guard() -> None:
            if not running.done.wait(limit):
                running.kill_group(signal.SIGKILL)

        if limit is not None:
            threading.Thread(target=guard, daemon=True).start()
        yield frame("init", text=running.id)
        yield frame("execution_complete", execution_time=0)
        time.sleep(self._linger)

    def _interrupt(self, command: str) -> Response:
        if not command:
            return error(400, "MISSING_QUERY", "missing query parameter 'id'")
        running = self._known.get(command)
        if running is None:
            return error(500, "RUNTIME_ERROR", "error interruptting code context. no such session")
        if running.done.is_set():
            return error(
                500,
                "RUNTIME_ERROR",
                f"error interruptting code context. command session {command} is not running",
            )
        if running.kill_group(signal.SIGTERM) and not _group_gone(running, 3.0):
            running.kill_group(signal.SIGKILL)
        return Response()

    def _status(self, command: str) -> Response:
        running = self._known.get(command)
        if running is None:
            return error(404, "INVALID_REQUEST_BODY", f"command not found: {command}")
        answer: dict[str, Any] = {
            "id": command,
            "content": running.text,
            "running": not running.done.is_set(),
        }
        answer["started_at"] = _instant(running.started)
        if running.done.is_set():
            code = running.process.returncode
            answer["exit_code"] = max(code, -1)
            answer["finished_at"] = _instant(running.finished or 0)
            if code:
                answer["error"] = _cause(code)
        return answer_json(answer)

    def _logs(self, command: str, cursor: str) -> Response:
        running = self._known.get(command)
        if running is None or not running.background:
            return error(400, "INVALID_REQUEST_BODY", f"command not found: {command}")
        start = int(cursor) if cursor.isdigit() else 0
        with open(f"{_TEMP}/{command}.output", "rb") as file:
            file.seek(start)
            data = file.read()
        return Response(
            200,
            data,
            headers={
                "Content-Type": "text/plain; charset=utf-8",
                "EXECD-COMMANDS-TAIL-CURSOR": str(start + len(data)),
            },
        )


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o777)


def _bad(message: str) -> Response:
    return error(400, "INVALID_REQUEST_BODY", message)


def _environment() -> dict[str, str]:
    """What the sandbox was made with, less what only this interpreter needs."""
    ours = ("LD_LIBRARY_PATH", "/opt/opensandbox/python/lib")
    return {name: value for name, value in os.environ.items() if (name, value) != ours}


def _words(e: OSError) -> str:
    return (e.strerror or str(e)).lower()


def _instant(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1e9):09d}Z"


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    return f"signal: {_SIGNALS.get(signal.Signals(-code), str(-code))}"


def _end(running: Running, seconds: float) -> bytes:
    code = running.process.returncode
    if code == 0:
        return frame("execution_complete", execution_time=int(seconds * 1000))
    value = str(code) if code > 0 else "-1"
    return frame("error", error={"ename": "CommandExecError", "evalue": value, "traceback": [_cause(code)]})


def _group_gone(running: Running, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not running.kill_group(0):
            return True
        select.select([], [], [], 0.05)
    return False
