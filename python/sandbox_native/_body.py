# SPDX-License-Identifier: Apache-2.0
"""What the toolset for pydantic-ai and the one for Airflow have in common: all but ``call_tool``.

The life of a sandbox is here; what the four tools do is in :mod:`sandbox_native._tools`.
"""

from __future__ import annotations

import logging
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from sandbox_native import _arguments as arguments
from sandbox_native import attaching, calls, descriptions, export_plan, input_plan, validate
from sandbox_native._run import Run
from sandbox_native._tools import Limits, Tools, validators
from sandbox_native.contract import (
    SandboxBackend,
    SandboxError,
    SandboxSpec,
    SandboxTerminalError,
    is_sandbox_handle,
)
from sandbox_native.manifest import ExportedFile
from sandbox_native.masking import Secrets

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.toolsets.abstract import ToolsetTool

    from sandbox_native.inputs import Found


class SandboxToolsetBody:
    """The toolset without ``call_tool``. Holds plain values only until it is entered."""

    agent_template_fields: Sequence[str] = (
        "attach_to",
        "_exports",
        "_export_conn_id",
        "_export_manifest",
        "_inputs",
        "_input_conn_id",
    )
    """Rendered by Airflow's ``AgentOperator``, on a copy."""

    _log: ClassVar[logging.Logger]

    def __init__(
        self,
        backend: SandboxBackend,
        *,
        spec: SandboxSpec | None = None,
        default_command_timeout: float = 60.0,
        max_command_timeout: float = 300.0,
        max_output_lines: int = 2000,
        max_output_bytes: int = 50 * 1024,
        max_read_bytes: int = 5 * 1024 * 1024,
        tool_prefix: str = "",
        attach_to: str | None = None,
        owner: str | None = None,
        exports: Mapping[str, str | Mapping[str, Any]] | None = None,
        export_conn_id: str | None = None,
        max_export_bytes: int = 1024 * 1024 * 1024,
        export_attached: bool = False,
        export_manifest: str | None = None,
        checksum: bool = False,
        inputs: Mapping[str, str | bytes | Mapping[str, Any]] | None = None,
        input_conn_id: str | None = None,
        max_input_bytes: int = 1024 * 1024 * 1024,
    ) -> None:
        """
        :param backend: creates the sandbox and works in it.
        :param spec: what to create it with. By default no environment variables and no network.
        :param default_command_timeout: seconds a command gets when the model does not say.
        :param max_command_timeout: seconds a command gets at most, whatever the model says.
        :param max_output_lines: lines shown to the model of each output stream, file page and listing.
        :param max_output_bytes: bytes of UTF-8 shown, likewise. Both caps hold together.
        :param max_read_bytes: size of the largest file that ``read_file`` moves.
        :param tool_prefix: begins the names of the tools, as ``<prefix>_run_command``, for an agent with more
            than one sandbox.
        :param attach_to: the handle of a sandbox that another task made, to use instead of creating one.
            It is claimed for the run, given back afterwards, and never destroyed.
        :param owner: who that sandbox was made for. By default the Dag run of the Airflow task.
        :param exports: files that leave the sandbox when the run has succeeded: path in the sandbox to the
            URL of the file or object it becomes. A path that ends in ``/`` is a directory: it becomes one
            ``.tar.gz``, or where the URL ends in ``/``, too, a file for each of its files. In place of a URL
            there may be a mapping of options: ``to``, the URL; ``glob=True``: the path is a pattern (else its
            characters are taken as they are); ``required=False``: it may be missing; ``max_bytes``, and for
            several files ``max_files``; ``on_failure=True``: copied also when the run failed.
        :param export_conn_id: the Airflow connection for those URLs.
        :param max_export_bytes: size in bytes of the largest file that is exported, or of all the files of a
            directory or pattern.
        :param export_attached: allow ``exports`` together with ``attach_to``.
        :param export_manifest: URL of a JSON file with a record of each exported file, written last.
        :param checksum: make a sha256 of each file as it is copied, for the records.
        :param inputs: what is in the sandbox before the first command: path in the sandbox to the URL of a
            file, to the URL of a folder where both end in ``/``, or to bytes. In place of these there may be
            a mapping: ``from``, the URL, or ``text``; ``required=False``: it may be missing; ``max_bytes``,
            ``max_files``. An input that is missing or too large fails the run before the model is asked.
        :param input_conn_id: the Airflow connection for the URLs of ``inputs``.
        :param max_input_bytes: size in bytes of the largest input, the files of a folder together.
        :raises ValueError: a value is not usable, or two do not go together; the text names them.
        """
        arguments.check_backend(backend, spec)
        limits = Limits(
            default_command_timeout=default_command_timeout,
            max_command_timeout=max_command_timeout,
            max_output_lines=max_output_lines,
            max_output_bytes=max_output_bytes,
            max_read_bytes=max_read_bytes,
        )
        arguments.check_tool_prefix(tool_prefix)
        validate.flag(export_attached, "export_attached")
        validate.flag(checksum, "checksum")
        arguments.check_ownership(
            backend,
            spec=spec,
            attach_to=attach_to,
            owner=owner,
            exports=bool(exports) and not export_attached,
        )
        arguments.check_exports(exports, max_export_bytes, export_conn_id, export_manifest)
        if export_attached and (attach_to is None or not exports):
            raise ValueError("export_attached only applies together with attach_to and exports.")
        arguments.check_inputs(inputs, max_input_bytes, input_conn_id, attached=attach_to is not None)
        self._backend = backend
        self._limits = limits
        self.attach_to = attach_to
        # attach_to is a template: what it renders to must not decide which kind of toolset this is.
        self._attach_mode = attach_to is not None
        self._owner = owner
        # A backend takes None for "anything goes", which is not what the default promises.
        self._spec = SandboxSpec() if spec is None else spec
        # Plain dictionaries, which Airflow's templating looks into.
        self._exports = {
            path: dict(value) if isinstance(value, Mapping) else value
            for path, value in (exports or {}).items()
        }
        self._export_conn_id = export_conn_id
        self._max_export_bytes = int(max_export_bytes)
        self._export_manifest = export_manifest
        self._checksum = checksum
        self._inputs = {path: input_plan.plain(value) for path, value in (inputs or {}).items()}
        self._input_conn_id = input_conn_id
        self._max_input_bytes = int(max_input_bytes)
        # Shared with the copies that runs are made on, so that the author finds it on what he has.
        self._published: list[ExportedFile] = []
        self._tool_prefix = tool_prefix
        # One that runs were made from (for_run) has no sandbox of its own, so nothing to export either.
        self._forked = False
        self._run: Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy is another toolset: it does not share the run, its sandbox or its threads.
        return {**self.__dict__, "_run": None, "_forked": False, "_published": []}

    @abstractmethod
    def _current_secrets(self) -> Secrets:
        """What must not reach the model, as of now."""

    @abstractmethod
    def _export_target(self, destination: str) -> Any:
        """The path object of an export's URL."""

    @abstractmethod
    def _input_target(self, url: str) -> Any:
        """The path object of an input's URL."""

    def _task_context(self) -> Mapping[str, Any] | None:
        """The context of the Airflow task this runs in, if it does."""
        return None

    def _report_published(self, destination: str) -> None:
        """Told every exported destination that is in place."""

    def _report_read(self, url: str) -> None:
        """Told the URL of every input that was put into a sandbox."""

    # ---- the tools

    @property
    def id(self) -> str:
        """``sandbox-<backend>``, with ``-<prefix>`` if there is one."""
        return f"sandbox-{self._backend.name}" + (f"-{self._tool_prefix}" if self._tool_prefix else "")

    def _tool_name(self, base: str) -> str:
        return f"{self._tool_prefix}_{base}" if self._tool_prefix else base

    def _base_name(self, tool_name: str) -> str | None:
        return next((base for base in descriptions.SCHEMAS if self._tool_name(base) == tool_name), None)

    @property
    def _network_note(self) -> str:
        if not self._attach_mode:
            return descriptions.network_note(self._spec)
        return (self._run and self._run.note) or descriptions.ATTACHED_UNKNOWN

    @property
    def _export_note(self) -> str:
        return descriptions.exports_note(self._entries, attached=self._attach_mode)

    @property
    def _input_note(self) -> str:
        if self._run is not None and self._run.inputs is not None:
            return descriptions.inputs_note((one.path, one.size, len(one.seeds)) for one in self._run.inputs)
        return descriptions.inputs_note((path, None, None) for path in self._inputs)

    @property
    def _entries(self) -> list[export_plan.Entry]:
        return export_plan.entries(self._exports, self._max_export_bytes)

    @property
    def manifest(self) -> tuple[ExportedFile, ...]:
        """A record of each file that the last run exported; of several at a time, the last to do so."""
        return tuple(self._published)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Describe the four tools. They share a sandbox, so a model's calls run one after the other."""
        from pydantic_ai.tools import ToolDefinition
        from pydantic_ai.toolsets.abstract import ToolsetTool

        tools: dict[str, ToolsetTool[Any]] = {}
        for base, schema in descriptions.SCHEMAS.items():
            description, metadata = descriptions.DESCRIPTIONS[base], None
            if base == descriptions.RUN_COMMAND:
                description = f"{description} {self._network_note}{self._input_note}{self._export_note}"
                # Tells code modes that this argument is code already, not to be called from other code.
                metadata = {"code_arg_name": "command", "code_arg_language": "shell"}
            name = self._tool_name(base)
            tools[name] = ToolsetTool(
                toolset=self,  # type: ignore[arg-type]  # the classes below derive from AbstractToolset
                tool_def=ToolDefinition(
                    name=name,
                    description=description,
                    parameters_json_schema=schema,
                    sequential=True,
                    metadata=metadata,
                    return_schema={"type": "string"},
                ),
                max_retries=2,
                args_validator=validators()[base],
            )
        return tools

    async def execute_tool(
        self, name: str, tool_args: dict[str, Any], *, ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        """Run a tool and return the text for the model, with secrets masked.

        :param name: the tool's name with its prefix.
        :param tool_args: its validated arguments.
        :raises ValueError: there is no such tool.
        :raises ModelRetry: the model can do something about what went wrong.
        :raises SandboxTerminalError: it cannot.
        """
        base = self._base_name(name)
        if base is None:
            raise ValueError(f"Unknown tool: {name!r}")
        run = self._run
        if run is None or not run.open:
            raise SandboxTerminalError(
                "The SandboxToolset is not open. Call its tools inside `with sandbox:` or `async with "
                "sandbox:`, at the end of which the sandbox is destroyed."
            )
        sandbox = await self._ensure_sandbox(run)
        tools = Tools(self._backend, self._limits, self._current_secrets, run.expires_at, run.last_file)
        outcome = await run.call(tools.execute, base, name, sandbox, tool_args)
        if outcome.sandbox_terminated:
            run.lost(sandbox)
            if self._attach_mode:
                raise SandboxTerminalError(
                    f"The sandbox this task attached to, {self.attach_to!r}, stopped while running a "
                    "command. It belongs to the task that created it, so no other can take its place."
                )
        return outcome.text

    # ---- runs

    async def for_run(self, ctx: RunContext[Any]) -> Any:
        """Return a copy with a sandbox of its own, so that overlapping runs never share one.

        :raises SandboxTerminalError: ``attach_to`` is no handle.
        """
        import copy

        if self._attach_mode:
            _ = self._attached_handle
        self._forked = True
        forked = copy.copy(self)
        forked._published = self._published
        return forked

    @property
    def _attached_handle(self) -> str:
        """``attach_to`` as rendered. A missing XCom renders to None or to "None", which is no sandbox."""
        handle = self.attach_to
        if not is_sandbox_handle(handle):
            raise SandboxTerminalError(
                f"attach_to rendered to {handle!r}, which is not a sandbox handle. Look at what the task "
                "that creates the sandbox pushes, and whether this task runs after it."
            )
        return handle

    async def __aenter__(self) -> Self:
        # Read here: the exception being handled belongs to this frame's thread.
        run = self._begin(sys.exc_info()[1])
        if run is not None:
            try:
                await calls.run(self._open_run, run)
            except BaseException as e:
                self._run = None
                run.failed = True
                await self._close_async(run, e)
                raise
        return self

    async def __aexit__(self, *args: Any) -> bool | None:
        # pydantic-ai leaves its toolsets by an exit stack that passes no exception, whatever happened. What
        # is being handled now and was not when the run began is why it ended.
        handling = sys.exc_info()[1]
        if (run := self._end(args[0] is not None, handling)) is None:
            return None
        await self._close_async(run, handling)
        return None

    async def _close_async(self, run: Run, handling: BaseException | None) -> None:
        if isinstance(handling, GeneratorExit):
            calls.complete_sync(self._close, run)  # a coroutine that is being closed may not await
        else:
            await calls.complete(self._close, run)

    def __enter__(self) -> Self:
        run = self._begin(sys.exc_info()[1])
        if run is not None:
            try:
                calls.run_sync(self._open_run, run)
            except BaseException:
                self._run = None
                run.failed = True
                calls.complete_sync(self._close, run)
                raise
        return self

    def __exit__(self, *args: Any) -> bool | None:
        # A with statement passes what ended its block.
        if (run := self._end(args[0] is not None, None)) is not None:
            calls.complete_sync(self._close, run)
        return None

    def _begin(self, handling: BaseException | None) -> Run | None:
        """The run to open, or None if it has begun already."""
        if self._run is not None:
            self._run.depth += 1
            return None
        self._run = Run(handling)
        return self._run

    def _end(self, failed: bool, handling: BaseException | None) -> Run | None:
        """The run to close, or None if somebody else still has it open."""
        run = self._run
        if run is None:
            return None
        run.failed |= failed or (handling is not None and handling is not run.handling)
        run.depth -= 1
        if run.depth:
            return None
        self._run = None
        return run

    def _open_run(self, run: Run) -> None:
        """Attach now, so that a wrong handle costs nothing; an own sandbox is created by the first call."""
        if self._exports:
            self._check_destinations()
        if self._inputs:
            from sandbox_native import inputs

            wanted = input_plan.entries(self._inputs, self._max_input_bytes)
            run.inputs = inputs.look(wanted, self._input_target, self._log)
        if self._attach_mode:
            self._attach(run)
        run.open = True

    def _check_destinations(self) -> None:
        from sandbox_native import exports

        entries = self._entries
        if self._export_manifest is not None:
            entries.append(
                export_plan.entry(
                    "manifest", self._export_manifest, self._max_export_bytes, argument="export_manifest"
                )
            )
        exports.check(entries, self._export_target)

    def _attach(self, run: Run) -> None:
        handle = self._attached_handle
        who = attaching.identity(self._owner, self._task_context())
        attached = attaching.claim(self._attachable_backend, handle, who)
        run.sandbox, run.holder = handle, who.holder
        remaining = attached.remaining_lifetime
        run.expires_at = None if remaining is None else time.monotonic() + remaining
        run.note = descriptions.attached_note(attached.network, remaining)
        left = "an unknown time" if remaining is None else f"{remaining:.0f}s"
        self._log.info(
            "Attached to sandbox %s on backend %s as %s, with %s to go",
            handle,
            self._backend.name,
            who.holder,
            left,
        )

    @property
    def _attachable_backend(self) -> attaching.Attachable:
        # The constructor has seen to it that it is one.
        return cast("attaching.Attachable", self._backend)

    async def _ensure_sandbox(self, run: Run) -> str:
        if self._attach_mode:
            if run.sandbox is None:
                raise SandboxTerminalError(
                    f"Not attached to sandbox {self.attach_to!r}: the sandbox ended, and it is not this "
                    "toolset's to replace."
                )
            return run.sandbox
        try:
            return await run.ensure_sandbox(lambda: self._create(run), self._destroy)
        except SandboxTerminalError:
            raise
        except SandboxError as e:
            # The model has no part in it, so it cannot mend it.
            raise SandboxTerminalError(
                f"Could not provision a sandbox on backend {self._backend.name!r}: {e}"
            ) from e

    def _create(self, run: Run) -> str:
        sandbox = self._backend.create(spec=self._spec)
        if run.inputs:
            try:
                self._seed(run.inputs, sandbox)
            except BaseException:
                with calls.uncancellable():
                    self._destroy(sandbox)
                raise
        return sandbox

    def _seed(self, found: Sequence[Found], sandbox: str) -> None:
        from sandbox_native import inputs

        inputs.seed(self._backend, sandbox, found, self._log)
        for one in found:
            if one.url is not None:
                self._report_read(one.url)

    def _close(self, run: Run) -> None:
        """End the run: its calls, its exports, and its sandbox or the claim on it in any case."""
        sandbox = run.close()
        try:
            if self._exports:
                self._deliver(run, sandbox)
        finally:
            with calls.uncancellable():
                if self._attach_mode:
                    if run.holder is not None:
                        attaching.release(
                            self._attachable_backend, self._attached_handle, run.holder, self._log
                        )
                elif sandbox is not None:
                    self._destroy(sandbox)

    def _deliver(self, run: Run, sandbox: str | None) -> None:
        """Export what the run leaves; of one that failed, what is to be saved then, which raises nothing."""
        from sandbox_native._delivery import Delivery

        entries = self._entries
        if self._forked and (sandbox is None or self._attach_mode):
            return  # the runs made from this one export
        if sandbox is None:
            missing = [repr(entry.path) for entry in entries if entry.required]
            if missing and not run.failed:
                raise SandboxTerminalError(
                    "The run ended with no sandbox standing, so there is nothing to export: "
                    f"{', '.join(missing)}."
                )
            return
        delivery = Delivery(
            self._backend,
            sandbox,
            resolve=self._export_target,
            log=self._log,
            checksum=self._checksum,
            manifest_url=self._export_manifest,
            on_published=self._report_published,
        )
        if run.failed:
            self._published[:] = delivery.salvage(entries)
            return
        try:
            self._published[:] = delivery.deliver(entries)
        except Exception:
            self._published[:] = delivery.salvage(entries)
            raise

    def _destroy(self, sandbox: str) -> None:
        """End the sandbox. The work is done and paid for, so a failure is logged, not raised."""
        try:
            self._backend.destroy(sandbox)
        except Exception:
            self._log.warning(
                "Failed to destroy sandbox %s on backend %s; it may need manual cleanup",
                sandbox,
                self._backend.name,
                exc_info=True,
            )
