# SPDX-License-Identifier: Apache-2.0
"""From what ``exports`` asks for to the files to make: one item for a file or an archive, many for a folder.

Directories and patterns are listed in the guest. What is copied is what was listed, regular files alone, and
when all is copied the listing has to be the same again, so that the files belong together and none was
another file for a while.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from sandbox_native import command_files, export_plan, operations
from sandbox_native.archive import Archive
from sandbox_native.contract import SandboxBackend, SandboxError, SandboxFileTooLargeError
from sandbox_native.export_plan import Entry, Kind
from sandbox_native.exports import Item
from sandbox_native.guest_tree import Listed
from sandbox_native.output import format_size

# Names of left-out things that a log line shows.
_SHOWN = 5


class NothingThere(SandboxError):
    """A key of ``exports`` has no file to export."""


class Sources:
    """The files of one sandbox."""

    def __init__(self, backend: SandboxBackend, sandbox: str, log: logging.Logger) -> None:
        self._backend = backend
        self._sandbox = sandbox
        self._log = log
        self._run = functools.partial(backend.run_command, sandbox)
        self.trees: list[Tree] = []
        """The directories that were listed."""

    def items(self, entry: Entry) -> list[Item]:
        """What to make for one key.

        :raises NothingThere: there is no such file, or no file in the directory or of the pattern.
        :raises SandboxError: it cannot be told, a cap is exceeded, or a name cannot be exported.
        """
        if entry.kind is Kind.FILE:
            if not entry.required and not command_files.is_there(self._run, entry.path):
                raise NothingThere(f"{entry.path!r} does not exist in the sandbox.")
            return [self._item(entry.path, entry.destination, entry.path, entry.max_bytes)]
        tree = Tree(self._run, entry)
        files = tree.files(self._log)
        self.trees.append(tree)
        if entry.into_folder:
            return [
                self._item(tree.path(one), entry.destination, tree.path(one), one.size, below=one.name)
                for one in files
            ]
        fill = functools.partial(self._fill_archive, tree, files)
        # Names and padding take more, and what does not compress grows a little.
        room = sum(one.size for one in files) + len(files) * 16384 + (1 << 20)
        return [Item(entry.path, entry.destination, fill, room + room // 1000)]

    def _item(self, path: str, destination: str, source: str, max_bytes: int, below: str = "") -> Item:
        copy = functools.partial(self._copy, source, max_bytes)
        return Item(path, destination, copy, max_bytes, below)

    def _copy(self, path: str, max_bytes: int, dest: BinaryIO) -> int:
        # A cap of 0 is none to a backend; the listing is compared, so a byte too many does not pass.
        return operations.export_file(self._backend, self._sandbox, path, dest, max_bytes=max(max_bytes, 1))

    def _fill_archive(self, tree: Tree, files: Sequence[Listed], dest: BinaryIO) -> int:
        counted = _Counted(dest)
        with Archive(counted) as archive:  # type: ignore[arg-type]
            for one in files:
                copy = functools.partial(self._copy, tree.path(one), one.size)
                try:
                    archive.add(one.name, one.mode, one.size, copy)
                except SandboxError as e:
                    raise SandboxError(f"{tree.path(one)!r}: {e}") from e
        return counted.written


class _Counted:
    """Counts what goes into an archive's destination."""

    def __init__(self, dest: BinaryIO) -> None:
        self._dest = dest
        self.written = 0

    def write(self, data: bytes) -> int:
        size: int = self._dest.write(data)
        self.written += size
        return size

    def flush(self) -> None:
        self._dest.flush()


class Tree:
    """A directory that was listed, and which of its files are wanted."""

    def __init__(self, run: command_files.Run, entry: Entry) -> None:
        self.entry = entry
        """The key it was listed for."""
        self._wanted: Callable[[str], object]
        if entry.kind is Kind.GLOB:
            self._root, parts = export_plan.split_pattern(entry.path)
            self._wanted, depth = export_plan.matcher(parts).match, export_plan.depth(parts)
        else:
            self._root, self._wanted, depth = entry.path, bool, None
        self._list = functools.partial(command_files.list_tree, run, self._root, max_depth=depth)
        self._seen = self._list()
        if self._seen is None:
            raise NothingThere(f"{self._root!r} does not exist in the sandbox.")

    def path(self, one: Listed) -> str:
        """Its path in the sandbox."""
        root = "" if self._root == "." else self._root.rstrip("/") + "/"
        return root + one.name

    def files(self, log: logging.Logger) -> list[Listed]:
        """The files that are wanted, by name.

        :raises NothingThere: there are none.
        :raises SandboxError: there are too many, they are too large, or a name is no text.
        """
        entry = self.entry
        matching = [one for one in self._matching() if one.type != "d"]
        files = sorted((one for one in matching if one.type == "f"), key=lambda one: one.name)
        left_out = [self.path(one) for one in matching if one.type != "f"]
        if left_out:
            names = ", ".join(map(repr, left_out[:_SHOWN])) + (", ..." if len(left_out) > _SHOWN else "")
            log.warning("Not exported, since they are links or no regular files: %s", names)
        if not files:
            what = "matches no file" if entry.kind is Kind.GLOB else "has no file in it"
            raise NothingThere(f"{entry.path!r} {what}.")
        if len(files) > entry.max_files:
            raise SandboxError(
                f"{entry.path!r} stands for {len(files)} files; the limit is {entry.max_files} (max_files)."
            )
        total = sum(one.size for one in files)
        if total > entry.max_bytes:
            raise SandboxError(
                f"{entry.path!r} stands for {format_size(total)} in {len(files)} files; the limit is "
                f"{format_size(entry.max_bytes)} (max_bytes)."
            ) from SandboxFileTooLargeError(entry.path, total, entry.max_bytes)
        for one in files:
            if not _is_text(one.name):
                raise SandboxError(f"The name of {self.path(one)!r} is not UTF-8, so it cannot be exported.")
        return files

    def verify(self) -> None:
        """:raises SandboxError: it does not look as before."""
        again = self._list()
        before = {one.name: one for one in self._matching()}
        after = {one.name: one for one in self._matching(again or [])}
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                raise SandboxError(
                    f"{self.entry.path!r} changed while it was exported, at {name or '.'!r}. A process in "
                    "the sandbox may still be writing it."
                )

    def _matching(self, seen: Sequence[Listed] | None = None) -> list[Listed]:
        """What the pattern matches, or all there is: a directory's times tell what comes and goes in it."""
        found: Any = self._seen if seen is None else seen
        if self.entry.kind is Kind.GLOB:
            return [one for one in found if one.type != "d" and self._wanted(one.name)]
        return list(found)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
