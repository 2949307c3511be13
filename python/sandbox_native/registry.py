# SPDX-License-Identifier: Apache-2.0
"""From a backend's name to the backend: the only module above ``backends/`` that knows one.

Nothing of a backend is imported before it is asked for, nor the contract: the names alone can be had where
the extension does not load.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox_native.contract import SandboxBackend

# Name -> module and class.
_BACKENDS = {
    "islo": ("sandbox_native.backends.islo", "IsloSandboxBackend"),
    "local": ("sandbox_native.backends.local", "LocalSandboxBackend"),
    "sbx": ("sandbox_native.backends.sbx", "SbxSandboxBackend"),
    "opensandbox": ("sandbox_native.backends.opensandbox", "OpenSandboxBackend"),
}


def names() -> tuple[str, ...]:
    """The names that :func:`backend` knows, sorted."""
    return tuple(sorted(_BACKENDS))


def backend_class(name: str) -> type[SandboxBackend]:
    """The class of a backend.

    :param name: one of :func:`names`.
    :raises ValueError: there is no backend of that name; the text lists those there are.
    """
    try:
        module, cls = _BACKENDS[name]
    except (KeyError, TypeError):
        raise ValueError(f"There is no backend {name!r}; known are: {', '.join(names())}.") from None
    found: type[SandboxBackend] = getattr(importlib.import_module(module), cls)
    return found


def backend(name: str, **options: Any) -> SandboxBackend:
    """Make a backend by its name.

    :param name: one of :func:`names`.
    :param options: arguments of the backend's constructor.
    :raises ValueError: there is no backend of that name, or the constructor refuses an option's value.
    :raises TypeError: the constructor does not know an option.
    """
    return backend_class(name)(**options)
