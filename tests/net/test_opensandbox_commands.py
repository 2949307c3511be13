# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox: commands, their output to the byte, their limits, and what is left of them afterwards."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from opensandbox_box import OpenBox, body_of, recoverable
from sandbox_native import calls, captured
from sandbox_native.backends import _opensandbox_commands as commands
from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sandbox_native.contract import SandboxError, SandboxExecResult, SandboxTerminalError

SLEEPS = "ps ax -o args= | grep '^sleep 9[0-9][0-9]' || true"


def error(value: str, *traceback: str) -> str:
    found = {"ename": "CommandExecError", "evalue": value, "traceback": list(traceback)}
    return json.dumps({"type": "error", "error": found})


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.05)


# ---- output ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", (0, "", "")),
        ("exit 255", (255, "", "")),
        ("echo out; echo err >&2; exit 3", (3, "out\n", "err\n")),
        ("printf no-newline", (0, "no-newline", "")),
        (r"printf 'a\r\nb\rc\n\n\nd'", (0, "a\r\nb\rc\n\n\nd", "")),
        (r"printf 'nul\000esc\033ff\014<&>'", (0, "nul\0esc\33ff\14<&>", "")),
        (r"printf 'bad\377\303(end' >&2", (0, "", "bad\ufffd\ufffd(end")),
        ("printf 'é€😀\\342\\200\\250\\302\\205'", (0, "é€😀\u2028\x85", "")),
        ("echo 'quotes: \\'' \\\" `x` $HOME'", None),
        ("cat; echo done", (0, "done\n", "")),
        ("", (0, "", "")),
        ("  \n # nothing\n", (0, "", "")),
        ("echo sandbox-native:end; echo 'sandbox-native:begin x'", None),
        ("kill -9 $$", (137, "", None)),
        ("kill -TERM $$", (143, "", None)),
        ("nosuchprogram", (127, "", None)),
    ],
)
def test_provider_fault_23_output_is_what_was_printed(opened: OpenBox, command: str, expected: Any) -> None:
    result = opened.run(command)
    if expected is None:
        expected = (result.exit_code, result.stdout, result.stderr)
        assert result.exit_code == 0 or "syntax" in result.stderr or "unexpected" in result.stderr
    code, out, err = expected
    assert (result.exit_code, result.stdout) == (code, out)
    assert err is None or result.stderr == err
    assert result == SandboxExecResult(code, out, result.stderr)


def test_provider_fault_10_an_empty_command_is_a_command(opened: OpenBox) -> None:
    assert opened.run("") == SandboxExecResult(0, "", "")


@pytest.mark.parity("B Run#1")
@pytest.mark.parametrize(
    ("cap", "out", "err"),
    [(6, "éé\n", "-tail\n"), (7, "ééé\n", "r-tail\n"), (5, "éé\n", "tail\n"), (4, "é\n", "ail\n")],
)
def test_each_stream_keeps_its_last_bytes_and_no_half_character(
    opened: OpenBox, cap: int, out: str, err: str
) -> None:
    result = opened.run("printf 'prefix-\\nééé\\n'; echo stderr-tail >&2; exit 3", cap=cap)
    assert (result.exit_code, result.stdout, result.stderr) == (3, out, err)
    assert result.stdout_truncated
    assert result.stderr_truncated
    assert not result.timed_out
    assert not result.sandbox_terminated


@pytest.mark.parametrize(("size", "truncated"), [(99, False), (100, False), (101, True)])
def test_exactly_at_the_cap_nothing_is_cut(opened: OpenBox, size: int, truncated: bool) -> None:
    result = opened.run(f"head -c {size} /dev/zero | tr '\\0' x", cap=100)
    assert (len(result.stdout), result.stdout_truncated) == (min(size, 100), truncated)


def test_provider_fault_12_a_chatty_command_keeps_its_sandbox(opened: OpenBox) -> None:
    result = opened.run("yes | head -n 1500000; seq 1 200000 >&2", cap=1000)
    assert (result.exit_code, result.stdout, result.stdout_truncated) == (0, "y\n" * 500, True)
    assert result.stderr.endswith("199999\n200000\n")
    assert not result.timed_out
    # No event for each line: one frame, of a few.
    result = opened.run("yes", timeout=2, cap=1000)
    assert (result.timed_out, result.sandbox_terminated, result.stdout) == (True, False, "y\n" * 500)
    assert opened.out("echo still here") == "still here\n"


