# SPDX-License-Identifier: Apache-2.0
"""The listing of a directory with all that is below it, made in the guest by one command.

``find`` makes it where it knows ``-printf`` (GNU); elsewhere the shell walks by itself. Links are never
followed, the directory itself excepted: its user named it. The answer is framed as in
:mod:`sandbox_native.guest`; its data are records that end in NUL::

    <type> <mode> <size> <stamp>/<path below the directory>

The type is that of ``find``'s ``%y`` (``f d l p s b c``), or ``U`` for a directory that cannot be read. The
stamp, of what tells one state of a file from another, has no slash in it. The last record has the type ``E``
and the exit status of the walk as its mode; without it the listing was cut.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass

from sandbox_native import guest
from sandbox_native.guest import Status


@dataclass(frozen=True)
class Listed:
    """One thing below a directory.

    :param name: its path from there, ``""`` for the directory itself. Bytes that are no UTF-8 are surrogates.
    :param type: as ``find`` has it: ``f`` for a regular file.
    :param mode: permission bits.
    :param size: bytes, of a regular file.
    :param stamp: changes when the thing does, as far as the guest can tell.
    """

    name: str
    type: str
    mode: int
    size: int
    stamp: str


class ListingError(Exception):
    """A listing is not one; the text says why, to go after "could not list"."""


# The names of directories that are not to be read are told by find's status and its message.
_FIND = """\
{ find .%(depth)s -printf '%%y %%m %%s %%i:%%T@:%%C@/%%P\\0' </dev/null; printf 'E %%s 0 -/\\000' $?; }"""

_WALK = """\
look() {
if v=$(stat -c '%%a %%s %%i:%%Y:%%Z:%%y' "./$1" 2>/dev/null); then :
elif [ "$2" = f ]; then
v=$(wc -c <"./$1") || v=0
if [ -x "./$1" ]; then v="755 $((v)) -"; else v="644 $((v)) -"; fi
else v='755 0 -'; fi
printf '%%s %%s/%%s\\000' "$2" "$v" "$3"
}
walk() {
for n in * .[!.]* ..?*; do
if [ -L "$n" ]; then look "$n" l "$1$n"
elif [ -f "$n" ]; then look "$n" f "$1$n"
elif [ -d "$n" ]; then look "$n" d "$1$n"
if [ "$2" -ne 1 ]; then
{ [ -r "$n" ] && ( cd "./$n" && walk "$1$n/" $(($2-1)) ) 2>/dev/null; } || printf 'U 0 0 -/%%s\\000' "$1$n"
fi
elif [ -p "$n" ]; then look "$n" p "$1$n"
elif [ -e "$n" ]; then look "$n" s "$1$n"; fi; done
:
}
{ look . d ''; walk '' %(levels)s; printf 'E %%s 0 -/\\000' $?; }"""


def tree_script(path: str, *, max_depth: int | None, max_bytes: int) -> str:
    """List what is below ``path``.

    :param max_depth: how many levels to go down; None for all.
    :param max_bytes: bytes of records to send at most; one more is sent when there are more.
    """
    find = _FIND % {"depth": "" if max_depth is None else f" -maxdepth {max_depth}"}
    walk = _WALK % {"levels": 0 if max_depth is None else max_depth}
    producer = f"if [ $w = find ]; then\n{find}\nelse\n{walk}\nfi | head -c {max_bytes + 1}"
    return guest.script(
        path,
        f"""\
if [ ! -d "$f" ]; then
g=${{f%/}}; [ -e "$g" ] || [ -L "$g" ] || exit {Status.MISSING}; exit {Status.NOT_DIRECTORY}; fi
cd -P "$f" 2>/dev/null && [ -r . ] || exit {Status.UNREADABLE}
w=sh; find . -maxdepth 0 -printf '' </dev/null >/dev/null 2>&1 && w=find""",
        guest.ENCODER,
        "s=-",
        guest.framed(producer),
    )


def presence_script(path: str) -> str:
    """Exit with status 0 where there is something at ``path``, a link that leads nowhere included."""
    return guest.script(path, f'[ -e "$f" ] || [ -L "$f" ] || exit {Status.MISSING}')


def parse(data: bytes, *, max_bytes: int) -> list[Listed]:
    """The records of a listing, the directory itself first.

    :raises ListingError: it was cut, its walk failed, or it is no such listing.
    """
    if len(data) > max_bytes:
        raise ListingError(f"there is too much in it: its names take more than {max_bytes} bytes")
    records = data.split(b"\0")
    if records.pop() or not records or not records[-1].startswith(b"E "):
        raise ListingError("the listing was cut on its way out of the sandbox")
    ended = records.pop().split(b" ")[1]
    found = [_record(record) for record in records]
    unreadable = [one.name for one in found if one.type == "U"]
    if unreadable:
        raise ListingError(f"permission denied for {unreadable[0]!r}")
    if ended != b"0":
        raise ListingError("a part of it cannot be read, or changed meanwhile")
    return found


def _record(record: bytes) -> Listed:
    head, slash, name = record.partition(b"/")
    words = head.decode("ascii", "replace").split(" ", 3)
    if not slash or len(words) != 4 or not words[2].isdecimal():
        raise ListingError("the listing is damaged")
    kind, mode, size, stamp = words
    try:
        bits = stat.S_IMODE(int(mode, 8))
    except ValueError:
        raise ListingError("the listing is damaged") from None
    return Listed(name.decode("utf-8", "surrogateescape"), kind, bits, int(size), stamp)
