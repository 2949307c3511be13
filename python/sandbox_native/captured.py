# SPDX-License-Identifier: Apache-2.0
"""The POSIX-sh scripts around a command on a service that streams its output line by line.

The command's two streams go to files in a private directory in the sandbox. When it has ended, the end of
each, its size and the exit status come back in one frame on the script's own standard output, and the
directory is removed. Any bytes survive, and what the command printed beyond the caps is never moved::

    sandbox-native:begin <token>
    sandbox-native:stdout <size in bytes> <base64 | hex>
    <the last bytes of it, on any number of lines>
    sandbox-native:stderr <size in bytes> <base64 | hex>
    <the same>
    sandbox-native:end <token> <exit status, - for none> <processes left>

Every command has a token. Its processes have it in their environment and in the name of a file that they
inherit open (descriptor 9), so that :func:`stop_script` finds them all, in sessions of their own and with
other parents, and none of another command. What it cannot find is a process that cleared its environment,
closed all its descriptors, left its process group and lost its parent.

Nothing waits for the streams to be closed, so a background child does not hold the call. Shells: bash, dash,
busybox ash. Tools: ``mkdir``, ``rm``, ``wc``, ``tail``, ``base64`` or ``od``; to stop, ``grep`` and ``ls`` on
``/proc``.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from sandbox_native import _sandbox_native as native
from sandbox_native._home import SandboxError

BEGIN = "sandbox-native:begin"
STREAMS = ("sandbox-native:stdout", "sandbox-native:stderr")
END = "sandbox-native:end"
ABSENT = "sandbox-native:absent"
REFUSED = "sandbox-native:refused"
#: The variable that marks the processes of a command.
MARK = "SANDBOX_NATIVE_COMMAND"

# Linux, MAX_ARG_STRLEN: 32 pages of 4 KiB with the final NUL. The whole script is one argument of the shell.
LONGEST_SCRIPT = 32 * 4096 - 1
# Exit status of a script that could not do its part.
REFUSED_STATUS = 125
# With its token behind it, the first line of the script around a command, which tells that from all else.
_RUN = "# sandbox-native:run"
# Of a character that a cut falls into, as many bytes can be before it (RFC 3629: at most 4 bytes).
_LOOK_BACK = 3


@dataclass(frozen=True)
class Stream:
    """The end of one stream."""

    text: str
    """The last bytes within the cap, decoded; a character that the cut fell into is left out."""
    size: int
    """Bytes the command had written."""
    truncated: bool


@dataclass(frozen=True)
class Captured:
    """A frame that came whole."""

    stdout: Stream
    stderr: Stream
    exit_status: int | None
    """None when the command was stopped before it ended."""
    left: int
    """Processes of the command that could not be ended."""


def new_token() -> str:
    """A token for one command."""
    return secrets.token_hex(8)


def is_private(name: str) -> bool:
    """Whether a file name is that of a directory which a command's output goes to."""
    token = name.removeprefix(".sandbox-native-")
    return token != name and len(token) == 16 and set(token) <= set("0123456789abcdef")


def frame_cap(max_output_bytes: int) -> int:
    """Bytes that the data of one stream can take in a frame, whatever its encoding."""
    # Hexadecimal with its blanks and newlines is 49 for 16; base64 less.
    return (max_output_bytes + _LOOK_BACK) * 49 // 16 + 4096


# ---- scripts -----------------------------------------------------------------------------------------

_SHOW = f"""\
put() {{
if [ ! -s "$1" ]; then echo "$2 0 base64"; echo; return; fi
n=$(wc -c <"$1"); n=$((n))
if command -v base64 >/dev/null 2>&1; then
echo "$2 $n base64"
if [ "$n" -le $c ]; then base64 -w0 <"$1" 2>/dev/null || base64 <"$1"
else tail -c $c "$1" | {{ base64 -w0 2>/dev/null || base64; }}; fi
else
echo "$2 $n hex"; tail -c $c "$1" | od -An -v -tx1
fi
echo
}}
show() {{
echo "{BEGIN} $t"
put "$d/o" {STREAMS[0]}
put "$d/e" {STREAMS[1]}
echo "{END} $t $1 $2"
}}"""


def _head(token: str, max_output_bytes: int) -> str:
    return f"""\
t={token} c={max_output_bytes + _LOOK_BACK}
w=${{TMPDIR:-/tmp}} d=${{TMPDIR:-/tmp}}/.sandbox-native-$t
{_SHOW}"""