def test_provider_fault_13_one_long_line_costs_no_more_than_the_cap(opened: OpenBox) -> None:
    result = opened.run("head -c 50000000 /dev/zero | tr '\\0' x; echo; printf end", cap=1000)
    assert result.stdout == "x" * 996 + "\nend"
    assert result.stdout_truncated


def test_output_as_large_as_a_large_cap(opened: OpenBox) -> None:
    result = opened.run("seq 1 1000000", cap=8_000_000)
    assert result.stdout == "".join(f"{number}\n" for number in range(1, 1_000_001))
    assert not result.stdout_truncated


def test_provider_fault_21_nothing_of_a_command_stays_in_the_sandbox(opened: OpenBox) -> None:
    opened.out("echo one")
    opened.run("echo two; kill -9 0")
    opened.run("sleep 900", timeout=0.5)
    listing = opened.out("ls -A /tmp")
    assert captured.is_private(listing.strip())  # the directory of this very command
    assert opened.backend.list_directory(opened.id, "/tmp") == []


def test_a_command_that_empties_tmp_keeps_its_output(opened: OpenBox) -> None:
    assert opened.out("rm -rf /tmp/*; echo kept") == "kept\n"
    result = opened.run("rm -rf /tmp/.sandbox-native* /tmp/*; echo lost; exit 5")
    assert result.exit_code == 5
    assert opened.out("echo goes on") == "goes on\n"


def test_a_command_that_is_not_sent_leaves_the_clearing_up_to_the_next(opened: OpenBox) -> None:
    opened.out("echo one")
    room = captured.LONGEST_SCRIPT - len(captured.run_script("", "0" * 16, 65536).encode())
    for command in ("a\0b", "x" * (room + 3)):
        with pytest.raises(SandboxError):
            opened.run(command)
    # One that only just fits is run all the same, and the files wait for the one after it.
    assert opened.out(f"#{'x' * (room - 10)}\necho ran") == "ran\n"
    assert captured.is_private(opened.out("ls -A /tmp").strip())


def test_a_listing_does_not_show_what_commands_need(opened: OpenBox) -> None:
    opened.out(f"mkdir /tmp/.sandbox-native-{'0' * 16} /tmp/.sandbox-native-mine /tmp/theirs")
    opened.server.forget_requests()
    found = [(".sandbox-native-mine", True), ("theirs", True)]
    assert sorted(opened.backend.list_directory(opened.id, "/tmp")) == found
    assert opened.sent("command") == []
    opened.out("ln -s nowhere /tmp/link")
    assert sorted(opened.backend.list_directory(opened.id, "/tmp")) == [found[0], ("link", False), found[1]]


def test_background_children_hold_nothing_and_live_on(opened: OpenBox) -> None:
    assert opened.out("sleep 901 & echo started") == "started\n"
    assert opened.out("nohup sleep 902 >/dev/null 2>&1 & setsid sleep 903 & echo started") == "started\n"
    assert sorted(opened.out(SLEEPS).split("\n")[:-1]) == ["sleep 901", "sleep 902", "sleep 903"]


def test_the_shell_its_place_and_environment(opened: OpenBox) -> None:
    result = opened.out("[[ 1 == 1 ]] && pwd; umask; readlink /proc/self/fd/0; env | cut -d= -f1 | sort")
    here, mask, stdin, *names = result.split()
    assert (here, mask, stdin) == ("/", "0022", "/dev/null")
    assert captured.MARK in names
    assert not [name for name in names if len(name) == 1 and name != "_"]


@pytest.mark.parametrize("command", ["a\0b", "\udcff"])
def test_what_is_no_command(opened: OpenBox, command: str) -> None:
    with pytest.raises(SandboxError) as caught:
        opened.run(command)
    assert recoverable(caught)
    assert opened.sent() == []


def test_a_command_at_the_limit_of_its_length(opened: OpenBox) -> None:
    room = captured.LONGEST_SCRIPT - len(captured.run_script("", "0" * 16, 65536).encode())
    assert opened.out(f"# {'x' * (room - 100)}\necho ran") == "ran\n"
    with pytest.raises(SandboxError, match="too long") as caught:
        opened.run("x" * (room + 100))
    assert recoverable(caught)


