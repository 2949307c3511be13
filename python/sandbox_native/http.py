# SPDX-License-Identifier: Apache-2.0
"""HTTP for the hosted backends: a client over libcurl. Its answers are in :mod:`sandbox_native.http_answers`.

HTTP/1.1 over http and https; TLS verified; redirects are answers and not followed. An answer with an error
status is an answer: only a transfer that failed raises. No error text shows a header's value, a URL or a
body.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sandbox_native._sandbox_native import HttpClient
from sandbox_native.http_answers import (
    Answer,
    DownloadAnswer,
    Head,
    RequestCancelled,
    StreamAnswer,
    TransportError,
    checked,
)
from sandbox_native.multipart import FileSlice, Part, encode
from sandbox_native.proxies import proxy_for

__all__ = [
    "Answer",
    "Body",
    "Client",
    "DownloadAnswer",
    "Event",
    "Head",
    "Headers",
    "RequestCancelled",
    "StreamAnswer",
    "TransportError",
]

#: One event of a stream: its name (empty where none was given), the start of its data, and the size of all of
#: its data in bytes, which is more than ``len`` of the start when the event was over the cap.
Event = tuple[bytes, bytes, int]
Headers = Mapping[str, str] | Iterable[tuple[str, str]]
Body = bytes | bytearray | memoryview | Sequence[bytes | FileSlice]

# Caps on what a peer can make us hold, in bytes.
MAX_HEAD = 64 * 1024
MAX_ERROR_BODY = 64 * 1024
MAX_BODY = 8 * 1024 * 1024
MAX_EVENT = 1024 * 1024

_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})  # RFC 9110 section 9.2.2
_INT64_MAX = 2**63 - 1


class Client:
    """Settings and a pool of connections. Any number of threads may use one at the same time.

    Making one does no I/O. The environment (``SSL_CERT_FILE``, ``SSL_CERT_DIR``, proxies) is read on use. A
    copy, deep copy or pickle is a client with the same settings and connections of its own. In a forked child
    the parent's connections are forgotten without a word to the server.
    """

    def __init__(
        self,
        *,
        connect_timeout: float = 10.0,
        keep_alive: float = 20.0,
        headers: Headers = (),
        max_head: int = MAX_HEAD,
        max_error_body: int = MAX_ERROR_BODY,
        proxies: bool = True,
    ) -> None:
        """
        :param connect_timeout: seconds for name, connection and TLS together.
        :param keep_alive: seconds for which an idle connection may be used again; less than the server's own
            limit, or a request meets a connection that is just being closed.
        :param headers: sent with every request that does not set them itself.
        :param max_head: cap on the head of an answer, in bytes.
        :param max_error_body: how much of the body of an error status is kept, in bytes.
        :param proxies: reach servers through the proxies that the environment names.
        """
        self._settings: dict[str, Any] = {
            "connect_timeout": connect_timeout,
            "keep_alive": keep_alive,
            "headers": _pairs(headers),
            "max_head": max_head,
            "max_error_body": max_error_body,
            "proxies": proxies,
        }
        self._made: HttpClient | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self._settings,)

    def _native(self) -> HttpClient:
        made = self._made
        if made is None:
            settings = self._settings
            made = HttpClient(
                os.environ.get("SSL_CERT_FILE") or None,
                os.environ.get("SSL_CERT_DIR") or None,
                settings["connect_timeout"],
                settings["keep_alive"],
            )
            # Two threads may get here; both then use the one that was stored.
            made = self.__dict__.setdefault("_stored", made)
            self._made = made
            _clients.add(self)
        return made

    def close(self) -> None:
        """Close the connections. Calls under way finish; later ones raise ``ValueError``."""
        self._native().close()

    def request(
        self,
        method: str,
        url: str,
        *,
        deadline: float,
        headers: Headers = (),
        body: Body | None = None,
        stall: float | None = None,
        cancel_fd: int = -1,
        idempotent: bool | None = None,
        compressed: bool = True,
        max_body: int = MAX_BODY,
        may_cut: bool = False,
    ) -> Answer:
        """Make one request and return its answer, whatever its status.

        For what describes itself, such as JSON. A body without a length that ends with its connection may be
        a cut one: the content of files is fetched by :meth:`download`, which refuses such.

        :param deadline: when to give up, a value of ``time.monotonic()``.
        :param body: bytes, or pieces one after another; sent with a Content-Length.
        :param stall: seconds without a byte in either direction after which the connection counts as dead.
        :param cancel_fd: a descriptor that ends the transfer when it becomes readable.
        :param idempotent: whether the request may be sent again when a kept connection turns out to be dead;
            by default as the method says.
        :param compressed: offer gzip and deflate; ``max_body`` counts decoded bytes.
        :param max_body: cap on the body of a 2xx answer, in bytes.
        :param may_cut: a longer body is cut there, and ``cut`` is set, instead of being an error.
        :raises TransportError: no complete answer came.
        :raises ValueError: an argument that cannot be sent safely, or is out of range.
        :raises OSError: a file of the body could not be read.
        """
        call = self._call(method, url, headers, body, deadline, stall, cancel_fd, idempotent, compressed)
        outcome, content, cut = self._run(self._native().request, call, max_body, may_cut)
        _, _, status, head, error, error_cut, *_ = checked(outcome)
        return Answer(status, head, content or error, cut or error_cut)

    def events(
        self,
        method: str,
        url: str,
        on_events: Callable[[list[Event]], bool | float],
        *,
        deadline: float,
        headers: Headers = (),
        body: Body | None = None,
        stall: float | None = None,
        cancel_fd: int = -1,
        idempotent: bool | None = None,
        max_event: int = MAX_EVENT,
    ) -> StreamAnswer:
        """Make a request whose answer is a stream of server-sent events.

        ``on_events`` gets each batch as it comes, in this thread, and returns True when the stream's meaning
        is complete: then this returns at once, and whatever the connection does later does not matter. A
        float is the deadline from now on, for a time that begins with an event. What it raises comes out of
        here. See :meth:`request` for the other parameters.

        :param max_event: cap on the data kept of one event, in bytes; see :data:`Event`.
        :raises TransportError: the stream broke before its meaning was complete. A stream that ended well
            without it returns with ``done`` False.
        """
        call = self._call(method, url, headers, body, deadline, stall, cancel_fd, idempotent, False)
        outcome, done = self._run(self._native().events, call, on_events, max_event)
        _, _, status, head, error, cut, *_ = checked(outcome)
        return StreamAnswer(status, head, error, cut, done)

    def upload(
        self,
        method: str,
        url: str,
        parts: Sequence[Part],
        *,
        deadline: float,
        headers: Headers = (),
        **options: Any,
    ) -> Answer:
        """Send a form of known length; see :class:`Part` and, for ``options``, :meth:`request`.

        A file is sent at the length it was announced with, or the transfer fails.
        """
        content_type, body = encode(parts)
        headers = (*_pairs(headers), ("Content-Type", content_type))
        return self.request(method, url, deadline=deadline, headers=headers, body=body, **options)

    def download(
        self,
        url: str,
        dest: int | Callable[[bytes], object],
        *,
        deadline: float,
        max_bytes: int | None = None,
        ranged: bool = False,
        first: int = 0,
        last: int | None = None,
        size: int | None = None,
        headers: Headers = (),
        stall: float | None = None,
        cancel_fd: int = -1,
    ) -> DownloadAnswer:
        """Download a file, or a range of one, with constant memory.

        Only a 2xx answer that is what was asked for reaches ``dest``, and it is complete when this returns.
        An error status returns as an answer with nothing written.

        :param dest: the descriptor of a regular file, written at its position; or a ``write(bytes)``, called
            in this thread while a thread of its own reads on. What it raises comes out of here.
        :param max_bytes: cap on what is taken, in bytes.
        :param ranged: ask for a range; implied by ``first`` and ``last``, the first and last byte wanted.
        :param size: of the whole file, where it is known; an answer that says otherwise is an error.
        :raises TransportError: kind ``range`` (another part than asked for), ``length`` (a size that is
            unknown, absurd, changed or not kept), ``too_large``, ``encoding``, or a broken transfer.
        :raises OSError: the descriptor could not be written.
        """
        call = self._call("GET", url, headers, None, deadline, stall, cancel_fd, True, False)
        native = self._native()
        run = native.download_to_fd if isinstance(dest, int) else native.download_to_write
        wanted = (
            ranged or first > 0 or last is not None,
            first,
            -1 if last is None else last,
            -1 if size is None else size,
            _INT64_MAX if max_bytes is None else max_bytes,
        )
        outcome, taken, total = self._run(run, call, dest, wanted)
        _, _, status, head, error, cut, *_ = checked(outcome)
        return DownloadAnswer(status, head, error, cut, taken, total)

    def _run(self, run: Callable[..., Any], *args: Any) -> Any:
        try:
            return run(*args)
        except ImportError as e:
            raise TransportError(str(e), kind="library") from None

    def _call(
        self,
        method: str,
        url: str,
        headers: Headers,
        body: Body | None,
        deadline: float,
        stall: float | None,
        cancel_fd: int,
        idempotent: bool | None,
        compressed: bool,
    ) -> tuple[Any, ...]:
        """The request tuple of ``HttpClient``."""
        own = _pairs(headers)
        names = {name.lower() for name, _ in own}
        common = tuple(pair for pair in self._settings["headers"] if pair[0].lower() not in names)
        if isinstance(body, bytes | bytearray | memoryview):
            body = (body,)  # type: ignore[assignment]
        return (
            method,
            url,
            common + own,
            None if body is None else tuple(body),
            proxy_for(url) if self._settings["proxies"] else None,
            deadline,
            stall,
            cancel_fd,
            method in _IDEMPOTENT if idempotent is None else idempotent,
            compressed,
            self._settings["max_head"],
            self._settings["max_error_body"],
        )


def _pairs(headers: Headers) -> tuple[tuple[str, str], ...]:
    items = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, value) for name, value in items)


def _make(settings: dict[str, Any]) -> Client:
    return Client(**settings)


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork() -> None:
    # The parent's connections must not outlive it here, used or not.
    for client in tuple(_clients):
        if client._made is not None:
            client._made.after_fork()


os.register_at_fork(after_in_child=_after_fork)
