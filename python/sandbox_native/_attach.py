# SPDX-License-Identifier: Apache-2.0
"""Who may use a sandbox that another process created: the rules, over the tags it carries."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Protocol

from sandbox_native._home import AttachedSandbox, SandboxSpec, SandboxTerminalError
from sandbox_native._tags import (
    EXPIRES_AT_TAG,
    HOLDER_TAG,
    NETWORK_TAG,
    OWNER_TAG,
    WORKDIR_TAG,
    decode_network_policy,
)

log = logging.getLogger(__name__)


class Tagged(Protocol):
    """A backend as far as these rules know it."""

    @property
    def name(self) -> str: ...
    def read_tags(self, sandbox: str) -> Mapping[str, str]: ...
    def write_tags(self, sandbox: str, tags: Mapping[str, str]) -> None: ...


def claim(backend: Tagged, sandbox: str, *, owner: str, holder: str) -> AttachedSandbox:
    """Make ``holder`` the one that uses ``sandbox``; see ``AttachableSandboxBackend.attach``."""
    tags = backend.read_tags(sandbox)
    _check_owner(backend, sandbox, tags.get(OWNER_TAG), owner)
    current = tags.get(HOLDER_TAG)
    if current and current != holder:
        raise SandboxTerminalError(
            f"Sandbox {sandbox!r} is already held by {current!r}. Only one run uses a sandbox at a time: "
            "let the tasks follow each other, or create one sandbox for each."
        )
    if current != holder:
        backend.write_tags(sandbox, {**tags, HOLDER_TAG: holder})
        # Services have no conditional write. Reading back finds a claim that was written over ours.
        written = backend.read_tags(sandbox).get(HOLDER_TAG)
        if written != holder:
            raise SandboxTerminalError(
                f"Sandbox {sandbox!r} was claimed by {written!r} while {holder!r} was attaching to it. "
                "Create one sandbox for each run that needs one at the same time."
            )
    return AttachedSandbox(
        remaining_lifetime=_remaining_lifetime(tags.get(EXPIRES_AT_TAG)),
        network=_network(sandbox, tags.get(NETWORK_TAG)),
        workdir=tags.get(WORKDIR_TAG) or None,
    )


def release(backend: Tagged, sandbox: str, *, holder: str) -> None:
    """Give up the claim of ``holder`` if there is one; see ``AttachableSandboxBackend.release``."""
    tags = backend.read_tags(sandbox)
    if tags.get(HOLDER_TAG) == holder:
        backend.write_tags(sandbox, {tag: value for tag, value in tags.items() if tag != HOLDER_TAG})


def _check_owner(backend: Tagged, sandbox: str, actual: str | None, owner: str) -> None:
    # An empty owner is nobody's: a sandbox without one must not match a caller without one.
    if actual and actual == owner:
        return
    found = f"it carries owner {actual!r}" if actual else "it carries no owner"
    raise SandboxTerminalError(
        f"Sandbox {sandbox!r} on backend {backend.name!r} is not owned by {owner!r}: {found}. Create it with "
        "SandboxSpec(owner=dag_run_owner(context)) in the same Dag run, or give the toolset the owner it was "
        "created with."
    )


def _remaining_lifetime(stamp: str | None) -> float | None:
    """Seconds from now to ``stamp``, 0.0 for one in the past, None for none or one that is no time."""
    if stamp is None:
        return None
    try:
        expires_at = float(stamp)
    except ValueError:
        return None
    return max(0.0, expires_at - time.time()) if math.isfinite(expires_at) else None


def _network(sandbox: str, stamp: str | None) -> SandboxSpec | None:
    if not stamp:
        return None
    try:
        return decode_network_policy(stamp)
    except ValueError:
        # Nothing said to the model is better than a policy nobody set.
        log.warning("Sandbox %s carries a network stamp this backend cannot read: %r", sandbox, stamp)
        return None
