# SPDX-License-Identifier: Apache-2.0
"""Life of a sandbox on an OpenSandbox server: create, wait until it serves, find again, destroy."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox_native import calls
from sandbox_native.backends import _opensandbox_policy as policy
from sandbox_native.backends._opensandbox_service import Service
from sandbox_native.contract import SandboxTerminalError
from sandbox_native.http import Answer

#: Port of execd, which runs commands and serves files in a sandbox.
EXECD_PORT = 44772
# States in which a sandbox will never serve (again). Words that are not known are not waited for.
_ENDED = frozenset({"failed", "error", "terminated", "terminating", "stopping", "stopped", "deleted"})
# What a server answers for a sandbox that is not up yet, or that its runtime is busy with.
_NOT_YET = frozenset({404, 409, 425, 429, 500, 502, 503, 504})
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
# Between looks at the state while execd does not answer.
_LOOK_EVERY = 2.0
_PING_TIMEOUT = 5.0
# For a sandbox whose create was not answered: how long it may take to appear.
_LOST_SECONDS = 10.0
# For one that is being removed by something else already.
_REMOVAL_SECONDS = 30.0


class EndedError(SandboxTerminalError):
    """The sandbox is still listed, and will never serve again."""


@dataclass
class Sandbox:
    """A sandbox that serves: where its execd is."""

    id: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    leftovers: deque[str] = field(default_factory=lambda: deque(maxlen=64))
    """Names of files that execd left of earlier commands, to be removed by the next one."""


def path_of(sandbox: str) -> str:
    """The path of a sandbox on the server.

    :raises SandboxTerminalError: there can be no such sandbox.
    """
    if not isinstance(sandbox, str) or sandbox in ("", ".", ".."):
        raise SandboxTerminalError(f"{sandbox!r} is not the handle of a sandbox.")
    from urllib.parse import quote

    return f"/sandboxes/{quote(sandbox, safe='', errors='replace')}"


# ---- create --------------------------------------------------------------------------------------------


def create(service: Service, body: Mapping[str, Any], *, ready_timeout: float) -> Sandbox:
    """Create a sandbox and wait until it serves. Whatever fails, none is left behind on the server.

    :param body: of the request; its ``metadata`` has a ``name`` no other sandbox has.
    :raises SandboxTerminalError: it was not created, did not come up, or its network policy is not enforced.
    """
    operation = "create a sandbox"
    try:
        # The server answers when the container was started, which can include fetching its image.
        answer = service.lifecycle(
            operation,
            "POST",
            "/sandboxes",
            json_body=body,
            timeout=max(service.settings.request_timeout, ready_timeout),
        )
        info = service.json(operation, answer)
        identifier = info.get("id") if isinstance(info, dict) else None
        if not isinstance(identifier, str) or not identifier:
            raise SandboxTerminalError(f"OpenSandbox could not {operation}: the answer has no id.")
    except BaseException as e:
        if _may_exist(e):
            _remove_by_name(service, body["metadata"]["name"], e)
        raise
    try:
        sandbox = wait_until_ready(service, identifier, ready_timeout=ready_timeout, operation=operation)
        _check_policy(service, sandbox, body.get("networkPolicy"))
    except BaseException as e:
        _remove(service, identifier, e)
        raise
    return sandbox


def _may_exist(error: BaseException) -> bool:
    """Whether a create that ended so may have made a sandbox all the same."""
    cause = error.__cause__
    if cause is not None and getattr(cause, "sent", True) is False:
        return False
    status = getattr(error, "status", None)
    # A request that was refused as such made nothing.
    return status is None or not 400 <= status < 500


def _remove(service: Service, identifier: str, error: BaseException) -> None:
    try:
        with calls.uncancellable():
            destroy(service, identifier)
    except Exception as again:
        error.add_note(
            f"Sandbox {identifier} could not be removed and stays until its lifetime ends: {again}"
        )


def _remove_by_name(service: Service, name: str, error: BaseException) -> None:
    from urllib.parse import quote

    query = quote(f"name={name}", safe="")
    until = time.monotonic() + _LOST_SECONDS
    pause = 0.2
    found = False
    try:
        with calls.uncancellable():
            while True:
                operation = "look for a sandbox whose creation failed"
                listing = service.json(
                    operation,
                    service.lifecycle(
                        operation, "GET", f"/sandboxes?metadata={query}", timeout=_LOST_SECONDS
                    ),
                )
                for item in listing.get("items") or ():
                    # The server may know no such filter: never remove one that is not ours.
                    if (item.get("metadata") or {}).get("name") == name:
                        found = True
                        destroy(service, item["id"])
                # With an answer, an error, nothing more will come; without one it may be in the making.
                if found or getattr(error, "status", None) is not None or time.monotonic() + pause > until:
                    return
                time.sleep(pause)
                pause = min(pause * 2, 2.0)
    except Exception as again:
        error.add_note(
            f"Whether a sandbox named {name} was left behind could not be found out; if so, it stays until "
            f"its lifetime on the server ends: {again}"
        )


def _check_policy(service: Service, sandbox: Sandbox, wanted: Mapping[str, Any] | None) -> None:
    if wanted is None:
        return
    try:
        url, headers = endpoint(service, sandbox.id, policy.EGRESS_PORT, "find the egress sidecar")
    except SandboxTerminalError as e:
        trouble: str | None = f"the policy could not be read back ({e})"
    else:
        trouble = policy.problem(service, url, headers, wanted)
    if trouble is not None:
        raise SandboxTerminalError(
            "OpenSandbox did not enforce the requested network policy, so the sandbox was destroyed: "
            f"{trouble}"
        )


# ---- find ----------------------------------------------------------------------------------------------


def info(service: Service, sandbox: str, operation: str, *, timeout: float | None = None) -> dict[str, Any]:
    """What the server knows of a sandbox.

    :param timeout: as of :meth:`Service.ask`.
    :raises EndedError: it has ended.
    :raises SandboxTerminalError: there is none, or the server does not say.
    """
    found = service.json(operation, service.lifecycle(operation, "GET", path_of(sandbox), timeout=timeout))
    if not isinstance(found, dict):
        raise SandboxTerminalError(f"OpenSandbox could not {operation}: the answer is not a sandbox.")
    state = state_of(found)
    if state.lower() in _ENDED:
        raise EndedError(f"OpenSandbox could not {operation}: the sandbox is {state}.")
    return found


def state_of(found: Mapping[str, Any]) -> str:
    """The server's word for how a sandbox is, empty where it has none."""
    status = found.get("status")
    state = status.get("state") if isinstance(status, dict) else None
    return state if isinstance(state, str) else ""


