# SPDX-License-Identifier: Apache-2.0
"""What an ``inputs`` argument asks for: each path in the sandbox and what is to be there.

A value is the URL of a file or, with a slash at the end of both path and URL, of a folder; ``bytes``; or a
mapping of options: ``{"from": URL}`` or ``{"text": ...}``. Text is never taken for a URL, nor a URL for text.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox_native.export_plan import MAX_FILES
from sandbox_native.validate import positive_finite

OPTIONS = ("from", "text", "required", "max_bytes", "max_files")


@dataclass(frozen=True)
class Input:
    """One key of ``inputs``.

    :param path: in the sandbox; ends in a slash for a tree.
    :param url: where it comes from; anything that a template rendered to. None for what is given here.
    :param data: what is given here, text or bytes.
    :param required: whether a run fails when nothing is at ``url``.
    :param max_bytes: of the file, or of all the files together.
    :param max_files: how many files a folder may have.
    """

    path: str
    url: Any
    data: Any
    required: bool
    max_bytes: int
    max_files: int

    @property
    def argument(self) -> str:
        """How messages call it."""
        return f"inputs[{self.path!r}]"

    @property
    def is_tree(self) -> bool:
        return self.path.endswith("/")


def plain(value: Any) -> Any:
    """The value as plain types, which Airflow's templating looks into."""
    if isinstance(value, Mapping):
        return dict(value)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def entries(inputs: Mapping[str, Any], max_bytes: float) -> list[Input]:
    """Each key with its options, in the order given.

    :param max_bytes: the cap of a key that has none of its own.
    :raises ValueError: something no rendering of templates can mend; the text names it.
    """
    found = [_entry(path, value, max_bytes) for path, value in inputs.items()]
    places: dict[str, str] = {}
    for one in found:
        place = posixpath.normpath(one.path)
        if place in places:
            raise ValueError(f"{one.argument} and inputs[{places[place]!r}] are one place in the sandbox.")
        places[place] = one.path
    return found


def _entry(path: str, value: Any, max_bytes: float) -> Input:
    argument = f"inputs[{path!r}]"
    if not path or "\0" in path:
        raise ValueError(f"{argument}: no file can have this path.")
    options = value if isinstance(value, Mapping) else {"text" if isinstance(value, bytes) else "from": value}
    for name in options:
        if name not in OPTIONS:
            raise ValueError(f"{argument} has no option {name!r}; the options are {', '.join(OPTIONS)}.")
    if ("from" in options) == ("text" in options):
        raise ValueError(f'{argument} needs a URL, bytes, {{"from": URL}} or {{"text": ...}}.')
    required = options.get("required", True)
    if not isinstance(required, bool):
        raise ValueError(f"{argument}: required must be True or False, got {required!r}.")
    for name in ("max_bytes", "max_files"):
        if name in options:
            positive_finite(options[name], f"{argument}: {name}")
    if "text" in options:
        _check_literal(argument, path, options)
    else:
        _check_url(argument, path, options["from"])
    return Input(
        path=path,
        url=options.get("from"),
        data=options.get("text"),
        required=required,
        max_bytes=int(options.get("max_bytes", max_bytes)),
        max_files=int(options.get("max_files", MAX_FILES)),
    )


def _check_literal(argument: str, path: str, options: Mapping[str, Any]) -> None:
    if path.endswith("/"):
        raise ValueError(f"{argument} is a directory, which no text or bytes can be.")
    text = options["text"]
    if not isinstance(text, str | bytes):
        raise ValueError(f"{argument}: text must be a string or bytes, got {type(text).__name__}.")
    try:
        if isinstance(text, str):
            text.encode()
    except UnicodeEncodeError as e:
        raise ValueError(
            f"{argument}: text cannot be written as UTF-8: character {e.start} is half of a surrogate pair."
        ) from e
    if "required" in options or "max_files" in options:
        raise ValueError(f"{argument} is given here, so required and max_files do not apply.")


def _check_url(argument: str, path: str, url: Any) -> None:
    # A template may render to anything; what has none is as it will be. Not a string: rendered already.
    if not isinstance(url, str) or "{{" in url or "{%" in url:
        return
    if not url:
        raise ValueError(f'{argument} is empty. For an empty file give b"" or {{"text": ""}}.')
    if "://" in url and path.endswith("/") != url.endswith("/"):
        raise ValueError(
            f"{argument} comes from {url!r}: for a folder both end in a slash, for a file neither does."
        )
