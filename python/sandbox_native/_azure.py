# SPDX-License-Identifier: Apache-2.0
"""Block blobs on Azure through the client that an ``adlfs`` file system has made.

A copy on the server, which moving a staging blob comes down to, only begins when it is asked for, and fails
when its source is deleted before it has ended. Blocks need none.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import uuid
from collections.abc import Coroutine
from typing import Any

from sandbox_native._in_flight import InFlight
from sandbox_native.uploads import Begin, Sender


def beginning(fs: Any, path: str) -> Begin:
    """Uploads to ``path``, ``container/blob``."""

    def begin(part_size: int, in_flight: int, alone: bool, whole: bool) -> Sender:
        return BlockSender(fs, path, in_flight)

    return begin


class BlockSender:
    """One blob. Its blocks wait at the service, which forgets those that are not committed in a week."""

    def __init__(self, fs: Any, path: str, in_flight: int) -> None:
        self._loop = fs.loop
        container, blob, _ = fs.split_path(path)
        self._client = fs.service_client.get_blob_client(container=container, blob=blob)
        self._sent = InFlight(in_flight, fs.loop)
        self._ids: list[str] = []

    @property
    def leftover(self) -> str:
        # There is no request that removes them, and nobody sees them.
        return ""

    def _submit(self, request: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(request, self._loop)

    def send(self, part: bytearray) -> None:
        self._sent.make_room()
        # All of a blob have to be as long, those that somebody else has left there included: adlfs's are.
        self._ids.append(uuid.uuid4().hex)
        data = bytes(part)
        self._sent.add(self._client.stage_block(self._ids[-1], data, length=len(data)))

    def seal(self, last: bytearray) -> None:
        # So that an account that may not write here is known by now, an empty file has an empty list of them.
        if last:
            self.send(last)
        self._sent.answers()

    def commit(self) -> None:
        from azure.storage.blob import BlobBlock

        blocks = [BlobBlock(block_id) for block_id in self._ids]
        # What adlfs itself says of a file.
        metadata = {"is_directory": "false"}
        self._submit(self._client.commit_block_list(blocks, metadata=metadata)).result()

    def abort(self) -> None:
        self._sent.end()
