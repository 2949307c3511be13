# SPDX-License-Identifier: Apache-2.0
"""Where an OpenSandbox server is, and asking it: one request, its retries, and how a failure is told.

The server's HTTP interface is versioned by its path, ``/v1``; keys travel in ``OPEN-SANDBOX-API-KEY``.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox_native import calls
from sandbox_native.contract import SandboxTerminalError
from sandbox_native.http import MAX_BODY, Answer, Client, RequestCancelled, TransportError
from sandbox_native.retries import with_retries

API_KEY_HEADER = "OPEN-SANDBOX-API-KEY"
# Of the vendor's SDK: where it looks when nothing is given.
API_KEY_VARIABLE = "OPEN_SANDBOX_API_KEY"
DOMAIN_VARIABLE = "OPEN_SANDBOX_DOMAIN"
DEFAULT_DOMAIN = "localhost:8080"
REQUEST_TIMEOUT = 30.0
"""Seconds for one request and its retries; the provider's default."""
# Of the vendor's SDK: three more tries.
ATTEMPTS = 4
LATER = frozenset({429, 502, 503})
# How much of a server's own words goes into an error.
_DETAIL_CHARS = 200


@dataclass(frozen=True)
class Settings:
    """A server, resolved."""

    base_url: str
    """Up to and with ``/v1``."""
    protocol: str
    """``http`` or ``https``: how addresses without one are reached."""
    request_timeout: float = REQUEST_TIMEOUT
    use_server_proxy: bool = True
    api_key: str = field(default="", repr=False)


def resolve(conn_id: str | None, use_server_proxy: bool | None) -> Settings:
    """Find the server: by an Airflow connection, or where ``conn_id`` is None by the environment.

    :raises SandboxTerminalError: the connection does not say what it has to.
    """
    if conn_id is None:
        proxied = True if use_server_proxy is None else use_server_proxy
        domain = os.environ.get(DOMAIN_VARIABLE) or DEFAULT_DOMAIN
        key = os.environ.get(API_KEY_VARIABLE, "")
        return _settings(domain, "http", key, REQUEST_TIMEOUT, proxied, DOMAIN_VARIABLE)
    connection = _airflow_connection(conn_id)
    if not connection.host:
        raise SandboxTerminalError(
            f"Connection {conn_id!r} has no host. Set it to the address of the OpenSandbox server, or pass "
            f"opensandbox_conn_id=None to use {DOMAIN_VARIABLE}."
        )
    extra: Mapping[str, Any] = connection.extra_dejson
    if use_server_proxy is None:
        use_server_proxy = _boolean(extra.get("use_server_proxy", True), "use_server_proxy")
    domain = f"{connection.host}:{connection.port}" if connection.port else connection.host
    timeout = _seconds(extra.get("request_timeout", REQUEST_TIMEOUT), "request_timeout")
    # As with the vendor's SDK, a connection without a password leaves the key to the environment.
    key = connection.password or os.environ.get(API_KEY_VARIABLE, "")
    origin = f"The host of connection {conn_id!r}"
    return _settings(domain, connection.schema or "http", key, timeout, use_server_proxy, origin)


def _airflow_connection(conn_id: str) -> Any:
    try:
        # By name: nothing else here needs Airflow.
        hook = importlib.import_module("airflow.providers.common.compat.sdk").BaseHook
    except ImportError as e:
        raise SandboxTerminalError(
            f"The Airflow connection {conn_id!r} cannot be read without Airflow. Pass "
            f"opensandbox_conn_id=None to use {DOMAIN_VARIABLE} and {API_KEY_VARIABLE}."
        ) from e
    try:
        return hook.get_connection(conn_id)
    except Exception as e:
        raise SandboxTerminalError(f"OpenSandbox could not initialize its client: {e}") from e


def _settings(domain: str, protocol: str, key: str, timeout: float, proxied: bool, origin: str) -> Settings:
    protocol = protocol.lower()
    scheme, found, rest = domain.partition("://")
    if found:
        protocol, domain = scheme.lower(), rest
    if protocol not in ("http", "https"):
        raise SandboxTerminalError(
            f"The OpenSandbox server is reached by http or https, not {protocol!r}: mend the schema of the "
            "connection."
        )
    # Neither is shown: a user before the host would have a password.
    if any(c <= " " or c in "\x7f@?#\\" for c in domain):
        raise SandboxTerminalError(f"{origin} is not of the form host:port or http://host:port.")
    if any(c <= " " or c == "\x7f" for c in key):
        raise SandboxTerminalError(
            f"The key of the OpenSandbox server ({API_KEY_VARIABLE}, or the password of the connection) has "
            "blanks or line ends in it."
        )
    base = f"{protocol}://{domain.rstrip('/')}/v1"
    return Settings(base, protocol, timeout, proxied, key)


def _boolean(value: object, name: str) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if word is True or word in ("true", "1", "yes"):
        return True
    if word is False or word in ("false", "0", "no"):
        return False
    raise SandboxTerminalError(f"The OpenSandbox connection extra {name} must be a boolean.")


