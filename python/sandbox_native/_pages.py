# SPDX-License-Identifier: Apache-2.0
"""The file that was read last, kept between two pages of it, so that a page need not move and mask it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sandbox_native import operations
from sandbox_native.contract import SandboxBackend
from sandbox_native.masking import Secrets


class _Kept(NamedTuple):
    sandbox: str
    path: str
    stamp: object
    secrets: Secrets
    masked: bytes


class LastFile:
    """At most one file, and only while nothing but pages of it is asked for.

    Any thread may call; of two at once one is remembered.
    """

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def read(
        self,
        backend: SandboxBackend,
        sandbox: str,
        path: str,
        secrets: Callable[[], Secrets],
        *,
        max_bytes: int,
        worth: int | None,
    ) -> bytes:
        """The masked content of a file, from here when the backend can tell that it has not changed.

        :param secrets: gives the secrets of the moment.
        :param max_bytes: the most that may be read.
        :param worth: keep what is not smaller; None to keep nothing. To keep something costs a question
            to the backend, so it is for those who have asked for a second page.
        """
        kept, self._kept = self._kept, None
        # Not every backend is of our contract.
        stamp_of = getattr(backend, "file_stamp", None) if worth is not None else None
        # Asked for before the content is read: a change in between makes the stamp old, never the content.
        stamp = None if stamp_of is None else stamp_of(sandbox, path)
        if (
            kept is not None
            and stamp is not None
            and kept[:3] == (sandbox, path, stamp)
            and kept.secrets == secrets()
        ):
            self._kept = kept
            return kept.masked
        data = operations.read_file(backend, sandbox, path, max_bytes=max_bytes)
        now = secrets()
        masked = now.mask_bytes(data)
        if stamp is not None and worth is not None and len(masked) >= worth:
            self._kept = _Kept(sandbox, path, stamp, now, masked)
        return masked

    def forget(self) -> None:
        """Let go of the content."""
        self._kept = None
