# SPDX-License-Identifier: Apache-2.0
"""``--export``: the same export as a toolset's, with a progress bar where standard error is a terminal."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, cast

from sandbox_native import calls, destination, exports
from sandbox_native.cli.progress import Counted, Progress
from sandbox_native.contract import SandboxBackend, SandboxError

MAX_BYTES = 1 << 40
"""The most that one export copies: a person watches, so this only stops an endless file."""


def checked(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Sandbox path to URL, refused before the sandbox is made where nothing could be published.

    :param pairs: path and destination; a destination without ``://`` is a path of this machine.
    :raises SandboxError: a path is given twice, a destination is no place for a file,
        or a package is missing.
    """
    wanted: dict[str, str] = {}
    for path, target in pairs:
        if path in wanted:
            raise SandboxError(f"--export: {path!r} is given twice")
        wanted[path] = target if "://" in target else local_url(target)
    if wanted:
        exports.check(wanted, resolve)
    return wanted


def local_url(name: str) -> str:
    # Not Path.as_uri(), which would escape characters that the stores take as they are.
    url = f"file://{Path(name).absolute()}"
    return url + "/" if name.endswith("/") else url


def resolve(url: str) -> Any:
    try:
        from upath import UPath
    except ImportError as e:
        raise SandboxError(
            f"exports need fsspec and universal-pathlib ({e}): pip install 'sandbox-native[exports]'"
        ) from e
    return UPath(url)


def export(backend: SandboxBackend, sandbox: str, wanted: dict[str, str]) -> None:
    """Copy all of ``wanted`` out, or nothing.

    :raises SandboxError: a file could not be copied or published.
    """
    log = logging.getLogger("sandbox_native.cli")
    shown = sys.stderr.isatty()

    def copy(path: str, stream: BinaryIO) -> int:
        if not shown:
            return backend.export_file(sandbox, path, stream, max_bytes=MAX_BYTES)
        total = size_of(backend, sandbox, path)
        descriptor = destination.descriptor_of(stream)
        if descriptor is not None:
            # The bytes may go straight to the file.
            with Progress(sys.stderr, path, total, lambda: os.fstat(descriptor).st_size):
                return backend.export_file(sandbox, path, stream, max_bytes=MAX_BYTES)
        counted = Counted(stream)
        with Progress(sys.stderr, path, total, lambda: counted.written):
            return backend.export_file(sandbox, path, cast(BinaryIO, counted), max_bytes=MAX_BYTES)

    job = exports.Export(
        wanted,
        source=exports.Source(sandbox, backend.name),
        resolve=resolve,
        copy=copy,
        max_bytes=MAX_BYTES,
        log=log,
    )
    calls.run_sync(job.run)


def size_of(backend: SandboxBackend, sandbox: str, path: str) -> int | None:
    """The size of a file in the sandbox, for the bar; None where it is not to be had."""
    line = f"stat -Lc %s -- {shlex.quote(path)}"
    result = backend.run_command(sandbox, line, timeout=30, max_output_bytes=4096)
    text = result.stdout.strip()
    return int(text) if not result.exit_code and text.isdecimal() else None
