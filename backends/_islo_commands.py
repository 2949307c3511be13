# SPDX-License-Identifier: Apache-2.0
"""A command on Islo: the script around it, its start, the polls, and what its streams say.

The service keeps the last MiB of each stream as text. The script keeps the whole output in the sandbox and
sends the last bytes of it, one more than is wanted: where more than is wanted comes, there was more. Bytes
that are no UTF-8 become longer on their way, which looks the same: the script therefore ends a stream that is
whole and could look cut with the word it is called by.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from typing import Any, NamedTuple

from sandbox_native.backends._islo_calls import (
    Api,
    CallError,
    again,
    checked_text,
    fields,
    not_acted_upon,
    pause,
    sandbox_path,
    unusable,
    well_formed,
)
from sandbox_native.contract import SandboxError

STREAM_CAP = 1024 * 1024
"""Bytes of each stream that the service keeps, the last ones."""
LARGEST_BUDGET = STREAM_CAP - 1

_START = "start a sandbox command"
_POLL = "poll a sandbox command"
# The states of a command that goes on, as far as they are known. An unknown one is an end: it is shown, where
# waiting for it could be waiting for good.
_GOES_ON = frozenset({"pending", "queued", "starting", "running"})
# Seconds below which no request is cut short because the command's time is: the first one after a pause
# wakes the sandbox. And the most that is waited for one poll, which may have been lost.
_LEAST_REQUEST = 5.0
_LONGEST_REQUEST = 30.0
# Seconds for a start with all its tries, however long the command may take.
_LONGEST_START = 120.0
_START_DELAY = 1.0
# The service is not known to take a number of more bits.
_LONGEST_HINT = 2**31 - 1
# Seconds for the output of a command whose time is up.
_COLLECT_TIMEOUT = 5.0
# Seconds between polls: a quick command is reported quickly, a slow one asked for seldom.
_FIRST_POLL = 0.01
_LONGEST_POLL = 2.0
_POLL_GROWTH = 1.4

# Sends the last $2 bytes of the file $1, and no more although something writes on.
_SEND = """\
send() {
[ -s "$1" ] || return 0
n=$(wc -c <"$1")
tail -c "$2" <"$1" | head -c "$2"
[ $((n)) -ge "$2" ] || [ $((n * 3)) -lt "$2" ] || printf %s "$0"
}
"""

# $0: the mark of a whole stream, whose end is in the name of the folder with the output, too. $1: the
# command. $2: how many bytes of each stream to send.
# Foreground only: nothing waits for the end of the streams, which a background process may hold open. No
# login shell, since a profile would change the environment. The two files are gone before the script ends.
WRAPPER = f"""\
d=${{TMPDIR:-/tmp}}/airflow-sandbox-$$-${{0#*:}}
mkdir -m 700 "$d" || exit 70
trap 'rm -rf "$d"' EXIT
trap 'exit 143' HUP INT TERM
sh -c -- "$1" >"$d/out" 2>"$d/err" </dev/null
s=$?
{_SEND}send "$d/out" "$2"
send "$d/err" "$2" >&2
exit $s
"""

# The same of a command that still runs, or whose script was killed.
COLLECTOR = f"""\
for d in "${{TMPDIR:-/tmp}}"/airflow-sandbox-*-"${{0#*:}}"; do :; done
{_SEND}send "$d/out" "$1"
send "$d/err" "$1" >&2
"""
_OWN_FOLDER = re.compile(r"airflow-sandbox-\d+-[0-9a-f]{16}")


class Outcome(NamedTuple):
    """How a command ended."""

    status: str
    exit_code: int | None
    stdout: str
    stderr: str
    stdout_cut: bool
    stderr_cut: bool


class Started(NamedTuple):
    """A command that the service has accepted."""

    sandbox: str
    exec_id: str
    mark: str
    budget: int
    deadline: float


def budget_of(max_output_bytes: int) -> int:
    """Bytes of each stream that can be had of what the caller wants."""
    return min(math.floor(max_output_bytes), LARGEST_BUDGET) or 1


def start(api: Api, sandbox: str, command: str, *, timeout: float, budget: int) -> Started:
    """Start a command. Its time begins when the service has accepted it.

    Sent again only where it provably did not run.

    :param timeout: seconds the command may take.
    :param budget: bytes of each stream, from :func:`budget_of`.
    :raises CallError: it could not be started, or it is not known whether it was.
    :raises SandboxError: the command cannot be given to a shell.
    :raises SandboxTerminalError: the answer makes no sense.
    """
    mark = f"airflow-sandbox:{secrets.token_hex(8)}"
    words = ["sh", "-c", WRAPPER, mark, checked_text(command, "The command"), str(budget + 1)]
    return _start(api, sandbox, words, mark, timeout=timeout, budget=budget)


def collect(api: Api, started: Started) -> Outcome | None:
    """What a command whose time is up has printed so far, where that can be had at once.

    :return: None where it cannot.
    :raises CallCancelled: cancelled meanwhile.
    """
    words = ["sh", "-c", COLLECTOR, started.mark, str(started.budget + 1)]
    try:
        collector = _start(
            api, started.sandbox, words, started.mark, timeout=_COLLECT_TIMEOUT, budget=started.budget
        )
        return wait(api, collector)
    except (CallError, SandboxError):
        return None


def is_scratch(name: str) -> bool:
    """Whether a file of this name is where a command's output is kept while it runs."""
    return _OWN_FOLDER.fullmatch(name) is not None


def _start(api: Api, sandbox: str, words: list[str], mark: str, *, timeout: float, budget: int) -> Started:
    body = {"command": words, "timeout_secs": max(1, math.ceil(min(timeout, _LONGEST_HINT)))}
    path = sandbox_path(sandbox, "exec")
    deadline = time.monotonic() + max(_LEAST_REQUEST, min(timeout, _LONGEST_START))
    answer = again(
        lambda: api.call("POST", path, json_body=body, deadline=deadline),
        deadline=deadline,
        worth=not_acted_upon,
        first_delay=_START_DELAY,
    )
    begun = time.monotonic()
    exec_id = fields(answer, _START).get("exec_id")
    if not isinstance(exec_id, str) or exec_id in ("", ".", ".."):
        raise unusable(_START)
    return Started(sandbox, exec_id, mark, budget, begun + timeout)


def wait(api: Api, started: Started) -> Outcome | None:
    """Wait for the end of a command.

    A poll that fails says nothing about the command, and the deadline decides; then there is one last poll.

    :return: None: its time is up and it still runs.
    :raises CallError: it cannot be known how the command does.
    :raises SandboxTerminalError: the answer makes no sense.
    """
    path = sandbox_path(started.sandbox, "exec", started.exec_id)
    interval = _FIRST_POLL
    wanted = interval
    while True:
        left = started.deadline - time.monotonic()
        pause(min(wanted, left))
        last = wanted >= left
        failure: CallError | None = None
        try:
            outcome = _poll(api, path, started)
            if outcome is not None:
                return outcome
        except CallError as e:
            if not e.transient:
                raise
            failure = e
        if last:
            if failure is not None:
                raise failure
            return None
        interval = min(interval * _POLL_GROWTH, _LONGEST_POLL)
        wanted = max(interval, failure.retry_after or 0.0) if failure else interval


def _poll(api: Api, path: str, started: Started) -> Outcome | None:
    """The outcome, None while the command goes on."""
    left = started.deadline - time.monotonic()
    answer = api.call(
        "GET",
        path,
        deadline=time.monotonic() + max(_LEAST_REQUEST, min(left, _LONGEST_REQUEST)),
        # A byte of output may come as the six characters of "\\ufffd".
        max_body=12 * (started.budget + 1) + 256 * 1024,
    )
    result = fields(answer, _POLL)
    status, exit_code = result.get("status"), result.get("exit_code")
    stdout, stderr = _text(result.get("stdout")), _text(result.get("stderr"))
    if not isinstance(status, str):
        raise unusable(_POLL)
    if status in _GOES_ON:
        return None
    cut = result.get("truncated") is True
    out, out_cut = bounded(stdout, started.budget, started.mark, cut)
    err, err_cut = bounded(stderr, started.budget, started.mark, cut)
    return Outcome(status, _whole(exit_code), out, err, out_cut, err_cut)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise unusable(_POLL)
    text: str = well_formed(value)
    return text


def _whole(value: Any) -> int | None:
    if value is None:
        return None
    try:
        # Islo's own SDK takes "5" and 5.0, too.
        if not isinstance(value, bool) and int(value) == float(value):
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise unusable(_POLL)


def bounded(text: str, budget: int, mark: str, service_cut: bool = False) -> tuple[str, bool]:
    """A stream as the caller gets it, and whether there was more of it.

    :param text: what came.
    :param budget: the bytes wanted; one more was asked for.
    :param mark: ends a stream that is whole.
    :param service_cut: the service cut one of the streams at :data:`STREAM_CAP`.
    """
    size = len(text) if text.isascii() else len(text.encode())
    if text.endswith(mark):
        text = text[: -len(mark)]
        clipped = service_cut and size >= STREAM_CAP
        # A background process may have written on while it was read, so the mark alone is not believed.
        if not clipped and size - len(mark) - 2 * text.count("\ufffd") <= budget:
            return text, False
        if clipped and size - len(mark) <= budget:
            return text, True
        size -= len(mark)
    if size <= budget:
        return text, False
    tail = text.encode()[-budget:]
    # A part of a line says less than it seems to, so the first one goes, unless it is most of what there is.
    newline = tail.find(b"\n")
    if newline >= 0 and len(tail) - (newline + 1) >= budget // 2:
        tail = tail[newline + 1 :]
    # Only at the front can a character have been cut.
    return tail.decode("utf-8", "ignore"), True