def endpoint(
    service: Service, sandbox: str, port: int, operation: str, *, answer: Answer | None = None
) -> tuple[str, dict[str, str]]:
    """The address of a port of a sandbox and the headers that requests to it carry.

    :raises SandboxTerminalError: the server does not say.
    """
    if answer is None:
        answer = _ask_endpoint(service, sandbox, port, operation, attempts=4)
    found = service.json(operation, answer)
    address = found.get("endpoint") if isinstance(found, dict) else None
    if not isinstance(address, str) or not address:
        raise SandboxTerminalError(f"OpenSandbox could not {operation}: the answer has no endpoint.")
    if "://" not in address:
        address = f"{service.settings.protocol}://{address}"
    headers = {str(k): str(v) for k, v in (found.get("headers") or {}).items()}
    if service.settings.use_server_proxy:
        # In direct mode the address is the sandbox's own, and the key is none of its business.
        headers = {**service.key_headers, **headers}
    return address.rstrip("/"), headers


def _ask_endpoint(
    service: Service, sandbox: str, port: int, operation: str, *, attempts: int, timeout: float | None = None
) -> Answer:
    proxied = "true" if service.settings.use_server_proxy else "false"
    path = f"{path_of(sandbox)}/endpoints/{port}?use_server_proxy={proxied}"
    answer: Answer = service.lifecycle(operation, "GET", path, attempts=attempts, timeout=timeout)
    return answer


