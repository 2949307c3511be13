# SPDX-License-Identifier: Apache-2.0
"""Files on Islo: read, written and exported by the service's own calls, looked at by commands.

The service answers 404 for a file that is missing and for a directory, 400 with a message for a path that is
not absolute, and 500 without one for writing onto a directory or into a file system of the kernel. It answers
the same when the sandbox is gone, so that is looked at before an error is the model's to mend.
"""

from __future__ import annotations

import posixpath
import shlex
import time
from collections.abc import Callable
from typing import BinaryIO, NoReturn

from sandbox_native import command_files, guest
from sandbox_native.backends._islo_calls import (
    OVERLOADED,
    Api,
    CallError,
    again,
    query,
    sandbox_path,
    worth_repeating,
)
from sandbox_native.contract import SandboxError, SandboxFileTooLargeError, SandboxTerminalError
from sandbox_native.destination import announce, descriptor_of, write_all
from sandbox_native.multipart import FileSlice, Part

OPERATION_TIMEOUT = command_files.OPERATION_TIMEOUT
# Bytes of names that one command brings: od, where there is no base64, makes three of each, and a stream has
# a MiB.
LISTING_PART = 320 * 1024
# Answers that say nothing of the path: rejected credentials, too many requests.
_NOT_OF_THE_PATH = frozenset({401, 403, 429})
_WRITE_HINT = (
    "Islo answers so when the path is a directory or under a pseudo-filesystem such as /proc or /sys."
)

Look = Callable[[str], None]
"""Looks whether a sandbox can serve; given the operation that failed, raises SandboxTerminalError if not."""


def read(api: Api, run: command_files.Run, look: Look, sandbox: str, path: str, max_bytes: int) -> bytes:
    """The content of a file of at most ``max_bytes``.

    :raises SandboxFileTooLargeError: it is larger.
    :raises SandboxError: it cannot be read, or is larger by nobody knows how much.
    :raises SandboxTerminalError: the service or the sandbox does not serve.
    """
    guest.operand(path)
    url = _files(sandbox, _absolute(run, path, "read"))
    deadline = time.monotonic() + OPERATION_TIMEOUT
    data = bytearray()

    def fetch() -> None:
        data.clear()
        api.download(url, data.extend, deadline=deadline, max_bytes=max_bytes)

    try:
        again(fetch, deadline=deadline, worth=worth_repeating(OVERLOADED))
        return bytes(data)
    except CallError as e:
        cause = e.cause
        if cause is None or cause.kind != "too_large":
            _fail(e, look, path, "read")
    # What the service announces is at hand; else the guest is asked.
    size = cause.announced or _size(run, path, max_bytes)
    if size is None:
        raise SandboxError(
            f"{path!r} is larger than the {max_bytes} byte read limit. Have a shell command print the part "
            "you need, by head, tail, sed -n or grep."
        )
    raise SandboxFileTooLargeError(path, max(size, max_bytes + 1), max_bytes)


def _size(run: command_files.Run, path: str, max_bytes: int) -> int | None:
    """The size of a file as the guest has it; None when it cannot say."""
    result = run(guest.file_script(path, max_bytes), timeout=OPERATION_TIMEOUT, max_output_bytes=64 * 1024)
    return guest.reported_size(result.stdout)


def write(
    api: Api,
    run: command_files.Run,
    look: Look,
    sandbox: str,
    path: str,
    content: bytes | FileSlice,
    allowance: float = OPERATION_TIMEOUT,
) -> None:
    """Make ``content`` the content of a file, and the directories above it that are missing.

    :param allowance: seconds that sending it may take.
    :raises SandboxError: it cannot be written.
    :raises SandboxTerminalError: the service or the sandbox does not serve.
    """
    guest.operand(path)
    if path.endswith("/"):
        raise SandboxError(f"{path!r} is a directory; name the file to write.")
    target = _absolute(run, path, "write")
    parent = posixpath.dirname(target)
    if parent.strip("/") not in ("", "."):
        made = run(
            f"mkdir -p -- {shlex.quote(parent)}", timeout=OPERATION_TIMEOUT, max_output_bytes=64 * 1024
        )
        if made.exit_code:
            raise SandboxError(made.stderr.strip() or f"Could not create the parent directory for {path!r}.")
    deadline = time.monotonic() + allowance
    part = Part("file", content, "upload")
    try:
        again(
            # Twice the same content is the same file.
            lambda: api.call(
                "POST", _files(sandbox, target), parts=[part], deadline=deadline, idempotent=True
            ),
            deadline=deadline,
            worth=worth_repeating(OVERLOADED | {409}),
        )
    except CallError as e:
        _fail(e, look, path, "write", _WRITE_HINT)


