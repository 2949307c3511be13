# SPDX-License-Identifier: Apache-2.0
"""The switchboard: what a test makes go wrong, and when.

A fault is a kind with options, for one operation, from its ``nth`` call on, ``times`` times. The README
beside this file lists the kinds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from servers.http1 import Cut, Request, Response

Run = Callable[[str], None]
Handle = Callable[[Request], Response]


class Fault:
    def __init__(
        self, operation: str, kind: str, nth: int = 1, times: int | None = 1, **options: Any
    ) -> None:
        if kind not in _BEFORE and kind not in _AFTER:
            raise ValueError(
                f"there is no fault {kind!r}; known are: {', '.join(sorted({*_BEFORE, *_AFTER}))}"
            )
        self.operation = operation
        self.kind = kind
        self.nth = nth
        self.times = times
        self.options = options
        self._seen = 0

    def due(self, operation: str) -> bool:
        if self.operation not in (operation, "*"):
            return False
        self._seen += 1
        return self._seen >= self.nth and (self.times is None or self._seen < self.nth + self.times)


class Switchboard:
    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def answer(self, operation: str, request: Request, handle: Handle, act: Run) -> Response:
        """The answer to a request, with the faults that are due.

        :param act: does something to the sandbox of the request: ``kill-execd``, ``run:<shell text>``, ...
        """
        with self._lock:
            due = [fault for fault in self._faults if fault.due(operation)]
        for fault in due:
            if fault.options.get("act") and not fault.options.get("after_bytes"):
                act(fault.options["act"])
            if fault.kind in _BEFORE and not fault.options.get("after"):
                request, answer = _BEFORE[fault.kind](fault.options, request)
                if answer is not None:
                    return answer
        response = handle(request)
        for fault in due:
            if fault.kind in _AFTER:
                response = _AFTER[fault.kind](fault.options, response, act)
            elif fault.options.get("after"):
                _, replaced = _BEFORE[fault.kind](fault.options, request)
                response = replaced or response
        return response


# -- instead of the answer, or in the request ---------------------------------------------------

Before = Callable[[dict[str, Any], Request], tuple[Request, Response | None]]


def _status(options: dict[str, Any], request: Request) -> tuple[Request, Response | None]:
    body = options.get("body", "")
    media = options.get("media", "text/plain")
    if not isinstance(body, str):
        body, media = json.dumps(body), "application/json"
    data = body.encode() * int(options.get("repeat", 1))
    headers = {"Content-Type": media, **options.get("headers", {})}
    return request, Response(int(options.get("status", 500)), data, headers=headers)


def _hang(options: dict[str, Any], request: Request) -> tuple[Request, Response | None]:
    time.sleep(float(options.get("seconds", 600)))
    return request, None


def _close(options: dict[str, Any], request: Request) -> tuple[Request, Response | None]:
    raise Cut(reset=bool(options.get("reset")))


def _ignore_range(options: dict[str, Any], request: Request) -> tuple[Request, Response | None]:
    headers = {name: value for name, value in request.headers.items() if name != "range"}
    return request._replace(headers=headers), None


def _shift_range(options: dict[str, Any], request: Request) -> tuple[Request, Response | None]:
    """Answer another part, and say so."""
    first, _, last = request.headers.get("range", "bytes=0-").partition("=")[2].partition("-")
    by = int(options.get("by", 1))
    moved = f"bytes={int(first) + by}-{int(last) + by if last else ''}"
    return request._replace(headers={**request.headers, "range": moved}), None


def _nothing(options: dict[str, Any], request: Request) -> tuple[Request, Response | None]:
    return request, None


_BEFORE: dict[str, Before] = {
    "status": _status,
    "hang": _hang,
    "close": _close,
    "ignore-range": _ignore_range,
    "shift-range": _shift_range,
    "act": _nothing,
}

# -- in the answer ------------------------------------------------------------------------------

After = Callable[[dict[str, Any], Response, Run], Response]


def _with_body(response: Response, body: Iterator[bytes]) -> Response:
    if isinstance(response.body, bytes) and response.length is None:
        response.length = len(response.body)
    response.body = body
    return response


def _cut(options: dict[str, Any], response: Response, act: Run) -> Response:
    """End the connection after so many bytes of the body; with ``act`` that happens there instead."""
    left = int(options.get("after_bytes", 0))
    source = response.pieces()

    def body() -> Iterator[bytes]:
        nonlocal left
        for piece in source:
            if left < len(piece):
                yield piece[:left]
                if options.get("stall"):
                    time.sleep(float(options["stall"]))
                elif options.get("act"):
                    act(options["act"])
                else:
                    raise Cut(reset=bool(options.get("reset")))
                piece = piece[left:]
                left = 1 << 62
            left -= len(piece)
            yield piece

    return _with_body(response, body())


def _announce(options: dict[str, Any], response: Response, act: Run) -> Response:
    """Say another Content-Length; where it is more than there is, the connection ends there."""
    data = b"".join(response.pieces())
    length = int(options["length"]) if "length" in options else len(data) + int(options["by"])

    def body() -> Iterator[bytes]:
        yield data[:length] if options.get("clip") else data
        raise Cut

    response.body, response.length = body(), length
    return response


def _unframed(options: dict[str, Any], response: Response, act: Run) -> Response:
    """No length and no chunks: the end of the connection is the end, wherever ``after_bytes`` puts it."""
    data = b"".join(response.pieces())
    response.body = iter((data[: int(options.get("after_bytes", len(data)))],))
    response.framed, response.close, response.length = False, True, None
    return response


def _trickle(options: dict[str, Any], response: Response, act: Run) -> Response:
    size, pause = int(options.get("bytes", 1)), float(options.get("pause", 0.05))
    source = response.pieces()

    def body() -> Iterator[bytes]:
        for piece in source:
            for start in range(0, len(piece), size):
                yield piece[start : start + size]
                time.sleep(pause)

    return _with_body(response, body())


def _events(options: dict[str, Any], response: Response, act: Run) -> Response:
    """Edit the events of a command.

    ``drop``: types left out. ``end_at``: end the stream cleanly instead of this type. ``replace``: type ->
    the text of the frame sent in its place. ``shape``: ``sse`` (with ``data:``), ``crlf``, ``bytes`` (one at
    a time), ``unended`` (the last frame without its blank line).
    """
    source = response.pieces()
    shape = options.get("shape", "")
    replaced = options.get("replace", {})

    def frames() -> Iterator[bytes]:
        for piece in source:
            for frame in piece.split(b"\n\n")[:-1]:
                kind = json.loads(frame)["type"]
                if kind == options.get("end_at"):
                    return
                if kind not in options.get("drop", ()):
                    yield replaced[kind].encode() if kind in replaced else frame

    def body() -> Iterator[bytes]:
        for frame in frames():
            whole = frame + b"\n\n"
            if shape == "sse":
                whole = b": comment\nevent: message\ndata: " + whole
            elif shape == "crlf":
                whole = b"data: " + frame + b"\r\n\r\n"
            last = b'"type":"error"' in frame or b'"type":"execution_complete"' in frame
            if shape == "unended" and last:
                yield frame
                return
            yield from ((whole[i : i + 1] for i in range(len(whole))) if shape == "bytes" else (whole,))

    return _with_body(response, body())


def _headers(options: dict[str, Any], response: Response, act: Run) -> Response:
    response.headers.update(options["set"])
    for number in range(int(options.get("count", 0))):
        response.headers[f"X-Filler-{number}"] = "x" * int(options.get("bytes", 1000))
    return response


def _json(options: dict[str, Any], response: Response, act: Run) -> Response:
    """Set fields of a JSON answer, by dotted names; ``pad``: so many bytes more of white space."""
    value = json.loads(b"".join(response.pieces()))
    for name, new in options.get("set", {}).items():
        place = value
        *folders, last = name.split(".")
        for folder in folders:
            place = place[int(folder)] if isinstance(place, list) else place.setdefault(folder, {})
        place[int(last) if isinstance(place, list) else last] = new
    for name in options.get("remove", ()):
        value.pop(name, None)
    response.set_body(json.dumps(value).encode() + b" " * int(options.get("pad", 0)))
    return response


def _body(options: dict[str, Any], response: Response, act: Run) -> Response:
    """Another body under the same status."""
    text = str(options.get("text", "")) * int(options.get("repeat", 1))
    response.set_body(text.encode(), options.get("media", "application/json"))
    return response


_AFTER: dict[str, After] = {
    "cut": _cut,
    "announce": _announce,
    "unframed": _unframed,
    "trickle": _trickle,
    "events": _events,
    "headers": _headers,
    "json": _json,
    "body": _body,
}
