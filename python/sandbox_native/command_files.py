# SPDX-License-Identifier: Apache-2.0
"""File operations for a backend that can only run commands.

Each function takes ``run``, which runs a shell command in the sandbox and returns its result, and speaks with
the scripts of :mod:`sandbox_native.guest` through it. Errors are for the model to read.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import secrets
import time
from typing import BinaryIO, Protocol

from sandbox_native import _home, guest, guest_tree, guest_write
from sandbox_native._home import (
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxTerminalError,
)
from sandbox_native.guest import Status
from sandbox_native.validate import positive_finite

OPERATION_TIMEOUT = 120.0
"""Seconds that one command of a file operation may take; the provider's value."""
EXPORT_MIN_RATE = 1024 * 1024
"""Bytes per second below which an export is given up; the provider's value."""
LISTING_MAX_BYTES = 4 * 1024 * 1024
"""Bytes of names that a listing may have."""
# A command travels as one argument of at most 128 KiB (Linux, MAX_ARG_STRLEN) and a backend may wrap and
# encode it again: 48 KiB of content are 64 KiB of base64, 85 KiB if that is encoded once more.
WRITE_PART_BYTES = 48 * 1024
IMPORT_AT_ONCE_BYTES = 8 * 1024 * 1024
"""The most that is held in memory to be written in one piece."""
# Four characters a byte.
WRITE_PART_ESCAPED_BYTES = 16 * 1024
# Standard error that is quoted to the model.
_REASON_CHARS = 500


class Run(Protocol):
    """Runs a shell command in a sandbox; ``SandboxBackend.run_command`` with the sandbox given."""

    def __call__(self, command: str, *, timeout: float, max_output_bytes: int) -> SandboxExecResult: ...


def export_allowance(max_bytes: int) -> float:
    """Seconds that a whole export of up to ``max_bytes`` bytes may take."""
    return max(OPERATION_TIMEOUT, max_bytes / EXPORT_MIN_RATE)


def read_file(run: Run, path: str, *, max_bytes: int) -> bytes:
    """The content of a file, in one command, with no more than a byte over ``max_bytes`` moved.

    :raises SandboxFileTooLargeError: it is larger; where its size is known nothing was moved.
    :raises SandboxError: it cannot be read.
    :raises SandboxTerminalError: the sandbox ended.
    :raises ValueError: ``max_bytes`` is no positive number.
    """
    positive_finite(max_bytes, "max_bytes")
    limit = int(max_bytes)
    result = run_script(run, guest.read_script(path, limit), guest.output_cap(limit + 1))
    check_result(result, path, "read", limit)
    frame = find_frame(result, path, "read")
    data = frame_data(frame, path, "read")
    if len(data) > limit:
        raise SandboxFileTooLargeError(path, max(guest.stamped_size(frame.stamp) or 0, len(data)), limit)
    return data


def write_file(run: Run, path: str, content: bytes) -> None:
    """Replace or create a file, as ``>`` would, of any size.

    The content goes to a partial file first, in commands that fit a command line; the target changes in the
    last of them, by a rename where that keeps its mode, owner and other names. A call that is cancelled
    leaves the partial file, ``.sandbox-native-<token>.partial`` beside the target.

    :raises SandboxError: it cannot be written; the target is as it was.
    :raises SandboxTerminalError: the sandbox ended.
    """
    import_file(run, path, io.BytesIO(content), size=len(content), allowance=math.inf)


def import_file(run: Run, path: str, source: BinaryIO, *, size: int, allowance: float) -> None:
    """Do what :func:`write_file` does with ``size`` bytes that are read from ``source``.

    :param allowance: seconds that all of it may take.
    :raises EOFError: ``source`` has fewer bytes; its own exceptions come out as they are.
    :raises SandboxError: as :func:`write_file`, or it took too long.
    :raises SandboxTerminalError: the sandbox ended.
    """
    if path.endswith("/"):
        raise SandboxError(f"{path!r} is a directory; name the file to write.")
    content = _Content(source, size)
    deadline = time.monotonic() + allowance
    result = _send(run, path, content, escaped=False, deadline=deadline)
    if result is not None and result.exit_code == Status.NO_BASE64:
        result = _send(run, path, content, escaped=True, deadline=deadline)
    if result is None:
        raise SandboxError(
            f"Writing {path!r} took longer than the {allowance:g} s that a file of {size} bytes may take."
        )
    check_result(result, path, "write", None)


class Writing(Protocol):
    """A backend as far as :func:`import_into` knows it."""

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult: ...
    def write_file(self, sandbox: str, path: str, content: bytes) -> None: ...