def export(
    api: Api, run: command_files.Run, look: Look, sandbox: str, path: str, dest: BinaryIO, max_bytes: int
) -> int:
    """Copy a regular file to ``dest`` and return its size. Exceptions of ``dest`` come out as they are.

    The guest says what the file is before and after, so one that changes meanwhile is never taken for whole.

    :raises SandboxFileTooLargeError: it is larger than ``max_bytes``.
    :raises SandboxError: it is no regular file, changed, or took too long.
    :raises SandboxTerminalError: the service or the sandbox does not serve.
    """
    allowance = command_files.export_allowance(max_bytes)
    deadline = time.monotonic() + allowance
    before = command_files.look_at(run, path, max_bytes)
    size = guest.stamped_size(before.stamp)
    if size is None:
        raise SandboxError(f"Could not export {path!r}: the sandbox did not report its size.")
    source = before.data.decode("utf-8", "surrogateescape")
    url = _files(sandbox, source)
    announce(dest, size)
    descriptor = descriptor_of(dest)
    target = (lambda data: write_all(dest, data)) if descriptor is None else descriptor

    def fetch() -> int:
        answer = api.download(
            url, target, deadline=deadline, max_bytes=max_bytes, size=size, stall=OPERATION_TIMEOUT
        )
        taken: int = answer.taken
        return taken

    def nothing_came(e: CallError) -> bool:
        return worth_repeating(OVERLOADED)(e) and (e.cause is None or not e.cause.received)

    copied: int = size
    try:
        copied = again(fetch, deadline=deadline, worth=nothing_came)
    except CallError as e:
        cause = e.cause
        if cause is not None and cause.kind == "deadline" and time.monotonic() >= deadline:
            raise command_files.too_slow(path, allowance, max_bytes) from e
        if cause is None or cause.kind not in ("length", "too_large"):
            _fail(e, look, path, "export")
        # Another size than the guest's: a file that is written to, or a lie.
        copied = cause.received
        _after(run, path, before.stamp, size, copied, max_bytes)
        raise SandboxError(
            f"{path!r} changed while it was exported: it has {size} bytes and others came: {cause}."
        ) from e
    _after(run, path, before.stamp, size, copied, max_bytes)
    return copied


def _after(run: command_files.Run, path: str, stamp: str, size: int, copied: int, max_bytes: int) -> None:
    """Raise if the file is not what it was."""
    try:
        after = command_files.look_at(run, path, max_bytes).stamp
    except (SandboxTerminalError, SandboxFileTooLargeError):
        raise
    except SandboxError as e:
        raise SandboxError(f"{path!r} changed while it was exported: {e}") from e
    if after != stamp or copied != size:
        raise SandboxError(
            f"{path!r} changed while it was exported: it had {size} bytes at first, {copied} were copied, "
            f"{guest.stamped_size(after)} it has now. A process in the sandbox may still be writing it."
        )


def _absolute(run: command_files.Run, path: str, verb: str) -> str:
    """``path``, from where commands start unless it is absolute: the service takes no other."""
    if path.startswith("/"):
        return path
    result = run('printf %s "$PWD"', timeout=OPERATION_TIMEOUT, max_output_bytes=64 * 1024)
    if result.exit_code or not result.stdout.startswith("/"):
        raise SandboxError(f"Could not {verb} {path!r}: give the path from / on.")
    return posixpath.join(result.stdout, path)


def _files(sandbox: str, path: str) -> str:
    return f"{sandbox_path(sandbox, 'files')}?path={query(path)}"


def _fail(e: CallError, look: Look, path: str, verb: str, hint: str = "") -> NoReturn:
    """Raise what a failed transfer stands for."""
    status = e.status
    if verb == "read" and e.cause is not None and e.cause.status and e.cause.timed_out:
        raise SandboxError(f"Could not read {path!r}: it took longer than {OPERATION_TIMEOUT:g} s.") from e
    if status is None or status in _NOT_OF_THE_PATH or status > 500:
        raise e.terminal(f"{verb} a sandbox file") from e
    look(f"check a sandbox after a failed file {verb}")
    if status == 404:
        raise SandboxError(f"{path!r} does not exist in the sandbox, or is not a regular file.") from e
    text = f"Could not {verb} {path!r} (HTTP {status})"
    if e.detail and status < 500:
        text += f": {e.detail}"
    text += "."
    if hint and status >= 500:
        text += f" {hint}"
    raise SandboxError(text) from e
