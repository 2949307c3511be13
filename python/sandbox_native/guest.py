# SPDX-License-Identifier: Apache-2.0
"""The POSIX-sh scripts that do file operations inside a sandbox, and how their answers are framed.

A script answers by its exit status (:class:`Status`) and, where it has data, by one frame on standard
output, which may have other text before and after it::

    sandbox-native:begin <encoding> <size> <rest of the stamp>
    <the data as base64, or as hexadecimal where the guest has no base64; compressed first or not>
    sandbox-native:end <status of reading> <status of encoding> <stamp>

A frame without its end was cut on the way. What a pipeline's first part returned is in the end line,
because a POSIX shell only tells the status of the last one.

Paths become shell words by :func:`operand`, never by pasting; every script reaches them as ``"$f"``. The
tools used are those of coreutils and of busybox: ``base64`` (or ``od``), ``head``, ``dd`` (or ``tail``),
``stat`` (or ``wc``). Writing is in :mod:`sandbox_native.guest_write`, which names some more.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from enum import IntEnum

from sandbox_native import _sandbox_native as native
from sandbox_native._home import SandboxError

BEGIN = "sandbox-native:begin"
END = "sandbox-native:end"

# Linux, limits.h: PATH_MAX, with its final NUL.
PATH_MAX = 4096
# The largest number that every shell's `test` compares right.
_SHELL_MAX = 2**62


class Status(IntEnum):
    """Exit statuses of the scripts. Those up to TOO_LARGE are the provider's too."""

    MISSING = 66
    DIRECTORY = 67
    NOT_REGULAR = 68
    TOO_LARGE = 69
    UNREADABLE = 70
    NO_TOOL = 71
    NOT_DIRECTORY = 72
    FAILED = 73
    LOST = 74
    LINK_LOOP = 75
    UNWRITABLE = 76
    NO_BASE64 = 77


class CutError(Exception):
    """The answer of a script did not arrive whole."""


@dataclass(frozen=True)
class Frame:
    """One answer: what the guest said of the file before and after, and the data between, still encoded."""

    text: str
    begin: int
    end: int
    encoding: str
    """``base64`` or ``od``, then the guest's further talents and what was done, each after a comma:
    ``wide`` (base64 on one line), ``gzip`` and the names of checksums (there is such a tool), ``packed`` (the
    data is compressed)."""
    stamp: str
    end_stamp: str

    def has(self, word: str) -> bool:
        """Whether ``word`` is one of those of the encoding."""
        return word in self.encoding.split(",")

    def decoded(self, most: int | None) -> bytes:
        """The data, decoded.

        :param most: bytes it may have; None: as many as it has, which it may only have uncompressed.
        :raises CutError: it is damaged or not complete.
        :raises OverflowError: it has more than ``most`` bytes.
        """
        taken = self._decoded(most, -1)
        assert isinstance(taken, bytes)
        return taken

    @property
    def data(self) -> bytes:
        """The data of a frame that is not compressed, decoded.

        :raises CutError: it is damaged or not complete.
        """
        return self.decoded(None)

    def write_to(self, descriptor: int, most: int) -> int:
        """Write the data to a descriptor; how many bytes it was.

        :raises CutError: as :meth:`decoded`; a part may have been written.
        :raises OverflowError: likewise.
        :raises OSError: the descriptor takes no more.
        """
        taken = self._decoded(most, descriptor)
        if isinstance(taken, bytes):
            view = memoryview(taken)
            while view:
                view = view[os.write(descriptor, view) :]
            return len(taken)
        return taken

    def _decoded(self, most: int | None, descriptor: int) -> bytes | int:
        try:
            if self.has("od"):
                data = bytes.fromhex(self.text[self.begin : self.end])
                if self.has("packed"):
                    encoded: str | bytes = native.b64encode(data)
                    begin, end = 0, len(encoded)
                elif most is not None and len(data) > most:
                    raise OverflowError
                else:
                    return data
            elif self.text.isascii():
                encoded, begin, end = self.text, self.begin, self.end
            else:
                # Something was said around the frame. "replace" makes one byte of each character.
                encoded, begin, end = self.text.encode("ascii", "replace"), self.begin, self.end
            room = (end - begin) // 4 * 3 + 3 if most is None else most
            return native.decode_slice(encoded, begin, end, self.has("packed"), room, descriptor)
        except ValueError:
            raise CutError from None


