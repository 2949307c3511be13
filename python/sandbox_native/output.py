# SPDX-License-Identifier: Apache-2.0
"""Bounded text for the model: what a command printed, a page of a file, a directory listing.

Two caps hold together everywhere: lines, and bytes of UTF-8. Only whole lines are shown, and what is left
out is always marked. Command output keeps its end, where the error is; files and listings keep their
beginning and say how to get the rest.

A line ends where :meth:`str.splitlines` ends it; in the result each end is ``"\\n"``, and the end of the
last line is left off. Bytes that are not UTF-8 become U+FFFD as ``errors="replace"`` has it, and so does a
lone surrogate in a ``str``.

Every cap is an ``int`` of any size, at least 1. The work is done by the C core, which looks at no more of a
text than the caps ask for.
"""

from __future__ import annotations

from sandbox_native import _sandbox_native as _native

__all__ = ["format_size", "render_file_window", "truncate_listing", "truncate_output"]


def format_size(num_bytes: int) -> str:
    """Render a number of bytes for a note to the model: ``"512B"``, ``"50.0KB"``, ``"1.5MB"``.

    :param num_bytes: an ``int`` of any size. KB and MB are 1024 and 1024 * 1024 bytes.
    :raises TypeError: if it is not an ``int``.
    :raises OverflowError: if it is larger than a ``float`` can be.
    """
    return _native.format_size(num_bytes)


def truncate_output(text: str, *, max_lines: int, max_bytes: int, already_truncated: bool = False) -> str:
    """Keep the last lines of ``text`` that fit under both caps.

    Where something was left out, the line ``[... earlier output truncated]`` comes first; it does not count
    towards the caps. A last line longer than ``max_bytes`` is shown by its end, cut between characters.

    :param text: what the command printed.
    :param max_lines: how many lines at most.
    :param max_bytes: how many bytes of UTF-8 at most, the line ends between the lines included.
    :param already_truncated: something was cut off before; mark that even if ``text`` fits.
    :return: the text to show; an empty ``text`` is returned as it is.
    :raises ValueError: for a cap below 1.
    """
    return _native.truncate_output(text, max_lines, max_bytes, already_truncated)


def render_file_window(
    data: bytes | bytearray | memoryview,
    *,
    offset: int | None,
    limit: int | None,
    max_lines: int,
    max_bytes: int,
    long_line_hint: str = "Read part of it with a shell command instead (e.g. cut, head -c, or sed).",
    next_offset_hint: bool = False,
) -> str:
    """Show the lines of a file from number ``offset`` on that fit under ``limit`` and both caps.

    Where lines follow, a note after the last one gives the offset to read on with, so reading by it visits
    every line once. The exception is a line longer than ``max_bytes``, which is answered by a sentence
    ending in ``long_line_hint``; with ``next_offset_hint`` that sentence also gives the offset after it, if
    the file has more lines. An offset beyond the last line is answered by how many lines there are.

    :param data: the file; anything with a contiguous buffer of bytes. It must not be changed meanwhile.
    :param offset: number of the first line wanted, from 1. ``None``, 0 and less mean 1. Any size.
    :param limit: how many lines are wanted. ``None``, 0 and less mean no limit. Any size.
    :param max_lines: how many lines at most.
    :param max_bytes: how many bytes of UTF-8 at most, the line ends between the lines included.
    :param long_line_hint: tells the model what else to do about a line that is too long.
    :param next_offset_hint: lead past a line that is too long.
    :raises ValueError: for a cap below 1.
    :raises BufferError: if the buffer is not contiguous.
    """
    return _native.render_file_window(
        data, offset, limit, max_lines, max_bytes, long_line_hint, next_offset_hint
    )


def truncate_listing(names_text: str, *, max_lines: int, max_bytes: int) -> str:
    """Keep the first entries of a listing that fit under both caps.

    Only ``"\\n"`` ends an entry here, since a name may contain any other character. Where entries were left
    out, a last line says how many; it does not count towards the caps.

    :param names_text: one entry a line.
    :param max_lines: how many entries at most.
    :param max_bytes: how many bytes of UTF-8 at most, the line ends between the entries included.
    :return: the listing to show, without a line end at its end.
    :raises ValueError: for a cap below 1.
    """
    shown, following = _native.keep_head(names_text, max_lines, max_bytes)
    if following == len(names_text):
        return shown
    left = names_text.count("\n", following) + (not names_text.endswith("\n"))
    entries = "entry" if left == 1 else "entries"
    marker = (
        f"[... {left} more {entries} truncated; list a subdirectory or use a shell command such as ls | tail]"
    )
    return f"{shown}\n{marker}" if following else marker
