# SPDX-License-Identifier: Apache-2.0
"""Directories out of sandboxes behind a service: listed whole, however many names, and copied."""

from __future__ import annotations

import functools
import io
import logging
import tarfile
from typing import Any

import fsspec
import pytest
from upath import UPath

from opensandbox_box import OpenBox
from sandbox_native import command_files, export_plan
from sandbox_native._delivery import Delivery
from servers.islo.fixtures import Sandbox

MAKE = """\
mkdir -p tree/deep; cd tree/deep; i=0
while [ $i -lt {count} ]; do echo $i >name-of-some-length-$i; i=$((i+1)); done"""


def check(backend: Any, sandbox: str, count: int) -> None:
    made = backend.run_command(sandbox, MAKE.format(count=count), timeout=60, max_output_bytes=1000)
    assert made.exit_code == 0, made
    listed = command_files.list_tree(functools.partial(backend.run_command, sandbox), "tree/")
    assert listed is not None
    assert sorted(one.name for one in listed if one.type == "f") == sorted(
        f"deep/name-of-some-length-{number}" for number in range(count)
    )
    exports = {
        "tree/deep/*-1?": {"to": "memory://trees/some/", "glob": True, "required": False},
        "tree/**/*-0": {"to": "memory://trees/one.tar.gz", "glob": True},
    }
    fs = fsspec.filesystem("memory")
    try:
        delivery = Delivery(backend, sandbox, resolve=UPath, log=logging.getLogger("trees"), checksum=True)
        records = delivery.deliver(export_plan.entries(exports, 1 << 20))
        there = {path.removeprefix("/trees/"): fs.cat_file(path) for path in fs.find("/trees")}
    finally:
        fs.rm("/trees", recursive=True)
    with tarfile.open(fileobj=io.BytesIO(there.pop("one.tar.gz"))) as tar:
        assert tar.getnames() == ["deep/name-of-some-length-0"]
    tens = range(10, min(20, count))
    assert there == {f"some/name-of-some-length-{number}": b"%d\n" % number for number in tens}
    assert len(records) == len(tens) + 1


@pytest.mark.parametrize("count", [1, 5000])
def test_islo(box: Sandbox, count: int) -> None:
    check(box.backend, box.name, count)


@pytest.mark.parametrize("count", [1, 5000])
def test_opensandbox(opened: OpenBox, count: int) -> None:
    check(opened.backend, opened.id, count)
