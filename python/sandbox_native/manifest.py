# SPDX-License-Identifier: Apache-2.0
"""What an export has published, one record a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ExportedFile:
    """One file that is in place.

    :param path: in the sandbox; of an archive the directory or the pattern, as ``exports`` names it.
    :param destination: the URL it has now.
    :param bytes: its size there.
    :param seconds: that copying it took.
    :param sha256: of the bytes as they were copied, in hexadecimal; None where none was asked for.
    """

    path: str
    destination: str
    bytes: int
    seconds: float
    sha256: str | None = None


def as_dicts(records: Iterable[ExportedFile]) -> list[dict[str, Any]]:
    """The records in the types of JSON and of XCom."""
    return [asdict(record) for record in records]


def as_json(records: Iterable[ExportedFile]) -> bytes:
    """The manifest as it is written beside the files: ``{"files": [...]}``."""
    return (json.dumps({"files": as_dicts(records)}, indent=1, ensure_ascii=False) + "\n").encode(
        "utf-8", "backslashreplace"
    )
