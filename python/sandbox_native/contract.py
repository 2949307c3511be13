# SPDX-License-Identifier: Apache-2.0
"""What a backend promises and a toolset relies on.

One contract with two homes: in a process where Airflow was loaded before this module, the errors, the
spec and the results *are* the classes of ``airflow.providers.common.ai.sandbox.base`` and the two base
classes derive from its own. In any other process this package defines the same names itself.
:data:`home` says which it was.
"""

from __future__ import annotations

from sandbox_native import _attach, _home
from sandbox_native._home import (
    AttachedSandbox,
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
    home,
    require_airflow_home,
)
from sandbox_native._tags import (
    EXPIRES_AT_TAG,
    HOLDER_TAG,
    NETWORK_TAG,
    OWNER_TAG,
    WORKDIR_TAG,
    dag_run_owner,
    decode_network_policy,
    encode_network_policy,
    is_sandbox_handle,
)
from sandbox_native.names import new_sandbox_name as _new_sandbox_name  # noqa: F401 (the provider's name)
from sandbox_native.validate import positive_finite as _validate_positive_finite  # noqa: F401 (likewise)

__all__ = [
    "EXPIRES_AT_TAG",
    "HOLDER_TAG",
    "NETWORK_TAG",
    "OWNER_TAG",
    "WORKDIR_TAG",
    "AttachableSandboxBackend",
    "AttachedSandbox",
    "SandboxBackend",
    "SandboxError",
    "SandboxExecResult",
    "SandboxFileTooLargeError",
    "SandboxSpec",
    "SandboxTerminalError",
    "dag_run_owner",
    "decode_network_policy",
    "encode_network_policy",
    "home",
    "is_sandbox_handle",
    "require_airflow_home",
]


class SandboxBackend(_home.SandboxBackend):
    """Creates sandboxes on one service and works in them.

    A subclass sets ``name`` and brings ``create``, ``run_command`` and ``destroy``. Constructors do no
    I/O: they run whenever a Dag is parsed. All methods block; toolsets call them from threads.
    """


class AttachableSandboxBackend(SandboxBackend, _home.AttachableSandboxBackend):
    """A backend whose sandboxes can be found again by another process, by the tags they carry.

    A subclass brings ``read_tags`` and ``write_tags`` too, stamps :data:`OWNER_TAG`, :data:`EXPIRES_AT_TAG`,
    :data:`NETWORK_TAG` and :data:`WORKDIR_TAG` in ``create``, and inherits the rules. They guard against
    mistakes, such as a handle of another Dag run; whoever has the service's credentials can rewrite tags.
    """

    def attach(self, sandbox: str, *, owner: str, holder: str) -> AttachedSandbox:
        """Claim a sandbox for one run.

        The same ``holder`` may claim again, so a retried task finds its files.

        :param sandbox: the handle.
        :param owner: must equal the owner the sandbox was created for.
        :param holder: who uses it from now on.
        :return: what its creator recorded about it.
        :raises SandboxTerminalError: another owner, another holder, or the sandbox is gone.
        """
        return _attach.claim(self, sandbox, owner=owner, holder=holder)

    def release(self, sandbox: str, *, holder: str) -> None:
        """Give up the claim of ``holder``; a claim of anybody else stays. Never ends the sandbox.

        :raises SandboxTerminalError: the sandbox is gone.
        """
        _attach.release(self, sandbox, holder=holder)