def _seconds(value: Any, name: str) -> float:
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds) or seconds <= 0:
        raise SandboxTerminalError(
            f"The OpenSandbox connection extra {name} must be a positive finite number of seconds."
        )
    return seconds


class RefusedError(SandboxTerminalError):
    """The server answered with an error.

    :ivar status: the HTTP status.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.status)


class Service:
    """One server: its settings, and the client whose connections reach it and its sandboxes.

    Proxies of the environment are not used, as by the vendor's SDK: the server is usually near.
    """

    def __init__(self, settings: Settings, version: str) -> None:
        self.settings = settings
        self.client = Client(headers={"User-Agent": f"sandbox-native/{version}"}, proxies=False)

    @property
    def key_headers(self) -> dict[str, str]:
        return {API_KEY_HEADER: self.settings.api_key} if self.settings.api_key else {}

    def url(self, path: str) -> str:
        return f"{self.settings.base_url}{path}"

    def lifecycle(self, operation: str, method: str, path: str, **options: Any) -> Answer:
        """Ask the server itself; see :meth:`ask`."""
        return self.ask(operation, method, self.url(path), headers=self.key_headers, **options)

    def ask(
        self,
        operation: str,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        json_body: Any = None,
        timeout: float | None = None,
        attempts: int = ATTEMPTS,
        idempotent: bool | None = None,
        statuses: Collection[int] = LATER,
        max_body: int = MAX_BODY,
        may_cut: bool = False,
    ) -> Answer:
        """Make a request and return its answer, whatever its status.

        :param operation: what it is for, as in "could not <operation>".
        :param timeout: seconds for all attempts; by default the connection's ``request_timeout``.
        :param attempts: the most requests made; an answer or error after which it may have been acted on is
            final unless the method, or ``idempotent``, says that twice is no harm.
        :raises SandboxTerminalError: no answer came.
        :raises calls.CallCancelled: the call was cancelled.
        """
        deadline = time.monotonic() + (self.settings.request_timeout if timeout is None else timeout)
        again = method in ("GET", "PUT", "DELETE") if idempotent is None else idempotent
        body = None
        if json_body is not None:
            import json

            body = json.dumps(json_body).encode()
            headers = {**headers, "Content-Type": "application/json"}
        cancel_fd = calls.cancel_fd()
        with self.told(operation):
            return with_retries(
                lambda: self.client.request(
                    method,
                    url,
                    deadline=deadline,
                    headers=headers,
                    body=body,
                    cancel_fd=cancel_fd,
                    idempotent=again,
                    max_body=max_body,
                    may_cut=may_cut,
                ),
                deadline=deadline,
                idempotent=again,
                attempts=attempts,
                statuses=statuses,
                cancel_fd=cancel_fd,
            )

    @contextlib.contextmanager
    def told(self, operation: str) -> Iterator[None]:
        """Turn a transfer that failed inside the block into the contract's errors."""
        try:
            yield
        except RequestCancelled as e:
            raise calls.CallCancelled(f"cancelled: {operation}") from e
        except TransportError as e:
            raise SandboxTerminalError(f"OpenSandbox could not {operation}: {e}.") from e
        except ValueError as e:
            # An address that the server or the connection named and that no request can be made to.
            raise SandboxTerminalError(f"OpenSandbox could not {operation}: {e}.") from e

    def failure(self, operation: str, answer: Answer) -> RefusedError:
        """The error that an answer of the wrong status stands for."""
        detail = self.detail(answer)
        return RefusedError(
            f"OpenSandbox could not {operation} (HTTP {answer.status})" + (f": {detail}." if detail else "."),
            answer.status,
        )

    def detail(self, answer: Answer) -> str:
        """What the server says about an error, in one short line without the key; empty if nothing."""
        try:
            body = answer.json()
        except ValueError:
            return ""
        text = ""
        if isinstance(body, dict):
            code, message = body.get("code"), body.get("message") or body.get("detail")
            if isinstance(message, list):  # the server's own validation
                parts = [part.get("msg") for part in message if isinstance(part, dict)]
                message = "; ".join(part for part in parts if isinstance(part, str))
            if isinstance(message, dict):
                code, message = message.get("code", code), message.get("message")
            text = message if isinstance(message, str) and message else code if isinstance(code, str) else ""
        if self.settings.api_key:
            text = text.replace(self.settings.api_key, "***")
        text = " ".join(text.split()).rstrip(".")
        if len(text) > _DETAIL_CHARS:
            # A reason stands at the end, often after a path.
            text = f"{text[: _DETAIL_CHARS // 3]}...{text[-_DETAIL_CHARS * 2 // 3 :]}"
        return text

    def json(self, operation: str, answer: Answer) -> Any:
        """The body of a good answer as JSON.

        :raises SandboxTerminalError: the status is an error, or the body is no JSON.
        """
        if not answer.ok:
            raise self.failure(operation, answer)
        try:
            return answer.json()
        except (ValueError, RecursionError) as e:
            raise SandboxTerminalError(
                f"OpenSandbox could not {operation}: the server's answer is not JSON."
            ) from e
