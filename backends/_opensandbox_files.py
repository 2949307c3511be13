# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox, by execd's file interface, and by commands where that would be wrong.

execd looks at a path itself (no link is followed), expands ``$NAME`` in it and a ``~`` at its start, gives
what it uploads to its own user, opens whatever it is asked for, a named pipe included, and names no type of
what a link leads to. So a file is looked at first; ordinary ones go by its interface, the rest by
:mod:`sandbox_native.command_files`, whose scripts know the difference.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NoReturn

from sandbox_native import calls, captured, command_files, default_export, guest, guest_write
from sandbox_native.backends import _opensandbox_lifecycle as lifecycle
from sandbox_native.backends._opensandbox_lifecycle import Sandbox
from sandbox_native.backends._opensandbox_service import LATER, Service
from sandbox_native.contract import SandboxError, SandboxFileTooLargeError, SandboxTerminalError
from sandbox_native.destination import descriptor_of, write_all
from sandbox_native.http import Answer, DownloadAnswer, RequestCancelled, TransportError
from sandbox_native.multipart import FileSlice, Part, slice_of
from sandbox_native.retries import with_retries

#: More entries than this are not listed; the provider's number.
LISTING_MAX_ENTRIES = 10_000
_LISTING_MAX_BODY = 32 * 1024 * 1024
# Octal digits as a decimal number, as execd takes and gives modes.
_NEW_MODE = 644
_MISSING = "missing"
# A connection that moves nothing for so long is dead.
_STALL = 30.0
# How a connection breaks, or is not made.
_BROKEN = frozenset({"send", "receive", "length", "stalled", "connect", "connect_timeout"})
# Breaks of one export that moved nothing in between, before it is given up.
_RESUMES = 5
_RESUME_PAUSE = 0.2
# Of a file that was changed so lately the next change may not show in its times; a Date is in whole seconds.
_CLOCK_TICK = 2.0
_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")
# One that may fall to a write that replaces a file: what one command can carry.
_SMALL = command_files.WRITE_PART_BYTES


@dataclass(frozen=True)
class _Info:
    kind: str
    size: int
    modified: str
    changed: str = field(default="", compare=False)
    """When anything of the file was changed, its mode or name included; nobody in the sandbox can set it."""
    seen: str = field(default="", compare=False)
    """When the answer was made, by the clock of execd or of the server before it."""

    @property
    def regular(self) -> bool:
        return self.kind == "file"


