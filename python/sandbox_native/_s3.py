# SPDX-License-Identifier: Apache-2.0
"""Multipart uploads through the client that an ``s3fs`` file system has made, with all of its options."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import logging
import time
from collections.abc import Coroutine
from typing import Any

from sandbox_native._in_flight import InFlight
from sandbox_native.uploads import MAX_PARTS, Begin, Sender

log = logging.getLogger(__name__)


def beginning(fs: Any, path: str) -> Begin:
    """Uploads to ``path``, ``bucket/key``, by obstore where that is possible and else by ``fs`` itself."""

    def begin(part_size: int, in_flight: int, alone: bool, whole: bool) -> Sender:
        from sandbox_native import _obstore

        # Obstore sends what is less than a part when the upload is completed. Of many small files that would
        # be all of them, one after the other, kept in memory until then.
        if not whole and _obstore.installed():
            try:
                return _obstore.begin(fs, path, part_size, in_flight if alone else 0)
            except Exception as e:
                # Whatever it was, the file system is the one to say what is wrong, or to do it.
                log.debug("Not by obstore: %s", e)
        return S3Sender(fs, path, in_flight)

    return begin


class Bucket:
    """Requests for one key, made by the file system's own client."""

    def __init__(self, fs: Any, path: str) -> None:
        self.fs = fs
        self.name, self.key, _ = fs.split_path(path)

    def request(self, operation: str, **parameters: Any) -> Coroutine[Any, Any, Any]:
        # s3fs adds the options it was made with to each call, as far as the operation knows them.
        made: Coroutine[Any, Any, Any] = self.fs._call_s3(operation, Bucket=self.name, **parameters)
        return made

    def submit(self, operation: str, **parameters: Any) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(self.request(operation, **parameters), self.fs.loop)

    def call(self, operation: str, **parameters: Any) -> Any:
        """Make a request and wait for its end, cancelled or not: it has an effect to know of."""
        return self.submit(operation, Key=self.key, **parameters).result()

    def appeared(self, parts: int, size: int, since: float, etag: str | None = None) -> bool:
        """Whether the object is the upload that was being completed when the connection failed.

        A store that completed it and whose answer was lost refuses to complete it again.

        :param parts: how many parts the upload had.
        :param size: how many bytes.
        :param since: when it was going to be completed, on the monotonic clock.
        :param etag: of the object, where it can be told.
        """
        from email.utils import parsedate_to_datetime

        try:
            head = self.call("head_object")
            found = head["ETag"].strip('"')
            if head["ContentLength"] != size or not found.endswith(f"-{parts}"):
                return False
            if etag is not None and found == etag:
                return True
            now = parsedate_to_datetime(head["ResponseMetadata"]["HTTPHeaders"]["date"])
            age = (now - head["LastModified"]).total_seconds()
        except Exception:
            log.debug("Could not look at s3://%s/%s", self.name, self.key, exc_info=True)
            return False
        # Times are whole seconds. Not told by the tag, which is no hash of hashes for some encryptions.
        return etag is None and age <= time.monotonic() - since + 1


class S3Sender:
    """One upload through s3fs, with several parts on their way at once."""

    def __init__(self, fs: Any, path: str, in_flight: int) -> None:
        self._bucket = Bucket(fs, path)
        self._sent = InFlight(in_flight, fs.loop)
        self._parts: list[dict[str, Any]] = []
        self._size = 0
        options = fs.s3_additional_kwargs
        acl = options.get("ACL") or options.get("acl")
        created = self._bucket.call("create_multipart_upload", **({"ACL": acl} if acl else {}))
        self._id: str = created["UploadId"]
        self._checksum = f"Checksum{created.get('ChecksumAlgorithm', '')}"

    @property
    def leftover(self) -> str:
        return f"the unfinished upload {self._id} of s3://{self._bucket.name}/{self._bucket.key}"

    def send(self, part: bytearray) -> None:
        self._sent.make_room()
        number = self._sent.count + 1
        if number > MAX_PARTS:
            raise OSError("the file has more parts than S3 takes; its size was not known beforehand")
        self._size += len(part)
        self._sent.add(
            self._bucket.request(
                "upload_part", Key=self._bucket.key, UploadId=self._id, PartNumber=number, Body=part
            )
        )

    def _part(self, number: int, answer: dict[str, Any]) -> dict[str, Any]:
        part = {"PartNumber": number, "ETag": answer["ETag"]}
        # An upload that was made with a checksum wants to hear that of each part again, any other does not.
        if self._checksum in answer:
            part[self._checksum] = answer[self._checksum]
        return part

    def seal(self, last: bytearray) -> None:
        # An upload without parts cannot be completed, so an empty file is one empty part.
        if last or not self._sent.count:
            self.send(last)
        self._parts = [
            self._part(number, answer) for number, answer in enumerate(self._sent.answers(), start=1)
        ]

    def commit(self) -> None:
        since = time.monotonic()
        try:
            self._bucket.call(
                "complete_multipart_upload", UploadId=self._id, MultipartUpload={"Parts": self._parts}
            )
        except Exception:
            if not self._bucket.appeared(len(self._parts), self._size, since, self._expected_tag()):
                raise
            log.info(
                "s3://%s/%s is complete, though the answer was lost", self._bucket.name, self._bucket.key
            )

    def _expected_tag(self) -> str | None:
        """The tag S3 gives an object of these parts, unless it is encrypted with a key of one's own."""
        with contextlib.suppress(ValueError):
            tags = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in self._parts)
            return f"{hashlib.md5(tags, usedforsecurity=False).hexdigest()}-{len(self._parts)}"
        return None

    def abort(self) -> None:
        answered = self._sent.end()
        self._abort()
        if not answered:
            # A part that was cut off may have arrived since, and brought the upload back.
            self._abort()
            log.warning("If a part that was on its way still arrives, %s stays.", self.leftover)

    def _abort(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._bucket.call("abort_multipart_upload", UploadId=self._id)
