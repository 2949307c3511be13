# SPDX-License-Identifier: Apache-2.0
"""``--export``: the same export as a toolset's, with a progress bar where standard error is a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sandbox_native import calls, export_plan, exports
from sandbox_native._delivery import Delivery
from sandbox_native.cli.progress import Bar
from sandbox_native.contract import SandboxBackend, SandboxError
from sandbox_native.export_plan import Entry

MAX_BYTES = 1 << 40
"""The most that one export copies: a person watches, so this only stops an endless file."""


def checked(pairs: Iterable[tuple[str, str]]) -> list[Entry]:
    """What to export, refused before the sandbox is made where nothing could be published.

    :param pairs: path and destination; a destination without ``://`` is a path of this machine.
    :raises SandboxError: a path is given twice, a destination is no place for a file,
        or a package is missing.
    """
    wanted: dict[str, str] = {}
    for path, target in pairs:
        if path in wanted:
            raise SandboxError(f"--export: {path!r} is given twice")
        wanted[path] = target if "://" in target else local_url(target)
    entries = [
        export_plan.entry(path, target, MAX_BYTES, argument=f"--export {path}")
        for path, target in wanted.items()
    ]
    if entries:
        exports.check(entries, resolve)
    return entries


def local_url(name: str) -> str:
    # Not Path.as_uri(), which would escape characters that the stores take as they are.
    url = f"file://{Path(name).absolute()}"
    return url + "/" if name.endswith("/") and not url.endswith("/") else url


def resolve(url: str) -> Any:
    try:
        from upath import UPath
    except ImportError as e:
        raise SandboxError(
            f"exports need fsspec and universal-pathlib ({e}): pip install 'sandbox-native[exports]'"
        ) from e
    return UPath(url)


def export(backend: SandboxBackend, sandbox: str, wanted: list[Entry]) -> None:
    """Copy all of ``wanted`` out, or nothing.

    :raises SandboxError: a file could not be copied or published.
    """
    log = logging.getLogger("sandbox_native.cli")
    progress = Bar(sys.stderr) if sys.stderr.isatty() else None
    delivery = Delivery(backend, sandbox, resolve=resolve, log=log, progress=progress)
    calls.run_sync(delivery.deliver, wanted)
