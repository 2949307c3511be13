# SPDX-License-Identifier: Apache-2.0
"""Files and directories, with execd's answers to what goes wrong."""

from __future__ import annotations

import contextlib
import errno
import grp
import json
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from servers.http1 import Cut, Request, Response, answer_json, error
from servers.opensandbox.execd.paths import absolute, expand

_BLOCK = 256 * 1024
# Directories of the image that belong to another user than execd's: it may not change their mode.
FOREIGN: set[str] = set()


class Fault(Exception):
    """An operation that failed, with the answer to it."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


def _words(e: OSError) -> str:
    """The system's message as Go has it."""
    return (e.strerror or str(e)).lower()


def _runtime(message: str) -> Fault:
    return Fault(error(500, "RUNTIME_ERROR", message))


def _invalid(message: str, code: str = "INVALID_REQUEST_BODY") -> Fault:
    return Fault(error(400, code, message))


@contextlib.contextmanager
def _file_errors(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as e:
        raise Fault(error(404, "FILE_NOT_FOUND", f"file not found. {what} {path}: {_words(e)}")) from e
    except OSError as e:
        raise _runtime(f"error accessing file: {what} {path}: {_words(e)}") from e
    except ValueError as e:
        raise _runtime(f"error accessing file: {what} {path}: {e}") from e


def _instant(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"


def _name(kind: str, number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name if kind == "user" else grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _describe(path: str) -> dict[str, Any]:
    found = os.lstat(path)
    mode = found.st_mode
    if stat.S_ISLNK(mode):
        kind = "symlink"
    elif stat.S_ISDIR(mode):
        kind = "directory"
    else:
        kind = "file" if stat.S_ISREG(mode) else "other"
    return {
        "path": path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "type": kind,
        "size": found.st_size,
        "modified_at": _instant(found.st_mtime_ns),
        "created_at": _instant(found.st_ctime_ns),
        "owner": _name("user", found.st_uid),
        "group": _name("group", found.st_gid),
        "mode": int(f"{stat.S_IMODE(mode) & 0o777:o}"),
    }


def _info(request: Request) -> Response:
    answer = {}
    for name, path in request.query:
        if name == "path":
            with _file_errors("lstat", path):
                answer[path] = _describe(absolute(path))
    return answer_json(answer)


def _list(request: Request) -> Response:
    asked = request.argument("path")
    if not asked:
        raise _invalid("missing query parameter 'path'", "MISSING_QUERY")
    depth = request.argument("depth") or "1"
    if not depth.isdigit():
        raise _invalid(f"invalid query parameter 'depth': {depth}")
    try:
        path = absolute(asked)
    except ValueError as e:
        raise _runtime(f"error converting path {asked} to absolute. {e}") from e
    with _file_errors("lstat", path):
        mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        raise _invalid(f"path is a symbolic link, refusing to traverse: {path}")
    if not stat.S_ISDIR(mode):
        raise _invalid(f"path is not a directory: {path}")
    entries: list[dict[str, Any]] = []

    def walk(folder: str, left: int) -> None:
        for name in sorted(os.listdir(folder)) if left else ():
            entry = os.path.join(folder, name)
            entries.append(_describe(entry))
            if entries[-1]["type"] == "directory":
                walk(entry, left - 1)

    try:
        walk(path, int(depth))
    except OSError as e:
        raise _runtime(f"error listing directory {path}. open {e.filename}: {_words(e)}") from e
    return answer_json(entries)


def _make_directories(request: Request) -> Response:
    wanted = _object(request)
    for asked, permission in wanted.items():
        with _file_errors("mkdir", asked):
            path = absolute(asked)
            _make(path)
        with _file_errors("chmod", asked):
            _permit(path, permission or {})
    return Response()


def _make(path: str) -> None:
    """A directory with its parents; one that is there is fine, anything else there is none."""
    try:
        os.makedirs(path, 0o777, exist_ok=True)
    except FileExistsError as e:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from e


def _permit(path: str, permission: dict[str, Any]) -> None:
    """Set the mode, given as octal digits, and the owner."""
    if path in FOREIGN:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    if permission.get("mode"):
        os.chmod(path, int(str(permission["mode"]), 8))
    uid, gid = -1, -1
    with contextlib.suppress(KeyError):
        uid = pwd.getpwnam(permission.get("owner") or "").pw_uid
    with contextlib.suppress(KeyError):
        gid = grp.getgrnam(permission.get("group") or "").gr_gid
    if (uid, gid) == (-1, -1):
        uid, gid = os.getuid(), os.getgid()
    os.chown(path, uid, gid)


def _object(request: Request) -> dict[str, Any]:
    try:
        value = request.json()
    except ValueError as e:
        raise _invalid(f"error parsing request, MAYBE invalid body format. {e}") from e
    if not isinstance(value, dict):
        raise _invalid("error parsing request, MAYBE invalid body format. not an object")
    return value


def _upload(request: Request) -> Response:
    parts = list(_parts(request))
    metadata = [data for name, data in parts if name == "metadata"]
    files = [data for name, data in parts if name == "file"]
    if not metadata:
        raise _invalid("metadata file is missing", "INVALID_FILE_METADATA")
    if not files:
        raise _invalid("file is missing", "INVALID_FILE_CONTENT")
    if len(metadata) != len(files):
        counts = f"{len(metadata)} vs {len(files)}"
        raise _invalid(f"metadata and file count mismatch: {counts}", "INVALID_FILE")
    for described, content in zip(metadata, files, strict=True):
        try:
            meta = json.loads(described)
            asked = str(meta["path"] or "")
        except (ValueError, KeyError, TypeError) as e:
            raise _invalid(f"invalid metadata format. {e}", "INVALID_FILE_METADATA") from e
        if not asked:
            raise _invalid("metadata path is empty", "INVALID_FILE_METADATA")
        _write(asked, content, meta)
    return Response()


def _write(asked: str, content: bytes, permission: dict[str, Any]) -> None:
    try:
        path = expand(asked)
    except ValueError as e:
        raise _runtime(f"error resolving target path {asked}. {e}") from e
    folder = os.path.dirname(path) or "."
    try:
        _make(folder)
    except OSError as e:
        raise _runtime(f"error creating target directory {folder}. mkdir {folder}: {_words(e)}") from e
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o777)
    except (OSError, ValueError) as e:
        words = _words(e) if isinstance(e, OSError) else str(e)
        raise _runtime(f"error opening destination file {path}. open {path}: {words}") from e
    try:
        with open(descriptor, "wb", buffering=0) as file:
            view = memoryview(content)
            while view:
                view = view[file.write(view) or 0 :]
    except OSError as e:
        raise _runtime(f"error copying file {path}. write {path}: {_words(e)}") from e
    try:
        _permit(os.path.abspath(path), permission)
    except OSError as e:
        raise _runtime(f"error chmoding file {path}. chmod {path}: {_words(e)}") from e


def _parts(request: Request) -> Iterator[tuple[str, bytes]]:
    """The parts of a form that carry a file name: others are no files to Go."""
    media = request.headers.get("content-type", "")
    boundary = ""
    for word in media.split(";"):
        key, _, value = word.strip().partition("=")
        if key.lower() == "boundary":
            boundary = value.strip('"')
    if not media.startswith("multipart/form-data") or not boundary:
        raise _invalid("multipart form is empty", "INVALID_FILE")
    mark = b"\r\n--" + boundary.encode()
    pieces = (b"\r\n" + request.body).split(mark)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise _invalid("multipart form is empty", "INVALID_FILE")
    for piece in pieces[1:-1]:
        head, _, data = piece.partition(b"\r\n\r\n")
        fields: dict[str, str] = {}
        for line in head.decode("utf-8", "replace").split("\r\n"):
            if line.lower().startswith("content-disposition:"):
                for word in line.split(";")[1:]:
                    key, _, value = word.strip().partition("=")
                    fields[key.lower()] = value.strip('"')
        if fields.get("filename"):
            yield fields.get("name", ""), data


def _download(request: Request) -> Response:
    asked = request.argument("path")
    if not asked:
        raise _invalid("missing query parameter 'path'", "MISSING_QUERY")
    try:
        path = expand(asked)
    except ValueError as e:
        raise _runtime(f"error resolving file path: {asked}. {e}") from e
    with _file_errors("open", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _served(descriptor, path, request.headers.get("range"))
    except BaseException:
        os.close(descriptor)
        raise


def _served(descriptor: int, path: str, asked: str | None) -> Response:
    size = os.fstat(descriptor).st_size
    name = os.path.basename(path)
    shown = f'attachment; filename="{name}"'
    if not name.isascii() or not name.isprintable():
        name = quote(name, safe="$&+:=@")
        shown = f"attachment; filename=\"{name}\"; filename*=UTF-8''{name}"
    headers = {"Content-Type": "application/octet-stream", "Content-Disposition": shown}
    part: tuple[int, int] | None = None
    if asked:
        try:
            part = _range(asked, size)
        except ValueError:
            # The length of the file was announced already; what follows is shorter.
            os.close(descriptor)
            body = b'{"code":"UNKNOWN"}'[:size]
            return Response(416, _short(body, size), headers=headers, length=size)
    if part is not None:
        start, length = part
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
        return Response(206, _content(descriptor, start, length), headers=headers, length=length)
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
    except OSError:
        os.close(descriptor)
        plain = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
        return Response(500, b"seeker can't seek\n", headers=plain)
    if asked and size:
        os.close(descriptor)
        plain = {"Content-Type": "text/plain; charset=utf-8", "Content-Range": f"bytes */{size}"}
        return Response(416, b"invalid range: failed to overlap\n", headers=plain)
    headers["Accept-Ranges"] = "bytes"
    return Response(200, _content(descriptor, 0, size), headers=headers, length=size)


def _short(body: bytes, size: int) -> Iterator[bytes]:
    yield body
    if len(body) < size:
        raise Cut


def _content(descriptor: int, start: int, length: int) -> Iterator[bytes]:
    """Cut where the file holds less than announced, or cannot be read at all (a directory)."""
    try:
        while length:
            try:
                data = os.pread(descriptor, min(length, _BLOCK), start)
            except OSError:
                raise Cut from None
            if not data:
                raise Cut
            start, length = start + len(data), length - len(data)
            yield data
    finally:
        os.close(descriptor)


def _range(text: str, size: int) -> tuple[int, int] | None:
    """Start and length of the first satisfiable range, None where there is none.

    :raises ValueError: malformed.
    """
    unit, _, ranges = text.partition("=")
    if unit != "bytes":
        raise ValueError("invalid range")
    found: tuple[int, int] | None = None
    for item in ranges.split(","):
        if not item.strip():
            continue
        first, dash, last = (word.strip() for word in item.partition("-"))
        if not dash or any(word and not word.isdigit() for word in (first, last)):
            raise ValueError("invalid range")
        if not first:
            count = min(int(last), size)
            start, length = size - count, count
        else:
            start = int(first)
            length = (int(last) if last else size - 1) - start + 1
            if last and length < 1:
                raise ValueError("invalid range")
        if start < size and found is None:
            found = (start, min(length, size - start))
    return found


def _remove(request: Request) -> Response:
    for name, asked in request.query:
        if name != "path":
            continue
        try:
            path = absolute(asked)
            if os.path.isdir(path):
                raise _runtime(f"error removing file {asked}. path is a directory: {asked}")
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
        except ValueError as e:
            raise _runtime(f"error removing file {asked}. invalid path: {e}") from e
        except OSError as e:
            raise _runtime(f"error removing file {asked}. remove {path}: {_words(e)}") from e
    return Response()


def _guarded(action: Callable[[Request], Response]) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        try:
            return action(request)
        except Fault as e:
            return e.response

    return handle


ROUTES = {
    ("GET", "/files/info"): _guarded(_info),
    ("GET", "/files/download"): _guarded(_download),
    ("POST", "/files/upload"): _guarded(_upload),
    ("DELETE", "/files"): _guarded(_remove),
    ("GET", "/directories/list"): _guarded(_list),
    ("POST", "/directories"): _guarded(_make_directories),
}
