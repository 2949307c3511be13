# SPDX-License-Identifier: Apache-2.0
"""A program that ends in the middle of an export: ``exiting.py WRITER POINT HOW BUCKET OPTIONS``."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from typing import Any, BinaryIO

from upath import UPath

from sandbox_native import _obstore, exports, uploads

writer, point, how, bucket, options = sys.argv[1:]
uploads.PART = uploads.MIN_PART
if writer == "s3fs":
    _obstore.installed = lambda: False  # type: ignore[assignment]


def end() -> None:
    """End the program in one way. Some come back, and the export goes on to wait."""
    if how == "exit":
        sys.exit(3)
    elif how == "interrupt":
        raise KeyboardInterrupt
    elif how == "error":
        raise RuntimeError("the copy failed")
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "os-exit":
        os._exit(3)
    elif how == "main-ends":
        # The export is on a thread of its own then, and waits for ever.
        reached.set()
        threading.Event().wait()
    else:
        raise ValueError(how)


def write(size: int, last: bool, stream: BinaryIO) -> int:
    piece = b"x" * (1 << 20)
    for done in range(0, size, len(piece)):
        stream.write(piece[: size - done])
        if last and point == "part" and done > uploads.MIN_PART:
            end()
    if last and point == "end":
        end()
    return size


def resolve(url: str) -> Any:
    return UPath(url, **json.loads(options))


reached = threading.Event()
size = 2 * uploads.MIN_PART + 1
items = [
    exports.Item(name, f"s3://{bucket}/out/{name}", lambda s, last=last: write(size, last, s), 1 << 30)
    for name, last in (("one", False), ("two", True))
]
job = exports.Export(
    items,
    source=exports.Source("box", "files"),
    resolve=resolve,
    log=logging.getLogger("exiting"),
    verify=end if point == "sealed" else None,
)
if how == "main-ends":
    threading.Thread(target=job.run, daemon=True).start()
    if not reached.wait(60):
        sys.exit("the point was not reached")
else:
    job.run()
