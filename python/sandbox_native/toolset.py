# SPDX-License-Identifier: Apache-2.0
"""The sandbox toolset for pydantic-ai agents; Airflow tasks have :mod:`sandbox_native.airflow`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic_ai.toolsets.abstract import AbstractToolset

from sandbox_native._body import SandboxToolsetBody
from sandbox_native.contract import SandboxBackend
from sandbox_native.descriptions import LIST_DIRECTORY, READ_FILE, RUN_COMMAND, WRITE_FILE
from sandbox_native.masking import Secrets

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.toolsets.abstract import ToolsetTool

__all__ = ["LIST_DIRECTORY", "READ_FILE", "RUN_COMMAND", "WRITE_FILE", "SandboxToolset"]

log = logging.getLogger(__name__)


class SandboxToolset(SandboxToolsetBody, AbstractToolset[Any]):
    """Gives an agent a disposable sandbox and four tools to work in it.

    They are ``run_command``, ``read_file``, ``write_file`` and ``list_directory``.
    The sandbox is created by the first tool call of a run, serves all its calls, and is destroyed when the
    run ends; before that, the files named in ``exports`` are copied to where they are to go, if the run
    succeeded. Pass the toolset to an ``Agent``, or enter it by ``with`` or ``async with`` yourself.

    What fails in the sandbox is told to the model. What the model cannot mend raises
    ``SandboxTerminalError`` and ends the run; a file that was promised and cannot be exported does, too.

    See the constructor of the base class for the parameters. This class has one more:

    :param secrets: texts that the model must not see. Each is replaced by ``***`` wherever it turns up, in
        part, too, where a text was cut.
    """

    _log = log

    def __init__(self, backend: SandboxBackend, *, secrets: Iterable[str] = (), **options: Any) -> None:
        super().__init__(backend, **options)
        for name in ("export_conn_id", "input_conn_id"):
            if options.get(name) is not None:
                raise ValueError(
                    f"{name} is a connection of Airflow, which this toolset has none of. Leave it out: what "
                    "opens the URL takes its account from the environment. In an Airflow program, import "
                    "airflow first, or take SandboxToolset from sandbox_native.airflow."
                )
        if isinstance(secrets, str | bytes) or not isinstance(secrets, Iterable):
            raise ValueError("secrets has to be several strings, not one.")
        taken = tuple(secrets)
        for at, secret in enumerate(taken):
            if not isinstance(secret, str):
                # Not the value: it may be one all the same.
                raise ValueError(f"secrets[{at}] must be a string, got a {type(secret).__name__}.")
        self._secrets = Secrets(taken)

    def _current_secrets(self) -> Secrets:
        return self._secrets

    def _export_target(self, destination: str) -> Any:
        from upath import UPath

        return UPath(destination)

    def _input_target(self, url: str) -> Any:
        return self._export_target(url)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run a tool; see :meth:`execute_tool`."""
        return await self.execute_tool(name, tool_args, ctx=ctx, tool=tool)
