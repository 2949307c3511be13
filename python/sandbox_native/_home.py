# SPDX-License-Identifier: Apache-2.0
"""Chooses, once in a process, whose classes the contract consists of.

Where Airflow is loaded, the errors, the spec and the results are the provider's own classes, so that
its toolset can drive our backends and ours can drive its. Elsewhere they are those of
``_own_contract``: importing Airflow for the sake of a few classes would cost a second and 70 MiB.

Where Airflow is loaded without a usable provider there is nothing to be compatible with: the own classes are
taken, and :func:`require_airflow_home` explains why to whoever needs the provider's.
"""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Literal

_PROVIDER_MODULE = "airflow.providers.common.ai.sandbox.base"
_INSTALL = "pip install 'apache-airflow-providers-common-ai>=1.0.0,<2'"
# What this package builds on; a provider without one of them is another contract.
_NAMES = (
    "SandboxError",
    "SandboxTerminalError",
    "SandboxFileTooLargeError",
    "SandboxSpec",
    "SandboxExecResult",
    "AttachedSandbox",
    "SandboxBackend",
    "AttachableSandboxBackend",
)
_ABSTRACT = frozenset({"create", "run_command", "destroy"})

log = logging.getLogger(__name__)


def _provider_contract() -> ModuleType:
    """The provider's module, checked to be the contract this package knows.

    :raises ImportError: it is not installed, cannot be imported, or differs; the text says which.
    """
    import importlib

    try:
        module = importlib.import_module(_PROVIDER_MODULE)
    except ModuleNotFoundError as e:
        if e.name is None or not f"{_PROVIDER_MODULE}.".startswith(f"{e.name}."):
            raise ImportError(f"Airflow's common.ai provider cannot be imported: {e}") from e
        raise ModuleNotFoundError(
            f"Airflow's common.ai provider with sandboxes is not installed ({_INSTALL})", name=e.name
        ) from e
    except Exception as e:
        raise ImportError(f"Airflow's common.ai provider cannot be imported: {e}") from e
    missing = [name for name in _NAMES if not isinstance(getattr(module, name, None), type)]
    if missing:
        raise ImportError(
            f"The installed common.ai provider has no {', '.join(missing)} in {_PROVIDER_MODULE}; "
            f"this version of sandbox-native works with 1.x ({_INSTALL})"
        )
    abstract: frozenset[str] = module.SandboxBackend.__abstractmethods__
    if not abstract <= _ABSTRACT:
        raise ImportError(
            f"The installed common.ai provider asks backends for {', '.join(sorted(abstract - _ABSTRACT))}, "
            f"which this version of sandbox-native does not know; it works with 1.x ({_INSTALL})"
        )
    return module


def _choose() -> tuple[ModuleType, Literal["airflow", "own"], str]:
    from sandbox_native import _own_contract

    if "airflow" not in sys.modules:
        return (
            _own_contract,
            "own",
            "sandbox_native.contract was imported before Airflow, so it took its own classes, which "
            "Airflow's operators do not know. Import Airflow first: put `import airflow` (or "
            "`import sandbox_native.airflow`) above every other import of sandbox_native.",
        )
    try:
        return _provider_contract(), "airflow", ""
    except ModuleNotFoundError as e:
        return _own_contract, "own", f"{e}."
    except ImportError as e:
        # The provider is there, so its operators may meet our backends and not know them.
        log.warning("sandbox_native uses its own contract classes: %s", e)
        return _own_contract, "own", f"{e}."


if TYPE_CHECKING:
    from sandbox_native._own_contract import AttachableSandboxBackend as AttachableSandboxBackend
    from sandbox_native._own_contract import AttachedSandbox as AttachedSandbox
    from sandbox_native._own_contract import SandboxBackend as SandboxBackend
    from sandbox_native._own_contract import SandboxError as SandboxError
    from sandbox_native._own_contract import SandboxExecResult as SandboxExecResult
    from sandbox_native._own_contract import SandboxFileTooLargeError as SandboxFileTooLargeError
    from sandbox_native._own_contract import SandboxSpec as SandboxSpec
    from sandbox_native._own_contract import SandboxTerminalError as SandboxTerminalError

    home: Literal["airflow", "own"]
    _reason: str
else:
    _contract, home, _reason = _choose()
    globals().update({name: getattr(_contract, name) for name in _NAMES})


def require_airflow_home() -> None:
    """Make sure the contract consists of the provider's classes; for modules that build on Airflow.

    :raises ImportError: it does not; the text says why and what to do.
    """
    if home != "airflow":
        raise ImportError(_reason)