# The service keeps what a script prints in a file of its own and finds it by its path. While the command runs
# that file is out of the way: neither seen by it, nor removed by an `rm /tmp/*`. It is made anew for the
# frame.
_HIDE = """\
for o in "$w"/*.stdout; do [ "$o" -ef /proc/$$/fd/1 ] && break; o=; done
if [ -n "$o" ]; then e=${o%.stdout}.stderr; [ "$e" -ef /proc/$$/fd/2 ] || o=; fi"""


def run_script(
    command: str, token: str, max_output_bytes: int, *, leftovers: Iterable[str] = (), hide: bool = True
) -> str:
    """Run ``command``, then send its frame. The script's exit status is the command's.

    :param max_output_bytes: how much of the end of each stream is sent.
    :param leftovers: names of files of the service's in its temporary directory, to be removed first.
    :param hide: keep the service's own files of this script out of the command's sight.
    :raises SandboxError: no shell can be given this command; the text says why.
    """
    if "\0" in command:
        raise SandboxError("The command contains a NUL character.")
    before = " ".join(f'"$w"/{shlex.quote(name)}' for name in leftovers)
    script = f"""\
{_RUN} {token}
{_head(token, max_output_bytes)}
o=
{_HIDE if hide else ""}
if [ -n "$o" ]; then rm -f "$o" "$e" {before}
{f"else rm -f {before}" if before else ""}
fi
if ! mkdir -m 700 "$d"; then
[ -z "$o" ] || exec >"$o" 2>"$e"
mkdir -m 700 "$d"; echo "{REFUSED} $t"; exit {REFUSED_STATUS}
fi
echo $$ >"$d/p"
{MARK}=$t "${{BASH:-sh}}" -c {shlex.quote(command)} </dev/null >>"$d/o" 2>>"$d/e" 9<"$d/p"
r=$?
[ -z "$o" ] || exec >"$o" 2>"$e"
echo $r >"$d/s"
show $r 0
rm -rf "$d"
exit $r
"""
    try:
        size = len(script.encode())
    except UnicodeEncodeError:
        raise SandboxError("The command cannot be written as UTF-8.") from None
    if size > LONGEST_SCRIPT:
        raise SandboxError(
            f"The command is too long: {len(command.encode())} bytes, and it has to fit into "
            f"{LONGEST_SCRIPT} with what is put around it. Write it to a file first."
        )
    return script


# `$f` lists the processes of the command: those with its mark or with one of its files open, and whatever has
# one of them as its parent, process group or session.
_FIND = f"""\
add() {{ case " $f " in *" $1 "*) ;; *) f="$f $1" new=y ;; esac; }}
look() {{
for q in $(grep -lsF "{MARK}=$t" /proc/[0-9]*/environ); do q=${{q#/proc/}}; add "${{q%%/*}}"; done
for q in $(ls -l /proc/[0-9]*/fd 2>/dev/null | while read -r l; do case $l in
/proc/*) h=${{l#/proc/}}; h=${{h%%/*}} ;;
*" $d/"*) echo "$h" ;;
esac; done); do [ "$q" = $$ ] || add "$q"; done
new=y
while [ -n "$new" ]; do new=
for q in /proc/[0-9]*/stat; do
{{ read -r l <"$q"; }} 2>/dev/null || continue
case $l in *")"*) ;; *) continue ;; esac
set -- ${{l##*")"}}
[ "$1" = Z ] || [ "$1" = X ] && continue
q=${{q#/proc/}}; q=${{q%/stat}}
for a in "$2" "$3" "$4"; do case " $f " in *" $a "*) add "$q" ;; esac; done
done; done
}}
nap() {{ sleep 0.05 2>/dev/null || sleep 1; }}"""

# What was started is in the list of processes, whether or not it came to run; grep finds itself there, too.
_KEEP_FROM_BEGINNING = f"""\
for q in $(grep -lsF "{_RUN} $t" /proc/[0-9]*/cmdline); do q=${{q#/proc/}}; q=${{q%%/*}}
is_script "$q" && kill -KILL "$q" 2>/dev/null
done
rmdir "$d"
"""
# For a stop that comes once more: here is nothing to wait for.
_KEEP_FROM_COMING = ': >"$d/x"'


