# SPDX-License-Identifier: Apache-2.0
"""Multipart uploads to S3 by ``obstore``, which needs a fraction of the processor time that ``s3fs`` does.

It is given what the file system's own client has: address, region, credentials. Where that client has
anything that obstore cannot be told of, or the upload cannot be begun, the file system itself uploads.

Obstore takes the parts from an asynchronous iterator and completes the upload when that ends; when it raises,
obstore aborts the upload. So an upload stays open for as long as the iterator waits. Obstore keeps the bytes
after the last whole part to itself until the end, which is why :func:`sandbox_native.uploads.part_size` sees
to it that they are few.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.util
import logging
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

from sandbox_native import _obstore_loop, calls
from sandbox_native._in_flight import CANCEL_CHECK
from sandbox_native._s3 import Bucket

log = logging.getLogger(__name__)

# How long the credentials of the client's session are taken to hold; it renews them itself in time.
_CREDENTIALS_SECONDS = 300
# A request is retried for so long, and one try of it may take so long: generous, as parts are large.
_RETRY_SECONDS = 120
_TRY_SECONDS = 600
# What the uploads that are sealed and not yet completed may hold back in memory: their last bytes.
_HELD_BYTES = 64 * 1024 * 1024
# Times in S3's answers are whole seconds.
_CLOCK_SECONDS = 2

# Obstore reads its options from the environment, too. Where one begins like this, somebody wants objects or
# connections otherwise than the file system makes them. All others are overridden by what it is given.
_VARIABLES = (
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_",
    "AWS_REQUEST_PAYER",
    "AWS_CHECKSUM_",
    "AWS_S3_EXPRESS",
    "AWS_PROXY_",
    "AWS_ALLOW_INVALID_CERTIFICATES",
    "AWS_DEFAULT_CONTENT_TYPE",
    "AWS_HTTP",
)

_held = 0
_held_lock = threading.Lock()


class Unsuitable(Exception):
    """Obstore cannot do what the file system would."""


class _Abandoned(Exception):
    """The upload is given up."""


@cache
def installed() -> bool:
    """Whether obstore is there."""
    return importlib.util.find_spec("obstore") is not None


def begin(fs: Any, path: str, part_size: int, in_flight: int) -> ObstoreSender:
    """Begin an upload.

    :param in_flight: parts on their way while the next is made; with 0 there is one, and it is certain when
        the upload is sealed that all whole parts have arrived.

    :raises Exception: it could not be begun, for whatever reason. Nothing is left of it.
    """
    if _obstore_loop.forked():
        raise Unsuitable("obstore was used by the process that this one was forked from")
    if _held > _HELD_BYTES:
        raise Unsuitable("the last parts of other uploads take too much memory already")
    own = [name for name in os.environ if name.startswith(_VARIABLES)]
    if own:
        raise Unsuitable(f"the environment has options for obstore: {', '.join(own)}")
    from obstore.store import S3Store

    bucket = Bucket(fs, path)
    if not all(bucket.key.split("/")):
        raise Unsuitable("it would take the slash at the beginning, or one of two, out of the key")
    options, secrets = asyncio.run_coroutine_threadsafe(_told(fs, bucket.name), fs.loop).result()
    store = S3Store(bucket.name, credential_provider=_provider(secrets, fs.loop), **options)
    return ObstoreSender(bucket, store, part_size, in_flight)


async def _told(fs: Any, bucket: str) -> tuple[dict[str, Any], Any]:
    """How obstore is to reach what the file system's client does, and that client's credentials.

    :raises Unsuitable: the client has options that are not known here to make no difference.
    """
    await fs.set_session()
    client = await fs.get_s3(bucket)
    config = client.meta.config
    endpoint: str = client.meta.endpoint_url
    secrets = client._get_credentials()
    if fs.s3_additional_kwargs or fs.req_kw:
        raise Unsuitable("requests have additional parameters")
    if secrets is None or config.signature_version != "s3v4":
        raise Unsuitable("requests are not signed, or in another way")
    if config.proxies or config.client_cert or (config.s3 or {}) not in ({}, {"addressing_style": "path"}):
        raise Unsuitable("the connection has options")
    if endpoint.startswith("https:") and client._endpoint.http_session._verify is not True:
        raise Unsuitable("the connection trusts other certificates than the system's")
    region = client.meta.region_name
    options: dict[str, Any] = {
        "endpoint": endpoint,
        "region": "us-east-1" if region in (None, "aws-global") else region,
        "virtual_hosted_style_request": False,
        "skip_signature": False,
        # As the vendor's clients do it, which leave it to TLS to keep the body whole.
        "unsigned_payload": endpoint.startswith("https:"),
        "client_options": {
            "allow_http": endpoint.startswith("http:"),
            "timeout": f"{_TRY_SECONDS}s",
            "connect_timeout": f"{config.connect_timeout}s",
        },
        "retry_config": {"max_retries": 5, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
    }
    if "AWS_ENDPOINT_URL_S3" in os.environ:
        # It would go before the other.
        options["aws_endpoint_url_s3"] = endpoint
    return options, secrets


def _provider(secrets: Any, loop: asyncio.AbstractEventLoop) -> Any:
    async def current() -> dict[str, Any]:
        frozen = await secrets.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + timedelta(seconds=_CREDENTIALS_SECONDS),
        }

    def provide() -> dict[str, Any]:
        # Called on a thread of obstore's, and the session belongs to the loop.
        return asyncio.run_coroutine_threadsafe(current(), loop).result(60)

    return provide


class _Pieces:
    """What obstore takes the parts from, on the loop; filled from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[bytearray | BaseException] = asyncio.Queue()
        self.changed = threading.Condition()
        self.asked = 0
        """How many pieces obstore has asked for."""

    def put(self, piece: bytearray | BaseException) -> None:
        """Hand over the next piece, or what to end with."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> bytearray:
        with self.changed:
            self.asked += 1
            self.changed.notify_all()
        piece = await self._queue.get()
        if isinstance(piece, BaseException):
            raise piece
        return piece


class ObstoreSender:
    """One upload through obstore.

    Obstore tells of the arrival of parts only by asking for the next when there are few enough on their way.
    That a part failed must be known before another file is published, so then there is only one at a time.
    """

    def __init__(self, bucket: Bucket, store: Any, part_size: int, in_flight: int) -> None:
        self._bucket = bucket
        self._part_size = part_size
        self._sent = 0
        self._size = 0
        self._held = 0
        self._began = time.monotonic()
        uploads = _obstore_loop.uploads()
        self._pieces = pieces = _Pieces(uploads.loop)
        self._future = uploads.start(self._put(store, in_flight), lambda: pieces.put(_Abandoned()))
        self._future.add_done_callback(self._ended)
        self._created = self._began
        try:
            # It asks for the first piece once it has made the upload.
            self._await(1)
        except BaseException:
            with calls.uncancellable():
                self.abort()
            raise
        self._created = time.monotonic()

    async def _put(self, store: Any, in_flight: int) -> Any:
        import obstore

        return await obstore.put_async(
            store,
            self._bucket.key,
            self._pieces,
            use_multipart=True,
            chunk_size=self._part_size,
            max_concurrency=in_flight,
        )

    def _ended(self, _: object) -> None:
        with self._pieces.changed:
            self._pieces.changed.notify_all()

    def _await(self, asked: int) -> None:
        with self._pieces.changed:
            while self._pieces.asked < asked and not self._future.done():
                self._pieces.changed.wait(CANCEL_CHECK)
                calls.check_cancelled()
        if self._future.done():
            self._future.result()
            raise OSError("obstore ended the upload early")

    @property
    def leftover(self) -> str:
        return f"an unfinished upload of s3://{self._bucket.name}/{self._bucket.key}, if it is still there"

    def send(self, part: bytearray) -> None:
        self._hand_over(part)
        self._await(self._sent)

    def _hand_over(self, piece: bytearray) -> None:
        self._pieces.put(piece)
        self._sent += 1
        self._size += len(piece)

    def seal(self, last: bytearray) -> None:
        global _held
        with _held_lock:
            self._held = len(last)
            _held += self._held
        self._hand_over(last)
        # That has to wait for the part before it, too, and the next piece is asked for when that has arrived.
        self._hand_over(bytearray())
        self._await(self._sent + 1)

    def commit(self) -> None:
        since = time.monotonic()
        self._pieces.put(StopAsyncIteration())
        try:
            self._future.result()
        except Exception:
            parts = max(1, -(-self._size // self._part_size))
            if not self._bucket.appeared(parts, self._size, since):
                raise
            log.info(
                "s3://%s/%s is complete, though the answer was lost", self._bucket.name, self._bucket.key
            )
        self._release()

    def abort(self) -> None:
        self._pieces.put(_Abandoned())
        concurrent.futures.wait([self._future])
        self._release()
        if self._pieces.asked and not isinstance(self._future.exception(), _Abandoned):
            # It was made and has failed by itself. Obstore does not always abort it then, nor say whether it
            # could.
            self._abort_what_is_left()

    def _release(self) -> None:
        global _held
        with _held_lock:
            _held -= self._held
            self._held = 0

    def _abort_what_is_left(self) -> None:
        """Find the upload and abort it. It is the one that was made when this one was.

        :raises Exception: it cannot be told whether there is one, or it cannot be aborted.
        """
        answer = self._bucket.submit("list_multipart_uploads", Prefix=self._bucket.key).result()
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        clock = time.monotonic()
        youngest, oldest = clock - self._created - _CLOCK_SECONDS, clock - self._began + _CLOCK_SECONDS
        for upload in answer.get("Uploads", ()):
            age = (now - upload["Initiated"]).total_seconds()
            if upload["Key"] == self._bucket.key and youngest <= age <= oldest:
                self._bucket.call("abort_multipart_upload", UploadId=upload["UploadId"])
