# SPDX-License-Identifier: Apache-2.0
"""Bytes between an open file of a local sandbox and a file of the host, and how its errors are told.

The sandbox's file is a descriptor that the guest program opened inside. What fails on the host's side comes
out as it is; what fails on the sandbox's is an error that the model can read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from typing import BinaryIO

from sandbox_native import _sandbox_native as native
from sandbox_native import calls
from sandbox_native.contract import SandboxError, SandboxFileTooLargeError
from sandbox_native.destination import announce, descriptor_of, readable_descriptor, write_all

TIMEOUT = 120.0
"""Seconds for opening a file, for a listing, and at least for a copy."""
# As the provider's contract: an export may take as long as it needs at 1 MiB a second.
_MIN_RATE = 1024 * 1024
_CHUNK = 1024 * 1024


def copy_in(fd: int, path: str, source: BinaryIO, size: int) -> None:
    """Make ``size`` bytes of ``source`` the content of the sandbox's file ``fd``.

    :param path: how errors call that file.
    :raises EOFError: ``source`` has fewer bytes.
    :raises SandboxError: it took longer than allowed.
    :raises OSError: the sandbox's file cannot be written; see :func:`error`.
    :raises OtherSideError: carries an error of ``source``.
    """
    allowance = max(TIMEOUT, size / _MIN_RATE)
    os.ftruncate(fd, 0)
    if size:
        os.posix_fallocate(fd, 0, size)
    try:
        _fill(fd, source, size, allowance)
    except TimeoutError as e:
        raise SandboxError(
            f"Writing {path!r} took longer than the {allowance:g}s allowed for {size} bytes."
        ) from e
    except InterruptedError as e:
        raise calls.CallCancelled("the import was cancelled") from e


def copy_out(fd: int, path: str, dest: BinaryIO, max_bytes: int) -> int:
    """Copy the sandbox's file ``fd`` to ``dest`` and return its size in bytes.

    :param path: how errors call the file.
    :param max_bytes: the largest that is copied.
    :raises SandboxFileTooLargeError: it is larger.
    :raises SandboxError: it changed meanwhile, or it took longer than allowed.
    :raises OtherSideError: carries an error of ``dest``.
    """
    allowance = max(TIMEOUT, max_bytes / _MIN_RATE)
    try:
        before = native.file_stamp(fd, True)
    except TimeoutError as e:
        raise SandboxError(
            f"{path!r} changed while it was exported: something in the sandbox still writes to it."
        ) from e
    if before[0] > max_bytes:
        raise SandboxFileTooLargeError(path, before[0], max_bytes)
    announce(dest, before[0])
    try:
        copied = _copy(fd, dest, before[0], allowance)
    except TimeoutError as e:
        raise SandboxError(
            f"Exporting {path!r} took longer than the {allowance:g}s allowed for a file of up to "
            f"{max_bytes} bytes."
        ) from e
    after = native.file_stamp(fd, False)
    if after[0] > max_bytes:
        raise SandboxFileTooLargeError(path, after[0], max_bytes)
    if before != after or copied != before[0]:
        raise SandboxError(
            f"{path!r} changed while it was exported ({before[0]} bytes at first, {copied} copied, "
            f"{after[0]} at the end): something in the sandbox still writes to it."
        )
    return copied


class OtherSideError(Exception):
    """Carries an error of the destination or the source past the handlers for the sandbox's file."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


@contextlib.contextmanager
def _blaming_other_side(but: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        if isinstance(e, but):
            raise
        raise OtherSideError(e) from e


def _copy(fd: int, dest: BinaryIO, size: int, allowance: float) -> int:
    """The copied count. Errors of the destination come out unchanged."""
    cancel = calls.cancel_fd()
    with _blaming_other_side():
        target = descriptor_of(dest)
    try:
        if target is not None:
            # Reading memory or a read-only tree does not fail; writing elsewhere does.
            with _blaming_other_side(but=(TimeoutError, InterruptedError)):
                return native.copy_file(fd, target, size, timeout=allowance, cancel_fd=cancel)
        deadline = time.monotonic() + allowance
        copied = 0
        while copied < size:
            if time.monotonic() > deadline:
                raise TimeoutError
            calls.check_cancelled()
            data = native.read_up_to(fd, min(_CHUNK, size - copied))
            if not data:
                break
            with _blaming_other_side():
                write_all(dest, data)
            copied += len(data)
        return copied
    except InterruptedError as e:
        raise calls.CallCancelled("the export was cancelled") from e


def _fill(fd: int, source: BinaryIO, size: int, allowance: float) -> None:
    """Write ``size`` bytes of ``source``. Its errors come out unchanged."""
    descriptor = readable_descriptor(source)
    if descriptor is not None:
        copied = native.copy_file(descriptor, fd, size, timeout=allowance, cancel_fd=calls.cancel_fd())
        if copied < size:
            raise EOFError(f"the source ended after {copied} of {size} bytes")
        return
    deadline = time.monotonic() + allowance
    left = size
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError
        calls.check_cancelled()
        with _blaming_other_side():
            data = source.read(min(_CHUNK, left))
        if not data:
            raise EOFError(f"the source ended after {size - left} of {size} bytes")
        left -= len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]


def error(verb: str, path: str, e: OSError) -> SandboxError:
    """What the model is told of a file that could not be opened, read or written.

    :param verb: what was to be done with it.
    """
    if e.errno == errno.ENOENT:
        return SandboxError(f"{path!r} does not exist in the sandbox.")
    if e.errno == errno.EISDIR:
        if verb == "read":
            return SandboxError(f"{path!r} is a directory; list_directory shows what is in it.")
        return SandboxError(f"{path!r} is a directory.")
    if e.errno == errno.ENXIO:
        return SandboxError(f"{path!r} is not a regular file.")
    if e.errno == errno.EOPNOTSUPP:
        return SandboxError(f"{path!r} is a file of the kernel, not a regular file; read it with a command.")
    return SandboxError(f"Could not {verb} {path!r}: {os.strerror(e.errno) if e.errno else e}.")


def encoded(text: str, what: str) -> bytes:
    """As the sandbox sees it; names that are no UTF-8 come back as list_directory gave them."""
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as e:
        raise SandboxError(f"{what} is not valid text: {e.reason} at character {e.start}.") from e
    if b"\0" in data:
        raise SandboxError(f"{what} contains a NUL character.")
    return data
