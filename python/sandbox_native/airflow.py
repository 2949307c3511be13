# SPDX-License-Identifier: Apache-2.0
"""The sandbox toolset for Airflow's ``AgentOperator``, in place of the provider's.

Importing this loads Airflow and the provider first, so that there is one contract in the process; see
:mod:`sandbox_native.contract`.
"""

from __future__ import annotations

import logging
import re
import sys
import time  # noqa: F401 (as in the provider's module, where its clock can be replaced)
from collections.abc import Mapping
from typing import Any

import airflow.providers.common.ai.toolsets.sandbox as provider
from airflow.providers.common.ai.utils.toolset_base import AirflowToolset
from airflow.providers.common.ai.utils.toolsets import iter_toolsets
from airflow.providers.common.compat.sdk import ObjectStoragePath, get_current_context, redact
from pydantic_ai.toolsets.abstract import AbstractToolset

from sandbox_native import contract
from sandbox_native._body import SandboxToolsetBody
from sandbox_native.contract import (
    AttachableSandboxBackend,
    SandboxBackend,
    SandboxError,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
    dag_run_owner,
    is_sandbox_handle,
)
from sandbox_native.descriptions import LIST_DIRECTORY, READ_FILE, RUN_COMMAND, WRITE_FILE
from sandbox_native.manifest import as_dicts
from sandbox_native.masking import Secrets

contract.require_airflow_home()

__all__ = [
    "LIST_DIRECTORY",
    "MANIFEST_KEY",
    "READ_FILE",
    "RUN_COMMAND",
    "WRITE_FILE",
    "AttachableSandboxBackend",
    "ObjectStoragePath",
    "SandboxBackend",
    "SandboxError",
    "SandboxFileTooLargeError",
    "SandboxSpec",
    "SandboxTerminalError",
    "SandboxToolset",
    "dag_run_owner",
    "get_current_context",
    "is_sandbox_handle",
    "push_manifest",
]

log = logging.getLogger(__name__)

MANIFEST_KEY = "exports"
"""The XCom key that :func:`push_manifest` pushes to."""

# Taken for the length of the longest secret, in characters, where the masker does not tell them: more than
# a private key or a service account's key file has.
_LONG_SECRET = 8192


class SandboxToolset(SandboxToolsetBody, provider.SandboxToolset):  # type: ignore[misc]
    """Gives an agent in an Airflow task a disposable sandbox, with the interface of the provider's toolset.

    A drop-in: ``AgentOperator`` treats it as its own (durable runs, reviews by a person, tool approval,
    templates). What the tools return goes through Airflow's secrets masker, before any cut and once more by
    ``call_tool``, which is the provider's own. The destinations of ``exports`` are ``ObjectStoragePath``
    URLs; ``attach_to``, ``exports`` and ``export_conn_id`` are templates.
    """

    _log = log
    # In so many words: an override would switch off the masking of results and errors.
    call_tool = AirflowToolset.call_tool

    def _current_secrets(self) -> Secrets:
        return registered_secrets()

    def _task_context(self) -> Mapping[str, Any] | None:
        try:
            context: Mapping[str, Any] = get_current_context()
        except RuntimeError:
            return None
        return context

    def _export_target(self, destination: str) -> ObjectStoragePath:
        # An explicit None takes away a connection that the URL itself names, before Airflow 3.2.
        if self._export_conn_id is None:
            return ObjectStoragePath(destination)
        return ObjectStoragePath(destination, conn_id=self._export_conn_id)

    def _input_target(self, url: str) -> ObjectStoragePath:
        if self._input_conn_id is None:
            return ObjectStoragePath(url)
        return ObjectStoragePath(url, conn_id=self._input_conn_id)

    def _report_read(self, url: str) -> None:
        """Tell Airflow's lineage of the input."""
        try:
            from airflow.sdk.lineage import get_hook_lineage_collector

            get_hook_lineage_collector().add_input_asset(context=ObjectStoragePath(url), uri=_asset_uri(url))
        except Exception:
            log.debug("Could not report %s to the lineage collector", url, exc_info=True)

    def _report_published(self, destination: str) -> None:
        """Tell Airflow's lineage of the file: its own path objects did not write it."""
        try:
            from airflow.sdk.lineage import get_hook_lineage_collector

            get_hook_lineage_collector().add_output_asset(
                context=ObjectStoragePath(destination), uri=_asset_uri(destination)
            )
        except Exception:
            log.debug("Could not report %s to the lineage collector", destination, exc_info=True)


def _asset_uri(url: str) -> str:
    """``url`` without the connection it may name: the asset is the same by whatever way it is reached."""
    protocol, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{protocol}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def push_manifest(context: Mapping[str, Any], result: Any = None) -> None:
    """Push the records of what the task's agent exported to XCom, under the key ``exports``.

    For an operator's ``post_execute``: ``AgentOperator(..., post_execute=push_manifest)``. The value is a
    list of mappings with ``path``, ``destination``, ``bytes``, ``seconds`` and ``sha256``.

    :param context: of the task that ran.
    :param result: what the task returned; not used.
    """
    task = context["task"]
    records: list[dict[str, Any]] = []
    for declared in (*(task.toolsets or ()), *(task.agent_params.get("toolsets") or ())):
        # What a function makes for each run is not known here.
        for toolset in iter_toolsets(declared) if isinstance(declared, AbstractToolset) else ():
            if isinstance(toolset, SandboxToolset):
                records += as_dicts(toolset.manifest)
    context["ti"].xcom_push(key=MANIFEST_KEY, value=records)


def registered_secrets() -> Secrets:
    """The secrets that Airflow's masker knows now.

    It keeps them as patterns, each a secret escaped for a regular expression. Should it come to keep them in
    another way, its own ``redact`` still masks them here, and cuts are made as if they were long.
    """
    masker = getattr(sys.modules[redact.__module__], "_secrets_masker", lambda: None)()
    patterns = getattr(masker, "patterns", None)
    if isinstance(patterns, set):
        escaped = list(patterns)
        values = [re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL) for pattern in escaped]
        if [re.escape(value) for value in values] == escaped:
            return Secrets(values)
    return Secrets((), extra=lambda text: str(redact(text)), longest=_LONG_SECRET)