def connect(service: Service, sandbox: str, *, ready_timeout: float, operation: str) -> Sandbox:
    """Find a sandbox and wait until it serves.

    :param ready_timeout: seconds for that.
    :raises SandboxTerminalError: there is none, it ended, or it did not serve in time.
    """
    info(service, sandbox, operation)
    return wait_until_ready(service, sandbox, ready_timeout=ready_timeout, operation=operation)


def wait_until_ready(service: Service, sandbox: str, *, ready_timeout: float, operation: str) -> Sandbox:
    """Wait until a sandbox that is on the server serves; see :func:`connect`."""
    deadline = time.monotonic() + ready_timeout
    looked = time.monotonic()
    pause = _FIRST_PAUSE
    where: tuple[str, dict[str, str]] | None = None
    trouble = "nothing answered"

    def at_most(seconds: float) -> float:
        return max(0.1, min(seconds, deadline - time.monotonic()))

    while True:
        if where is None:
            try:
                answer = _ask_endpoint(
                    service,
                    sandbox,
                    EXECD_PORT,
                    operation,
                    attempts=1,
                    timeout=at_most(service.settings.request_timeout),
                )
            except SandboxTerminalError as e:
                if not getattr(e.__cause__, "timed_out", False):
                    raise
                trouble = str(e.__cause__)
            else:
                if answer.ok or answer.status not in _NOT_YET:
                    where = endpoint(service, sandbox, EXECD_PORT, operation, answer=answer)
                else:
                    trouble = f"HTTP {answer.status}"
        if where is not None:
            try:
                pong = service.ask(
                    operation,
                    "GET",
                    f"{where[0]}/ping",
                    headers=where[1],
                    timeout=at_most(_PING_TIMEOUT),
                    attempts=1,
                    max_body=4096,
                    may_cut=True,
                )
                if pong.ok:
                    return Sandbox(sandbox, *where)
                if pong.status in (401, 403):
                    raise service.failure(operation, pong)
                trouble = f"HTTP {pong.status}"
            except SandboxTerminalError as e:
                if e.__cause__ is None:
                    raise
                trouble = str(e.__cause__)
        if time.monotonic() - looked >= _LOOK_EVERY:
            info(service, sandbox, operation, timeout=at_most(service.settings.request_timeout))
            looked = time.monotonic()
        if time.monotonic() + pause >= deadline:
            raise SandboxTerminalError(
                f"OpenSandbox could not {operation}: it did not serve within {ready_timeout:g} s ({trouble})."
            )
        _nap(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _nap(seconds: float) -> None:
    """Sleep, but not past a cancel."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        calls.check_cancelled()
        time.sleep(min(left, 0.05))
    calls.check_cancelled()


# ---- destroy -------------------------------------------------------------------------------------------


def destroy(service: Service, sandbox: str) -> None:
    """End a sandbox; one that is gone, or is being removed by something else, is fine.

    :raises SandboxTerminalError: it may still be there.
    """
    operation = "destroy a sandbox"
    path = path_of(sandbox)
    answer = service.lifecycle(operation, "DELETE", path)
    if answer.ok or answer.status == 404:
        return
    if not _is_conflict(answer):
        raise service.failure(operation, answer)
    # Something else is at it: done when it is gone.
    until = time.monotonic() + _REMOVAL_SECONDS
    pause = _FIRST_PAUSE
    while time.monotonic() < until:
        if service.lifecycle(operation, "GET", path).status == 404:
            return
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    answer = service.lifecycle(operation, "DELETE", path)
    if not (answer.ok or answer.status == 404):
        raise service.failure(operation, answer)


def _is_conflict(answer: Answer) -> bool:
    # The server passes a conflict of its container runtime on as an error of its own.
    if answer.status == 409:
        return True
    text = answer.body.decode("utf-8", "replace").lower()
    return answer.status == 500 and ("409" in text or "conflict" in text or "already in progress" in text)
