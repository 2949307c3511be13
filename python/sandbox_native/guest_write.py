# SPDX-License-Identifier: Apache-2.0
"""Scripts that make or replace a file inside a sandbox; :mod:`sandbox_native.guest` says how they answer.

The content goes to a partial file beside the target and only at the end into its place, so a write that fails
changes nothing. What ``>`` keeps is kept: links are followed, and a file that is there keeps its mode, its
owner and its other names. Besides the shell's own commands they use ``readlink``, ``mkdir``, ``mv``, ``rm``,
``cat``, ``chmod``, ``chown``, ``stat`` and ``wc``, and ``base64`` for content that is not escaped.
"""

from __future__ import annotations

import shlex

from sandbox_native import guest
from sandbox_native.guest import Status

# Where `>` would write: links followed, as many as the kernel does (40).
_RESOLVE = f"""\
n=0
while [ -L "$f" ]; do
n=$((n+1)); [ $n -le 40 ] || exit {Status.LINK_LOOP}
command -v readlink >/dev/null 2>&1 || {{ echo readlink >&2; exit {Status.NO_TOOL}; }}
l=$(readlink "$f" && echo x) || exit {Status.FAILED}
l=${{l%??}}
case $l in /*) f=$l ;; *) f=${{f%/*}}/$l ;; esac
done
case $f in */|*/.|*/..) exit {Status.DIRECTORY} ;; esac
[ -d "$f" ] && exit {Status.DIRECTORY}
d=${{f%/*}}/"""

# `$p` is the partial file beside the target, `$q` the one that is used where nothing can be made beside it.
_PARTIAL = """\
p=${{d}}.sandbox-native-{token}.partial
q=${{TMPDIR:-/tmp}}/.sandbox-native-{token}.partial
fail() {{ rm -f "$p" "$q"; exit "$1"; }}"""

_START = f"""\
if [ -e "$f" ]; then
if [ ! -f "$f" ] && [ ! -c "$f" ]; then exit {Status.NOT_REGULAR}; fi
[ -w "$f" ] || exit {Status.UNWRITABLE}
fi
mkdir -p "$d" || exit {Status.FAILED}
if [ -c "$f" ] || ! (umask 077; : >"$p") 2>/dev/null; then
p=$q; (umask 077; : >"$p") || exit {Status.FAILED}; fi"""

_CONTINUE = f"""\
[ -f "$p" ] || p=$q
[ -f "$p" ] || exit {Status.LOST}"""

_APPEND = f"""\
printf %s {{payload}} | base64 -d >>"$p" || fail {Status.FAILED}"""

_NEEDS_BASE64 = f"command -v base64 >/dev/null 2>&1 || exit {Status.NO_BASE64}"

_APPEND_ESCAPED = f"""\
printf {{payload}} >>"$p" || fail {Status.FAILED}"""

# Renamed into place where that keeps what `>` keeps: mode, owner, other names of the file. (Without `who`,
# chmod heeds the umask as the making of a file does.) Else written in place, with the old content at hand in
# case it fails.
_PUBLISH = f"""\
n=$(wc -c <"$p") || fail {Status.FAILED}
[ "$n" -eq {{total}} ] || fail {Status.LOST}
i=y
if [ "$p" = "$q" ]; then :
elif [ ! -e "$f" ]; then chmod =rw "$p" && i=n
elif a=$(stat -Lc '%a %u %g %h' "$f" 2>/dev/null); then
set -- $a
chown "$2:$3" "$p" 2>/dev/null; chmod "$1" "$p" 2>/dev/null
[ "$a" = "$(stat -Lc '%a %u %g %h' "$p")" ] && i=n
fi
if [ -d "$f" ]; then fail {Status.DIRECTORY}; fi
if [ $i = n ] && mv -f "$p" "$f" 2>/dev/null; then exit 0; fi
o=y
if [ -f "$f" ]; then (umask 077; cat "$f" >"$p.old") 2>/dev/null || rm -f "$p.old"
elif [ ! -e "$f" ]; then o=n; fi
if cat "$p" >"$f"; then rm -f "$p" "$p.old"; exit 0; fi
if [ $o = n ]; then rm -f "$f"; elif [ -f "$p.old" ]; then cat "$p.old" >"$f"; fi
rm -f "$p.old"; fail {Status.FAILED}"""


def write_script(path: str, token: str, part: bytes, *, first: bool, escaped: bool, total: int | None) -> str:
    """Append ``part`` to a partial file beside the target, and publish it when ``total`` is given.

    :param token: names the partial file; the same in all commands of one write.
    :param first: whether this command makes the partial file, and its directories.
    :param escaped: send ``part`` as octal escapes for a guest without base64.
    :param total: bytes the whole content has; None while more is to come.
    """
    if escaped:
        append = _APPEND_ESCAPED.format(payload=shlex.quote(_octal(part)))
    else:
        append = _APPEND.format(payload=shlex.quote(guest.encode(part)))
    return guest.script(
        path,
        *([] if escaped else [_NEEDS_BASE64]),
        _RESOLVE,
        _PARTIAL.format(token=token),
        _START if first else _CONTINUE,
        append,
        *([] if total is None else [_PUBLISH.format(total=total)]),
    )


def store_script(path: str, token: str, total: int) -> str:
    """Replace or create a file by the ``total`` bytes that come on standard input."""
    return guest.script(
        path,
        _RESOLVE,
        _PARTIAL.format(token=token),
        _START,
        f'cat >"$p" || fail {Status.FAILED}',
        _PUBLISH.format(total=total),
    )


def discard_script(path: str, token: str) -> str:
    """Remove what :func:`write_script` has left of a write that will not be finished."""
    return guest.script(path, _RESOLVE, _PARTIAL.format(token=token), "fail 0")


def _octal(part: bytes) -> str:
    """A format for printf that prints ``part``; every byte escaped, so that no shell reads one otherwise."""
    return "".join(f"\\{byte:03o}" for byte in part)
