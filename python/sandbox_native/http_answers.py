# SPDX-License-Identifier: Apache-2.0
"""What a server answered, and how a transfer can fail.

An answer with an error status is an answer. No error text shows a header's value, a URL or a body.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

_TIMEOUTS = frozenset({"deadline", "connect_timeout", "stalled"})


class TransportError(Exception):
    """No complete answer came.

    :ivar kind: what failed: ``library`` (libcurl missing), ``resolve``, ``connect``, ``tls``, ``proxy``,
        ``send``, ``receive``, ``protocol``, ``deadline``, ``connect_timeout``, ``stalled``, ``cancelled``,
        ``head_too_large``, ``too_large``, ``range``, ``length``, ``encoding``, ``source`` (the file to send
        became shorter), ``forked``.
    :ivar sent: False only if nothing of the request can have reached the server.
    :ivar status: of the answer as far as it came, else 0.
    :ivar received: bytes of its body that came.
    :ivar announced: the size in bytes the answer announced, where that was the trouble, else None.
    """

    def __init__(
        self,
        detail: str,
        *,
        kind: str,
        sent: bool = False,
        status: int = 0,
        received: int = 0,
        announced: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.sent = sent
        self.status = status
        self.received = received
        self.announced = announced

    @property
    def timed_out(self) -> bool:
        """Whether time ran out: the deadline, connecting, or a connection that moved no byte."""
        return self.kind in _TIMEOUTS

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args[0], self.__dict__)


class RequestCancelled(TransportError):
    """The cancel descriptor became readable before the transfer was over."""


def _rebuild(kind: type[TransportError], detail: str, fields: dict[str, Any]) -> TransportError:
    return kind(detail, **fields)


class Head(Mapping[str, str]):
    """The headers of an answer; names in any case, repeated ones joined by ", "."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._fields: dict[str, str] | None = None

    def _parsed(self) -> dict[str, str]:
        if self._fields is None:
            fields: dict[str, str] = {}
            for line in self._text.decode("latin-1").split("\n")[1:]:
                name, colon, value = line.partition(":")
                if colon:
                    key, value = name.strip().lower(), value.strip()
                    fields[key] = f"{fields[key]}, {value}" if key in fields else value
            self._fields = fields
        return self._fields

    def __getitem__(self, name: str) -> str:
        return self._parsed()[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())

    def __repr__(self) -> str:
        return f"<Head of {len(self)} headers>"


class Answer:
    """What the server answered.

    :ivar status: the HTTP status.
    :ivar headers: see :class:`Head`.
    :ivar body: bytes of the body; of an error status at most its first bytes.
    :ivar cut: the body goes on, or its end did not come; only ever true for an error status and where a
        request allowed it.
    """

    __slots__ = ("body", "cut", "headers", "status")

    def __init__(self, status: int, head: bytes, body: bytes, cut: bool) -> None:
        self.status = status
        self.headers = Head(head)
        self.body = body
        self.cut = cut

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return the body as JSON.

        :raises ValueError: it is not JSON, or was cut.
        """
        import json

        if self.cut:
            raise ValueError("the body was cut")
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status}, {len(self.body)} bytes>"


class StreamAnswer(Answer):
    """The answer to a request for events. Its body is empty unless the status is an error.

    :ivar done: the callback said that the stream's meaning is complete; False when the stream ended.
    """

    __slots__ = ("done",)

    def __init__(self, status: int, head: bytes, body: bytes, cut: bool, done: bool) -> None:
        super().__init__(status, head, body, cut)
        self.done = done


class DownloadAnswer(Answer):
    """The answer to a download. Its body is empty unless the status is an error.

    :ivar taken: bytes that went to the destination.
    :ivar total: size of the whole file as the server says, or None.
    """

    __slots__ = ("taken", "total")

    def __init__(self, status: int, head: bytes, body: bytes, cut: bool, taken: int, total: int) -> None:
        super().__init__(status, head, body, cut)
        self.taken = taken
        self.total = total if total >= 0 else None


#: Of the extension: kind, sent, status, head, error body, error cut, received, announced, errno, detail.
Outcome = tuple[str, bool, int, bytes, bytes, bool, int, int, int, str]


def checked(outcome: Outcome) -> Outcome:
    """Return the outcome of a transfer that brought an answer; raise for any other."""
    kind, sent, status, _, _, _, received, announced, os_error, detail = outcome
    if kind == "ok":
        return outcome
    if os_error:
        raise OSError(os_error, f"{detail}: {os.strerror(os_error)}")
    error = RequestCancelled if kind == "cancelled" else TransportError
    raise error(
        detail,
        kind=kind,
        sent=sent,
        status=status,
        received=received,
        announced=announced if announced >= 0 else None,
    )
