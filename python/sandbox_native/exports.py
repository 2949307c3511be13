# SPDX-License-Identifier: Apache-2.0
"""Copying the files a run leaves behind to where they were promised: all of them, or none.

Every file is first copied to a staging key beside its destination. Only when all are there are they made
the destinations, one after the other. Whatever ends an export before that, an exception of any kind, a
cancel or an interrupt, leaves every destination as it was and no staging key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from sandbox_native import calls
from sandbox_native.contract import SandboxTerminalError
from sandbox_native.output import format_size
from sandbox_native.storage import LocalSlot, Slot, StagingLeft, StoreSlot

Resolve = Callable[[str], Any]
"""From a URL to the ``UPath`` or ``ObjectStoragePath`` of it."""
Copy = Callable[[str, BinaryIO], int]
"""Copies the file of a sandbox path to a stream and returns the bytes written."""


def sentence(error: BaseException) -> str:
    """What an exception says, ending in one full stop; its type where it says nothing."""
    return f"{(str(error) or type(error).__name__).rstrip('.')}."


def resolve_slot(destination: str, resolve: Resolve) -> Slot:
    """Find the store of a destination.

    :raises Exception: the store's package, its connection or its options are missing or wrong.
    """
    from fsspec.implementations.local import LocalFileSystem

    target = resolve(destination)
    fs = target.fs
    if type(fs) is LocalFileSystem:
        return LocalSlot(_local_path(destination, target.path), str(target))
    return StoreSlot(fs, target.path, str(target), account=getattr(target, "conn_id", None))


def _local_path(destination: str, resolved: str) -> str:
    # fsspec takes file://reports/a for a path below the working directory, and drops a trailing slash.
    _, _, path = destination.partition("://")
    return resolved if path.startswith("/") else path


def check(exports: Mapping[str, object], resolve: Resolve) -> None:
    """Refuse destinations nothing can be published at, before the model has spent anything.

    They are templated, so what is here may be what an empty variable rendered to.

    :param exports: sandbox path to destination URL.
    :raises SandboxTerminalError: a destination is not a URL, cannot be resolved, is the root of a bucket, an
        existing directory or a special file, or is named twice.
    """
    seen: dict[tuple[object, ...], str] = {}
    for path, destination in exports.items():
        if not isinstance(destination, str) or "://" not in destination:
            raise SandboxTerminalError(
                f"exports[{path!r}] rendered to {destination!r}, which is not a storage URL like "
                "s3://bucket/key or file:///path. Look at the template and at the value it takes."
            )
        slot = _checked_slot(path, destination, resolve)
        if slot.identity in seen:
            raise SandboxTerminalError(
                f"exports[{path!r}] and exports[{seen[slot.identity]!r}] both go to {destination!r}: one of "
                "the files would be lost. Give each a destination of its own."
            )
        seen[slot.identity] = path


def _checked_slot(path: str, destination: str, resolve: Resolve) -> Slot:
    try:
        if destination.endswith("/"):
            problem: str | None = "it ends in a slash, which names a folder"
        elif "\0" in destination:
            problem = "it has a NUL character in it"
        else:
            slot = resolve_slot(destination, resolve)
            problem = slot.problem()
    except Exception as e:
        raise SandboxTerminalError(f"exports[{path!r}] cannot go to {destination!r}: {sentence(e)}") from e
    if problem is not None:
        raise SandboxTerminalError(
            f"exports[{path!r}] cannot go to {destination!r}: {problem}. Name the object or file itself."
        )
    return slot


@dataclass(frozen=True)
class Source:
    """Where the files come from, as error messages and log lines name it."""

    sandbox: str
    backend: str

    def __str__(self) -> str:
        return f"sandbox {self.sandbox} on backend {self.backend!r}"


class Export:
    """One export of all files. Runs once, in one thread."""

    def __init__(
        self,
        exports: Mapping[str, str],
        *,
        source: Source,
        resolve: Resolve,
        copy: Copy,
        max_bytes: int,
        log: logging.Logger,
        on_published: Callable[[str], None] | None = None,
    ) -> None:
        """
        :param exports: sandbox path to destination URL, in the order to go by.
        :param source: whose files they are.
        :param resolve: gives the path object of a URL.
        :param copy: copies one file out of the sandbox.
        :param max_bytes: the most that ``copy`` writes for one file.
        :param log: where progress and leftovers are logged.
        :param on_published: told each destination once it is in place.
        """
        self._exports = exports
        self._source = source
        self._resolve = resolve
        self._copy = copy
        self._max_bytes = max_bytes
        self._log = log
        self._on_published = on_published
        self._slots: list[Slot] = []
        # Published, but the staging key could not be deleted: why.
        self._stuck: dict[Slot, str] = {}

    def run(self) -> None:
        """Copy and publish all files, on a thread that no signal handler can raise in.

        :raises SandboxTerminalError: a file could not be copied or published; names what is in place and
            what was left behind. A ``BaseException`` of another kind comes out as it is, with that as notes.
        """
        calls.run_sync(self._run)

    def _run(self) -> None:
        try:
            for path, destination in self._exports.items():
                self._stage(path, destination)
            self._publish_all()
        except BaseException as e:
            # Not to be cut short by the cancel that may have brought us here.
            with calls.uncancellable():
                self._give_up(e)
            raise

    def _stage(self, path: str, destination: str) -> None:
        try:
            slot = resolve_slot(destination, self._resolve)
            self._slots.append(slot)
            size = self._fill(slot, path)
        except Exception as e:
            raise _terminal(
                f"Could not export {path!r} from {self._source} to {destination}: {sentence(e)}", e
            ) from e
        self._log.info("Exported %s from sandbox %s (%s)", path, self._source.sandbox, format_size(size))

    def _fill(self, slot: Slot, path: str) -> int:
        stream = slot.open(self._max_bytes)
        try:
            size = self._copy(path, stream)
            calls.check_cancelled()
            slot.seal(stream, size)
        except BaseException as e:
            with calls.uncancellable():
                try:
                    slot.discard(stream)
                except BaseException as again:
                    e.add_note(f"Giving up the upload to {slot.staging} failed, too: {sentence(again)}")
            raise
        return size

    def _publish_all(self) -> None:
        """The last moment to stop is before the first file: from then on finishing leaves less behind."""
        calls.check_cancelled()
        for slot in self._slots:
            problem = slot.problem()
            if problem is not None:
                raise SandboxTerminalError(f"Could not move the export into {slot.label}: {problem}.")
        for slot in self._slots:
            try:
                slot.publish()
            except StagingLeft as e:
                self._log.warning("Could not remove %s after publishing it", slot.staging, exc_info=True)
                self._stuck[slot] = sentence(e)
            except Exception as e:
                raise _terminal(f"Could not move the export into {slot.label}: {sentence(e)}", e) from e
            self._log.info("Published %s", slot.label)
            if self._on_published is not None:
                self._on_published(slot.label)
        if self._stuck:
            raise SandboxTerminalError(
                "Every exported file is complete and in place, but not every staging key could be deleted: "
                f"{next(iter(self._stuck.values()))}"
            )

    def _give_up(self, error: BaseException) -> None:
        """Remove what is not published, and say on ``error`` what is in place and what is left."""
        for slot in self._slots:
            if slot not in self._stuck:
                self._remove(slot, error)
        done = [slot.label for slot in self._slots if slot.in_place]
        facts = _facts("Already in place", done if len(done) < len(self._exports) else ())
        facts += _facts(
            "Left behind, to delete by hand", [slot.staging for slot in self._slots if slot.staging]
        )
        if not facts:
            return
        if isinstance(error, SandboxTerminalError):
            error.args = (f"{error}{facts}",)
        else:
            error.add_note(f"The export was cut short.{facts}")

    def _remove(self, slot: Slot, error: BaseException) -> None:
        try:
            slot.remove()
        except BaseException as e:
            self._log.warning("Could not remove %s after a failed export", slot.staging, exc_info=True)
            error.add_note(f"Removing {slot.staging} failed, too: {sentence(e)}")


def _terminal(message: str, cause: BaseException) -> SandboxTerminalError:
    error = SandboxTerminalError(message)
    for note in getattr(cause, "__notes__", ()):
        error.add_note(note)
    return error


def _facts(title: str, names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f" {title}: {listed}." if listed else ""
