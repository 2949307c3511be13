# SPDX-License-Identifier: Apache-2.0
"""multipart/form-data (RFC 7578) of known length, from bytes and from files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/+; =-")


class FileSlice(NamedTuple):
    """``length`` bytes of the regular file ``fd`` from ``offset`` on; the file's position is not moved."""

    fd: int
    offset: int
    length: int


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
