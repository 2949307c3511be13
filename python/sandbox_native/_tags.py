# SPDX-License-Identifier: Apache-2.0
"""What is written on a sandbox so that another process can find it, and the values that travel there.

The names and formats are those of the provider 1.0.0: a sandbox that one of the two has made can be
attached to by the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from sandbox_native._home import SandboxSpec

OWNER_TAG = "airflow_owner"
"""Tag of who may attach: :attr:`SandboxSpec.owner` of the creation."""
HOLDER_TAG = "airflow_holder"
"""Tag of the run that uses the sandbox now; absent while nobody does."""
EXPIRES_AT_TAG = "airflow_expires_at"
"""Tag of the moment the service ends the sandbox: Unix time in whole seconds."""
NETWORK_TAG = "airflow_network"
"""Tag of the network policy of the creation, as :func:`encode_network_policy` writes it."""
WORKDIR_TAG = "airflow_workdir"
"""Tag of the directory that relative paths start from, where the creator chose one."""


def is_sandbox_handle(value: object) -> TypeGuard[str]:
    """Whether ``value`` can be the handle of a sandbox.

    A template whose XCom is missing renders to None, or to the text ``"None"`` where Jinja makes text of
    everything, or to nothing at all; none of them names a sandbox.
    """
    return isinstance(value, str) and value not in ("", "None")


def dag_run_owner(context: Mapping[str, Any]) -> str:
    """The owner that stands for a Dag run, unique in a deployment: ``"<dag_id>/<run_id>"``.

    :param context: a task's context, as ``get_current_context()`` returns it.
    """
    task_instance = context["ti"]
    return f"{task_instance.dag_id}/{task_instance.run_id}"


def encode_network_policy(spec: SandboxSpec) -> str:
    """The three network fields of ``spec`` as the value of :data:`NETWORK_TAG`.

    Compact JSON with sorted keys: equal policies are equal texts.
    """
    policy = {
        "block_network": spec.block_network,
        "allow_egress_to": [*(spec.allow_egress_to or ())],
        "allow_egress_to_cidrs": [*(spec.allow_egress_to_cidrs or ())],
    }
    return json.dumps(policy, sort_keys=True, separators=(",", ":"))


def decode_network_policy(value: str) -> SandboxSpec:
    """The spec that :func:`encode_network_policy` wrote, with its network fields alone.

    :raises ValueError: ``value`` was not written by it.
    """
    try:
        policy = json.loads(value)
        hosts, ranges = policy["allow_egress_to"], policy["allow_egress_to_cidrs"]
        return SandboxSpec(
            block_network=bool(policy["block_network"]),
            allow_egress_to=[str(host) for host in hosts] or None,
            allow_egress_to_cidrs=[str(block) for block in ranges] or None,
        )
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise ValueError(f"{value!r} is not a network policy stamp") from e