def stop_script(token: str, max_output_bytes: int, *, began: bool, kept: str | None = None) -> str:
    """End a command with all that it started, then send the frame of what it had printed.

    A command that :func:`run_script` has not begun yet will not begin any more. Any number of these scripts
    may run at once: a file of the command is only ever held open by a child, as one of them may end it. The
    frame has an exit status if the command had ended by itself; then its background processes are left alone.
    Where nothing is found the answer is one line, :data:`ABSENT`.

    :param began: whether the service said that the script had been started.
    :param kept: name of the file in which the service keeps what that script printed: where it ended after
        all, that has its frame.
    """
    file = f'"$w"/{shlex.quote(kept)}' if kept else "/dev/null"
    return f"""\
{_head(token, max_output_bytes)}
whole() {{
grep -qs "^{END} $t " {file} || return 0
rm -rf "$d"; cat {file}; exit 0
}}
is_script() {{ [ -n "$1" ] && grep -qsF "{_RUN} $t" "/proc/$1/cmdline"; }}
m= n=0
while :; do
if mkdir -m 700 "$d" 2>/dev/null; then m=y; break; fi
[ -d "$d" ] && break
n=$((n+1)); [ $n -lt 5 ] && continue
mkdir -m 700 "$d" && {{ m=y; break; }}
echo "{REFUSED} $t"; exit {REFUSED_STATUS}
done
whole
if [ -e "$d/x" ]; then echo "{ABSENT} $t"; exit 0; fi
if [ -n "$m" ]; then
{_KEEP_FROM_BEGINNING if began else _KEEP_FROM_COMING}
echo "{ABSENT} $t"; exit 0
fi
{_FIND}
n=0 p=
while [ -z "$p" ] && [ $n -lt 40 ]; do
p=$(cat "$d/p" 2>/dev/null); [ -n "$p" ] || {{ whole; nap; n=$((n+1)); }}
done
r=$(cat "$d/s" 2>/dev/null)
if [ -n "$r" ]; then
is_script "$p" && kill -KILL "$p" 2>/dev/null
whole
show "$r" 0; rm -rf "$d"; exit 0
fi
n=0
while :; do
whole
f=
is_script "$p" && f=" $p"
look
[ -n "$f" ] && [ $n -lt 60 ] || break
k=
while [ "$k" != "$f" ]; do k=$f; kill -STOP $f 2>/dev/null; look; done
kill -KILL $f 2>/dev/null
n=$((n+1)); [ $n -lt 3 ] || nap
done
whole
set -- $f
show - $#
rm -rf "$d"
"""


# ---- answers -----------------------------------------------------------------------------------------


def parse(lines: list[str], token: str, max_output_bytes: int) -> Captured | None:
    """The frame in what a script printed, or None if there is no whole one.

    :param lines: what the service sent, line ends removed.
    """
    words = [line.split() for line in lines]
    try:
        at = words.index([BEGIN, token]) + 1
        streams = []
        for name in STREAMS:
            if words[at][0] != name:
                return None
            size, encoding = int(words[at][1]), words[at][2]
            data = []
            at += 1
            while not lines[at].startswith("sandbox-native:"):
                data.append(lines[at])
                at += 1
            streams.append(_stream(_decode("".join(data), encoding), size, max_output_bytes))
        end, of, status, left = words[at]
        if (end, of) != (END, token):
            return None
        return Captured(streams[0], streams[1], None if status == "-" else int(status), int(left))
    except (ValueError, IndexError):
        return None


def _decode(text: str, encoding: str) -> bytes:
    return bytes.fromhex(text) if encoding == "hex" else native.b64decode(text.encode("ascii"))


def _stream(data: bytes, size: int, max_output_bytes: int) -> Stream:
    # A background process may have written on since the size was taken.
    size = max(size, len(data))
    truncated = size > max_output_bytes
    start = _character_start(data, len(data) - max_output_bytes) if len(data) > max_output_bytes else 0
    return Stream(data[start:].decode("utf-8", "replace"), size, truncated)


# Bytes of a UTF-8 sequence by its first byte.
_FIRST = ((0xC2, 0xDF, 2), (0xE0, 0xEF, 3), (0xF0, 0xF4, 4))


def _character_start(data: bytes, cut: int) -> int:
    """The first place from ``cut`` on that is not within a character begun before it."""
    for first in range(cut - 1, max(cut - 1 - _LOOK_BACK, -1), -1):
        byte = data[first]
        if 0x80 <= byte <= 0xBF:
            continue
        length = next((n for low, high, n in _FIRST if low <= byte <= high), 1)
        end = first + 1
        while end < min(first + length, len(data)) and 0x80 <= data[end] <= 0xBF:
            end += 1
        return max(cut, end)
    return cut
