# SPDX-License-Identifier: Apache-2.0
"""Calls to Islo: paths, tokens, what is asked again, and how a failure is told."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from sandbox_native import calls
from sandbox_native.backends import _islo_token as tokens
from sandbox_native.contract import SandboxError, SandboxTerminalError
from sandbox_native.http import Answer, Client, DownloadAnswer, RequestCancelled, TransportError
from sandbox_native.multipart import Part
from sandbox_native.retries import retry_after

R = TypeVar("R")
A = TypeVar("A", bound=Answer)

TOKEN_TIMEOUT = 10.0
"""Seconds for an exchange of the key; the value of Islo's SDK."""
ATTEMPTS = 3
"""How often a call is made that may be made again; as Islo's SDK does."""
_FIRST_DELAY = 0.5
# The service's side may close a connection that was idle for longer; Islo's SDK keeps them for 5 s.
_KEEP_ALIVE = 4.0
_MESSAGE_CHARS = 200
# An answer to anything but a command: names, states, times.
_MAX_ANSWER = 4 * 1024 * 1024

LATER = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses after which an idempotent call is made again."""
OVERLOADED = frozenset({408, 425, 429, *range(502, 600)})
"""The same where 409 and 500 are answers to what was asked."""
# Failures that say something about this side or the answer, and not about the moment.
_LASTING = frozenset(
    {"library", "forked", "too_large", "head_too_large", "encoding", "source", "length", "range"}
)


class CallError(Exception):
    """A call that was not answered by a success.

    :ivar status: of the answer; None where no whole answer came.
    :ivar detail: what failed without an answer; the service's own message with one. No secret is in it.
    :ivar body_message: the service's message alone.
    :ivar retry_after: seconds the answer asks to wait, or None.
    :ivar undelivered: the service provably did not act on the call: it never arrived, or was refused for now.
    :ivar transient: it says nothing about what was asked; another try may do.
    :ivar key_refused: the exchange of the key was answered by 401 or 403.
    :ivar cause: the failed transfer, or None.
    """

    def __init__(
        self,
        status: int | None,
        detail: str = "",
        *,
        retry_after: float | None = None,
        undelivered: bool = False,
        transient: bool = False,
        key_refused: bool = False,
        cause: TransportError | None = None,
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.retry_after = retry_after
        self.undelivered = undelivered
        self.transient = transient
        self.key_refused = key_refused
        self.cause = cause

    def terminal(self, operation: str) -> SandboxTerminalError:
        """The error that ends the run."""
        if self.key_refused:
            return SandboxTerminalError(
                f"Islo rejected ISLO_API_KEY (HTTP {self.status}) when asked to {operation}."
            )
        status = f" (HTTP {self.status})" if self.status is not None else ""
        detail = f": {self.detail}" if self.detail and (self.status or 0) < 500 else ""
        return SandboxTerminalError(f"Islo could not {operation}{status}{detail}.")


def segment(name: str) -> str:
    """``name`` as one segment of a path, whatever it contains.

    :raises SandboxTerminalError: no segment stands for it: it is empty, ``.`` or ``..``, or no text.
    """
    from urllib.parse import quote

    try:
        if name not in ("", ".", ".."):
            return quote(name, safe="")
    except (UnicodeEncodeError, TypeError):
        pass
    raise SandboxTerminalError(f"{name!r} is not the name of an Islo sandbox.")


def sandbox_path(sandbox: str, *more: str) -> str:
    """The path of a sandbox, or of something in it."""
    return "/".join(["/sandboxes", *map(segment, (sandbox, *more))])


def query(value: str) -> str:
    """``value`` as it is written in a query; bytes that are no UTF-8 as themselves."""
    from urllib.parse import quote

    return quote(value, safe="", errors="surrogateescape")


class Api:
    """The two planes of Islo for one account. Any number of threads may use it."""

    def __init__(self, account: tokens.Account) -> None:
        self._account = account
        self._http = Client(
            keep_alive=_KEEP_ALIVE, headers=(("Accept", "*/*"), ("User-Agent", "sandbox-native"))
        )

    # -- calls --------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        *,
        deadline: float,
        json_body: Any = None,
        parts: Sequence[Part] | None = None,
        max_body: int = _MAX_ANSWER,
        idempotent: bool | None = None,
    ) -> Answer:
        """Make one call on the compute plane, with a fresh token where the first is refused.

        :param path: already escaped.
        :param deadline: a value of ``time.monotonic()``.
        :param idempotent: as :meth:`sandbox_native.http.Client.request` has it.
        :return: an answer with a status of 2xx.
        :raises CallError: anything else.
        :raises CallCancelled: cancelled meanwhile.
        """
        url = self._account.compute + path

        def send(headers: list[tuple[str, str]]) -> Answer:
            options: dict[str, Any] = {
                "deadline": deadline,
                "cancel_fd": calls.cancel_fd(),
                "idempotent": idempotent,
                "max_body": max_body,
            }
            if parts is not None:
                return self._http.upload(method, url, parts, headers=headers, **options)
            body = None
            if json_body is not None:
                body = json.dumps(json_body, ensure_ascii=False, separators=(",", ":")).encode()
                headers.append(("Content-Type", "application/json"))
            elif method == "POST":
                body = b""
            return self._http.request(method, url, headers=headers, body=body, **options)

        return self._authorised(send, deadline)

    def download(
        self,
        path: str,
        dest: int | Callable[[bytes], object],
        *,
        deadline: float,
        max_bytes: int,
        size: int | None = None,
        stall: float | None = None,
    ) -> DownloadAnswer:
        """Fetch a file once, as :meth:`sandbox_native.http.Client.download` does; see :meth:`call`."""
        return self._authorised(
            lambda headers: self._http.download(
                self._account.compute + path,
                dest,
                deadline=deadline,
                max_bytes=max_bytes,
                size=size,
                headers=headers,
                stall=stall,
                cancel_fd=calls.cancel_fd(),
            ),
            deadline,
        )

    def check_key(self, *, deadline: float) -> None:
        """Exchange the key, or use the token there is.

        :raises CallError: that failed.
        """
        self._token(deadline)

    def _authorised(self, send: Callable[[list[tuple[str, str]]], A], deadline: float) -> A:
        token = self._token(deadline)
        with _failures():
            answer = send([("Authorization", f"Bearer {token}")])
        if answer.status == 401:
            # Refused before it was acted upon, whatever it was. Perhaps the token ended early.
            tokens.session(self._account).refuse(token)
            token = self._token(deadline)
            with _failures():
                answer = send([("Authorization", f"Bearer {token}")])
            if answer.status == 401:
                tokens.session(self._account).refuse(token)
        if not answer.ok:
            raise self._error(answer, token)
        return answer

    def _token(self, deadline: float) -> str:
        try:
            token: str = tokens.session(self._account).token(self._exchange, deadline=deadline)
            return token
        except calls.CallCancelled:
            raise calls.CallCancelled("the call was cancelled before it was made") from None
        except TimeoutError:
            raise CallError(None, "no session token came in time", undelivered=True, transient=True) from None
        except CallError as e:
            # The call that needs the token was never made.
            e.undelivered = True
            raise

    def _exchange(self) -> tuple[str, float]:
        body = json.dumps({"access_key": self._account.key}, separators=(",", ":"))
        with _failures():
            answer = self._http.request(
                "POST",
                f"{self._account.control}/auth/token",
                deadline=time.monotonic() + TOKEN_TIMEOUT,
                headers=(("Content-Type", "application/json"),),
                body=body.encode("ascii"),
                cancel_fd=calls.cancel_fd(),
                idempotent=True,
                max_body=1024 * 1024,
            )
        if not answer.ok:
            raise CallError(
                answer.status,
                retry_after=retry_after(answer),
                transient=answer.status in LATER,
                key_refused=answer.status in (401, 403),
            )
        try:
            parsed: tuple[str, float] = tokens.parse(answer.json())
            return parsed
        except (ValueError, RecursionError):
            raise CallError(None, "the answer to ISLO_API_KEY has no usable session token") from None

    def _error(self, answer: Answer, token: str) -> CallError:
        return CallError(
            answer.status,
            self._message(answer, token),
            retry_after=retry_after(answer),
            undelivered=answer.status == 429,
            transient=answer.status in LATER,
        )

    def _message(self, answer: Answer, token: str) -> str:
        """The ``message`` of an error, short enough for a prompt, without what is secret."""
        try:
            body = answer.json()
        except (ValueError, RecursionError):
            return ""
        message = body.get("message") if isinstance(body, dict) else None
        if not isinstance(message, str):
            return ""
        for secret in (token, self._account.key):
            message = message.replace(secret, "***")
        message = " ".join(well_formed(message).split()).rstrip(".")
        return f"{message[:_MESSAGE_CHARS]}..." if len(message) > _MESSAGE_CHARS else message


class _failures:
    """Turns what a transfer raises into the errors of this module."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, RequestCancelled):
            raise calls.CallCancelled("the call was cancelled") from error
        if isinstance(error, TransportError):
            raise CallError(
                None,
                str(error),
                undelivered=not error.sent,
                transient=error.kind not in _LASTING,
                cause=error,
            ) from error
        if isinstance(error, ValueError):
            # A proxy variable, most of all; its text names it without its value.
            raise CallError(None, str(error)) from error


