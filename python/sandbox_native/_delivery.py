# SPDX-License-Identifier: Apache-2.0
"""The end of a run as far as its files go: exported when it succeeded, saved in part when it failed."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO

from sandbox_native import manifest
from sandbox_native.contract import SandboxBackend
from sandbox_native.destination import write_all
from sandbox_native.export_plan import Entry
from sandbox_native.export_sources import NothingThere, Sources
from sandbox_native.exports import Export, Item, Resolve, Source, could_not_export, sentence
from sandbox_native.manifest import ExportedFile
from sandbox_native.watching import Progress

# No manifest of as many files as an export can have is larger; it only sets the size of an upload's parts.
_MANIFEST_BYTES = 256 << 20


class Delivery:
    """Exports from one sandbox."""

    def __init__(
        self,
        backend: SandboxBackend,
        sandbox: str,
        *,
        resolve: Resolve,
        log: logging.Logger,
        checksum: bool = False,
        manifest_url: str | None = None,
        on_published: Callable[[str], None] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """
        :param resolve: gives the path object of a URL.
        :param checksum: make a sha256 of each file.
        :param manifest_url: where the manifest is written, last of all.
        :param on_published: told each destination that is in place.
        :param progress: looks at the copies under way.
        """
        self._backend = backend
        self._sandbox = sandbox
        self._source = Source(sandbox, backend.name)
        self._resolve = resolve
        self._log = log
        self._checksum = checksum
        self._manifest_url = manifest_url
        self._on_published = on_published
        self._progress = progress

    def deliver(self, entries: Sequence[Entry]) -> tuple[ExportedFile, ...]:
        """Export all of ``entries``, or nothing; what is not required may be missing.

        :return: a record of each file.
        :raises SandboxTerminalError: something cannot be exported; the text says what and why.
        """
        return self._export(entries, self._manifest_url)

    def salvage(self, entries: Iterable[Entry]) -> tuple[ExportedFile, ...]:
        """Save what can be saved of a run that failed, each entry that asks for it by itself. Never raises.

        :return: a record of each file.
        """
        saved: list[ExportedFile] = []
        for entry in entries:
            if not entry.on_failure:
                continue
            try:
                saved += self._export([entry], None)
            except Exception as e:
                self._log.warning("Not saved of the failed run: %s", sentence(e))
            except BaseException as e:
                # What ended the run comes out, not what ends this.
                self._log.warning("Saving files of the failed run was cut short: %s", sentence(e))
                break
        return tuple(saved)

    def _export(self, entries: Sequence[Entry], manifest_url: str | None) -> tuple[ExportedFile, ...]:
        sources = Sources(self._backend, self._sandbox, self._log)
        items = [item for entry in entries for item in self._items(sources, entry)]
        files = len(items)
        records: list[ExportedFile] = []
        if manifest_url is not None:
            write = functools.partial(_write_manifest, records)
            items.append(Item("manifest", manifest_url, write, _MANIFEST_BYTES))
        if not items:
            return ()
        Export(
            items,
            source=self._source,
            resolve=self._resolve,
            log=self._log,
            checksum=self._checksum,
            at_once=getattr(self._backend, "concurrent_exports", 1),
            verify=functools.partial(self._verify, sources),
            on_published=self._on_published,
            progress=self._progress,
            records=records,
        ).run()
        return tuple(records[:files])

    def _items(self, sources: Sources, entry: Entry) -> list[Item]:
        try:
            return sources.items(entry)
        except NothingThere as e:
            if entry.required:
                raise self._failed(entry, e) from e
            self._log.info("Not exported, and not required: %s", sentence(e))
            return []
        except Exception as e:
            raise self._failed(entry, e) from e

    def _verify(self, sources: Sources) -> None:
        for tree in sources.trees:
            try:
                tree.verify()
            except Exception as e:
                raise self._failed(tree.entry, e) from e

    def _failed(self, entry: Entry, error: Exception) -> Exception:
        return could_not_export(entry.path, entry.destination, self._source, error)


def _write_manifest(records: Sequence[ExportedFile], dest: BinaryIO) -> int:
    data = manifest.as_json(records)
    write_all(dest, data)
    return len(data)
