# SPDX-License-Identifier: Apache-2.0
"""What the four tools do: one backend call each, and the text that the model gets for it.

All of it runs on the thread of the call, masking and cutting of large texts included.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_ai.exceptions import ModelRetry

from sandbox_native import descriptions, operations, output
from sandbox_native._pages import LastFile
from sandbox_native.contract import (
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxTerminalError,
)
from sandbox_native.masking import Secrets
from sandbox_native.validate import positive_finite

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator


class Limits:
    """The bounds of the tools, in seconds, lines and bytes."""

    def __init__(
        self,
        *,
        default_command_timeout: float,
        max_command_timeout: float,
        max_output_lines: int,
        max_output_bytes: int,
        max_read_bytes: int,
    ) -> None:
        """:raises ValueError: one is no positive finite number, or the default is above the maximum."""
        positive_finite(default_command_timeout, "default_command_timeout")
        positive_finite(max_command_timeout, "max_command_timeout")
        positive_finite(max_output_lines, "max_output_lines")
        positive_finite(max_output_bytes, "max_output_bytes")
        positive_finite(max_read_bytes, "max_read_bytes")
        if default_command_timeout > max_command_timeout:
            raise ValueError(
                f"default_command_timeout ({default_command_timeout}) must not exceed max_command_timeout "
                f"({max_command_timeout})."
            )
        self.default_command_timeout = default_command_timeout
        self.max_command_timeout = max_command_timeout
        self.max_output_lines = max(1, int(max_output_lines))
        self.max_output_bytes = max(1, int(max_output_bytes))
        self.max_read_bytes = max(1, int(max_read_bytes))

    def command_timeout(self, requested: float | None, expires_at: float | None) -> float:
        """Seconds for a command.

        :param requested: what the model asked for.
        :param expires_at: when the sandbox ends on the monotonic clock, if known. A command is told what is
            left, so that it can end in time.
        :raises ModelRetry: the model asked for no time at all.
        """
        if requested is None:
            timeout = self.default_command_timeout
        elif math.isfinite(requested) and requested > 0:
            timeout = min(requested, self.max_command_timeout)
        else:
            raise ModelRetry(f"timeout_seconds must be greater than 0, got {requested}.")
        if expires_at is not None:
            timeout = min(timeout, max(1.0, expires_at - time.monotonic()))
        return timeout


class Outcome(NamedTuple):
    text: str
    sandbox_terminated: bool = False


class Tools:
    """The tools of one run."""

    def __init__(
        self,
        backend: SandboxBackend,
        limits: Limits,
        secrets: Callable[[], Secrets],
        expires_at: float | None,
        last_file: LastFile,
    ) -> None:
        """
        :param secrets: gives the secrets of the moment; a command may be what registers one.
        :param last_file: that of the run.
        """
        self._backend = backend
        self._limits = limits
        self._secrets = secrets
        self._expires_at = expires_at
        self._last_file = last_file

    def execute(self, base: str, name: str, sandbox: str, args: dict[str, Any]) -> Outcome:
        """Do what the tool ``base``, which the model knows as ``name``, is for.

        :raises ModelRetry: the model can do something about what went wrong.
        :raises SandboxTerminalError: it cannot.
        """
        if base != descriptions.READ_FILE:
            self._last_file.forget()
        try:
            if base == descriptions.RUN_COMMAND:
                return self._run_command(sandbox, args)
            if base == descriptions.READ_FILE:
                return Outcome(self._read_file(sandbox, args))
            if base == descriptions.WRITE_FILE:
                return Outcome(self._write_file(sandbox, args))
            return Outcome(self._list_directory(sandbox, args))
        except SandboxTerminalError:
            raise
        except SandboxFileTooLargeError as e:
            raise self._retry(
                f"{e.path!r} has {output.format_size(e.size_bytes)}, over the "
                f"{output.format_size(e.max_bytes)} read limit. Take out what you need of it by a shell "
                "command, such as head, tail, sed -n or grep."
            ) from e
        except SandboxError as e:
            raise self._retry(f"The {name} tool failed: {self._secrets().mask(str(e))}") from e

    def _retry(self, text: str) -> ModelRetry:
        # What went wrong may quote what the model sent or a service answered, at any length.
        limits = self._limits
        return ModelRetry(
            output.truncate_output(text, max_lines=limits.max_output_lines, max_bytes=limits.max_output_bytes)
        )

    def _run_command(self, sandbox: str, args: dict[str, Any]) -> Outcome:
        timeout = self._limits.command_timeout(args.get("timeout_seconds"), self._expires_at)
        result = self._backend.run_command(
            sandbox,
            args["command"],
            timeout=timeout,
            max_output_bytes=self._limits.max_output_bytes + self._secrets().margin,
        )
        streams = (
            ("[stdout]", result.stdout, result.stdout_truncated),
            ("[stderr]", result.stderr, result.stderr_truncated),
        )
        secrets = self._secrets()
        shown = "\n".join(
            f"{label}\n{self._tail(text, cut, result, secrets)}"
            for label, text, cut in streams
            if text or cut
        )
        notes = " ".join(_notes(result, timeout))
        return Outcome((shown or "(no output)") + (f"\n{notes}" if notes else ""), result.sandbox_terminated)

    def _tail(self, text: str, cut: bool, result: SandboxExecResult, secrets: Secrets) -> str:
        # A command that was stopped may have been in the midst of a word.
        stopped = cut or result.timed_out or result.sandbox_terminated
        masked = secrets.mask_tail(text, start_cut=cut, end_cut=stopped)
        if not masked:
            # truncate_output has no marker for what is empty, and "nothing" is not what there was.
            return "[... earlier output truncated]"
        return output.truncate_output(
            masked,
            max_lines=self._limits.max_output_lines,
            max_bytes=self._limits.max_output_bytes,
            already_truncated=cut,
        )

    def _read_file(self, sandbox: str, args: dict[str, Any]) -> str:
        offset = args.get("offset")
        content = self._last_file.read(
            self._backend,
            sandbox,
            args["path"],
            self._secrets,
            max_bytes=self._limits.max_read_bytes,
            worth=self._limits.max_output_bytes if offset is not None and offset > 1 else None,
        )
        return output.render_file_window(
            content,
            offset=offset,
            limit=args.get("limit"),
            max_lines=self._limits.max_output_lines,
            max_bytes=self._limits.max_output_bytes,
            next_offset_hint=True,
        )

    def _write_file(self, sandbox: str, args: dict[str, Any]) -> str:
        path = args["path"]
        try:
            data = args["content"].encode("utf-8")
        except UnicodeEncodeError as e:
            raise ModelRetry(
                f"content cannot be written as UTF-8: character {e.start} is half of a surrogate pair."
            ) from e
        operations.write_file(self._backend, sandbox, path, data)
        return f"Wrote {len(data)} bytes to {path!r}."

    def _list_directory(self, sandbox: str, args: dict[str, Any]) -> str:
        entries = operations.list_directory(self._backend, sandbox, args.get("path") or ".")
        if not entries:
            return "(empty)"
        names = (_entry(name, is_dir) for name, is_dir in sorted(entries))
        return output.truncate_listing(
            self._secrets().mask("\n".join(names)),
            max_lines=self._limits.max_output_lines,
            max_bytes=self._limits.max_output_bytes,
        )


def _notes(result: SandboxExecResult, timeout: float) -> list[str]:
    notes = []
    if result.timed_out:
        # What the command had, not what was asked for: else the model only asks for more.
        had = timeout if result.applied_timeout is None else result.applied_timeout
        notes.append(f"[timed out after {had:g}s]")
    elif result.exit_code:
        notes.append(f"[exit code: {result.exit_code}]")
    if result.sandbox_terminated:
        notes.append("[sandbox was replaced; files from earlier calls are gone]")
    return notes


def _entry(name: str, is_dir: bool) -> str:
    # One entry a line: a name with a line end in it is shown as a literal.
    shown = repr(name) if "\n" in name else name
    return f"{shown}/" if is_dir else shown


@functools.cache
def validators() -> dict[str, SchemaValidator]:
    """The validators of the tools' arguments. Argument names that are not known are refused."""
    from pydantic_core import SchemaValidator, core_schema

    kinds: dict[str, Callable[[], core_schema.CoreSchema]] = {
        "string": core_schema.str_schema,
        "integer": core_schema.int_schema,
        "number": core_schema.float_schema,
        "null": core_schema.none_schema,
    }

    def value(kind: str | list[str]) -> core_schema.CoreSchema:
        if isinstance(kind, str):
            return kinds[kind]()
        return core_schema.union_schema([kinds[one]() for one in kind])

    return {
        base: SchemaValidator(
            core_schema.typed_dict_schema(
                {
                    name: core_schema.typed_dict_field(
                        value(field["type"]), required=name in schema["required"]
                    )
                    for name, field in schema["properties"].items()
                },
                extra_behavior="forbid",
            )
        )
        for base, schema in descriptions.SCHEMAS.items()
    }
