# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: SIM115
from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import fsspec
import pytest
from upath import UPath

from sandbox_native.destination import descriptor_of


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