# ---- again ---------------------------------------------------------------------------------------


def again(
    ask: Callable[[], R],
    *,
    deadline: float,
    worth: Callable[[CallError], bool],
    attempts: int = ATTEMPTS,
    first_delay: float = _FIRST_DELAY,
) -> R:
    """Call ``ask`` until it brings something, is not ``worth`` it any more, or time is up.

    Between two tries it waits as the answer's ``Retry-After`` says, else twice as long each time. A wait that
    would end after ``deadline`` is not begun: the error is raised at once.

    :raises CallError: of the last try.
    """
    delay = first_delay
    for left in range(attempts - 1, -1, -1):
        try:
            return ask()
        except CallError as e:
            wait = jittered(delay) if e.retry_after is None else e.retry_after
            if not left or not worth(e) or time.monotonic() + wait >= deadline:
                raise
        pause(wait)
        delay *= 2
    raise AssertionError("unreachable")


def worth_repeating(statuses: Collection[int] = LATER) -> Callable[[CallError], bool]:
    """For :func:`again`, of a call that does no more when it is made twice."""
    return lambda e: e.transient and (e.status is None or e.status in statuses)


def not_acted_upon(e: CallError) -> bool:
    """For :func:`again`, of a call that must not be made twice."""
    return e.undelivered and (e.transient or e.status == 429)


