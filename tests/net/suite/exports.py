# SPDX-License-Identifier: Apache-2.0
"""Exports: whole files of any size, and nothing but files."""

from __future__ import annotations

import hashlib
from typing import Any

from suite.files import EVERY_BYTE
from suite.table import FullSink, Row, Sink, Subject, quoted


def _large(s: Subject) -> Any:
    path = f"{s.folder()}/file"
    s.made(f"head -c 5000000 /dev/urandom >{path}")
    count, data = s.export(path)
    return count, len(data), hashlib.sha256(data).hexdigest() == s.out(f"sha256sum {path}").split()[0]


def _every_byte(s: Subject) -> Any:
    path = f"{s.folder()}/file"
    s.write(path, EVERY_BYTE)
    return s.export(path) == (len(EVERY_BYTE), EVERY_BYTE)


def _of(make: str, name: str, *words: str, most: int = 1 << 30) -> Any:
    def observe(s: Subject) -> Any:
        folder = s.folder()
        if make:
            s.made(f"cd {folder} && {make}")
        dest = Sink()
        path = name if name.startswith("/") else f"{folder}/{name}"
        outcome = s.kind(lambda: s.export(path, most=most, into=dest), *words)
        # Where it fails, nothing may have been taken for the file.
        return outcome if isinstance(outcome, tuple) else (outcome, bytes(dest.data))

    return observe


def _odd_name(s: Subject) -> Any:
    path = f"{s.folder()}/a 'b'\n#?%20é"
    s.made(f"echo odd >{quoted(path)}")
    return s.export(path)


def _destination(s: Subject) -> Any:
    path = f"{s.folder()}/file"
    s.made(f"head -c 300000 /dev/zero >{path}")
    return s.kind(lambda: s.export(path, into=FullSink()))


_RECOVERABLE = ("recoverable", b"")

ROWS = tuple(
    Row("exports", name, observe, right)
    for name, observe, right in (
        ("export: 5 MB", _large, (5000000, 5000000, True)),
        ("export: every byte", _every_byte, True),
        ("export: an empty file", _of(": >file", "file"), (0, b"")),
        ("export: exactly at the limit", _of("printf 12345 >file", "file", most=5), (5, b"12345")),
        ("export: too large", _of("printf 123456 >file", "file", most=5), ("too large: 6", b"")),
        ("export: through a link", _of("printf 12345 >file; ln -s file link", "link"), (5, b"12345")),
        ("export: an odd name", _odd_name, (4, b"odd\n")),
        ("export: missing", _of("", "none", "does not exist"), _RECOVERABLE),
        ("export: a dangling link", _of("ln -s none link", "link"), _RECOVERABLE),
        ("export: a link loop", _of("ln -s loop loop", "loop"), _RECOVERABLE),
        ("export: a directory", _of("mkdir dir", "dir", "directory"), _RECOVERABLE),
        ("export: a link to a directory", _of("mkdir dir; ln -s dir todir", "todir"), _RECOVERABLE),
        ("export: a FIFO", _of("mkfifo fifo", "fifo"), _RECOVERABLE),
        ("export: a device", _of("", "/dev/zero"), _RECOVERABLE),
        ("export: permission denied", _of("echo x >shut; chmod 0 shut", "shut"), _RECOVERABLE),
        ("export: a limit of nothing", _of("echo x >file", "file", most=0), ("ValueError", b"")),
        ("export: the destination's own error", _destination, "FullDisk"),
    )
)