def test_without_a_place_for_its_output_it_is_said_why(opened: OpenBox) -> None:
    opened.out("mkdir /srv/away; chmod 1777 /srv/away")
    opened.server.act(opened.id, "run:chmod 555 /tmp")
    try:
        with pytest.raises(SandboxError) as caught:
            opened.run("echo hi")
        assert "ermission denied" in str(caught.value)
    finally:
        opened.server.act(opened.id, "run:chmod 1777 /tmp")


@pytest.mark.parity("B Run#14")
@pytest.mark.parametrize("name", ["timeout", "max_output_bytes"])
def test_bounds_are_checked(opened: OpenBox, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        opened.backend.run_command(opened.id, "true", **{"timeout": 1, "max_output_bytes": 1, name: 0})


# ---- events ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["sse", "crlf", "bytes", "unended"])
def test_events_in_any_framing(opened: OpenBox, shape: str) -> None:
    opened.server.faults.add("command", "events", shape=shape)
    assert opened.out("printf 'a\\nb'") == "a\nb"


def test_the_call_returns_at_the_terminal_event(opened: OpenBox) -> None:
    """Not when the stream ends: the server is made to hold that open for longer than a hang guard allows."""
    opened.server.set(linger=600.0)
    backend = OpenSandboxBackend(None)
    box = backend.create()
    assert backend.run_command(box, "echo at once", timeout=60, max_output_bytes=100).stdout == "at once\n"


@pytest.mark.parity("B Run#4")
@pytest.mark.parametrize("value", ["exit status 1", "signal: killed"])
def test_an_exit_status_in_prose(opened: OpenBox, value: str) -> None:
    opened.server.faults.add(
        "command",
        "events",
        times=None,
        drop=["stdout", "stderr"],
        replace={"execution_complete": error(value), "error": error(value)},
    )
    result = opened.run("true")
    assert (result.exit_code, result.stderr, result.timed_out) == (1, value, False)


def test_an_error_that_is_none(opened: OpenBox) -> None:
    opened.server.faults.add(
        "command", "events", times=None, drop=["stdout"], replace={"execution_complete": '{"type":"error"}'}
    )
    assert opened.run("true").exit_code == 1


@pytest.mark.parity("B Run#5")
@pytest.mark.parametrize(
    "end", [{"end_at": "execution_complete"}, {"drop": ["execution_complete", "stdout"]}]
)
def test_a_stream_without_a_last_event(opened: OpenBox, end: dict[str, Any]) -> None:
    """What is known of the command is told: here it had ended, which its files say."""
    opened.server.faults.add("command", "events", **end)
    result = opened.run("echo said; sleep 0.2; exit 0")
    assert (result.exit_code, result.stdout, result.sandbox_terminated) == (0, "said\n", False)
    opened.server.faults.add("command", "events", times=None, drop=["execution_complete", "stdout", "error"])
    result = opened.run("echo said")
    assert result.exit_code == -1
    assert result.sandbox_terminated or "without reporting an exit status" in result.stderr


@pytest.mark.parametrize("reset", [False, True])
def test_a_stream_that_breaks_while_the_command_runs(opened: OpenBox, reset: bool) -> None:
    opened.server.faults.add("command", "cut", after_bytes=150, reset=reset)
    result = opened.run("echo said; setsid sleep 910; echo more")
    assert result.exit_code == -1
    assert (result.stdout, result.timed_out, result.sandbox_terminated) == ("said\n", False, False)
    assert "without reporting an exit status" in result.stderr
    assert opened.out(SLEEPS) == ""


@pytest.mark.parametrize("proxied", [True, False])
def test_provider_fault_18_a_sandbox_that_dies_mid_command_is_said_to(opened: OpenBox, proxied: bool) -> None:
    backend = OpenSandboxBackend(None, use_server_proxy=proxied)
    box = backend.create()
    opened.server.faults.add("command", "cut", after_bytes=100, act="remove")
    result = backend.run_command(box, "echo said; sleep 911", timeout=60, max_output_bytes=100)
    assert (result.exit_code, result.timed_out, result.sandbox_terminated) == (-1, False, True)
    assert "ended" in result.stderr


@pytest.mark.parametrize("action", ["kill-execd", "stop"])
def test_provider_fault_18_a_sandbox_that_serves_no_more_is_destroyed(opened: OpenBox, action: str) -> None:
    opened.server.faults.add("command", "cut", after_bytes=100, act=action)
    result = opened.run("sleep 912")
    assert (result.exit_code, result.sandbox_terminated) == (-1, True)
    assert opened.server.sandboxes() == []


@pytest.mark.parametrize("status", [401, 500, 503])
def test_a_command_whose_stream_broke_is_ended_whatever_the_server_says_of_the_sandbox(
    opened: OpenBox, status: int
) -> None:
    opened.server.faults.add("command", "cut", after_bytes=150, reset=True)
    opened.server.faults.add("get", "status", status=status, times=None)
    result = opened.run("echo said; setsid sleep 916")
    assert (result.exit_code, result.stdout, result.sandbox_terminated) == (-1, "said\n", False)
    opened.server.faults.clear()
    assert opened.out(SLEEPS) == ""


def test_a_command_of_which_nothing_can_be_found_out_is_an_error(opened: OpenBox) -> None:
    opened.server.faults.add("command", "cut", after_bytes=150, reset=True)
    opened.server.faults.add("command", "status", status=502, nth=2, times=None)
    opened.server.faults.add("get", "status", status=500, times=None)
    with pytest.raises(SandboxTerminalError, match="could not be found out") as caught:
        opened.run("echo said; sleep 917")
    assert "HTTP 500" in str(caught.value)
    assert len(opened.server.sandboxes()) == 1


@pytest.mark.parity("B Run#13")
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 502, 503])
def test_a_refused_command_is_sent_once(opened: OpenBox, status: int) -> None:
    opened.server.faults.add("command", "status", status=status, body="<html>", media="text/html")
    with pytest.raises(SandboxTerminalError, match=rf"run a sandbox command \(HTTP {status}\)"):
        opened.run("true")
    assert len(opened.sent("command")) == 1


