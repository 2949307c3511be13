# SPDX-License-Identifier: Apache-2.0
"""A toolset's side of using a sandbox that another task made: who it is, and giving the claim back."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from sandbox_native import calls
from sandbox_native.contract import AttachedSandbox, SandboxError, SandboxTerminalError, dag_run_owner

# A claim left behind locks everybody else out until the sandbox ends, so a blip of the service is worth
# waiting for a little: this often, this many seconds apart.
RELEASE_ATTEMPTS = 3
RELEASE_PAUSE = 1.0


class Attachable(Protocol):
    """A backend as far as this module knows it."""

    @property
    def name(self) -> str: ...
    def attach(self, sandbox: str, *, owner: str, holder: str) -> AttachedSandbox: ...
    def release(self, sandbox: str, *, holder: str) -> None: ...


class Identity(NamedTuple):
    """Whom a run presents itself as: the owner it expects on the sandbox, the holder it becomes."""

    owner: str
    holder: str


def identity(owner: str | None, context: Mapping[str, Any] | None) -> Identity:
    """Say who this run is.

    In an Airflow task the owner is the Dag run unless given, and the holder the task instance, without its
    try number: a retry finds the claim of an attempt that died. Elsewhere the given owner is both.

    :param owner: what the author gave.
    :param context: the context of the Airflow task, if there is one.
    :raises SandboxTerminalError: neither is there.
    """
    if context is None:
        if owner is None:
            raise SandboxTerminalError(
                "attach_to needs an owner outside of an Airflow task, where there is no Dag run to be one: "
                "pass owner=, the same as the SandboxSpec.owner that the sandbox was created with."
            )
        return Identity(owner, owner)
    ti = context["ti"]
    dag_run = dag_run_owner(context)
    mapped = ti.map_index is not None and ti.map_index >= 0
    holder = f"{dag_run}/{ti.task_id}" + (f"[{ti.map_index}]" if mapped else "")
    return Identity(dag_run if owner is None else owner, holder)


def claim(backend: Attachable, handle: str, who: Identity) -> AttachedSandbox:
    """Attach to the sandbox; a claim that may have been made by a failed attempt is given back.

    :raises SandboxTerminalError: it cannot be attached to. There is nothing the model could do about that.
    """
    try:
        return backend.attach(handle, owner=who.owner, holder=who.holder)
    except SandboxTerminalError:
        raise
    except BaseException as e:
        try:
            with calls.uncancellable():
                backend.release(handle, holder=who.holder)
        except Exception as again:
            e.add_note(f"Giving up a claim on {handle!r} failed, too: {again}")
        if not isinstance(e, SandboxError):
            raise
        raise SandboxTerminalError(
            f"Could not attach to sandbox {handle!r} on backend {backend.name!r}: {e}"
        ) from e


def release(backend: Attachable, handle: str, holder: str, log: logging.Logger) -> None:
    """Give the claim back. Never raises: the run is over, and its work is done."""
    for attempt in range(1, RELEASE_ATTEMPTS + 1):
        try:
            backend.release(handle, holder=holder)
            return
        except SandboxTerminalError:
            log.info("Sandbox %s on backend %s has ended; there is no claim to release", handle, backend.name)
            return
        except Exception:
            if attempt == RELEASE_ATTEMPTS:
                log.warning(
                    "Failed to release sandbox %s on backend %s after %d attempts; it stays marked as held "
                    "by %s, and only that holder, or the task that created the sandbox, can use it",
                    handle,
                    backend.name,
                    attempt,
                    holder,
                    exc_info=True,
                )
                return
        time.sleep(RELEASE_PAUSE)