def import_into(backend: Writing, sandbox: str, path: str, source: BinaryIO, *, size: int) -> None:
    """Do :func:`import_file` in the best way for a backend that has none of its own.

    One that brings its own ``write_file`` gets a small file by that, in one piece.
    """
    if size <= IMPORT_AT_ONCE_BYTES and _has_own_write(type(backend)):
        content = _Content(source, size)
        backend.write_file(sandbox, path, content.take(size))
        return
    run = functools.partial(backend.run_command, sandbox)
    import_file(run, path, source, size=size, allowance=export_allowance(size))


def _has_own_write(cls: type) -> bool:
    definer = next(base for base in cls.__mro__ if "write_file" in vars(base))
    # The contract's two homes, of which both send it by commands.
    return definer.__module__ not in ("sandbox_native.contract", _home.SandboxBackend.__module__)


class _Content:
    """What is still to be sent."""

    def __init__(self, source: BinaryIO, size: int) -> None:
        self._source = source
        self._back = b""
        self._unread = size
        self.size = size

    @property
    def left(self) -> int:
        return self._unread + len(self._back)

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes, fewer at the end."""
        parts = [self._back[:count]]
        self._back = self._back[count:]
        missing = min(count - len(parts[0]), self._unread)
        while missing:
            part = self._source.read(missing)
            if not part:
                raise EOFError(f"the source ended with {self._unread} of {self.size} bytes to come")
            parts.append(part)
            missing -= len(part)
            self._unread -= len(part)
        return b"".join(parts)

    def give_back(self, part: bytes) -> None:
        self._back = part + self._back


def _send(
    run: Run, path: str, content: _Content, *, escaped: bool, deadline: float
) -> SandboxExecResult | None:
    """Send all of ``content``; the result of the last command that was run, None when the time was up."""
    token = secrets.token_hex(8)
    size = WRITE_PART_ESCAPED_BYTES if escaped else WRITE_PART_BYTES
    first = True
    try:
        while True:
            part = content.take(size)
            total = content.size if not content.left else None
            script = guest_write.write_script(path, token, part, first=first, escaped=escaped, total=total)
            first = False
            result = run_script(run, script, 64 * 1024)
            if result.exit_code or result.timed_out or result.sandbox_terminated or total is not None:
                break
            if time.monotonic() > deadline:
                _discard(run, path, token)
                return None
    except SandboxTerminalError:
        raise
    except Exception:
        if not first:
            _discard(run, path, token)
        raise
    if result.exit_code == Status.NO_BASE64:
        content.give_back(part)
    # The scripts clean up before they leave by a status of theirs.
    ended_by_script = result.exit_code in (0, *Status) and not result.timed_out
    if not ended_by_script and not result.sandbox_terminated:
        _discard(run, path, token)
    return result


def _discard(run: Run, path: str, token: str) -> None:
    # Best effort: the error that led here is the one to tell.
    with contextlib.suppress(Exception):
        run(guest_write.discard_script(path, token), timeout=10.0, max_output_bytes=4096)


def list_directory(run: Run, path: str, *, part_bytes: int | None = None) -> list[tuple[str, bool]]:
    """Each entry of a directory with whether it is a directory; a link counts as what it leads to.

    Bytes of a name that are not UTF-8 come as U+FFFD.

    :param part_bytes: bytes of names to ask for by one command, where ``run`` cannot bring
        :data:`LISTING_MAX_BYTES` of them at once.
    :raises SandboxError: it cannot be listed, or the names take more than :data:`LISTING_MAX_BYTES`.
    :raises SandboxTerminalError: the sandbox ended.
    """
    names = b""
    while True:
        script = guest.list_script(path, offset=len(names), length=part_bytes)
        result = run_script(run, script, guest.output_cap(part_bytes or LISTING_MAX_BYTES))
        check_result(result, path, "list", None)
        if (part_bytes is None and result.stdout_truncated) or len(names) > LISTING_MAX_BYTES:
            raise SandboxError(
                f"Could not list {path!r}: the names take more than {LISTING_MAX_BYTES} bytes. "
                "Ask for a part of them with a command, such as ls piped into head."
            )
        part = frame_data(find_frame(result, path, "list"), path, "list")
        names += part
        if part_bytes is None or len(part) < part_bytes:
            break
    records = names.split(b"\0")
    return [(record[1:].decode("utf-8", "replace"), record[:1] == b"d") for record in records if record]


def list_tree(run: Run, path: str, *, max_depth: int | None = None) -> list[guest_tree.Listed] | None:
    """What is below a directory, the directory itself first; None where nothing is at ``path``.

    Links are not followed, but ``path`` itself may be one.

    :param max_depth: how many levels to go down; None for all.
    :raises SandboxError: it is no directory or cannot be listed whole, or the names take more than
        :data:`LISTING_MAX_BYTES`.
    :raises SandboxTerminalError: the sandbox ended.
    """
    script = guest_tree.tree_script(path, max_depth=max_depth, max_bytes=LISTING_MAX_BYTES)
    result = run_script(run, script, guest.output_cap(LISTING_MAX_BYTES + 1))
    if result.exit_code == Status.MISSING and not result.timed_out and not result.sandbox_terminated:
        return None
    check_result(result, path, "list", None)
    data = frame_data(find_frame(result, path, "list"), path, "list")
    try:
        return guest_tree.parse(data, max_bytes=LISTING_MAX_BYTES)
    except guest_tree.ListingError as e:
        raise SandboxError(f"Could not list {path!r}: {e}.") from None


def is_there(run: Run, path: str) -> bool:
    """Whether there is anything at ``path``, a link that leads nowhere included.

    :raises SandboxError: it cannot be told.
    :raises SandboxTerminalError: the sandbox ended.
    """
    result = run_script(run, guest_tree.presence_script(path), 64 * 1024)
    if result.exit_code == Status.MISSING and not result.timed_out and not result.sandbox_terminated:
        return False
    check_result(result, path, "look for", None)
    return True


def look_at(run: Run, path: str, max_bytes: int) -> guest.Frame:
    """What a regular file is, for an export that brings its content another way.

    :return: its stamp, and as data its absolute path.
    :raises SandboxFileTooLargeError: it is larger than ``max_bytes``.
    :raises SandboxError: it is no regular file, or cannot be read.
    :raises SandboxTerminalError: the sandbox ended.
    """
    result = run_script(run, guest.file_script(path, max_bytes), 64 * 1024)
    check_result(result, path, "export", max_bytes)
    return find_frame(result, path, "export")


# ---- results -----------------------------------------------------------------------------------------


def run_script(run: Run, script: str, cap: int, *, timeout: float = OPERATION_TIMEOUT) -> SandboxExecResult:
    return run(script, timeout=timeout, max_output_bytes=cap)


def too_slow(path: str, allowance: float, max_bytes: int) -> SandboxError:
    """The error of an export that was not done in its time."""
    return SandboxError(
        f"Exporting {path!r} took longer than the {allowance:g} s that a file of up to {max_bytes} bytes "
        "may take."
    )


def find_frame(result: SandboxExecResult, path: str, verb: str) -> guest.Frame:
    """The frame in a result that :func:`check_result` took for a success."""
    try:
        if not result.stdout_truncated:
            return guest.parse_frame(result.stdout)
    except guest.CutError:
        pass
    raise cut(path, verb)


def frame_data(frame: guest.Frame, path: str, verb: str) -> bytes:
    """The data of a frame that is not compressed."""
    try:
        return frame.data
    except guest.CutError:
        raise cut(path, verb) from None


def cut(path: str, verb: str) -> SandboxError:
    """The error of data that did not arrive as it was sent."""
    return SandboxError(f"Could not {verb} {path!r}: the data was cut on its way out of the sandbox.")


# What the model is told.
_REFUSALS: dict[int, str] = {
    Status.MISSING: "{path!r} does not exist in the sandbox, or is not readable.",
    Status.NOT_REGULAR: "{path!r} is not a regular file; there is nothing to {verb}.",
    Status.UNREADABLE: "{path!r} is not readable: permission denied.",
    Status.NOT_DIRECTORY: "{path!r} is not a directory.",
    Status.LINK_LOOP: "{path!r} leads through too many symbolic links.",
    Status.UNWRITABLE: "{path!r} is not writable: permission denied.",
    Status.NO_TOOL: "Could not {verb} {path!r}: the sandbox has no {reason}.",
    Status.LOST: "Could not {verb} {path!r}: what was sent did not arrive whole, or was removed.",
}
_DIRECTORY = {
    "read": "{path!r} is a directory; list_directory shows what is in it.",
    "export": "{path!r} is a directory; only a regular file can be exported.",
    "write": "{path!r} is a directory; name a file to write.",
}


def check_result(result: SandboxExecResult, path: str, verb: str, max_bytes: int | None) -> None:
    """Raise what the result of a script of :mod:`sandbox_native.guest` stands for, unless it is a success."""
    if result.sandbox_terminated:
        raise SandboxTerminalError(f"The sandbox ended during an attempt to {verb} {path!r}.")
    if result.timed_out:
        limit = result.applied_timeout or OPERATION_TIMEOUT
        raise SandboxError(f"Could not {verb} {path!r}: it took longer than {limit:g} s.")
    status = result.exit_code
    if status == 0:
        return
    if status == Status.TOO_LARGE and max_bytes is not None:
        raise SandboxFileTooLargeError(path, guest.reported_size(result.stdout) or max_bytes + 1, max_bytes)
    reason = result.stderr.strip()[-_REASON_CHARS:]
    text = _DIRECTORY.get(verb) if status == Status.DIRECTORY else _REFUSALS.get(status)
    if text is None:
        text = "Could not {verb} {path!r}: {reason}"
        reason = reason or f"the command ended with status {status}."
    raise SandboxError(text.format(path=path, verb=verb, reason=reason))