def test_a_command_whose_acceptance_was_lost_does_not_run_on(opened: OpenBox) -> None:
    opened.server.faults.add("command", "close", after=True)
    with pytest.raises(SandboxTerminalError, match="before it was known to be running"):
        opened.run("sleep 913")
    assert len(opened.sent("command")) == 2  # itself, and what stops it
    assert opened.out(SLEEPS) == ""


def test_a_large_event_of_something_else_is_no_harm(opened: OpenBox) -> None:
    opened.server.faults.add(
        "command", "events", replace={"ping": json.dumps({"type": "ping", "text": "x" * 3_000_000})}
    )
    assert opened.out("echo fine") == "fine\n"


# ---- time ------------------------------------------------------------------------------------------------


@pytest.mark.parity("B Run#6")
def test_a_timeout_keeps_what_was_printed_and_the_sandbox(opened: OpenBox) -> None:
    result = opened.run("echo out; echo err >&2; trap '' TERM; sleep 914; echo never", timeout=2)
    assert result.timed_out
    assert (result.stdout, result.stderr, result.sandbox_terminated) == ("out\n", "err\n", False)
    assert opened.out(SLEEPS) == ""
    assert opened.out("echo next") == "next\n"


@pytest.mark.parity("B Run#8")
def test_a_killed_command_is_no_timeout(opened: OpenBox) -> None:
    result = opened.run("sleep 0.2; kill -9 $$", timeout=30)
    assert (result.exit_code, result.timed_out) == (137, False)
    result = opened.run("echo said; kill -9 0; sleep 5", timeout=30)
    assert (result.exit_code, result.timed_out, result.stdout) == (-1, False, "said\n")


def test_provider_fault_11_a_failure_just_inside_its_time_is_no_timeout(opened: OpenBox) -> None:
    """execd holds the stream open for two seconds after the end; the limit is between."""
    opened.server.set(linger=20.0)
    backend = OpenSandboxBackend(None)
    box = backend.create()
    result = backend.run_command(box, "sleep 0.5; exit 4", timeout=10, max_output_bytes=100)
    assert (result.exit_code, result.timed_out) == (4, False)


@pytest.mark.parity("B Run#9")
def test_time_spent_connecting_is_not_the_commands(opened: OpenBox) -> None:
    opened.server.faults.add("ping", "hang", seconds=3.5)
    opened.server.faults.add("command", "hang", seconds=3.5)
    result = OpenSandboxBackend(None).run_command(opened.id, "echo hi", timeout=3, max_output_bytes=10)
    assert (result.exit_code, result.stdout, result.timed_out) == (0, "hi\n", False)


