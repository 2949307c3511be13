# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a ``SandboxSpec``, whatever the backend.

The class takes any values. One of the wrong type can mean the opposite of what was meant:
``block_network=None`` counts as false, which opens the network, and one string where a list of hosts belongs
is a list of letters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sandbox_native._home import SandboxTerminalError

_FIELDS = ("env", "block_network", "allow_egress_to", "allow_egress_to_cidrs", "owner")


def problem(spec: Any) -> str | None:
    """A sentence that names the field and what it has; None where all fields have values of their type.

    :param spec: what was given as a spec; None is no spec, which is well.
    """
    if spec is None:
        return None
    if not all(hasattr(spec, field) for field in _FIELDS):
        return f"spec must be a SandboxSpec, not {type(spec).__name__}."  # whose values may be secrets
    if not isinstance(spec.block_network, bool):
        return f"SandboxSpec.block_network must be True or False, got {spec.block_network!r}."
    if spec.env is not None and not isinstance(spec.env, Mapping):
        return f"SandboxSpec.env must map names to values, which {type(spec.env).__name__} does not."
    for field in ("allow_egress_to", "allow_egress_to_cidrs"):
        given = getattr(spec, field)
        if given is not None and (
            not isinstance(given, Collection) or isinstance(given, str | bytes | bytearray | Mapping)
        ):
            return f"SandboxSpec.{field} must be a list of strings, got {given!r}."
        for item in given or ():
            if not isinstance(item, str):
                return f"SandboxSpec.{field} must be a list of strings, got {item!r} in it."
    if spec.owner is not None and not isinstance(spec.owner, str):
        return f"SandboxSpec.owner must be a string, got {spec.owner!r}."
    return None


def refuse(spec: Any, *, any_bytes: bool = False) -> None:
    """For ``create`` of a backend, before it makes anything.

    :param any_bytes: whether a variable may have bytes that are no UTF-8, as ``os.fsdecode`` writes them.
    :raises SandboxTerminalError: a field has a value that is not of its type, or a variable cannot be one;
        the text names it, and never shows a variable's value.
    """
    if found := problem(spec):
        raise SandboxTerminalError(found)
    # Not in ``problem``: a mapping may get its values only now.
    for name, value in ((spec and spec.env) or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise SandboxTerminalError(
                f"SandboxSpec.env must map text to text, not {name!r} to {type(value).__name__}."
            )
        if not name or "=" in name or "\0" in name:
            raise SandboxTerminalError(f"SandboxSpec.env has the invalid name {name!r}.")
        if "\0" in value:
            raise SandboxTerminalError(f"SandboxSpec.env[{name!r}] contains a NUL character.")
        try:
            (name + value).encode("utf-8", "surrogateescape" if any_bytes else "strict")
        except UnicodeEncodeError as e:
            # Not from it: it carries the value.
            raise SandboxTerminalError(f"SandboxSpec.env[{name!r}] is not valid text: {e.reason}.") from None
