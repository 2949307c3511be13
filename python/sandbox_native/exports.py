# SPDX-License-Identifier: Apache-2.0
"""Copying the files a run leaves behind to where they were promised: all of them, or none.

Every file is first copied to a staging key beside its destination. Only when all are there are they made
the destinations, one after the other. Whatever ends an export before that, an exception of any kind, a
cancel or an interrupt, leaves every destination as it was and no staging key.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from sandbox_native import calls
from sandbox_native.contract import SandboxTerminalError
from sandbox_native.export_plan import Entry, Kind
from sandbox_native.manifest import ExportedFile
from sandbox_native.output import format_size
from sandbox_native.storage import LocalSlot, Slot, StagingLeft, remove_folders, store_slot
from sandbox_native.watching import Hashed, Progress, ProgressLog, Watched

Resolve = Callable[[str], Any]
"""From a URL to the ``UPath`` or ``ObjectStoragePath`` of it."""

SMALL = 8 << 20
"""The most bytes of a file that is copied beside others. Such a copy mostly waits for two services; one of a
larger file keeps the machine busy by itself, and holds parts of its upload in memory."""


@dataclass(frozen=True, eq=False)
class Item:
    """One file to be made.

    :param path: what it is made of, as messages, log lines and the manifest name it.
    :param destination: the URL it gets, or with ``below`` the one of the folder it goes into, with its slash.
    :param write: writes it to a stream and returns the bytes written.
    :param max_bytes: the most that ``write`` writes; its size, where that is known.
    :param below: its path in that folder.
    """

    path: str
    destination: str
    write: Callable[[BinaryIO], int]
    max_bytes: int
    below: str = ""

    @property
    def url(self) -> str:
        return self.destination + self.below


def sentence(error: BaseException) -> str:
    """What an exception says, ending in one full stop; its type where it says nothing."""
    return f"{(str(error) or type(error).__name__).rstrip('.')}."


def resolve_slot(destination: str, resolve: Resolve, below: str = "") -> Slot:
    """Find the store of a destination.

    :param below: the path of a file in the folder that ``destination`` then is. It is taken as it is; in a
        URL some of its characters would mean something.
    :raises Exception: the store's package, its connection or its options are missing or wrong.
    """
    from fsspec.implementations.local import LocalFileSystem

    target = resolve(destination)
    fs = target.fs
    # As the user wrote it: a path of Airflow shows the connection as if it were a part of the URL.
    label = destination + below
    if type(fs) is LocalFileSystem:
        return LocalSlot(_below(local_path(destination, target.path), below), label)
    return store_slot(fs, _below(target.path, below), label, account=getattr(target, "conn_id", None))


def _below(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if name else folder


def local_path(destination: str, resolved: str) -> str:
    """The path of a ``file://`` URL; one that is not absolute is not made so."""
    # fsspec takes file://reports/a for a path below the working directory, and drops a trailing slash.
    _, _, path = destination.partition("://")
    return resolved if path.startswith("/") else path


def check(entries: Iterable[Entry], resolve: Resolve) -> None:
    """Refuse destinations nothing can be published at, before the model has spent anything.

    They are templated, so what is here may be what an empty variable rendered to.

    :raises SandboxTerminalError: a destination is not a URL, cannot be resolved, is the root of a bucket, an
        existing directory or a special file, or is named twice.
    """
    seen: dict[tuple[object, ...], str] = {}
    for entry in entries:
        destination = entry.destination
        if not isinstance(destination, str) or "://" not in destination:
            raise SandboxTerminalError(
                f"{entry.argument} rendered to {destination!r}, which is not a storage URL like "
                "s3://bucket/key or file:///path. Look at the template and at the value it takes."
            )
        slot = _checked_slot(entry, destination, resolve)
        if slot is None:
            continue
        if slot.identity in seen:
            raise SandboxTerminalError(
                f"{entry.argument} and {seen[slot.identity]} both go to {destination!r}: one of "
                "the files would be lost. Give each a destination of its own."
            )
        seen[slot.identity] = entry.argument