@pytest.mark.parametrize("timeout", [0.0000001, 0.0004, 0.001, 5, 1e9, 1e300])
def test_provider_fault_17_no_timeout_is_sent_as_none(opened: OpenBox, timeout: float) -> None:
    opened.run("true", timeout=timeout)
    assert 0 < body_of(opened.sent("command")[0])["timeout"] < 2**63 / 1e6


def test_provider_fault_17_a_tiny_timeout_is_one(opened: OpenBox) -> None:
    assert opened.run("sleep 915", timeout=0.0000001).timed_out
    assert opened.out(SLEEPS) == ""


TREE = (
    "sleep 920 & setsid sleep 921 & (setsid sleep 922 &); nohup sleep 923 >/dev/null 2>&1 & "
    "(setsid sh -c 'trap \"\" HUP INT TERM; sleep 924; sleep 925' </dev/null >/dev/null 2>&1 &); "
    "(env -i setsid sleep 926 >/dev/null 2>&1 &); "
)


def test_a_timeout_ends_the_tree_and_nothing_else(opened: OpenBox) -> None:
    opened.out("sleep 930 & setsid sleep 931 >/dev/null 2>&1 & echo")
    result = opened.run(f"{TREE} echo begun; sleep 927", timeout=3)
    assert (result.timed_out, result.stdout, result.sandbox_terminated) == (True, "begun\n", False)
    assert sorted(opened.out(SLEEPS).split("\n")[:-1]) == ["sleep 930", "sleep 931"]


def test_a_timeout_ends_what_forks_without_end(opened: OpenBox) -> None:
    result = opened.run("f() { while :; do sleep 0.2 & sleep 0.05; done; }; f & f & f", timeout=1)
    assert result.timed_out
    assert not result.sandbox_terminated
    assert opened.out("ps ax -o args= | grep -c '[s]leep 0' || true") == "0\n"


def test_commands_in_one_sandbox_at_once_do_not_end_each_other(opened: OpenBox) -> None:
    with ThreadPoolExecutor(4) as pool:
        short = [pool.submit(opened.run, f"echo {n}; sleep 94{n}", timeout=0.5) for n in range(2)]
        long = [pool.submit(opened.run, f"sleep 2; echo {n}") for n in range(2)]
        assert [each.result().timed_out for each in short] == [True, True]
        assert [each.result().stdout for each in long] == ["0\n", "1\n"]