class Files:
    """File operations in one sandbox.

    :param run: runs a command in it.
    """

    def __init__(self, service: Service, sandbox: Sandbox, run: command_files.Run) -> None:
        self._service = service
        self._sandbox = sandbox
        self._run = run

    # -- read --------------------------------------------------------------------------------------------

    def read(self, path: str, *, max_bytes: int) -> bytes:
        """See ``SandboxBackend.read_file``."""
        native = _native_path(path)
        if native is None:
            return command_files.read_file(self._run, path, max_bytes=max_bytes)
        deadline = time.monotonic() + command_files.OPERATION_TIMEOUT
        found = self._look(path, native, "read", deadline)
        if found is not None:
            _check_exists(path, found)
            if found.kind == "directory":
                raise SandboxError(f"{path!r} is a directory; list_directory shows what is in it.")
            if found.regular and found.size > max_bytes:
                raise SandboxFileTooLargeError(path, found.size, max_bytes)
            if not found.regular or found.size == 0:
                # Files that the kernel makes up while they are read have no size either.
                return command_files.read_file(self._run, path, max_bytes=max_bytes)
        data = bytearray()
        try:
            # One byte over the limit shows that there is more.
            answer = self._download(native, data.extend, deadline, last=max_bytes)
        except TransportError as e:
            if e.kind == "deadline":
                raise SandboxError(
                    f"Could not read {path!r}: it took longer than {command_files.OPERATION_TIMEOUT:g} s."
                ) from e
            if not e.sent:
                raise self._unreachable("read a sandbox file", e) from e
            # A directory, or a file that became shorter: the guest knows.
            self._confirm_alive()
            return command_files.read_file(self._run, path, max_bytes=max_bytes)
        if not answer.ok:
            self._refused("read", path, answer)
        if len(data) > max_bytes:
            size = found.size if found is not None else self._size(path, native, deadline)
            raise SandboxFileTooLargeError(path, max(size, len(data)), max_bytes)
        return bytes(data)

    def _size(self, path: str, native: str, deadline: float) -> int:
        try:
            found = self._look(path, native, "read", deadline)
        except SandboxError:
            return 0
        return found.size if found is not None else 0

    def stamp(self, path: str) -> object | None:
        """See ``SandboxBackend.file_stamp``."""
        native = _native_path(path)
        if native is None:
            return None
        found = self._look(path, native, "read", time.monotonic() + command_files.OPERATION_TIMEOUT)
        if found is None:
            return None
        _check_exists(path, found)
        # A link is looked at itself; size and times of a kernel's file mean nothing.
        if not found.regular or found.size == 0 or _age(found) < _CLOCK_TICK:
            return None
        return found.size, found.modified, found.changed

    # -- write -------------------------------------------------------------------------------------------

    def write(self, path: str, content: bytes) -> None:
        """See ``SandboxBackend.write_file``."""
        native = _native_path(path)
        if native is None or path.endswith("/"):
            command_files.write_file(self._run, path, content)
            return
        deadline = time.monotonic() + command_files.OPERATION_TIMEOUT
        found = self._look(path, native, "write", deadline)
        if found is None or found.kind == _MISSING:
            answer = self._upload(native, content, deadline, _NEW_MODE)
            if not answer.ok:
                self._refused("write", path, answer)
            return
        if found.kind == "directory":
            raise SandboxError(f"{path!r} is a directory; name a file to write.")
        if len(content) <= _SMALL or not found.regular or not self._replace(path, native, content, deadline):
            command_files.write_file(self._run, path, content)

    def import_from(self, path: str, source: BinaryIO, size: int) -> None:
        """See ``SandboxBackend.import_file``. Only a file that is not there yet is uploaded in one piece."""
        native = _native_path(path)
        allowance = command_files.export_allowance(size)
        deadline = time.monotonic() + allowance
        if size > _SMALL and native is not None and not path.endswith("/"):
            found = self._look(path, native, "write", deadline)
            if found is None or found.kind == _MISSING:
                with slice_of(source, size) as content:
                    answer = self._upload(native, content, deadline, _NEW_MODE)
                if not answer.ok:
                    self._refused("write", path, answer)
                return
        if size <= command_files.IMPORT_AT_ONCE_BYTES:
            with slice_of(source, size) as content:
                self.write(path, os.pread(content.fd, size, content.offset))
            return
        command_files.import_file(self._run, path, source, size=size, allowance=allowance)

    def _replace(self, path: str, native: str, content: bytes, deadline: float) -> bool:
        """Upload beside the file, then put that in its place with its mode and owner; False if that fails."""
        token = secrets.token_hex(8)
        parent = native.rpartition("/")[0]
        beside = f"{parent}/.sandbox-native-{token}.partial"
        if not self._upload(beside, content, deadline, 600).ok:
            return False
        script = guest_write.write_script(path, token, b"", first=False, escaped=False, total=len(content))
        try:
            result = self._run(script, timeout=command_files.OPERATION_TIMEOUT, max_output_bytes=64 * 1024)
        except SandboxTerminalError:
            raise
        except BaseException:
            self._discard(path, token)
            raise
        if result.exit_code == 0 and not result.timed_out:
            return True
        self._discard(path, token)
        if result.sandbox_terminated:
            raise SandboxTerminalError(f"The sandbox ended during an attempt to write {path!r}.")
        return False

    def _discard(self, path: str, token: str) -> None:
        try:
            with calls.uncancellable():
                self._run(guest_write.discard_script(path, token), timeout=10.0, max_output_bytes=4096)
        except SandboxError:
            pass  # the error that led here is the one to tell

    def _upload(self, native: str, content: bytes | FileSlice, deadline: float, mode: int) -> Answer:
        operation = "write a sandbox file"
        metadata = {"path": native, "owner": None, "group": None, "mode": mode}
        parts = [
            Part("metadata", json.dumps(metadata).encode(), "metadata", "application/json"),
            Part("file", content, "file"),
        ]
        cancel_fd = calls.cancel_fd()
        with self._service.told(operation):
            answer: Answer = with_retries(
                lambda: self._service.client.upload(
                    "POST",
                    f"{self._sandbox.url}/files/upload",
                    parts,
                    deadline=deadline,
                    headers=self._sandbox.headers,
                    stall=_STALL,
                    cancel_fd=cancel_fd,
                ),
                deadline=deadline,
                idempotent=False,
                cancel_fd=cancel_fd,
            )
        return answer

    # -- list --------------------------------------------------------------------------------------------

    def listing(self, path: str) -> list[tuple[str, bool]]:
        """See ``SandboxBackend.list_directory``."""
        native = _native_path(path)
        if native is None:
            return self._listing_by_command(path)
        answer = self._get("list a sandbox directory", "/directories/list", path=native, depth="1")
        if answer.status == 400:
            # A file, or a link: the guest follows links.
            self._confirm_alive()
            return self._listing_by_command(path)
        if not answer.ok:
            self._refused("list", path, answer)
        too_many = SandboxError(
            f"{path!r} has more than {LISTING_MAX_ENTRIES} entries. List a directory within it, or use a "
            "command such as `ls | head`."
        )
        if answer.cut:
            raise too_many
        entries = self._service.json("list a sandbox directory", answer)
        if not isinstance(entries, list):
            raise SandboxTerminalError(
                "OpenSandbox could not list a sandbox directory: the answer is not a list."
            )
        hidden = self._hidden()
        found = []
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
                raise SandboxTerminalError(
                    "OpenSandbox could not list a sandbox directory: the answer has an entry without a path."
                )
            name = entry["path"].rstrip("/").rpartition("/")[2]
            if name not in hidden and not captured.is_private(name):
                found.append((name, entry.get("type")))
        if len(found) > LISTING_MAX_ENTRIES:
            raise too_many
        if any(kind == "symlink" for _, kind in found):
            followed = dict(command_files.list_directory(self._run, path))
            return [
                (name, followed.get(name, False) if kind == "symlink" else kind == "directory")
                for name, kind in found
            ]
        return [(name, kind == "directory") for name, kind in found]

    def _listing_by_command(self, path: str) -> list[tuple[str, bool]]:
        entries = command_files.list_directory(self._run, path)
        hidden = self._hidden()
        return [entry for entry in entries if entry[0] not in hidden and not captured.is_private(entry[0])]

    def _hidden(self) -> set[str]:
        """Names of execd's files of commands that have ended, which the next one removes."""
        return set(list(self._sandbox.leftovers))

    # -- export ------------------------------------------------------------------------------------------

    def export(self, path: str, dest: BinaryIO, *, max_bytes: int, slice_bytes: int) -> int:
        """See ``SandboxBackend.export_file``."""
        allowance = command_files.export_allowance(max_bytes)
        deadline = time.monotonic() + allowance
        native = _native_path(path)
        found: _Info | None = None
        if native is not None:
            found = self._look(path, native, "export", deadline)
            if found is not None and found.kind == "symlink":
                native = self._resolved(path)
                found = self._look(path, native, "export", deadline) if native is not None else None
            if found is not None:
                _check_exists(path, found)
        if native is None or found is None or (found.regular and found.size == 0):
            return default_export.export_file(
                self._run, path, dest, max_bytes=max_bytes, slice_bytes=slice_bytes, allowance=allowance
            )
        if found.kind == "directory":
            raise SandboxError(f"{path!r} is a directory; only a regular file can be exported.")
        if not found.regular:
            raise SandboxError(f"{path!r} is not a regular file; only a regular file can be exported.")
        if found.size > max_bytes:
            raise SandboxFileTooLargeError(path, found.size, max_bytes)
        copy = _Copy(dest)
        self._copy(path, native, found, copy, deadline, allowance, max_bytes)
        after = self._look(path, native, "export", deadline)
        if after is not None and after.regular and after.size > max_bytes:
            raise SandboxFileTooLargeError(path, after.size, max_bytes)
        if after != found or copy.taken != found.size:
            raise _changed(path, found, copy.taken)
        return copy.taken

    def _resolved(self, path: str) -> str | None:
        """What a link leads to in the end, None where execd cannot be asked for that."""
        import shlex

        script = f"LC_ALL=C; export LC_ALL; readlink -f -- {shlex.quote(guest.operand(path))} && echo x"
        result = self._run(
            script, timeout=command_files.OPERATION_TIMEOUT, max_output_bytes=2 * guest.PATH_MAX
        )
        if result.sandbox_terminated:
            raise SandboxTerminalError(f"The sandbox ended during an attempt to export {path!r}.")
        target = result.stdout.removesuffix("\nx\n")
        if result.exit_code or not target.startswith("/") or "\ufffd" in target:
            return None
        return _native_path(target)

    def _copy(
        self,
        path: str,
        native: str,
        found: _Info,
        copy: _Copy,
        deadline: float,
        allowance: float,
        max_bytes: int,
    ) -> None:
        resumes = 0
        while True:
            before = copy.taken
            try:
                answer = self._download(
                    native, copy.dest(), deadline, first=before, last=max_bytes, size=found.size
                )
            except TransportError as e:
                if e.kind == "deadline":
                    raise SandboxError(
                        f"Exporting {path!r} took longer than the {allowance:g} s that a file of up to "
                        f"{max_bytes} bytes may take."
                    ) from e
                self._may_resume(path, native, found, copy.taken, deadline, e)
                resumes = 0 if copy.taken > before else resumes + 1
                if resumes >= _RESUMES:
                    raise SandboxTerminalError(f"OpenSandbox could not export a sandbox file: {e}.") from e
                if copy.taken >= found.size:
                    return
                self._pause(_RESUME_PAUSE * resumes)
                continue
            if not answer.ok:
                self._refused("export", path, answer)
            return

    @staticmethod
    def _pause(seconds: float) -> None:
        calls.check_cancelled()
        time.sleep(seconds)
        calls.check_cancelled()

    def _may_resume(
        self, path: str, native: str, found: _Info, taken: int, deadline: float, error: TransportError
    ) -> None:
        """Raise unless the rest of a file can be taken to belong to what came before."""
        try:
            now = self._look(path, native, "export", deadline)
        except SandboxTerminalError:
            raise SandboxTerminalError(f"OpenSandbox could not export a sandbox file: {error}.") from error
        if now is not None and now != found:
            raise _changed(path, found, taken) from error
        # A sandbox that is just ending still counts as there, but cannot say what became of the file.
        if now is None or error.kind not in _BROKEN:
            raise SandboxTerminalError(f"OpenSandbox could not export a sandbox file: {error}.") from error

    # -- exchanges ---------------------------------------------------------------------------------------

    def _get(self, operation: str, where: str, *, timeout: float | None = None, **query: str) -> Answer:
        from urllib.parse import urlencode

        url = f"{self._sandbox.url}{where}?{urlencode(query)}"
        answer: Answer = self._service.ask(
            operation,
            "GET",
            url,
            headers=self._sandbox.headers,
            timeout=timeout,
            max_body=_LISTING_MAX_BODY,
            may_cut=True,
        )
        return answer

    def _look(self, path: str, native: str, verb: str, deadline: float) -> _Info | None:
        """What a path names, no link followed; of kind ``missing`` if nothing. None where execd cannot say.

        :raises SandboxError: it may not be looked at.
        :raises SandboxTerminalError: the sandbox is gone.
        """
        operation = "inspect a sandbox file"
        left = max(1.0, deadline - time.monotonic())
        timeout = min(left, self._service.settings.request_timeout)
        answer = self._get(operation, "/files/info", timeout=timeout, path=native)
        if answer.status in (404, 500):
            if verb != "write":  # there the upload finds out
                self._confirm_alive()
            return _Info(_MISSING, 0, "") if answer.status == 404 else None
        if not answer.ok:
            self._refused(verb, path, answer)
        found = self._service.json(operation, answer)
        entry: Any = None
        if isinstance(found, dict):
            entry = found.get(native) or next(iter(found.values()), None)
        if not isinstance(entry, dict):
            self._confirm_alive()
            return _Info(_MISSING, 0, "")
        kind, size = entry.get("type"), entry.get("size")
        if not isinstance(kind, str) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise SandboxTerminalError(f"OpenSandbox could not {operation}: the answer has no type or size.")
        return _Info(
            kind,
            size,
            str(entry.get("modified_at")),
            str(entry.get("created_at")),  # execd's name for the time of the last change
            answer.headers.get("date", ""),
        )

    def _download(
        self,
        native: str,
        dest: int | Callable[[bytes], object],
        deadline: float,
        *,
        first: int = 0,
        last: int,
        size: int | None = None,
    ) -> DownloadAnswer:
        from urllib.parse import urlencode

        cancel_fd = calls.cancel_fd()
        try:
            answer: DownloadAnswer = with_retries(
                lambda: self._service.client.download(
                    f"{self._sandbox.url}/files/download?{urlencode({'path': native})}",
                    dest,
                    deadline=deadline,
                    ranged=True,
                    first=first,
                    last=last,
                    size=size,
                    headers=self._sandbox.headers,
                    stall=_STALL,
                    cancel_fd=cancel_fd,
                ),
                deadline=deadline,
                idempotent=False,  # what came of it has been passed on
                refusals=LATER,
                cancel_fd=cancel_fd,
            )
        except RequestCancelled as e:
            raise calls.CallCancelled("the transfer was cancelled") from e
        return answer

    # -- errors ------------------------------------------------------------------------------------------

    def _confirm_alive(self) -> None:
        """Raise a terminal error unless the sandbox is still there: then no path is to blame."""
        lifecycle.info(self._service, self._sandbox.id, "confirm that a sandbox still exists")

    def _refused(self, verb: str, path: str, answer: Answer) -> NoReturn:
        """Raise what execd's refusal stands for: the model's to mend, unless the sandbox is gone."""
        if answer.status not in (400, 404, 500):
            raise self._service.failure(f"{verb} a sandbox file", answer)
        self._confirm_alive()
        detail = self._service.detail(answer)
        if answer.status == 404 and verb != "write":
            raise _missing(path)
        reason = detail or f"HTTP {answer.status}"
        raise SandboxError(f"Could not {verb} {path!r} in the sandbox: {reason}.")

    def _unreachable(self, operation: str, error: TransportError) -> SandboxTerminalError:
        return SandboxTerminalError(f"OpenSandbox could not {operation}: {error}.")


