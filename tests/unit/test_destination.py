# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: SIM115
from __future__ import annotations

import gzip
import io
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest
from upath import UPath

from sandbox_native.destination import descriptor_of, write_all


def test_a_plain_file_is_flushed_and_its_descriptor_continues_it(tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as dest:
        dest.write(b"head,")
        descriptor = descriptor_of(dest)
        assert descriptor == dest.fileno()
        os.write(descriptor, b"tail")
    assert (tmp_path / "f").read_bytes() == b"head,tail"


@pytest.mark.parametrize("opener", ["unbuffered", "update", "fsspec", "upath", "upath_file_url"])
def test_wrappers_of_a_local_file_are_seen_through(tmp_path: Path, opener: str) -> None:
    path = tmp_path / "f"
    path.touch()
    openers = {
        "unbuffered": lambda: open(path, "wb", buffering=0),
        "update": lambda: open(path, "r+b"),
        "fsspec": lambda: fsspec.filesystem("file").open(str(path), "wb"),
        "upath": lambda: UPath(path).open("wb"),
        "upath_file_url": lambda: UPath(f"file://{path}").open("wb"),
    }
    with openers[opener]() as dest:
        descriptor = descriptor_of(dest)
        assert descriptor is not None
        os.write(descriptor, b"direct")
    assert path.read_bytes() == b"direct"


def test_bytes_never_go_around_what_changes_them(tmp_path: Path) -> None:
    class Counting(io.BufferedWriter):
        pass

    (tmp_path / "f").write_bytes(b"x")
    local = fsspec.filesystem("file")
    for dest in (
        io.BytesIO(),
        gzip.open(tmp_path / "g", "wb"),
        local.open(str(tmp_path / "h"), "wb", compression="gzip"),
        open(tmp_path / "t", "w"),
        open(tmp_path / "f", "rb"),
        Counting(io.FileIO(tmp_path / "c", "wb")),
        fsspec.filesystem("memory").open("/destination/f", "wb"),
        object(),
    ):
        assert descriptor_of(dest) is None
        if hasattr(dest, "close"):
            dest.close()


def test_only_a_regular_file() -> None:
    reading, writing = os.pipe()
    with open(writing, "wb") as dest, open(reading, "rb"):
        assert descriptor_of(dest) is None
    with open("/dev/null", "wb") as dest:
        assert descriptor_of(dest) is None


class Sparing(io.RawIOBase):
    """Takes three bytes at a time, and nothing after ten."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int | None:
        part = bytes(data)[: min(3, 10 - len(self.taken))]
        self.taken += part
        return len(part) or None


class Silent:
    """Does not say how much it took, which is all."""

    def __init__(self) -> None:
        self.taken = b""

    def write(self, data: bytes) -> None:
        self.taken += data


def test_all_is_written_or_it_is_an_error() -> None:
    for dest in (Sparing(), Silent(), io.BytesIO()):
        write_all(dest, b"0123456789")
        assert (dest.getvalue() if isinstance(dest, io.BytesIO) else dest.taken) == b"0123456789"
    with pytest.raises(OSError, match="takes no more"):
        write_all(Sparing(), b"0123456789a")