@pytest.mark.parity("B Run#11")
def test_a_command_that_cannot_be_stopped_takes_the_sandbox_with_it(
    opened: OpenBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_ACCEPT", 2.0)
    opened.server.faults.add("command", "hang", nth=2, times=None)
    result = opened.run("echo begun; sleep 950", timeout=0.5)
    assert (result.exit_code, result.timed_out, result.sandbox_terminated) == (-1, True, True)
    assert len(opened.sent("delete")) == 1
    assert opened.server.sandboxes() == []


def test_a_command_is_not_stopped_where_no_process_can_be_started(opened: OpenBox) -> None:
    """At the limit of processes execd says so in prose, and the command that reached the limit goes on."""
    refusal = error("fork/exec /usr/bin/bash: resource temporarily unavailable")
    opened.server.faults.add(
        "command",
        "events",
        nth=2,
        times=None,
        drop=["stdout", "stderr"],
        replace={"execution_complete": refusal, "error": refusal},
    )
    result = opened.run("echo begun; sleep 957", timeout=1)
    assert (result.exit_code, result.timed_out, result.sandbox_terminated) == (-1, True, True)
    assert opened.server.sandboxes() == []


@pytest.mark.parity("B Run#11")
def test_what_was_printed_is_kept_where_a_process_survives(
    opened: OpenBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = captured.stop_script

    def survived(*args: Any, **options: Any) -> str:
        return real(*args, **options).replace("show - $#", "show - 2")

    monkeypatch.setattr(captured, "stop_script", survived)
    result = opened.run("echo begun; sleep 951", timeout=2)
    assert (result.exit_code, result.timed_out, result.sandbox_terminated) == (-1, True, True)
    assert result.stdout == "begun\n"
    assert opened.server.sandboxes() == []


@pytest.mark.parity("B Run#12")
def test_the_same_where_the_destroy_fails(
    opened: OpenBox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened.server.faults.add("command", "status", nth=2, status=502, times=None)
    opened.server.faults.add("delete", "status", status=503, times=None)
    result = opened.run("sleep 952", timeout=0.5)
    assert (result.exit_code, result.timed_out, result.sandbox_terminated) == (-1, True, True)
    assert "could not be destroyed; its server-side lifetime ends it" in caplog.text


@pytest.mark.parity("B Run#7")
@pytest.mark.parametrize("code", [0, 6])
def test_a_command_that_ended_as_its_time_did_is_told_with_its_output(opened: OpenBox, code: int) -> None:
    """Its frame was on the way when the stream was left."""
    opened.server.faults.add("command", "cut", after_bytes=130, stall=600)
    result = opened.run(f"echo whole; exit {code}", timeout=3)
    assert (result.exit_code, result.stdout, result.timed_out) == (code, "whole\n", False)


# ---- cancel ----------------------------------------------------------------------------------------------


def test_a_cancel_ends_the_tree_and_nothing_else(opened: OpenBox) -> None:
    opened.out("sleep 930 & echo")
    call = calls.prepare(opened.run, f"{TREE} sleep 927")
    call.start()
    wait_for(lambda: "sleep 927" in opened.out(SLEEPS))
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()
    assert opened.out(SLEEPS) == "sleep 930\n"
    assert len(opened.server.sandboxes()) == 1


def test_a_cancel_before_execd_says_anything(opened: OpenBox) -> None:
    opened.server.faults.add("command", "hang", seconds=2)
    call = calls.prepare(opened.run, "sleep 953")
    call.start()
    wait_for(lambda: opened.sent("command"))
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()
    # It reaches execd after what stopped it, and does not begin.
    time.sleep(2.5)
    assert opened.out(SLEEPS) == ""


@pytest.mark.parametrize("during", ["get", "command"])
def test_a_cancel_while_it_is_found_out_how_a_command_is_ends_it(opened: OpenBox, during: str) -> None:
    """Its stream broke; the sandbox is asked after, then the command is stopped."""
    opened.server.faults.add("command", "cut", after_bytes=150, reset=True)
    opened.server.faults.add(during, "hang", seconds=600, nth=1 if during == "get" else 2)
    call = calls.prepare(opened.run, "echo said; setsid sleep 958")
    call.start()
    wait_for(lambda: len(opened.sent(during)) == (1 if during == "get" else 2))
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()
    assert opened.out(SLEEPS) == ""


def test_a_cancel_that_cannot_be_confirmed_is_said(opened: OpenBox, caplog: pytest.LogCaptureFixture) -> None:
    opened.server.faults.add("command", "status", status=502, nth=2, times=None)
    call = calls.prepare(opened.run, "sleep 954")
    call.start()
    wait_for(lambda: opened.sent("command"))
    time.sleep(0.3)
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()
    assert "may still run" in caplog.text
    assert opened.id in caplog.text


@pytest.mark.parametrize("during", ["run", "stop", "look"])
def test_an_exception_of_a_signal_handler_ends_the_command(opened: OpenBox, during: str) -> None:
    class Interrupted(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Interrupted

    if during == "stop":
        opened.server.faults.add("command", "hang", seconds=600, nth=2)
    elif during == "look":
        opened.server.faults.add("command", "cut", after_bytes=150, reset=True)
        opened.server.faults.add("get", "hang", seconds=600)
    operation, count = {"run": ("command", 1), "stop": ("command", 2), "look": ("get", 1)}[during]

    def interrupt() -> None:
        wait_for(lambda: len(opened.sent(operation)) == count)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(Interrupted):
            opened.run("echo said; sleep 955", timeout=1 if during == "stop" else 60)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert opened.out(SLEEPS) == ""


def test_an_attached_sandbox_is_not_destroyed_for_a_command(opened: OpenBox) -> None:
    opened.backend.write_tags(opened.id, {"airflow_owner": "me"})
    other = OpenSandboxBackend(None)
    other.attach(opened.id, owner="me", holder="me/too")
    opened.server.faults.add("command", "status", status=502, nth=2, times=None)
    with pytest.raises(SandboxTerminalError, match="belongs to another task"):
        other.run_command(opened.id, "sleep 956", timeout=0.5, max_output_bytes=10)
    assert len(opened.server.sandboxes()) == 1
