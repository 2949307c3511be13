# SPDX-License-Identifier: Apache-2.0
"""A program that exports, forks, and exports in the child: ``forking.py BUCKET OPTIONS``."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any, BinaryIO

from upath import UPath

from sandbox_native import exports

bucket, options = sys.argv[1:]


def resolve(url: str) -> Any:
    return UPath(url, **json.loads(options))


def write(stream: BinaryIO) -> int:
    return stream.write(b"x" * 18_000_000)


def export(name: str) -> None:
    items = [exports.Item(name, f"s3://{bucket}/{name}", write, 1 << 30)]
    source = exports.Source("box", "files")
    exports.Export(items, source=source, resolve=resolve, log=logging.getLogger("forking")).run()


export("parent")
child = os.fork()
if child == 0:
    # As Airflow's tasks end.
    status = 1
    try:
        export("child")
        status = 0
    finally:
        os._exit(status)
_, ended = os.waitpid(child, 0)
export("parent-again")
sys.exit(os.waitstatus_to_exitcode(ended))
