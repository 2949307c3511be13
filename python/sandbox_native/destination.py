# SPDX-License-Identifier: Apache-2.0
"""What lies under the wrappers of a writable file object."""

from __future__ import annotations

import errno
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
    ("sandbox_native.watching", "Watched"): "stream",
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
    descriptor = regular_file_under(dest)
    if descriptor is not None:
        dest.flush()
    return descriptor


def regular_file_under(dest: Any) -> int | None:
    """The descriptor that :func:`descriptor_of` gives, with nothing flushed: only to look at the file."""
    *_, bottom = layers(dest)
    raw = bottom.raw if type(bottom) in (io.BufferedWriter, io.BufferedRandom) else bottom
    if type(raw) is not io.FileIO or not raw.writable():
        return None
    descriptor = raw.fileno()
    return descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def readable_descriptor(source: Any) -> int | None:
    """The descriptor of the regular file that ``source`` reads, at the position where it is.

    None where there is none, or where ``source`` has read ahead of its reader.
    """
    raw = source.raw if type(source) is io.BufferedReader else source
    if type(raw) is not io.FileIO or not raw.readable():
        return None
    descriptor = raw.fileno()
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or source.tell() != raw.tell():
        return None
    return descriptor


def announce(dest: Any, size: int) -> None:
    """Tell ``dest``, if it wants to know, how many bytes are to come: for progress, and the size of parts."""
    tell = getattr(dest, "announce", None)
    if tell is not None:
        tell(size)


def write_all(dest: Any, data: bytes | bytearray | memoryview) -> None:
    """Write all of ``data``. Raw files may take a part at a time; some file-likes do not say what they took.

    :raises OSError: ``dest`` takes no more, now or for good.
    """
    view = memoryview(data).cast("B")
    rest = data
    while view:
        taken = dest.write(rest)
        if taken is None and not isinstance(dest, io.RawIOBase):
            return
        if not taken:
            raise OSError(errno.EAGAIN, "The destination takes no more data")
        rest = view = view[taken:]


def discard(dest: Any) -> None:
    """Make sure that what was written to ``dest`` is never published, by a close or a later collection.

    fsspec's files upload what they hold when they are closed, which the collector does, too, so one that is
    merely dropped after a failure still becomes an object. ``discard()`` ends an upload in parts on the
    stores that have them. Closing is all there is to do for other kinds of files: theirs is the store's
    staging key, which the caller removes.

    :raises Exception: the store refused to end the upload; ``dest`` is dead all the same.
    """
    *_, bottom = layers(dest)
    try:
        end_upload = getattr(bottom, "discard", None)
        if end_upload is not None:
            end_upload()
    finally:
        _kill(bottom)


def _kill(bottom: Any) -> None:
    if any(cls.__module__ == "fsspec.spec" for cls in type(bottom).__mro__):
        # Its close() would flush. These two are how an AbstractBufferedFile knows that it has.
        bottom.forced = True
        bottom.closed = True
    else:
        bottom.close()
