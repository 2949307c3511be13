# SPDX-License-Identifier: Apache-2.0
"""The test servers that columns share: started when first asked for, ended with the session."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

_stack = contextlib.ExitStack()
_lock = threading.Lock()
_running: dict[str, Any] = {}


def shared(name: str, start: Callable[[], contextlib.AbstractContextManager[Any]], **environment: Any) -> Any:
    """The server ``name``; ``environment``: variables, each a function of the server, set from now on."""
    with _lock:
        if name not in _running:
            server = _stack.enter_context(start())
            _running[name] = server
            for variable, value in environment.items():
                _set(variable, value(server))
        return _running[name]


def _set(variable: str, value: str) -> None:
    before = os.environ.get(variable)
    os.environ[variable] = value

    def restore() -> None:
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before

    _stack.callback(restore)


def close() -> None:
    _running.clear()
    _stack.close()


def opensandbox() -> Any:
    from servers.opensandbox.handle import OpenSandboxServer

    return shared(
        "opensandbox",
        # A real one keeps a finished stream open for a second, and some clients wait.
        lambda: OpenSandboxServer(linger=0.02),
        OPEN_SANDBOX_DOMAIN=lambda server: server.domain,
        OPEN_SANDBOX_API_KEY=lambda server: server.api_key,
    )


def islo() -> Any:
    from servers.islo.handle import IsloServer

    return shared(
        "islo",
        IsloServer,
        ISLO_API_KEY=lambda server: server.api_key,
        ISLO_BASE_URL=lambda server: server.control,
        ISLO_COMPUTE_URL=lambda server: server.compute,
    )
