# SPDX-License-Identifier: Apache-2.0
"""Islo: how a command is started, asked after, and what its end means."""

from __future__ import annotations

import json
import re
import socket
from typing import Any

import pytest

from sandbox_native.backends import _islo_commands
from sandbox_native.backends._islo_commands import WRAPPER
from sandbox_native.contract import SandboxError, SandboxTerminalError
from servers.islo.fixtures import Sandbox

API_ERROR = {"code": "INTERNAL_ERROR", "message": "try later"}


def started(box: Sandbox) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(box.server.requests("exec")[0]["body"])
    return body


# ---- start ---------------------------------------------------------------------------------------


@pytest.mark.parity("A Run#2")
def test_the_command_is_an_argument_and_nothing_else(box: Sandbox) -> None:
    command = 'printf \'%s|\' "$0" "$#" \'a"b\'; echo `echo x` $(echo y) \\\\'
    result = box.run(command, max_output_bytes=100)
    assert (result.stdout, result.stderr, result.exit_code) == ('sh|0|a"b|x y \\\n', "", 0)
    words = started(box)["command"]
    assert words[:3] == ["sh", "-c", WRAPPER]
    assert re.fullmatch(r"airflow-sandbox:[0-9a-f]{16}", words[3])
    assert words[4:] == [command, "101"]


@pytest.mark.parity("A Run#3")
@pytest.mark.parametrize("wanted", [1024 * 1024, 10**12])
def test_a_budget_over_the_services_cap(box: Sandbox, wanted: int) -> None:
    result = box.run("head -c 1100000 /dev/zero | tr '\\0' x", max_output_bytes=wanted)
    assert started(box)["command"][-1] == "1048576"
    assert result.stdout == "x" * 1048575
    assert result.stdout_truncated


@pytest.mark.parametrize("size", [1048574, 1048575])
def test_just_within_the_largest_budget(box: Sandbox, size: int) -> None:
    result = box.run(f"head -c {size} /dev/zero | tr '\\0' x", max_output_bytes=10**9)
    # The mark of a whole stream cost the front of it, which is said.
    assert "x" * (size - 40) in result.stdout
    assert result.stdout_truncated == (len(result.stdout) < size)


@pytest.mark.parity("A Run#5")
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "status": 503, "body": API_ERROR},
        {"kind": "status", "status": 500},
        {"kind": "close"},
        {"kind": "close", "reset": True},
        {"kind": "close", "after": True},
        {"kind": "status", "status": 409, "body": API_ERROR},
        {"kind": "status", "status": 408},
    ],
)
def test_a_start_that_may_have_happened_is_not_made_again(box: Sandbox, fault: dict[str, Any]) -> None:
    box.server.faults.add("exec", **fault)
    with pytest.raises(SandboxTerminalError, match="start a sandbox command"):
        box.run("true")
    assert box.server.count("exec") == 1