def _checked_slot(entry: Entry, destination: str, resolve: Resolve) -> Slot | None:
    """The slot of a destination that is one file; None where it is the folder of several."""
    slot: Slot | None = None
    problem: str | None = None
    try:
        if "\0" in destination:
            problem = "it has a NUL character in it"
        elif entry.into_folder:
            # What a file in it could not be made at is no folder for any.
            problem = resolve_slot(destination, resolve, ".sandbox-native").problem()
        elif destination.endswith("/"):
            problem = "it ends in a slash, which names a folder"
        else:
            slot = resolve_slot(destination, resolve)
            problem = slot.problem()
    except Exception as e:
        raise SandboxTerminalError(f"{entry.argument} cannot go to {destination!r}: {sentence(e)}") from e
    if problem is not None:
        hint = "" if entry.into_folder else " Name the object or file itself."
        raise SandboxTerminalError(
            f"{entry.argument} cannot go to {destination!r}: {problem}.{hint}{_glob_hint(entry)}"
        )
    return slot


def _glob_hint(entry: Entry) -> str:
    if entry.kind is not Kind.FILE or not str(entry.destination).endswith("/"):
        return ""
    return (
        " Several files go into a folder where the path is that of a directory, with a slash at its end, or "
        'the options say that it is a pattern: {"to": ..., "glob": True}.'
    )


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
        items: Sequence[Item],
        *,
        source: Source,
        resolve: Resolve,
        log: logging.Logger,
        checksum: bool = False,
        at_once: int = 1,
        verify: Callable[[], None] | None = None,
        on_published: Callable[[str], None] | None = None,
        progress: Progress | None = None,
        records: list[ExportedFile] | None = None,
    ) -> None:
        """
        :param items: what to make, in the order to go by.
        :param source: whose files they are.
        :param resolve: gives the path object of a URL.
        :param log: where progress and leftovers are logged.
        :param checksum: make a sha256 of each file as it is copied.
        :param at_once: how many files may be copied at a time, where they are known to be small.
        :param verify: called when all are copied and none is published; what it raises ends the export.
        :param on_published: told each destination once all that goes there is in place.
        :param progress: looks at the copies under way.
        :param records: gets a record of each file once it is copied.
        """
        self._items = items
        self._source = source
        self._resolve = resolve
        self._log = log
        self._watch = Hashed if checksum else Watched
        self._at_once = at_once
        self._verify = verify
        self._on_published = on_published
        self._progress: Progress = progress or ProgressLog(log)
        self._slots: list[Slot] = []
        self._places: dict[tuple[object, ...], Item] = {}
        # Published, but the staging key could not be deleted: why.
        self._stuck: dict[Slot, str] = {}
        self._records = [] if records is None else records

    def run(self) -> list[ExportedFile]:
        """Copy and publish all files, on a thread that no signal handler can raise in.

        :return: a record of each file, in the order of the items.
        :raises SandboxTerminalError: a file could not be copied or published; names what is in place and
            what was left behind. A ``BaseException`` of another kind comes out as it is, with that as notes.
        """
        calls.run_sync(self._run)
        return self._records

    def _run(self) -> None:
        try:
            with self._progress:
                self._stage_all()
            if self._verify is not None:
                self._verify()
            self._publish_all()
        except BaseException as e:
            # Not to be cut short by the cancel that may have brought us here.
            with calls.uncancellable():
                self._give_up(e)
            raise

    def _stage_all(self) -> None:
        under_way: deque[calls.Call[ExportedFile]] = deque()
        try:
            for item in self._items:
                # On this thread: fsspec makes a file system, and so connections, for each that asks.
                slot = self._slot(item)
                beside = self._at_once > 1 and item.max_bytes <= SMALL and slot.any_thread
                # Those before it are waited for in their order, so the first that failed is what is told.
                while len(under_way) >= (self._at_once if beside else 1):
                    self._staged(under_way)
                if beside:
                    under_way.append(calls.prepare_part(self._stage, slot, item))
                    under_way[-1].start()
                else:
                    self._record(self._stage(slot, item))
            while under_way:
                self._staged(under_way)
        finally:
            for call in under_way:
                call.abandon()

    def _staged(self, under_way: deque[calls.Call[ExportedFile]]) -> None:
        """Wait for the oldest copy under way."""
        self._record(under_way[0].wait())
        under_way.popleft()

    def _record(self, record: ExportedFile) -> None:
        self._records.append(record)
        size = format_size(record.bytes)
        self._log.info("Exported %s from sandbox %s (%s)", record.path, self._source.sandbox, size)

    def _slot(self, item: Item) -> Slot:
        try:
            slot = resolve_slot(item.destination, self._resolve, item.below)
            # Those that are known beforehand were looked at before the run; a folder's files are not.
            other = self._places.setdefault(slot.identity, item)
            if other is not item:
                raise SandboxTerminalError(f"{other.path!r} goes there, too, and one of them would be lost")
        except Exception as e:
            raise could_not_export(item.path, item.url, self._source, e) from e
        self._slots.append(slot)
        return slot

    def _stage(self, slot: Slot, item: Item) -> ExportedFile:
        began = time.monotonic()
        try:
            size, checksum = self._fill(slot, item)
        except Exception as e:
            raise could_not_export(item.path, item.url, self._source, e) from e
        seconds = round(time.monotonic() - began, 3)
        return ExportedFile(item.path, slot.label, size, seconds, checksum)

    def _fill(self, slot: Slot, item: Item) -> tuple[int, str | None]:
        stream = slot.open(item.max_bytes, alone=len(self._items) == 1)
        try:
            watched = self._watch(stream)
            with self._progress.on(item.path, watched):
                size = item.write(cast(BinaryIO, watched))
            calls.check_cancelled()
            slot.seal(stream, size)
        except BaseException as e:
            with calls.uncancellable():
                try:
                    slot.discard(stream)
                except BaseException as again:
                    e.add_note(f"Giving up the upload to {slot.staging} failed, too: {sentence(again)}")
            raise
        return size, watched.sha256

    def _publish_all(self) -> None:
        """The last moment to stop is before the first file: from then on finishing leaves less behind."""
        calls.check_cancelled()
        for slot in self._slots:
            try:
                problem = slot.problem()
            except Exception as e:
                raise _terminal(f"Could not move the export into {slot.label}: {sentence(e)}", e) from e
            if problem is not None:
                raise SandboxTerminalError(f"Could not move the export into {slot.label}: {problem}.")
        last = {item.destination: slot for item, slot in zip(self._items, self._slots, strict=True)}
        for item, slot in zip(self._items, self._slots, strict=True):
            try:
                slot.publish()
            except StagingLeft as e:
                self._log.warning("Could not remove %s after publishing it", slot.staging, exc_info=True)
                self._stuck[slot] = sentence(e)
            except Exception as e:
                raise _terminal(f"Could not move the export into {slot.label}: {sentence(e)}", e) from e
            self._log.info("Published %s", slot.label)
            if self._on_published is not None and last[item.destination] is slot:
                self._on_published(item.destination if item.below else slot.label)
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
        remove_folders(self._slots)
        done = [slot.label for slot in self._slots if slot.in_place]
        # The error itself says so where that is all there is to say.
        told = len(done) == len(self._items) and bool(self._stuck)
        facts = _facts("Already in place", () if told else done)
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


def could_not_export(path: str, url: str, source: Source, error: BaseException) -> SandboxTerminalError:
    """What is raised where a file could not be copied because of ``error``."""
    return _terminal(f"Could not export {path!r} from {source} to {url}: {sentence(error)}", error)


def _terminal(message: str, cause: BaseException) -> SandboxTerminalError:
    error = SandboxTerminalError(message)
    for note in getattr(cause, "__notes__", ()):
        error.add_note(note)
    return error


def _facts(title: str, names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f" {title}: {listed}." if listed else ""