def jittered(delay: float) -> float:
    """``delay`` give or take a tenth: clients that failed together should not come back together."""
    return delay * (0.9 + 0.2 * os.urandom(1)[0] / 255)


def arrived(error: BaseException) -> bool:
    """Whether the call that ``error`` ended may have reached the service."""
    if isinstance(error, calls.CallCancelled):
        return getattr(error.__cause__, "sent", False)
    return not (isinstance(error, CallError) and error.undelivered)


def pause(seconds: float) -> None:
    """Sleep.

    :raises CallCancelled: cancelled meanwhile.
    """
    descriptor = calls.cancel_fd()
    if descriptor < 0:
        time.sleep(max(0.0, seconds))
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if poll.poll(min(left, 3600.0) * 1000):
            raise calls.CallCancelled("the call was cancelled")


# ---- what answers say ----------------------------------------------------------------------------


def fields(answer: Answer, operation: str) -> dict[str, Any]:
    """The object an answer holds.

    :raises SandboxTerminalError: it holds none.
    """
    try:
        body = answer.json()
        if isinstance(body, dict):
            return body
    except (ValueError, RecursionError):
        pass
    raise unusable(operation)


def unusable(operation: str) -> SandboxTerminalError:
    """The error of an answer that makes no sense."""
    return SandboxTerminalError(f"Islo could not {operation}: its answer is not what was asked for.")


def well_formed(text: str) -> str:
    """``text`` with U+FFFD for each half of a surrogate pair, which JSON can carry and UTF-8 cannot."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def checked_text(text: str, what: str) -> str:
    """``text`` if it can be sent to a shell.

    :raises SandboxError: it holds NUL, or is not text that UTF-8 can carry.
    """
    if "\0" in text:
        raise SandboxError(f"{what} contains a NUL character.")
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise SandboxError(f"{what} is not valid text: {e.reason} at character {e.start}.") from None
    return text
