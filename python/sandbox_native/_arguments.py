# SPDX-License-Identifier: Apache-2.0
"""Checks of a toolset's arguments: what no rendering of templates can mend is refused where it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox_native import _home, export_plan, input_plan, spec_check, validate
from sandbox_native.contract import SandboxBackend, SandboxSpec


def check_backend(backend: Any, spec: Any) -> None:
    """:raises ValueError: the one is no backend, or the other no spec with values of the right types."""
    # By what it can do, not by its class: a backend may derive from the provider's where this package has its
    # own.
    if isinstance(backend, type):
        raise ValueError(f"backend must be a backend, not its class: call it, as {backend.__name__}().")
    for name in ("create", "run_command", "destroy"):
        if not callable(getattr(backend, name, None)):
            raise ValueError(f"backend must be a SandboxBackend, got {backend!r}, which has no {name}().")
    if problem := spec_check.problem(spec):
        raise ValueError(problem)


def check_tool_prefix(prefix: Any) -> None:
    """:raises ValueError: no tool can have it before its name."""
    if prefix and not (isinstance(prefix, str) and prefix.isidentifier()):
        raise ValueError(
            f"tool_prefix must be a Python identifier, since tools may be shown as functions; got {prefix!r}."
        )


def check_ownership(
    backend: SandboxBackend,
    *,
    spec: SandboxSpec | None,
    attach_to: str | None,
    owner: str | None,
    exports: bool,
) -> None:
    """Refuse what does not go with making a sandbox, or with attaching to one.

    :param exports: whether there are exports that were not allowed for an attached sandbox.
    :raises ValueError: two arguments do not go together; the text names them.
    """
    if attach_to is None:
        if owner is not None:
            raise ValueError("owner only applies together with attach_to.")
        if spec is not None and spec.owner is not None:
            raise ValueError(
                "SandboxSpec.owner is for a sandbox that a later task attaches to. This one is destroyed "
                "when the run ends: create it in a task and pass its handle as attach_to, or leave the "
                "owner out."
            )
        return
    if not isinstance(backend, _home.AttachableSandboxBackend):
        raise ValueError(
            f"attach_to needs a backend that finds sandboxes of other processes, and {backend.name!r} does "
            "not: it is not an AttachableSandboxBackend. Leave attach_to out, or use a backend that is one."
        )
    if spec is not None:
        raise ValueError(
            "spec cannot be combined with attach_to: the sandbox exists already, as its creator wanted it."
        )
    if not attach_to:
        raise ValueError("attach_to must be a sandbox handle, not an empty string.")
    if exports:
        raise ValueError(
            "exports cannot be combined with attach_to: the task that created the sandbox collects its files."
        )


def check_exports(
    exports: Mapping[str, Any] | None,
    max_export_bytes: float,
    export_conn_id: str | None,
    export_manifest: str | None,
) -> None:
    """:raises ValueError: a key, a value or an option cannot be, or there are options and no exports."""
    validate.positive_finite(max_export_bytes, "max_export_bytes")
    validate.paths(exports, "exports")
    validate.connection(export_conn_id, "export_conn_id")
    export_plan.check_options(exports or {}, max_export_bytes)
    if not exports:
        for name, given in (("export_conn_id", export_conn_id), ("export_manifest", export_manifest)):
            if given is not None:
                raise ValueError(f"{name} only applies together with exports.")


def check_inputs(
    inputs: Mapping[str, Any] | None, max_input_bytes: float, input_conn_id: str | None, *, attached: bool
) -> None:
    """:raises ValueError: as :func:`check_exports`, or the sandbox is another task's."""
    validate.positive_finite(max_input_bytes, "max_input_bytes")
    validate.paths(inputs, "inputs")
    validate.connection(input_conn_id, "input_conn_id")
    input_plan.entries(inputs or {}, max_input_bytes)
    if inputs and attached:
        raise ValueError(
            "inputs cannot be combined with attach_to: the task that made the sandbox puts files there."
        )
    if input_conn_id is not None and not inputs:
        raise ValueError("input_conn_id only applies together with inputs.")
