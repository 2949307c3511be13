# SPDX-License-Identifier: Apache-2.0
"""Where the provider's Islo backend was found wrong, each with the right value, by its number."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sandbox_native.backends import _islo_token
from sandbox_native.backends.islo import IsloSandboxBackend
from sandbox_native.contract import SandboxTerminalError
from servers.islo.fixtures import Sandbox
from servers.islo.handle import IsloServer


def test_provider_fault_1_a_cut_output_is_marked_as_cut(box: Sandbox) -> None:
    # The toolset masks what may be a part of a secret at the front, where it is told of the cut.
    result = box.run("printf 'the key is s3cr3t-s3cr3t'", max_output_bytes=10)
    assert (result.stdout, result.stdout_truncated) == ("3t-s3cr3t"[-10:].rjust(10, "r"), True)


@pytest.mark.parametrize(
    "answer",
    [
        {"body": ""},
        {"body": "<html><body>not found</body></html>", "media": "text/html"},
        {"body": {"detail": "x"}},
        {"body": {"code": "SANDBOX_NOT_FOUND", "message": "gone"}},
        {"body": "x", "repeat": 200_000},
    ],
)
def test_provider_fault_24_a_sandbox_that_is_gone_is_destroyed_whatever_the_404_says(
    box: Sandbox, answer: dict[str, Any]
) -> None:
    box.server.faults.add("delete", "status", status=404, **answer)
    box.backend.destroy(box.name)
    assert box.server.count("delete") == 1


@pytest.mark.parametrize("operation", ["exec", "result", "token"])
def test_provider_fault_25_no_retry_after_holds_a_command_beyond_its_time(
    box: Sandbox, operation: str
) -> None:
    if operation == "token":
        box.server.act(box.name, "revoke")
    box.server.faults.add(operation, "status", status=429, headers={"Retry-After": "60"}, times=None)
    begun = time.monotonic()
    with pytest.raises(SandboxTerminalError, match="HTTP 429"):
        box.run("true", timeout=2)
    # It would be a minute and more, however slow the machine.
    assert time.monotonic() - begun < 50


def test_provider_fault_25_a_retry_after_within_the_time_is_heeded(box: Sandbox) -> None:
    box.server.faults.add("result", "status", status=503, headers={"Retry-After": "2"})
    assert box.run("echo ran", timeout=60).stdout == "ran\n"
    first, second, *_ = (request["at"] for request in box.server.requests("result"))
    assert second - first >= 1.9


@pytest.mark.parity("A Run#24")
@pytest.mark.parametrize("fault", [{"kind": "status", "status": 502}, {"kind": "close"}])
def test_provider_fault_26_a_command_nobody_can_ask_after_is_not_left_running(
    box: Sandbox, fault: dict[str, Any]
) -> None:
    box.server.faults.add("result", times=None, **fault)
    with pytest.raises(SandboxTerminalError, match="poll a sandbox command") as caught:
        box.run("sleep 60", timeout=1)
    assert box.server.count("delete") == 1
    assert not box.stands()
    assert "was deleted" in caught.value.__notes__[0]


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_provider_fault_27_any_2xx_is_a_write(box: Sandbox, status: int) -> None:
    box.server.faults.add("upload", "status", status=status, body="", after=True)
    box.backend.write_file(box.name, "/srv/f", b"content")
    assert box.backend.read_file(box.name, "/srv/f", max_bytes=7) == b"content"
    assert box.server.count("upload") == 1


@pytest.mark.parametrize("operation", ["exec", "result", "download", "upload", "delete"])
def test_provider_fault_28_a_token_that_ended_early_is_replaced(box: Sandbox, operation: str) -> None:
    box.server.faults.add(operation, "act", act="revoke")
    result = box.run("echo ran")
    box.backend.write_file(box.name, "/srv/f", b"content")
    content = box.backend.read_file(box.name, "/srv/f", max_bytes=7)
    box.backend.destroy(box.name)
    assert (result.stdout, content) == ("ran\n", b"content")
    assert box.server.count("token") == 1
    assert not box.stands()


def test_provider_fault_28_a_token_is_not_used_to_its_very_end(
    islo: IsloServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = IsloSandboxBackend()
    first = backend.create()
    (session,) = _islo_token._sessions.values()
    assert 500 < session._until - time.monotonic() < 540.5  # 600 s less 60
    session._until = time.monotonic()
    backend.destroy(first)
    assert islo.count("token") == 2


@pytest.mark.parametrize(
    "name",
    [
        "a?b",
        "a#b",
        "a/b",
        "a/../b",
        "a%2Fb",
        "a%b",
        "a b",
        "é",
        "a\nb",
        "a\0b",
        "..a",
        "a;b&c",
        "\\",
        "{}",
        "a\r\nX: y",
    ],
)
def test_provider_fault_29_a_name_is_one_segment_of_the_path(box: Sandbox, name: str) -> None:
    calls = [
        lambda: box.backend.run_command(name, "true", timeout=5, max_output_bytes=1),
        lambda: box.backend.read_file(name, "/srv/f", max_bytes=1),
        lambda: box.backend.write_file(name, "/f", b""),
    ]
    for call in calls:
        with pytest.raises(SandboxTerminalError, match="HTTP 404"):
            call()
    box.backend.destroy(name)
    asked = box.server.requests("exec", "download", "get", "upload", "delete")
    assert {request["sandbox"] for request in asked} == {name}
    assert len(asked) == box.server.count()
    assert box.stands()


@pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
def test_provider_fault_29_what_is_no_segment_is_refused(box: Sandbox, name: str) -> None:
    for call in (
        lambda: box.backend.run_command(name, "true", timeout=5, max_output_bytes=1),
        lambda: box.backend.read_file(name, "/srv/f", max_bytes=1),
        lambda: box.backend.destroy(name),
    ):
        with pytest.raises(SandboxTerminalError, match="not the name of an Islo sandbox"):
            call()
    assert not box.server.requests()


@pytest.mark.parametrize("exec_id", ["a/../../x", "a?b", "%2e%2e", "é#"])
def test_provider_fault_29_the_id_of_a_command_is_one_segment_too(box: Sandbox, exec_id: str) -> None:
    box.server.faults.add("exec", "json", set={"exec_id": exec_id})
    with pytest.raises(SandboxTerminalError, match="HTTP 404"):
        box.run("true")
    (request,) = box.server.requests("result")
    assert request["sandbox"] == box.name


@pytest.mark.parametrize("size", [34, 99, 100, 101])
def test_provider_fault_30_bytes_that_are_no_text_do_not_make_a_stream_look_cut(
    box: Sandbox, size: int
) -> None:
    result = box.run(
        f"head -c {size} /dev/zero | tr '\\0' '\\377'; head -c {size} /dev/zero | tr '\\0' '\\351' >&2",
        max_output_bytes=100,
    )
    assert result.stdout_truncated == result.stderr_truncated == (size > 100)
    if size <= 100:
        assert result.stdout == result.stderr == "\ufffd" * size
    else:
        assert len(result.stdout.encode()) <= 100