def _age(found: _Info) -> float:
    """Seconds since a file was changed, at least; below 0 where that is not known."""
    from datetime import datetime
    from email.utils import parsedate_to_datetime

    try:
        changed = datetime.fromisoformat(found.changed).timestamp()
        # A proxy may have added its own.
        return min(parsedate_to_datetime(date).timestamp() for date in _DATE.findall(found.seen)) - changed
    except (ValueError, TypeError, OverflowError):
        return -1.0


def _missing(path: str) -> SandboxError:
    return SandboxError(f"{path!r} does not exist in the sandbox, or is not readable.")


def _check_exists(path: str, found: _Info) -> None:
    if found.kind == _MISSING:
        raise _missing(path)


def _changed(path: str, found: _Info, taken: int) -> SandboxError:
    return SandboxError(
        f"{path!r} changed while it was exported: it had {found.size} bytes at first, and {taken} "
        "were copied. A process in the sandbox may still be writing it."
    )


def _native_path(path: str) -> str | None:
    """``path`` so that execd takes it as the shell would; None where it cannot be told to.

    :raises SandboxError: no file can have this path; the text says why.
    """
    guest.operand(path)
    if "$" in path:
        return None
    return f"./{path}" if path.startswith("~") else path


class _Copy:
    """The destination of an export, and how much went there."""

    def __init__(self, dest: BinaryIO) -> None:
        self._dest = dest
        self._written = 0
        self._descriptor = descriptor_of(dest)
        self._start = 0 if self._descriptor is None else os.lseek(self._descriptor, 0, os.SEEK_CUR)

    @property
    def taken(self) -> int:
        """Bytes that reached it, also of a transfer that broke."""
        if self._descriptor is None:
            return self._written
        return os.lseek(self._descriptor, 0, os.SEEK_CUR) - self._start

    def dest(self) -> int | Callable[[bytes], object]:
        return self._write if self._descriptor is None else self._descriptor

    def _write(self, data: bytes) -> None:
        write_all(self._dest, data)
        self._written += len(data)
