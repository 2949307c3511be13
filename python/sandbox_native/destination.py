# SPDX-License-Identifier: Apache-2.0
"""What lies under the wrappers of a writable file object."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from typing import Any

# The wrappers that are seen through: module and name of the class, and the attribute with what it wraps.
# Anything else ends the walk, so bytes that a wrapper would change never go around it.
_WRAPPERS = {
    ("airflow.sdk.io.path", "_TrackingFileWrapper"): "_obj",
    ("fsspec.implementations.local", "LocalFileOpener"): "f",
}


def layers(dest: Any) -> Iterator[Any]:
    """Yield ``dest`` and the file objects under it, outermost first."""
    while dest is not None:
        yield dest
        attribute = _WRAPPERS.get((type(dest).__module__, type(dest).__name__))
        # From the instance itself: a wrapper's __getattr__ would answer for what it wraps.
        dest = None if attribute is None else vars(dest).get(attribute)


def descriptor_of(dest: Any) -> int | None:
    """Flush ``dest`` and return the descriptor of the regular file under its wrappers.

    Bytes written to the descriptor go on from what was written to ``dest`` before. The descriptor stays
    owned by ``dest``, which is not to be written to meanwhile. ``None`` when the bytes pass through
    anything on their way (a codec, a remote file) or end in something that is not a regular file: then
    write to ``dest`` itself.

    :raises OSError: flushing failed.
    """
    *_, bottom = layers(dest)
    raw = bottom.raw if type(bottom) in (io.BufferedWriter, io.BufferedRandom) else bottom
    if type(raw) is not io.FileIO or not raw.writable():
        return None
    dest.flush()
    descriptor = raw.fileno()
    return descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