def stamped_size(stamp: str) -> int | None:
    """The size in bytes that a stamp begins with, None where the file system reported none."""
    word = stamp.partition(" ")[0]
    return int(word) if word.isascii() and word.isdigit() else None


def operand(path: str) -> str:
    """``path`` as it is given to tools: never an option, never empty, never ``-``.

    :raises SandboxError: no file can have this path; the text says why.
    """
    if not path:
        raise SandboxError("The path is empty.")
    if "\0" in path:
        raise SandboxError(f"{path!r} is not a path: it contains a NUL byte.")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise SandboxError(f"{path!r} is not a path: it cannot be written as UTF-8.") from None
    if size >= PATH_MAX:
        raise SandboxError(f"A path of {size} bytes is too long; the limit is {PATH_MAX - 1} bytes.")
    return path if path.startswith("/") else f"./{path}"


def output_cap(data_bytes: int, encoding: str = "od") -> int:
    """Bytes of standard output that a frame around ``data_bytes`` can need; by default in any encoding."""
    # od writes 3 bytes for each and a newline after 16; base64 4 for 3, with a newline after 76 or none.
    # gzip adds a little to what it cannot compress. The rest is room for the frame.
    if encoding.startswith("od"):
        return data_bytes * 49 // 16 + 8192
    return (data_bytes + data_bytes // 1000) * 77 * 4 // (76 * 3) + 8192


# ---- scripts -----------------------------------------------------------------------------------------


def script(path: str, *parts: str) -> str:
    """A script of these parts, with the path in ``$f``."""
    # C: messages in English, names and patterns as bytes.
    return "\n".join(["LC_ALL=C; export LC_ALL", f"f={shlex.quote(operand(path))}", *parts, ""])


ENCODER = f"""\
if command -v base64 >/dev/null 2>&1; then e=base64 k=base64
elif command -v od >/dev/null 2>&1; then e='od -An -v -tx1' k=od
else echo 'base64 or od' >&2; exit {Status.NO_TOOL}; fi"""

# Asked of a guest once: both cost a process.
_TALENTS = f"""\
if command -v dd >/dev/null 2>&1; then :
elif command -v head >/dev/null 2>&1 && command -v tail >/dev/null 2>&1; then :
else echo 'dd, nor head and tail' >&2; exit {Status.NO_TOOL}; fi
if [ $k = base64 ] && [ -z "$(base64 -w0 </dev/null 2>&1)" ]; then k=$k,wide; fi
if command -v gzip >/dev/null 2>&1; then k=$k,gzip; fi
for d in sha256 sha1 md5; do if command -v ${{d}}sum >/dev/null 2>&1; then k=$k,$d; fi; done"""

_REGULAR = f"""\
[ -d "$f" ] && exit {Status.DIRECTORY}
[ -e "$f" ] || exit {Status.MISSING}
[ -f "$f" ] || exit {Status.NOT_REGULAR}
[ -r "$f" ] || exit {Status.UNREADABLE}"""

_STAMP = """\
stamp() { stat -Lc '%s %i %Y %y' "$f" 2>/dev/null || { n=$(wc -c <"$f") && echo "$((n))"; }; }"""


def _refuse_above(max_bytes: int) -> str:
    """Leave with TOO_LARGE when the reported size in ``$s`` is above; sizes of 0 mean nothing in /proc."""
    return f"""\
n=${{s%% *}}
if [ -f "$f" ] && [ "${{n:-0}}" -gt {min(max_bytes, _SHELL_MAX)} ]; then
printf '\\n{BEGIN} none %s\\n' "$s"; exit {Status.TOO_LARGE}; fi"""


def framed(producer: str, end_stamp: str = ":") -> str:
    """Send what ``producer`` prints in a frame that starts with ``$k`` and ``$s``; FAILED if it failed.

    A producer that is a pipeline itself sends the status of its first part to descriptor 3.
    """
    return f"""\
{{ printf '\\n{BEGIN} %s %s\\n' "$k" "$s"
t=$({{ {{ {producer}
echo $? >&3; }} | $e >&4; echo $? >&3; }} 3>&1)
set -- $t
[ $# -lt 3 ] || {{ [ "$1" != 0 ] || set -- "$2" "$2" "$3"; set -- "$1" "$3"; }}
printf '\\n{END} %s %s ' "$1" "$2"
{end_stamp}
echo
}} 4>&1
[ "$1$2" = 00 ] || exit {Status.FAILED}"""


def read_script(path: str, max_bytes: int) -> str:
    """Send the first ``max_bytes + 1`` bytes of a file or character device, in a frame."""
    return script(
        path,
        f"""\
[ -d "$f" ] && exit {Status.DIRECTORY}
[ -e "$f" ] || exit {Status.MISSING}
if [ -p "$f" ] || [ -S "$f" ]; then exit {Status.NOT_REGULAR}; fi
[ -r "$f" ] || exit {Status.UNREADABLE}""",
        ENCODER,
        's=$(stat -Lc %s "$f" 2>/dev/null) || s=0',
        _refuse_above(max_bytes),
        framed(f'head -c {min(max_bytes, _SHELL_MAX) + 1} <"$f"'),
    )


def slice_script(
    path: str,
    *,
    offset: int,
    length: int,
    max_bytes: int,
    encoding: str | None = None,
    packed: bool = False,
) -> str:
    """Send up to ``length`` bytes of a regular file from ``offset``, a multiple of it.

    The first slice comes with a stamp before and after it, the others with the one after.

    :param encoding: of the frame that answered the first of these scripts; None for that one.
    :param packed: compress it, which only a guest with the talent ``gzip`` can be asked for.
    """
    block = next(size for size in (65536, 4096, length) if length % size == 0)
    # dd seeks where busybox's tail would read from the start; without fullblock it could return less.
    producer = (
        f'{{ dd if="$f" bs={block} skip={offset // block} count={length // block} iflag=fullblock '
        "2>/dev/null ||\n"
        f'tail -c +{offset + 1} "$f" | head -c {length}; }}'
    )
    if packed:
        producer = f"{{ {producer}\necho $? >&3; }} | gzip -1 -c"
    return script(
        path,
        _REGULAR,
        *([ENCODER, _TALENTS] if encoding is None else [_encoder_of(encoding, packed)]),
        _STAMP,
        *([f"s=$(stamp) || exit {Status.MISSING}", _refuse_above(max_bytes)] if offset == 0 else ["s=-"]),
        framed(producer, "stamp"),
    )


def _encoder_of(encoding: str, packed: bool) -> str:
    """What the first script found, so that the others need not look."""
    words = encoding.split(",")
    command = {"od": "od -An -v -tx1", "base64": "base64 -w0" if "wide" in words else "base64"}[words[0]]
    return f"e='{command}' k={words[0]}{',packed' if packed else ''}"


DIGESTS = ("sha256", "sha1", "md5")
"""Names of checksums, best first: for ``hashlib``, and before ``sum`` as the guest's tools."""


def digest_script(path: str, name: str) -> str:
    """Send a file's checksum, one of :data:`DIGESTS`, in a frame with a stamp before and after."""
    return script(
        path,
        _STAMP,
        f"""\
s=$(stamp) || exit {Status.MISSING}
d=$({name}sum <"$f") || exit {Status.FAILED}
printf '\\n{BEGIN} {name} %s\\n%s\\n{END} 0 0 ' "$s" "${{d%% *}}"
stamp
echo""",
    )


STREAM_SIZE = "airflow-export-size:"
"""Begins the lines on which :func:`stream_script` reports the file; the provider's word for it."""


def stream_script(path: str, max_bytes: int) -> str:
    """Send a regular file as it is on standard output, with its stamp on standard error before and after.

    For a channel that carries any byte and keeps the two streams apart.
    """
    return script(
        path,
        _REGULAR,
        _STAMP,
        f"""\
s=$(stamp) || exit {Status.MISSING}
printf '\\n{STREAM_SIZE}%s\\n' "$s" >&2
n=${{s%% *}}
[ "${{n:-0}}" -le {min(max_bytes, _SHELL_MAX)} ] || exit {Status.TOO_LARGE}
cat <"$f" || exit {Status.FAILED}
s=$(stamp)
printf '\\n{STREAM_SIZE}%s\\n' "$s" >&2""",
    )


def streamed_stamps(stderr: str) -> list[str]:
    """The stamps that :func:`stream_script` reported, in order, among whatever else was printed there."""
    lines = (line.removesuffix("\r") for line in stderr.split("\n"))
    return [line[len(STREAM_SIZE) :] for line in lines if line.startswith(STREAM_SIZE)]


def file_script(path: str, max_bytes: int) -> str:
    """Send the stamp of a regular file, and its absolute path in a frame."""
    return script(
        path,
        _REGULAR,
        ENCODER,
        _STAMP,
        f"s=$(stamp) || exit {Status.MISSING}",
        _refuse_above(max_bytes),
        framed('case $f in /*) printf %s "$f" ;; *) printf %s "${PWD%/}/${f#./}" ;; esac'),
    )


def list_script(path: str, *, offset: int = 0, length: int | None = None) -> str:
    """Send a directory's entries in a frame: for each ``d`` or ``f``, the name, NUL.

    A link counts as what it leads to. The shell alone does it, so that no tool has to agree on NUL.

    :param offset: bytes of that to leave out, where ``length`` is given.
    :param length: how many bytes to send; None for all.
    """
    entries = """\
for n in * .[!.]* ..?*; do
if [ -d "$n" ]; then printf 'd%s\\000' "$n"
elif [ -e "$n" ] || [ -L "$n" ]; then printf 'f%s\\000' "$n"; fi; done"""
    if length is not None:
        entries = f"{{ {entries}\n}} 2>/dev/null | tail -c +{offset + 1} | head -c {length}"
    return script(
        path,
        f"""\
if [ ! -d "$f" ]; then [ -e "$f" ] || exit {Status.MISSING}; exit {Status.NOT_DIRECTORY}; fi
cd -P "$f" 2>/dev/null && [ -r . ] || exit {Status.UNREADABLE}""",
        ENCODER,
        "s=-",
        framed(entries),
    )


def stop_script(variable: str) -> str:
    """Kill every process with ``variable`` (``NAME=value``) in its environment, until there is none.

    Ends with 0 when that is so. Needs ``/proc`` and ``grep``.
    """
    return f"""\
v={shlex.quote(variable)}
n=0
while [ $n -lt 50 ]; do
k=n
for p in $(grep -lF "$v" /proc/[0-9]*/environ 2>/dev/null); do
p=${{p%/environ}}; kill -9 "${{p#/proc/}}" 2>/dev/null && k=y
done
[ $k = n ] && exit 0
n=$((n+1)); sleep 0.1 2>/dev/null || sleep 1
done
exit 1
"""


# ---- answers -----------------------------------------------------------------------------------------


def encode(data: bytes) -> str:
    """``data`` as base64 on one line."""
    return native.b64encode(data).decode("ascii")


def parse_frame(stdout: str) -> Frame:
    """The frame in a script's output.

    :raises CutError: there is none, or not a whole one.
    """
    begin = stdout.find(f"{BEGIN} ")
    head_end = stdout.find("\n", begin)
    end = stdout.rfind(f"\n{END} ", head_end)
    tail_end = stdout.find("\n", end + 1)
    if begin < 0 or head_end < 0 or end < 0 or tail_end < 0:
        raise CutError
    words = stdout[begin:head_end].split(" ", 2)
    if len(words) < 3:
        raise CutError
    end_words = stdout[end + 1 : tail_end].split(" ", 3)
    end_stamp = end_words[3] if len(end_words) > 3 else ""
    return Frame(stdout, head_end + 1, max(end, head_end + 1), words[1], words[2], end_stamp)


def reported_size(stdout: str) -> int | None:
    """The size on the begin line, of a frame that has nothing else."""
    begin = stdout.find(f"{BEGIN} ")
    words = stdout[begin:].split("\n", 1)[0].split(" ") if begin >= 0 else []
    return int(words[2]) if len(words) > 2 and words[2].isdecimal() else None
