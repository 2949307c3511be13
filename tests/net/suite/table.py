# SPDX-License-Identifier: Apache-2.0
"""Rows, columns, and what is looked at where they meet."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox_native.contract import (
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxTerminalError,
)

# A guard against hanging, never what a row is about.
LONG = 120.0
_numbers = itertools.count(1)


class Subject:
    """One sandbox of one column, as a row sees it.

    :param backend: has the methods of ``SandboxBackend``; a vendor's client is dressed up as one.
    :param another: makes a second backend of the same kind, as another process would.
    :param classify: the kind of an exception that is none of the contract's.
    """

    def __init__(
        self,
        backend: Any,
        *,
        another: Callable[[], Any] | None = None,
        classify: Callable[[BaseException], str] | None = None,
        handle: str | None = None,
    ) -> None:
        self.backend = backend
        self.another = another
        self._classify = classify
        self.handle = backend.create() if handle is None else handle

    def close(self) -> None:
        self.backend.destroy(self.handle)

    @contextlib.contextmanager
    def fresh(self, **create: Any) -> Iterator[Subject]:
        """A sandbox of its own, for a row that spoils one."""
        handle = self.backend.create(**create)
        subject = Subject(self.backend, another=self.another, classify=self._classify, handle=handle)
        try:
            yield subject
        finally:
            with contextlib.suppress(Exception):
                subject.close()

    def run(self, command: str, *, timeout: float = LONG, cap: int = 65536) -> SandboxExecResult:
        result: SandboxExecResult = self.backend.run_command(
            self.handle, command, timeout=timeout, max_output_bytes=cap
        )
        return result

    def out(self, command: str, **options: Any) -> str:
        stdout: str = self.run(command, **options).stdout
        return stdout

    def folder(self) -> str:
        """A new directory that both files and commands reach."""
        path = f"/tmp/row-{next(_numbers)}"  # of an atomic counter: columns are looked at at once
        self.made(f"mkdir {path}")
        return path

    def made(self, command: str) -> None:
        """Run what a row needs to be there."""
        result = self.run(command)
        if result.exit_code != 0:
            raise RuntimeError(f"could not prepare {command!r}: {result}")

    def read(self, path: str, *, most: int = 1 << 20) -> bytes:
        data: bytes = self.backend.read_file(self.handle, path, max_bytes=most)
        return data

    def write(self, path: str, content: bytes) -> None:
        self.backend.write_file(self.handle, path, content)

    def list(self, path: str) -> list[tuple[str, bool]]:
        """The entries, sorted: backends do not promise an order."""
        return sorted(self.backend.list_directory(self.handle, path))

    def export(self, path: str, *, most: int = 1 << 30, into: Any = None) -> tuple[int, bytes]:
        """What it said to have written, and what it wrote."""
        dest = Sink() if into is None else into
        count: int = self.backend.export_file(self.handle, path, dest, max_bytes=most)
        return count, bytes(dest.data)

    def kind(self, call: Callable[[], Any], *words: str) -> Any:
        """The kind of error that ``call`` raises, or what it returns.

        ``recoverable`` and ``too large`` come with what is missing of ``words`` in their text.
        """
        try:
            return call()
        except SandboxTerminalError:
            return "terminal"
        except SandboxFileTooLargeError as e:
            return f"too large: {e.size_bytes}"
        except SandboxError as e:
            missing = [word for word in words if word not in str(e)]
            return "recoverable" + "".join(f", without {word!r}" for word in missing)
        except (ValueError, OSError) as e:
            return type(e).__name__
        except Exception as e:
            if self._classify is None:
                raise
            return self._classify(e)


class Sink:
    """A destination that keeps what it gets."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)


class FullSink(Sink):
    def write(self, data: bytes) -> int:
        raise FullDisk("no room")


class FullDisk(OSError):
    pass


class AnyOf:
    """An expectation that several values meet."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return any(value == other for value in self.values)

    def __hash__(self) -> int:
        return hash(self.values)

    def __repr__(self) -> str:
        return " or ".join(repr(value) for value in self.values)


@dataclass(frozen=True)
class Row:
    """One behaviour: what is looked at, and what is right."""

    group: str
    name: str
    observe: Callable[[Subject], Any]
    right: Any


@dataclass(frozen=True)
class Wrong:
    """What a column is known to do instead.

    :param why: the number of a fault of the provider, as in ``"fault 23"``; or what is the service's own way.
    """

    why: str
    value: Any


@dataclass(frozen=True)
class Column:
    """One way to the rows.

    :param name: as printed, such as ``opensandbox-provider``.
    :param open: gives the subject for as long as rows are looked at.
    :param wrong: row name -> what it does instead of the right thing.
    :param lacks: row name -> why the row cannot be asked of it.
    """

    name: str
    open: Callable[[], contextlib.AbstractContextManager[Subject]]
    wrong: Mapping[str, Wrong] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)


def columns_in(folder: Path) -> list[Column]:
    """The ``COLUMNS`` of every module in a folder, in the order of their names."""
    found: list[Column] = []
    for path in sorted(folder.glob("[!_]*.py")):
        name = f"{folder.parent.name}_{folder.name}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += module.COLUMNS
    return found


def quoted(path: str) -> str:
    """For a shell; with a leading dash taken for a name."""
    return shlex.quote(path)
