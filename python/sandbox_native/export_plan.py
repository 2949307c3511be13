# SPDX-License-Identifier: Apache-2.0
"""What an ``exports`` argument asks for: each key and its options as one :class:`Entry`.

A key is the exact path of one file, whatever characters it has. It means more than that in two cases only: a
key that ends in ``/`` is a directory, and a key whose options say ``glob`` is a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sandbox_native.validate import positive_finite

MAX_FILES = 10_000
"""Files that a directory or a pattern may stand for where its options do not say."""
OPTIONS = ("to", "glob", "required", "max_bytes", "max_files", "on_failure")


class Kind(Enum):
    """What a key of ``exports`` stands for."""

    FILE = "file"
    DIRECTORY = "directory"
    GLOB = "glob"


@dataclass(frozen=True)
class Entry:
    """One key of ``exports``.

    :param path: the key: a file's path, a directory's with a slash at its end, or a pattern.
    :param destination: a URL. For a directory or a pattern, one that ends in a slash takes the files below it
        by their relative names; any other becomes one ``.tar.gz``.
    :param required: whether a run fails that leaves nothing to export here.
    :param max_bytes: of the file, or of all the files together.
    :param max_files: how many files a directory or a pattern may stand for.
    :param on_failure: whether it is copied also when the run failed.
    :param argument: how messages call it.
    """

    path: str
    destination: Any
    kind: Kind
    required: bool
    max_bytes: int
    max_files: int
    on_failure: bool
    argument: str

    @property
    def into_folder(self) -> bool:
        """Whether the destination takes several files by their names."""
        return (
            self.kind is not Kind.FILE
            and isinstance(self.destination, str)
            and self.destination.endswith("/")
        )


def check_options(exports: Mapping[str, Any], max_bytes: float) -> None:
    """Refuse what no rendering of templates can mend.

    :raises ValueError: an empty path or destination, an unknown option, an option of the wrong type, or one
        that does not go with its key; the text names it.
    """
    for path, value in exports.items():
        destination = value.get("to", value) if isinstance(value, Mapping) else value
        if not path or not destination:
            raise ValueError(
                "exports maps a path in the sandbox to a destination, and neither may be empty; got "
                f"{path!r} -> {value!r}."
            )
        entry(path, value, max_bytes)


def entries(exports: Mapping[str, Any], max_bytes: float) -> list[Entry]:
    """Each key with its options, in the order given.

    :param max_bytes: the cap of a key that has none of its own.
    :raises ValueError: as :func:`check_options`.
    """
    return [entry(path, value, max_bytes) for path, value in exports.items()]


def entry(path: str, value: Any, max_bytes: float, *, argument: str | None = None) -> Entry:
    """One key with its value, a destination or a mapping of options.

    :param argument: how messages call it; ``exports[path]`` by default.
    :raises ValueError: as :func:`check_options`.
    """
    options = dict(value) if isinstance(value, Mapping) else {"to": value}
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ValueError(
            f"exports[{path!r}] has no option {unknown[0]!r}; the options are {', '.join(OPTIONS)}."
        )
    if "to" not in options:
        raise ValueError(f'exports[{path!r}] says not where to: {{"to": "s3://bucket/key"}}.')
    flags = {name: options.get(name, name == "required") for name in ("glob", "required", "on_failure")}
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"exports[{path!r}]: {name} must be True or False, got {flag!r}.")
    for name in ("max_bytes", "max_files"):
        if name in options:
            positive_finite(options[name], f"exports[{path!r}]: {name}")
    if flags["glob"]:
        kind = Kind.GLOB
        check_pattern(path)
    else:
        kind = Kind.DIRECTORY if path.endswith("/") else Kind.FILE
    if kind is Kind.FILE and "max_files" in options:
        raise ValueError(f"exports[{path!r}] is one file, so max_files does not apply.")
    return Entry(
        path=path,
        destination=options["to"],
        kind=kind,
        required=flags["required"],
        max_bytes=int(options.get("max_bytes", max_bytes)),
        max_files=int(options.get("max_files", MAX_FILES)),
        on_failure=flags["on_failure"],
        argument=argument or f"exports[{path!r}]",
    )


# ---- patterns ------------------------------------------------------------------------------------------

_MAGIC = re.compile(r"[*?\[]")


def has_magic(text: str) -> bool:
    return _MAGIC.search(text) is not None


def check_pattern(pattern: str) -> None:
    """:raises ValueError: the pattern has nothing to match by, or a part that cannot be one."""
    parts = _parts(pattern)
    if not has_magic(pattern):
        raise ValueError(f"exports[{pattern!r}] is said to be a glob, but has none of * ? [ in it.")
    if pattern.endswith("/"):
        raise ValueError(f"exports[{pattern!r}]: a glob matches files, so it cannot end in a slash.")
    if ".." in parts or "." in parts[1:]:
        raise ValueError(f"exports[{pattern!r}]: a glob has no part '.' or '..'.")
    if any("**" in part and part != "**" for part in parts) or parts[-1] == "**":
        raise ValueError(f"exports[{pattern!r}]: ** stands for directories, alone between two slashes.")


def _parts(pattern: str) -> list[str]:
    return [part for part in pattern.split("/") if part]


def split_pattern(pattern: str) -> tuple[str, list[str]]:
    """Where a pattern starts from, and its parts below that: ``a/b/*.csv`` is ``a/b`` and ``*.csv``."""
    parts = _parts(pattern)
    if parts[0] == "." and not pattern.startswith("/"):
        parts = parts[1:]
    fixed = 0
    while fixed < len(parts) - 1 and not has_magic(parts[fixed]):
        fixed += 1
    root = "/" if pattern.startswith("/") else ""
    return (root + "/".join(parts[:fixed])) or ".", parts[fixed:]


def depth(parts: list[str]) -> int | None:
    """How many directories below the start a pattern can match; None for any number."""
    return None if "**" in parts else len(parts)


def matcher(parts: list[str]) -> re.Pattern[str]:
    """Matches the names below the start, with ``/`` between directories.

    ``*``, ``?`` and ``[...]`` stay within a name and do not match a dot at its beginning, as in a shell;
    ``**`` is any number of directories whose names do not begin with a dot.
    """
    expression = ""
    for at, part in enumerate(parts):
        if part == "**":
            expression += r"(?:[^/.][^/]*/)*"
        else:
            expression += _part(part) + ("" if at == len(parts) - 1 else "/")
    return re.compile(rf"\A{expression}\Z", re.DOTALL)


def _part(part: str) -> str:
    out = r"(?!\.)" if part[0] in "*?[" else ""
    at = 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := _class_end(part, at)) >= 0:
            out += _class(part[at:end])
            at = end + 1
        else:
            out += re.escape(char)
    return out


def _class_end(part: str, at: int) -> int:
    """Where the ``]`` is that ends a class; one in first place is a member. -1 for none."""
    if part[at : at + 1] in ("!", "^"):
        at += 1
    return part.find("]", at + 1)


def _class(members: str) -> str:
    negated = members[0] in "!^"
    members = members[1:] if negated else members
    kept = []
    at = 0
    while at < len(members):
        if members[at + 1 : at + 2] == "-" and at + 2 < len(members):
            low, high = members[at], members[at + 2]
            if low <= high:
                kept.append(f"{re.escape(low)}-{re.escape(high)}")
            at += 3
        else:
            kept.append(re.escape(members[at]))
            at += 1
    body = "".join(kept)
    if not body:  # a range the wrong way round has no members
        return "[^/]" if negated else r"(?!)"
    return f"(?!/)[{'^' if negated else ''}{body}]"
