# SPDX-License-Identifier: Apache-2.0
"""The Islo account of the environment, and its session tokens.

The API key goes to the control plane alone, which exchanges it for a token of some minutes. A process has one
token for each key, whatever the number of backends and threads; one of them exchanges it while the others
wait, some time before its end, and when the compute plane has refused it.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sandbox_native import calls
from sandbox_native.contract import SandboxTerminalError

_CONTROL_URL = "https://api.islo.dev"
_COMPUTE_URL = "https://ca.compute.islo.dev"

# Where the exchange does not say it, and how long before its end a token is not used any more; the values of
# Islo's own SDK. A token of less than twice the margin is used for half of its life.
_TOKEN_LIFE = 600.0
_TOKEN_MARGIN = 60.0
# A follower looks this often whether its own call was cancelled or is over its time.
_FOLLOW_SECONDS = 0.05


class Account(NamedTuple):
    """Whom to act for, and where. Never shown: it holds the key."""

    key: str
    control: str
    compute: str

    def __repr__(self) -> str:
        return "<Account of ISLO_API_KEY>"


def account() -> Account:
    """What ``ISLO_API_KEY``, ``ISLO_BASE_URL`` and ``ISLO_COMPUTE_URL`` say.

    :raises SandboxTerminalError: there is no key, or a URL is none; no text shows a value, since a URL may
        have a password.
    """
    key = os.environ.get("ISLO_API_KEY")
    if not key:
        raise SandboxTerminalError(
            "ISLO_API_KEY is not set in the worker's environment, and the Islo backend takes its credentials "
            "from nowhere else."
        )
    return Account(
        key,
        _base_url("ISLO_BASE_URL", _CONTROL_URL),
        _base_url("ISLO_COMPUTE_URL", _COMPUTE_URL),
    )


def _base_url(variable: str, default: str) -> str:
    url = os.environ.get(variable) or default
    scheme, separator, rest = url.partition("://")
    host = rest.partition("/")[0]
    usable = scheme.lower() in ("http", "https") and separator and host
    # A user in the URL would be sent in the place of the token.
    if not usable or "@" in host or any(not "!" <= c <= "~" or c in "?#\\" for c in rest):
        raise SandboxTerminalError(f"{variable} is not a URL of the form https://host[:port][/path].")
    return url.rstrip("/")


class _Flight:
    """One exchange under way."""

    def __init__(self) -> None:
        self.landed = threading.Event()
        self.error: Exception | None = None


class Session:
    """The token of one key at one control plane."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0
        self._flight: _Flight | None = None

    def token(self, exchange: Callable[[], tuple[str, float]], *, deadline: float) -> str:
        """A token that is not near its end.

        :param exchange: fetches one: token and life in seconds. What it raises comes out of every call that
            waited for it.
        :param deadline: until when another thread's exchange is waited for, a value of ``time.monotonic()``.
        :raises TimeoutError: that took too long.
        :raises CallCancelled: cancelled meanwhile.
        """
        while True:
            with self._lock:
                if time.monotonic() < self._until:
                    return self._token
                flight = self._flight
                if flight is None:
                    mine = self._flight = _Flight()
            if flight is None:
                return self._lead(mine, exchange)
            while not flight.landed.wait(_FOLLOW_SECONDS):
                calls.check_cancelled()
                if time.monotonic() >= deadline:
                    raise TimeoutError
            if flight.error is not None:
                # One of its own for each thread: what is raised is changed by whom it passes.
                raise copy.copy(flight.error)

    def _lead(self, flight: _Flight, exchange: Callable[[], tuple[str, float]]) -> str:
        token, until = "", 0.0
        try:
            token, life = exchange()
            until = time.monotonic() + max(life - _TOKEN_MARGIN, life / 2)
            return token
        except Exception as e:
            # A cancel or a signal is the leader's own; then the next thread leads.
            flight.error = e
            raise
        finally:
            with self._lock:
                self._token, self._until = token, until
                self._flight = None
            flight.landed.set()

    def refuse(self, token: str) -> None:
        """The service does not take ``token`` any more; no call gets it again."""
        with self._lock:
            if self._token == token:
                self._until = 0.0


def parse(body: Any) -> tuple[str, float]:
    """Token and life in seconds of an exchange's answer.

    :raises ValueError: it has no token that could be sent.
    """
    token = body.get("session_token") if isinstance(body, dict) else None
    if not isinstance(token, str) or not token or any(not "!" <= c <= "~" for c in token):
        raise ValueError("no token")
    life = body.get("cookie_max_age")
    if isinstance(life, bool) or not isinstance(life, int | float) or not 0 <= life < 1e9:
        # Of no use, so the default; where that is wrong, the service refuses the token.
        life = _TOKEN_LIFE
    return token, float(life)


_sessions: dict[tuple[str, str], Session] = {}


def session(whose: Account) -> Session:
    """The process' session of an account."""
    return _sessions.setdefault((whose.control, whose.key), Session())


# A thread of the parent may have held a lock or been in an exchange.
os.register_at_fork(after_in_child=_sessions.clear)
