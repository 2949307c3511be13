# SPDX-License-Identifier: Apache-2.0
"""multipart/form-data (RFC 7578) of known length, from bytes and from files."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from sandbox_native.destination import readable_descriptor

_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/+; =-")


class FileSlice(NamedTuple):
    """``length`` bytes of the regular file ``fd`` from ``offset`` on; the file's position is not moved."""

    fd: int
    offset: int
    length: int


@contextlib.contextmanager
def slice_of(source: BinaryIO, size: int) -> Iterator[FileSlice]:
    """The next ``size`` bytes of ``source`` as a slice of a file, which can be sent again.

    What is no regular file is copied to a temporary one first. After the block ``source`` is past them.

    :raises EOFError: it has fewer bytes; its own exceptions come out as they are.
    """
    descriptor = readable_descriptor(source)
    if descriptor is not None:
        start = source.tell()
        there = os.fstat(descriptor).st_size - start
        if there < size:
            raise EOFError(f"the source has {there} of {size} bytes")
        yield FileSlice(descriptor, start, size)
        source.seek(start + size)
        return
    with tempfile.TemporaryFile() as spool:
        left = size
        while left:
            part = source.read(min(left, 1 << 20))
            if not part:
                raise EOFError(f"the source ended after {size - left} of {size} bytes")
            spool.write(part)
            left -= len(part)
        spool.flush()
        yield FileSlice(spool.fileno(), 0, size)


class Part(NamedTuple):
    """One part of a form.

    ``filename`` is what the server sees as the name of the uploaded file: fixed and harmless, since the real
    path belongs into the metadata. None for a plain field.
    """

    name: str
    content: bytes | FileSlice
    filename: str | None = None
    content_type: str = "application/octet-stream"


def encode(parts: Sequence[Part]) -> tuple[str, tuple[bytes | FileSlice, ...]]:
    """Return the Content-Type and the pieces of the body.

    :raises ValueError: a name, file name or content type with characters other than letters, digits and
        ``._/+; =-``.
    """
    boundary = os.urandom(16).hex()
    pieces: list[bytes | FileSlice] = []
    for part in parts:
        for text in (part.name, part.filename or "", part.content_type):
            if not _SAFE.issuperset(text):
                raise ValueError(f"unsafe text in the part {part.name!r} of a form")
        disposition = f'form-data; name="{part.name}"'
        if part.filename is not None:
            disposition += f'; filename="{part.filename}"'
        head = (
            f"--{boundary}\r\nContent-Disposition: {disposition}\r\nContent-Type: {part.content_type}\r\n\r\n"
        )
        pieces += [head.encode("ascii"), part.content, b"\r\n"]
    pieces.append(f"--{boundary}--\r\n".encode("ascii"))
    return f"multipart/form-data; boundary={boundary}", tuple(pieces)
