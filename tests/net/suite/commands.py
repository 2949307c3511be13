# SPDX-License-Identifier: Apache-2.0
"""Commands: exit codes, the shape of output, caps, timeouts, background children."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

from suite.table import Row, Subject


def _exit_status(s: Subject) -> Any:
    return [s.run(f"exit {code}").exit_code for code in (0, 1, 7, 124, 255)]


def _killed(s: Subject) -> Any:
    result = s.run("echo before; kill -9 $$")
    return result.exit_code != 0, result.timed_out, result.stdout


def _both_streams(s: Subject) -> Any:
    result = s.run("echo out; echo err >&2")
    return result.stdout, result.stderr


def _flags(s: Subject, command: str, cap: int) -> Any:
    result = s.run(command, cap=cap)
    return result.stdout, result.stdout_truncated


def _over(s: Subject) -> Any:
    result = s.run("seq 1 1000", cap=20)
    whole = "".join(f"{n}\n" for n in range(1, 1001))
    return whole.endswith(result.stdout), 0 < len(result.stdout) <= 20, result.stdout_truncated


def _long_line(s: Subject) -> Any:
    result = s.run("head -c 100000 /dev/zero | tr '\\0' x", cap=1000)
    return set(result.stdout), 500 <= len(result.stdout) <= 1000, result.stdout_truncated


def _long_line_ended(s: Subject) -> Any:
    result = s.run("head -c 100000 /dev/zero | tr '\\0' x; echo", cap=1000)
    return set(result.stdout), 500 <= len(result.stdout) <= 1000, result.stdout_truncated


def _own_caps(s: Subject) -> Any:
    result = s.run("echo short; seq 1 1000 >&2", cap=100)
    return result.stdout, result.stdout_truncated, result.stderr.endswith("1000\n"), result.stderr_truncated


def _split_character(s: Subject) -> Any:
    result = s.run("printf 'xéé'", cap=3)
    return result.stdout, result.stdout_truncated


def _timed_out(s: Subject) -> Any:
    with s.fresh() as own:
        result = own.run("echo begun; echo bad >&2; sleep 600", timeout=3)
        return result.timed_out, result.stdout, result.stderr


def _timeout_spares_the_sandbox(s: Subject) -> Any:
    with s.fresh() as own:
        result = own.run("sleep 600", timeout=1)
        return result.sandbox_terminated, own.kind(lambda: own.out("echo still here"))


_sleeps = itertools.count(98_000_000 + os.getpid() * 100)


def _own_sleep() -> str:
    """A command for ever that nobody else has: some stand-ins show the processes of the whole machine, where
    other columns are looked at meanwhile."""
    return f"sleep {next(_sleeps)}"


def _each(command: str, then: str) -> str:
    """Does ``then`` for the number ``$p`` of each process with this command line.

    Without pgrep, whose own command line holds the pattern, and which not every image has.
    """
    return (
        "for p in /proc/[0-9]*; do"
        f" [ \"$(tr '\\0' ' ' <$p/cmdline)\" = '{command} ' ] || continue; p=${{p#/proc/}}; {then};"
        " done 2>/dev/null"
    )


def _tree_is_ended(s: Subject) -> Any:
    with s.fresh() as own:
        sleep = _own_sleep()
        result = own.run(f"setsid {sleep} & {sleep}", timeout=1)
        if result.sandbox_terminated:
            return "the sandbox is gone"
        return own.out(_each(sleep, "echo left"))


def _background(s: Subject) -> Any:
    child = s.out("sleep 600 & echo $!").strip()
    alive = s.run(f"kill {child}").exit_code
    return child.isdigit(), alive


def _background_holds_output(s: Subject) -> Any:
    sleep = _own_sleep()
    result = s.run(f"({sleep}; echo late) & echo now")
    s.run(_each(sleep, "kill $p"))
    return result.exit_code, result.stdout


def _no_carry_over(s: Subject) -> Any:
    s.run("cd /tmp; export CARRIED=1; set -e")
    return s.out("echo ${CARRIED-unset}; pwd") == f"unset\n{s.out('pwd')}"


def _empty(s: Subject) -> Any:
    outcome = s.kind(lambda: s.run(""))
    return outcome == "recoverable" or getattr(outcome, "exit_code", None) == 0


def _at_once(s: Subject) -> Any:
    results: dict[int, str] = {}

    def run(number: int) -> None:
        results[number] = s.out(f"sleep 0.3; seq {number} {number + 2}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results.get(n) == f"{n}\n{n + 1}\n{n + 2}\n" for n in range(4)]


def _leaves_nothing(s: Subject) -> Any:
    with s.fresh() as own:
        before = own.list("/tmp")
        own.run("echo some output; echo more >&2; exit 3")
        # Twice: where a listing is a command, it has files of its own while it lasts.
        left = set(own.list("/tmp")) & set(own.list("/tmp"))
        return len(left - set(before))


def _chatty(s: Subject) -> Any:
    result = s.run("seq 1 300000", cap=1000)
    return result.exit_code, result.stdout.endswith("299999\n300000\n"), result.stdout_truncated


def _shell_stays_itself(s: Subject) -> Any:
    return s.out('echo $#; echo "${1-none}"; exec echo replaced').split()


_ODD = "é€😀 <&>\u2028\x0c\x1b[1m end\n"

ROWS = tuple(
    Row("commands", name, observe, right)
    for name, observe, right in (
        ("exit status", _exit_status, [0, 1, 7, 124, 255]),
        ("killed by a signal", _killed, (True, False, "before\n")),
        ("no such program", lambda s: s.run("no-such-program-here").exit_code, 127),
        ("streams are apart", _both_streams, ("out\n", "err\n")),
        ("silent", lambda s: s.out("true"), ""),
        ("no final newline", lambda s: s.out("printf abc"), "abc"),
        ("carriage returns", lambda s: s.out("printf 'a\\r\\nb\\rc\\n'"), "a\r\nb\rc\n"),
        ("blank lines", lambda s: s.out("printf '\\n\\na\\n\\n'"), "\n\na\n\n"),
        ("NUL", lambda s: s.out("printf 'a\\0b\\n'"), "a\0b\n"),
        ("invalid UTF-8", lambda s: s.out("printf 'a\\377b\\n'"), "a\ufffdb\n"),
        ("characters and controls", lambda s: s.out(f"printf %s '{_ODD}'"), _ODD),
        ("half a character at the end", lambda s: s.out("printf 'a\\303'"), "a\ufffd"),
        ("exactly at the cap", lambda s: _flags(s, "printf 12345678", 8), ("12345678", False)),
        ("one over the cap", lambda s: _flags(s, "printf x12345678", 8), ("12345678", True)),
        ("far over the cap", _over, (True, True, True)),
        ("one long line", _long_line, ({"x"}, True, True)),
        ("one long line, ended", _long_line_ended, ({"x", "\n"}, True, True)),
        ("a cap for each stream", _own_caps, ("short\n", False, True, True)),
        ("a character at the cut", _split_character, ("é", True)),
        ("many lines", _chatty, (0, True, True)),
        ("timeout keeps output", _timed_out, (True, "begun\n", "bad\n")),
        ("timeout spares the sandbox", _timeout_spares_the_sandbox, (False, "still here\n")),
        ("timeout ends the whole tree", _tree_is_ended, ""),
        ("a background child lives on", _background, (True, 0)),
        ("a background child holds nothing", _background_holds_output, (0, "now\n")),
        ("nothing carries over", _no_carry_over, True),
        ("standard input is empty", lambda s: s.run("cat; wc -c").stdout.strip(), "0"),
        ("an empty command is not the end", _empty, True),
        ("several lines", lambda s: s.out("for i in 1 2; do\n  echo \"$i 'q'\"\ndone\n"), "1 'q'\n2 'q'\n"),
        ("a long command", lambda s: s.out(f": {'x' * 60000}; echo done"), "done\n"),
        ("arguments and exec", _shell_stays_itself, ["0", "none", "replaced"]),
        ("four at once", _at_once, [True] * 4),
        ("no file is left behind", _leaves_nothing, 0),
        ("timeout of nothing", lambda s: s.kind(lambda: s.run("true", timeout=0)), "ValueError"),
        ("cap of nothing", lambda s: s.kind(lambda: s.run("true", cap=0)), "ValueError"),
    )
)
