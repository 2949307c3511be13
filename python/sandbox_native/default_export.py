# SPDX-License-Identifier: Apache-2.0
"""Copying a file out of a sandbox by commands alone: one command for each slice of it.

The first slice brings what the file looks like and what tools the guest has. The next commands run while a
slice is decoded, in C, and written. Slices are compressed in the guest while that moves the file faster than
sending it as it is.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from typing import TYPE_CHECKING, BinaryIO

from sandbox_native import calls, command_files, guest
from sandbox_native._home import SandboxError, SandboxExecResult, SandboxFileTooLargeError
from sandbox_native.command_files import OPERATION_TIMEOUT, Run
from sandbox_native.destination import announce, descriptor_of, write_all
from sandbox_native.validate import positive_finite

if TYPE_CHECKING:
    from hashlib import _Hash

GZIP_RATE = 85_000_000
"""Bytes per second that ``gzip -1`` takes in, measured on text: a faster channel gains nothing by it."""
# Slices between two tries of the way that was the slower one: a file is not the same all over.
_TRY_AGAIN = 32


def export_file(
    run: Run,
    path: str,
    dest: BinaryIO,
    *,
    max_bytes: int,
    slice_bytes: int,
    allowance: float,
    in_flight: int = 1,
    verify: bool = False,
) -> int:
    """Copy a regular file to ``dest`` and return its size.

    The file must look the same before the first slice and after every one (size, inode, time of change) and
    have as many bytes as its size says. An exception of ``dest`` comes out as it is.

    :param max_bytes: a larger file is refused before anything is written.
    :param slice_bytes: bytes read at a time; about four times as much is held in memory for each in flight.
    :param allowance: seconds that all of it may take.
    :param in_flight: commands that may run in the sandbox at a time.
    :param verify: compare a checksum of all that came with one made in the guest.
    :raises SandboxFileTooLargeError: the file is larger than ``max_bytes``.
    :raises SandboxError: it cannot be exported, it changed, or it took too long.
    :raises SandboxTerminalError: the sandbox ended.
    :raises ValueError: ``max_bytes``, ``slice_bytes`` or ``in_flight`` is no positive number.
    """
    positive_finite(max_bytes, "max_bytes")
    positive_finite(slice_bytes, "slice_bytes")
    positive_finite(in_flight, "in_flight")
    export = _Export(run, path, int(max_bytes), int(slice_bytes), allowance)
    return export.copy(dest, int(in_flight), verify)


class _Slice:
    """One that was asked for."""

    def __init__(self, offset: int, packed: bool, call: calls.Call[_Arrived]) -> None:
        self.offset = offset
        self.packed = packed
        self.call = call


class _Arrived:
    """What came for a slice, and after how many seconds."""

    def __init__(self, result: SandboxExecResult, seconds: float) -> None:
        self.result = result
        self.seconds = seconds


class Packing:
    """Whether to compress, by what was measured of both ways."""

    def __init__(self) -> None:
        self.possible = False
        # Bytes of the file per second; None: not tried.
        self._rates: dict[bool, float | None] = {False: None, True: None}
        self._since = 0

    def took(self, packed: bool, size: int, seconds: float) -> None:
        """Learn that a slice of ``size`` bytes took so long."""
        self._rates[packed] = size / max(seconds, 1e-6)
        self._since += 1

    def choose(self) -> bool:
        """Whether to compress the next slice."""
        plain, packed = self._rates[False], self._rates[True]
        if not self.possible or plain is None or plain >= GZIP_RATE:
            return False
        if packed is None:
            return True
        better = packed > plain
        if self._since >= _TRY_AGAIN:
            self._since = 0
            return not better
        return better


class _Export:
    """One copy of one file."""

    def __init__(self, run: Run, path: str, limit: int, slice_bytes: int, allowance: float) -> None:
        self._run = run
        self._path = path
        self._limit = limit
        self._slice = slice_bytes
        self._allowance = allowance
        self._deadline = time.monotonic() + allowance
        self._stamp: str | None = None
        self._size = 0
        self._asked = 0
        self._encoding: str | None = None
        self._packing = Packing()

    def copy(self, dest: BinaryIO, in_flight: int, verify: bool) -> int:
        pending: deque[_Slice] = deque()
        written = 0
        check: _Hash | None = None
        descriptor: int | None = None
        try:
            # Nothing is known before the first one has come.
            self._ask(pending, 1)
            while pending:
                part = pending.popleft()
                frame = self._arrived(part)
                if part.offset == 0:
                    announce(dest, self._size)
                if part.offset == 0 and verify:
                    check = self._checksum(frame)
                elif part.offset == 0:
                    # A checksum is made of what passes through here.
                    descriptor = descriptor_of(dest)
                # The next ones come while this one is decoded.
                self._ask(pending, in_flight)
                length = min(self._slice, self._size - part.offset)
                written += self._write(frame, length, dest, descriptor, check)
                del frame, part
        finally:
            for part in pending:
                part.call.abandon()
        if check is not None:
            self._verify(check)
        return written

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise command_files.too_slow(self._path, self._allowance, self._limit)
        return left

    def _ask(self, pending: deque[_Slice], most: int) -> None:
        """Ask for slices until ``most`` are on their way."""
        while len(pending) < most and (self._asked < self._size or self._stamp is None):
            packed = self._packing.choose()
            script = guest.slice_script(
                self._path,
                offset=self._asked,
                length=self._slice,
                max_bytes=self._limit,
                encoding=self._encoding,
                packed=packed,
            )
            cap = guest.output_cap(self._slice, self._encoding or "od")
            timeout = max(1.0, min(OPERATION_TIMEOUT, self._left()))
            call = calls.prepare_part(self._timed, script, timeout, cap)
            pending.append(_Slice(self._asked, packed, call))
            self._asked += self._slice
            call.start()

    def _timed(self, script: str, timeout: float, cap: int) -> _Arrived:
        begin = time.perf_counter()
        result = command_files.run_script(self._run, script, cap, timeout=timeout)
        return _Arrived(result, time.perf_counter() - begin)

    def _arrived(self, part: _Slice) -> guest.Frame:
        """Wait for a slice and check all of it but its data."""
        arrived = part.call.wait()
        calls.check_cancelled()
        result = arrived.result
        if result.timed_out and not result.sandbox_terminated and time.monotonic() >= self._deadline:
            raise command_files.too_slow(self._path, self._allowance, self._limit)
        command_files.check_result(result, self._path, "export", self._limit)
        frame = command_files.find_frame(result, self._path, "export")
        if self._stamp is None:
            size = guest.stamped_size(frame.stamp)
            if size is None:
                raise self._untrue("unknown")
            self._stamp, self._size, self._encoding = frame.stamp, size, frame.encoding
            self._packing.possible = frame.has("gzip")
        if frame.end_stamp != self._stamp:
            raise self._changed(frame.end_stamp)
        length = min(self._slice, self._size - part.offset)
        if length == self._slice:  # a short one is all latency
            self._packing.took(part.packed, length, arrived.seconds)
        return frame

    def _write(
        self, frame: guest.Frame, length: int, dest: BinaryIO, descriptor: int | None, check: _Hash | None
    ) -> int:
        try:
            if descriptor is not None:
                taken = frame.write_to(descriptor, length)
            else:
                data = frame.decoded(length)
                taken = len(data)
        except guest.CutError:
            raise command_files.cut(self._path, "export") from None
        except OverflowError:
            taken = -1
        if taken != length:
            # Files that the kernel makes up while they are read have no true size.
            raise self._untrue(str(self._size))
        if descriptor is None:
            if check is not None:
                check.update(data)
            write_all(dest, data)
        return taken

    def _checksum(self, frame: guest.Frame) -> _Hash:
        name = next((name for name in guest.DIGESTS if frame.has(name)), None)
        if name is None:
            tools = " or ".join(f"{name}sum" for name in guest.DIGESTS)
            raise SandboxError(f"Could not verify {self._path!r}: the sandbox has no {tools}.")
        return hashlib.new(name, usedforsecurity=False)

    def _verify(self, check: _Hash) -> None:
        result = command_files.run_script(
            self._run,
            guest.digest_script(self._path, check.name),
            64 * 1024,
            timeout=max(1.0, min(OPERATION_TIMEOUT, self._left())),
        )
        command_files.check_result(result, self._path, "verify", None)
        frame = command_files.find_frame(result, self._path, "verify")
        if frame.stamp != self._stamp or frame.end_stamp != self._stamp:
            raise self._changed(frame.end_stamp)
        if check.hexdigest() != frame.text[frame.begin : frame.end].strip():
            raise SandboxError(
                f"Could not export {self._path!r}: the {check.name} checksum of what arrived is not the one "
                "that the sandbox computed."
            )

    def _changed(self, stamp: str) -> SandboxError:
        now = guest.stamped_size(stamp)
        if now is not None and now > self._limit:
            return SandboxFileTooLargeError(self._path, now, self._limit)
        return SandboxError(
            f"{self._path!r} changed while it was exported. A process in the sandbox may still be writing it."
        )

    def _untrue(self, size: str) -> SandboxError:
        return SandboxError(
            f"Could not export {self._path!r}: its size is given as {size} bytes, which is not what can be "
            "read of it. If it is a file of the system, as in /proc, copy it to an ordinary file first."
        )
