# SPDX-License-Identifier: Apache-2.0
"""Tags of any text in OpenSandbox's metadata, whose values are as narrow as Kubernetes labels.

A value may have 0 to 63 of ``[A-Za-z0-9._-]`` with a letter or digit at both ends. One that fits is kept as
it is. Any other is kept as base64url (RFC 4648 section 5) in pieces, under the tag's name with ``.0``,
``.1`` ..., each between two letters ``z``; the tag itself says how many there are: ``b64.2``.

The service has no conditional write: of two writers at the same moment the last wins, key by key. A value of
which pieces are missing, because another writer came between, counts as absent.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

_PLAIN = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_COUNT = re.compile(r"b64\.([0-9]{1,3})", re.ASCII)
_PIECE_CHARS = 61
# Keys of the service itself; writing them is refused.
_RESERVED = "opensandbox.io/"
#: What this package puts on every sandbox that is no tag.
OWN_KEYS = frozenset({"created-by", "name"})


def encode(tags: Mapping[str, str]) -> dict[str, str]:
    """The metadata that carries ``tags``.

    :raises ValueError: a name is not one that metadata may have, or a value is longer than 999 pieces.
    """
    metadata: dict[str, str] = {}
    for name, value in tags.items():
        if not _KEY.fullmatch(name) or name in OWN_KEYS:
            raise ValueError(f"{name!r} cannot be the name of a tag")
        if _PLAIN.fullmatch(value) and not _COUNT.fullmatch(value):
            metadata[name] = value
            continue
        text = base64.urlsafe_b64encode(value.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")
        pieces = [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)]
        keys = [f"{name}.{number}" for number in range(len(pieces))]
        if len(pieces) > 999 or not all(_KEY.fullmatch(key) for key in keys):
            raise ValueError(f"the value of the tag {name!r} is too long: {len(value)} characters")
        metadata[name] = f"b64.{len(pieces)}"
        metadata.update((key, f"z{piece}z") for key, piece in zip(keys, pieces, strict=True))
    return metadata


def decode(metadata: Mapping[str, str]) -> dict[str, str]:
    """The tags that ``metadata`` carries."""
    tags: dict[str, str] = {}
    pieces: set[str] = set()
    for name, value in metadata.items():
        count = _COUNT.fullmatch(value)
        if count is None:
            continue
        keys = [f"{name}.{number}" for number in range(int(count[1]))]
        pieces.update(keys)
        text = "".join(metadata.get(key, "zz")[1:-1] for key in keys)
        if all(key in metadata for key in keys):
            try:
                padded = text + "=" * (-len(text) % 4)
                tags[name] = base64.urlsafe_b64decode(padded).decode("utf-8", "surrogatepass")
            except (binascii.Error, UnicodeError):
                continue
    for name, value in metadata.items():
        if name in pieces or name in OWN_KEYS or name.startswith(_RESERVED) or _COUNT.fullmatch(value):
            continue
        tags[name] = value
    return tags


def patch(before: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, str | None]:
    """The merge patch (RFC 7396) that makes the metadata ``before`` carry ``tags`` and no others."""
    after = encode(tags)
    changes: dict[str, str | None] = {k: v for k, v in after.items() if before.get(k) != v}
    for key in before:
        if key not in after and key not in OWN_KEYS and not key.startswith(_RESERVED):
            changes[key] = None
    return changes