class Refusing:
    """An address where nobody listens, until ``box`` is to be reached after all."""

    def __init__(self, box: Sandbox, monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
        self.waits: list[float] = []
        self._api = box.backend._service().api
        self._account = self._api._account
        self._refusals = refusals
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        port = self._socket.getsockname()[1]
        self._api._account = self._account._replace(compute=f"http://127.0.0.1:{port}")
        monkeypatch.setattr("sandbox_native.backends._islo_calls.pause", self._pause)

    def _pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        if len(self.waits) == self._refusals:
            self._api._account = self._account


@pytest.mark.parity("A Run#6")
def test_a_start_that_reached_nobody_is_made_again(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(box, monkeypatch, 1)
    assert box.run("echo ran").stdout == "ran\n"
    (wait,) = refusing.waits
    assert 0.9 <= wait <= 1.1


@pytest.mark.parity("A Run#6")
def test_a_start_that_was_refused_is_made_again(box: Sandbox, pauses: list[float]) -> None:
    box.server.faults.add("exec", "status", status=429, body=API_ERROR)
    assert box.run("echo ran").stdout == "ran\n"
    assert box.server.count("exec") == 2
    (wait,) = pauses
    assert 0.9 <= wait <= 1.1


@pytest.mark.parity("A Run#9")
def test_three_starts_that_reach_nobody(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(box, monkeypatch, 99)
    with pytest.raises(SandboxTerminalError, match="start a sandbox command"):
        box.run("true")
    first, second = refusing.waits
    assert 0.9 <= first <= 1.1
    assert 1.8 <= second <= 2.2


@pytest.mark.parity("A Run#7")
@pytest.mark.parametrize("status", [429, 503])
def test_an_exchange_that_fails_for_now_costs_no_start(
    box: Sandbox, pauses: list[float], status: int
) -> None:
    box.server.act(box.name, "revoke")
    box.server.faults.add("token", "status", status=status)
    assert box.run("echo ran").exit_code == 0
    assert box.server.count("token") == 2
    assert len(pauses) == 1


@pytest.mark.parity("A Run#8")
@pytest.mark.parametrize("status", [401, 403])
def test_an_exchange_that_is_refused(box: Sandbox, status: int) -> None:
    box.server.act(box.name, "revoke")
    box.server.faults.add("token", "status", status=status, times=None)
    with pytest.raises(SandboxTerminalError, match=rf"rejected ISLO_API_KEY \(HTTP {status}\)"):
        box.run("true")
    assert box.server.count("token") == 1


@pytest.mark.parity("A Run#21")
def test_a_start_that_stays_unauthorised(box: Sandbox) -> None:
    box.server.faults.add("exec", "status", status=401, body={"detail": "no"}, times=None)
    with pytest.raises(SandboxTerminalError, match="HTTP 401"):
        box.run("true")
    assert box.server.count("exec") == 2  # the second with a fresh token
    assert box.server.count("token") == 1


@pytest.mark.parity("A Run#25")
@pytest.mark.parametrize(("timeout", "seconds"), [(0.2, 1), (1, 1), (1.01, 2), (30, 30), (1e300, 2**31 - 1)])
def test_the_hint_is_in_whole_seconds(box: Sandbox, timeout: float, seconds: int) -> None:
    box.run("true", timeout=timeout)
    assert started(box)["timeout_secs"] == seconds


@pytest.mark.parity("A Run#25", "A Run#26")
@pytest.mark.parametrize("operation", ["exec", "result"])
def test_a_slow_answer_costs_the_command_nothing(box: Sandbox, operation: str) -> None:
    # No request is given up within 5 s, and the clock runs from the answer to the start.
    box.server.faults.add(operation, "hang", seconds=4)
    result = box.run("echo ran", timeout=3)
    assert (result.stdout, result.timed_out) == ("ran\n", False)
    assert box.stands()


@pytest.mark.parity("A Run#27")
@pytest.mark.parametrize("name", ["timeout", "max_output_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, None])
def test_bounds_that_are_none(box: Sandbox, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        box.run("true", **{name: value})
    assert not box.server.requests()


@pytest.mark.parametrize("command", ["a\0b", "\ud800"])
def test_a_command_no_shell_can_get(box: Sandbox, command: str) -> None:
    with pytest.raises(SandboxError, match="The command") as caught:
        box.run(command)
    assert not isinstance(caught.value, SandboxTerminalError)
    assert not box.server.requests()


@pytest.mark.parametrize(
    "body", ["", "[]", "<html>", "{}", '{"exec_id":""}', '{"exec_id":".."}', '{"exec_id":3}']
)
def test_a_start_answered_by_nonsense(box: Sandbox, body: str) -> None:
    box.server.faults.add("exec", "body", text=body)
    with pytest.raises(SandboxTerminalError, match="start a sandbox command"):
        box.run("true")


# ---- poll ------------------------------------------------------------------------------------------


@pytest.mark.parity("A Run#1", "A Run#4")
def test_polls_come_ever_more_seldom(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(_islo_commands, "pause", waits.append)
    box.server.faults.add("result", "json", times=30, set={"status": "running"})
    assert box.run("echo ran").stdout == "ran\n"
    assert len(waits) >= 31
    assert waits == sorted(waits)
    assert waits[0] < 0.02
    assert waits[-1] == 2.0


@pytest.mark.parity("A Run#19")
@pytest.mark.parametrize("status", ["pending", "queued", "starting", "running"])
def test_states_that_go_on(box: Sandbox, status: str) -> None:
    box.server.faults.add("result", "json", times=3, set={"status": status})
    assert box.run("echo ran").stdout == "ran\n"
    assert box.server.count("result") >= 4


@pytest.mark.parity("A Run#18")
@pytest.mark.parametrize("status", ["cancelled", "dead", "unheard-of", ""])
def test_states_that_are_ends(box: Sandbox, status: str) -> None:
    box.server.faults.add("result", "json", times=None, set={"status": status, "exit_code": None})
    result = box.run("sleep 60")
    assert result.exit_code == -1
    assert not result.timed_out and not result.sandbox_terminated
    assert box.stands()


@pytest.mark.parity("A Run#20")
def test_the_service_ended_the_command(box: Sandbox) -> None:
    box.server.set(enforce_timeout=True)
    box.server.faults.add("result", "json", times=None, set={"status": "timeout", "stdout": "so far\n"})
    result = box.run("sleep 60", timeout=30)
    assert (result.exit_code, result.stdout) == (-1, "so far\n")
    assert result.timed_out and result.sandbox_terminated
    assert box.server.count("delete") == 1
    assert not box.stands()


@pytest.mark.parity("A Run#16")
def test_its_time_is_up(box: Sandbox) -> None:
    result = box.run("seq 1000; echo so far >&2; sleep 60", timeout=3, max_output_bytes=20)
    assert result.exit_code == -1
    # What it had printed is fetched before the sandbox goes.
    assert (result.stdout, result.stdout_truncated) == ("997\n998\n999\n1000\n", True)
    assert (result.stderr, result.stderr_truncated) == ("so far\n", False)
    assert result.timed_out and result.sandbox_terminated
    assert box.server.count("delete") == 1
    assert not box.stands()


@pytest.mark.parametrize("fault", [{"kind": "status", "status": 503}, {"kind": "hang", "seconds": 600}])
def test_its_time_is_up_and_the_service_does_not_answer(box: Sandbox, fault: dict[str, Any]) -> None:
    box.server.faults.add("exec", nth=2, times=None, **fault)
    result = box.run("echo lost; sleep 60", timeout=0.5)
    assert (result.exit_code, result.stdout) == (-1, "")
    assert result.timed_out and result.sandbox_terminated
    assert not box.stands()


def test_the_last_poll_is_made_when_time_is_up(box: Sandbox) -> None:
    # An end that came after the last poll but one is not a timeout.
    box.server.faults.add("result", "status", status=503, times=1, headers={"Retry-After": "60"})
    result = box.run("echo ran", timeout=3)
    assert (result.stdout, result.timed_out) == ("ran\n", False)
    assert box.server.count("result") == 2


@pytest.mark.parity("A Run#17")
@pytest.mark.parametrize(
    ("delete_after", "text"),
    [
        (3600, "its delete_after policy removes it 3600s after creation"),
        (None, "delete_after is disabled, so it persists until deleted by hand"),
    ],
)
def test_a_sandbox_that_may_live_on_is_a_warning(
    box: Sandbox, pauses: list[float], caplog: pytest.LogCaptureFixture, delete_after: int | None, text: str
) -> None:
    box.backend._delete_after = delete_after
    box.server.faults.add("delete", "status", status=503, times=None)
    result = box.run("sleep 60", timeout=0.3)
    assert result.timed_out and result.sandbox_terminated
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "could not confirm its deletion" in record.getMessage()
    assert text in record.getMessage()
    assert box.name in record.getMessage()
    assert "test-key" not in caplog.text and "token-" not in caplog.text


@pytest.mark.parity("A Run#22")
@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("result", {"kind": "status", "status": 502, "body": "<html>bad gateway</html>"}),
        ("result", {"kind": "status", "status": 429}),
        ("result", {"kind": "close", "reset": True}),
        ("result", {"kind": "close"}),
        ("result", {"kind": "cut", "after_bytes": 20}),
        ("token", {"kind": "status", "status": 503}),
    ],
)
def test_failed_polls_are_ridden_out(box: Sandbox, operation: str, fault: dict[str, Any]) -> None:
    if operation == "token":
        box.server.faults.add("result", "status", status=401, times=1)
    box.server.faults.add(operation, times=2, **fault)
    result = box.run("echo ran")
    assert (result.stdout, result.timed_out) == ("ran\n", False)
    assert box.server.count("exec") == 1
    assert box.stands()


@pytest.mark.parity("A Run#23")
@pytest.mark.parametrize(
    ("operation", "fault", "text"),
    [
        (
            "result",
            {"kind": "status", "status": 404, "body": API_ERROR},
            r"poll a sandbox command \(HTTP 404\)",
        ),
        ("result", {"kind": "status", "status": 404}, r"poll a sandbox command \(HTTP 404\)"),
        ("result", {"kind": "status", "status": 403}, r"poll a sandbox command \(HTTP 403\)"),
        ("result", {"kind": "body", "text": "<html>"}, "poll a sandbox command"),
        ("result", {"kind": "body", "text": "[1]"}, "poll a sandbox command"),
        ("result", {"kind": "json", "set": {"status": None}}, "poll a sandbox command"),
        ("result", {"kind": "json", "set": {"stdout": 5}}, "poll a sandbox command"),
        (
            "result",
            {"kind": "json", "set": {"status": "completed", "exit_code": "x"}},
            "poll a sandbox command",
        ),
        ("token", {"kind": "status", "status": 401}, r"rejected ISLO_API_KEY \(HTTP 401\)"),
        ("token", {"kind": "status", "status": 403}, r"rejected ISLO_API_KEY \(HTTP 403\)"),
        ("token", {"kind": "status", "status": 400}, r"poll a sandbox command \(HTTP 400\)"),
    ],
)
def test_polls_that_end_it_at_once(box: Sandbox, operation: str, fault: dict[str, Any], text: str) -> None:
    if operation == "token":
        box.server.faults.add("result", "status", status=401, times=1)
    box.server.faults.add(operation, times=None, **fault)
    with pytest.raises(SandboxTerminalError, match=text):
        box.run("sleep 60")
    assert box.server.count("result") == 1


@pytest.mark.parametrize(("value", "code"), [("5", 5), (5.0, 5), (0, 0), (None, -1)])
def test_exit_codes_as_the_sdk_takes_them(box: Sandbox, value: Any, code: int) -> None:
    box.server.faults.add("result", "json", times=None, set={"status": "completed", "exit_code": value})
    assert box.run("true").exit_code == code


# ---- streams ---------------------------------------------------------------------------------------


@pytest.mark.parity("A Run#10", "A Run#15")
def test_streams_within_the_budget(box: Sandbox) -> None:
    box.server.faults.add("result", "json", times=None, set={"truncated": True})
    result = box.run("printf 'a\\0b\\rc'; printf 'é\\n' >&2; exit 255", max_output_bytes=5)
    assert (result.stdout, result.stderr, result.exit_code) == ("a\0b\rc", "é\n", 255)
    assert not result.stdout_truncated and not result.stderr_truncated


@pytest.mark.parity("A Run#11", "A Run#12", "A Run#13")
def test_streams_over_the_budget(box: Sandbox) -> None:
    result = box.run("seq -f line%g 3; seq -f e%g 3 >&2", max_output_bytes=8)
    assert (result.stdout, result.stderr) == ("line3\n", "e2\ne3\n")
    assert result.stdout_truncated and result.stderr_truncated
    result = box.run("printf line988\\\\nline989\\\\n; printf abcdefghij >&2", max_output_bytes=12)
    assert (result.stdout, result.stdout_truncated) == ("line989\n", True)
    assert (result.stderr, result.stderr_truncated) == ("abcdefghij", False)
    for text, kept in (
        ("abcdefghij", "cdefghij"),
        ("x" * 20 + "\n", "xxxxxxx\n"),
        ("z" * 20 + "\nok\n", "zzzz\nok\n"),
    ):
        result = box.run(f"printf %s '{text}'", max_output_bytes=8)
        assert (result.stdout, result.stdout_truncated) == (kept, True)


@pytest.mark.parity("A Run#14")
def test_the_budget_is_in_bytes_of_utf8(box: Sandbox) -> None:
    for budget, kept in ((6, "ééé"), (5, "éé"), (4, "éé"), (3, "é"), (2, "é"), (1, "")):
        result = box.run("printf ééé", max_output_bytes=budget)
        assert (result.stdout, result.stdout_truncated) == (kept, budget < 6)


def test_a_lot_of_output_costs_the_worker_its_budget(box: Sandbox) -> None:
    result = box.run(
        "yes line | head -c 50000000; yes error | head -c 900000 >&2; exit 7", max_output_bytes=5000
    )
    assert (result.stdout, result.stdout_truncated) == ("line\n" * 999, True)
    assert len(result.stderr) <= 5000 and set(result.stderr.split()) == {"error"}
    assert result.exit_code == 7


def test_lone_surrogates_in_an_answer(box: Sandbox) -> None:
    box.server.faults.add(
        "result",
        "body",
        times=None,
        text='{"status":"completed","exit_code":0,"stdout":"a\\ud800b","stderr":null}',
    )
    result = box.run("true")
    assert (result.stdout, result.stderr) == ("a\ufffdb", "")
