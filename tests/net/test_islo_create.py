# SPDX-License-Identifier: Apache-2.0
"""Islo: credentials, how a sandbox is made and deleted."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from sandbox_native.backends.islo import IsloSandboxBackend
from sandbox_native.contract import SandboxSpec, SandboxTerminalError
from servers.islo.fixtures import Sandbox
from servers.islo.handle import IsloServer

ERROR = {"code": "INTERNAL_ERROR", "message": "no room"}


def asked(server: IsloServer) -> dict[str, Any]:
    (request,) = server.requests("create")
    body: dict[str, Any] = json.loads(request["body"])
    return body


# ---- credentials ---------------------------------------------------------------------------------


@pytest.mark.parity("A Cred#1")
def test_everything_is_taken_from_the_environment(islo: IsloServer) -> None:
    IsloSandboxBackend().create()
    (token,) = islo.requests("token")
    assert json.loads(token["body"]) == {"access_key": "test-key"}
    assert "authorization" not in token["headers"]
    (create,) = islo.requests("create")
    assert re.fullmatch(r"Bearer token-\d+-of-test-key", create["headers"]["authorization"])


@pytest.mark.parity("A Cred#2")
def test_the_environment_is_read_once(islo: IsloServer, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = IsloSandboxBackend()
    first = backend.create()
    monkeypatch.setenv("ISLO_API_KEY", "another")
    monkeypatch.setenv("ISLO_COMPUTE_URL", "http://127.0.0.1:1")
    assert backend.create() != first
    assert islo.count("token") == 1


@pytest.mark.parity("A Cred#3")
@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_nothing_is_sent(
    islo: IsloServer, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    if key is None:
        monkeypatch.delenv("ISLO_API_KEY")
    else:
        monkeypatch.setenv("ISLO_API_KEY", key)
    backend = IsloSandboxBackend()
    for call in (
        backend.create,
        lambda: backend.run_command("x", "true", timeout=1, max_output_bytes=1),
        lambda: backend.read_file("x", "/x", max_bytes=1),
        lambda: backend.destroy("x"),
    ):
        with pytest.raises(SandboxTerminalError, match="ISLO_API_KEY"):
            call()
    assert not islo.requests()
    monkeypatch.setenv("ISLO_API_KEY", "test-key")
    backend.create()  # the lack of it is not kept


@pytest.mark.parity("A Cred#4")
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_said(islo: IsloServer, status: int) -> None:
    islo.faults.add("token", "status", status=status, body={"detail": "no"}, times=None)
    with pytest.raises(
        SandboxTerminalError, match=rf"Islo rejected ISLO_API_KEY \(HTTP {status}\)"
    ) as caught:
        IsloSandboxBackend().create()
    assert "test-key" not in str(caught.value)
    assert islo.count() == islo.count("token") == 1


@pytest.mark.parametrize(
    "url", ["api.islo.dev", "ftp://x", "https://", "https://me:pw-1@x", "https://x/?pw-1", "https://x\n"]
)
@pytest.mark.parametrize("variable", ["ISLO_BASE_URL", "ISLO_COMPUTE_URL"])
def test_an_address_that_is_none_is_named_and_not_shown(
    islo: IsloServer, monkeypatch: pytest.MonkeyPatch, variable: str, url: str
) -> None:
    monkeypatch.setenv(variable, url)
    with pytest.raises(SandboxTerminalError, match=variable) as caught:
        IsloSandboxBackend().create()
    assert "pw-1" not in str(caught.value)
    assert not islo.requests()


def test_a_path_and_a_final_slash_of_the_addresses_are_kept_apart(
    islo: IsloServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISLO_BASE_URL", f"{islo.control}/")
    monkeypatch.setenv("ISLO_COMPUTE_URL", f"{islo.compute}/under/")
    with pytest.raises(SandboxTerminalError, match="HTTP 404"):
        IsloSandboxBackend().create()
    assert [request["target"] for request in islo.requests("token")] == ["/auth/token"]
    assert islo.requests()[1]["target"] == "/under/sandboxes"


@pytest.mark.parity("A ctor")
@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("image", ""),
        *(
            (name, value)
            for name in ("vcpus", "memory_mb", "delete_after", "pause_after_idle")
            for value in (0, -1)
        ),
        ("vcpus", True),
        ("memory_mb", math.nan),
        ("delete_after", math.inf),
        ("pause_after_idle", "600"),
        ("auto_resume", "sometimes"),
        ("auto_resume", None),
    ],
)
def test_the_constructor_names_what_is_wrong(parameter: str, value: Any) -> None:
    with pytest.raises(ValueError, match=parameter):
        IsloSandboxBackend(**{parameter: value})


# ---- create ----------------------------------------------------------------------------------------


@pytest.mark.parity("A Create#1")
@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (SandboxSpec(owner="dag/run"), "owner"),
        (SandboxSpec(allow_egress_to=["pypi.org"]), "per-domain egress allowlist"),
        (SandboxSpec(allow_egress_to_cidrs=["10.0.0.0/8"]), "allow_egress_to_cidrs"),
        (SandboxSpec(env={"PATH": "/x"}), "PATH"),
        (SandboxSpec(env={"A": 1}), "text to text"),  # type: ignore[dict-item]
        (SandboxSpec(env={"A=B": "x"}), "A=B"),
        (SandboxSpec(env={"A": "x\0"}), "'A'"),
        (SandboxSpec(env={"A": "\ud800"}), "not valid text"),
    ],
)
def test_a_spec_that_cannot_be_carried_out_is_refused_first(
    islo: IsloServer, spec: SandboxSpec, text: str
) -> None:
    with pytest.raises(SandboxTerminalError, match=re.escape(text)):
        IsloSandboxBackend().create(spec=spec)
    assert not islo.requests()


@pytest.mark.parity("A Create#2")
@pytest.mark.parametrize(
    ("spec", "internet"),
    [
        (None, False),
        (SandboxSpec(), False),
        (SandboxSpec(block_network=True), False),
        (SandboxSpec(block_network=False), True),
    ],
)
def test_the_network_is_always_decided(islo: IsloServer, spec: SandboxSpec | None, internet: bool) -> None:
    IsloSandboxBackend().create(spec=spec)
    assert asked(islo)["internet_enabled"] is internet


@pytest.mark.parity("A Create#3")
def test_what_was_given_is_asked_for_and_the_answered_name_counts(islo: IsloServer) -> None:
    islo.faults.add("create", "json", set={"name": "box-1"})
    backend = IsloSandboxBackend(
        image="debian:12", vcpus=4, memory_mb=512, pause_after_idle=5, auto_resume="never", delete_after=90
    )
    assert backend.create(spec=SandboxSpec(env={"A": "é\n"})) == "box-1"
    body = asked(islo)
    assert re.fullmatch(r"airflow-sandbox-[0-9a-f]{12}", body.pop("name"))
    assert body == {
        "image": "debian:12",
        "vcpus": 4,
        "memory_mb": 512,
        "env": {"A": "é\n"},
        "internet_enabled": False,
        "lifecycle": {"pause_after_idle": 5, "auto_resume": "never", "delete_after": 90},
    } or body["env"] == {"A": "é\n".encode().decode("latin-1")}


@pytest.mark.parity("A Create#4", "A Create#6", "A Create#11")
@pytest.mark.parametrize("spec", [None, SandboxSpec(env={})])
def test_the_defaults_on_the_wire(islo: IsloServer, spec: SandboxSpec | None) -> None:
    IsloSandboxBackend().create(spec=spec)
    body = asked(islo)
    assert set(body) == {"name", "internet_enabled", "lifecycle"}
    assert body["lifecycle"] == {"pause_after_idle": 600, "auto_resume": "on_activity", "delete_after": 86400}


@pytest.mark.parity("A Create#5")
def test_what_is_switched_off_is_sent_as_null(islo: IsloServer) -> None:
    IsloSandboxBackend(pause_after_idle=None, delete_after=None).create()
    assert asked(islo)["lifecycle"] == {
        "pause_after_idle": None,
        "auto_resume": "on_activity",
        "delete_after": None,
    }


def test_the_variables_reach_every_command(islo: IsloServer) -> None:
    backend = IsloSandboxBackend()
    name = backend.create(spec=SandboxSpec(env={"GREETING": "é $HOME 'x'\n"}))
    result = backend.run_command(name, 'printf %s "$GREETING"', timeout=60, max_output_bytes=1000)
    assert result.stdout == "é $HOME 'x'\n"


@pytest.mark.parity("A Create#7", "A Create#8")
@pytest.mark.parametrize("made", [False, True])
def test_a_failed_create_is_followed_by_a_delete_of_its_name(islo: IsloServer, made: bool) -> None:
    islo.faults.add("create", "status", status=503, body=ERROR, after=made)
    with pytest.raises(SandboxTerminalError, match="HTTP 503"):
        IsloSandboxBackend().create()
    (delete,) = islo.requests("delete")
    assert delete["sandbox"] == asked(islo)["name"]
    assert not islo.sandboxes()


def test_a_lost_answer_to_create_leaves_no_sandbox(islo: IsloServer) -> None:
    islo.faults.add("create", "close", after=True)
    with pytest.raises(SandboxTerminalError, match="create a sandbox"):
        IsloSandboxBackend().create()
    assert islo.count("create") == islo.count("delete") == 1
    assert not islo.sandboxes()


@pytest.mark.parity("A Create#9")
def test_the_error_of_the_create_comes_out_when_its_clean_up_fails_too(
    islo: IsloServer, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    islo.faults.add("create", "status", status=503, body=ERROR, after=True)
    islo.faults.add("delete", "status", status=500, times=None)
    with pytest.raises(SandboxTerminalError, match="HTTP 503") as caught:
        IsloSandboxBackend(delete_after=3600).create()
    (name,) = islo.sandboxes()
    assert name in caplog.text
    assert "its delete_after policy removes it 3600s after creation" in caught.value.__notes__[0]


@pytest.mark.parity("A Create#10")
@pytest.mark.parametrize(
    ("fields", "options"),
    [
        *(
            ({"status": status}, {})
            for status in ("stopping", "stopped", "deleting", "deleted", "error", "failed")
        ),
        ({"deleted_at": "2026-01-01T00:00:00Z"}, {}),
        ({"status": "paused"}, {"auto_resume": "never"}),
    ],
)
def test_a_sandbox_that_cannot_serve_is_deleted(
    islo: IsloServer, fields: dict[str, str], options: dict[str, Any]
) -> None:
    islo.faults.add("create", "json", set=fields)
    with pytest.raises(SandboxTerminalError, match="cannot serve requests"):
        IsloSandboxBackend(**options).create()
    assert islo.count("delete") == 1
    assert not islo.sandboxes()


@pytest.mark.parametrize("status", ["running", "paused", "starting", "unheard-of"])
def test_any_other_status_passes(islo: IsloServer, status: str) -> None:
    islo.faults.add("create", "json", set={"status": status})
    assert [IsloSandboxBackend().create()] == islo.sandboxes()


@pytest.mark.parametrize(
    "body", ["", "<html>", "[]", "null", '{"status":"running"}', '{"name":".."}', '{"name":7}']
)
def test_an_answer_that_makes_no_sense_leaves_no_sandbox(islo: IsloServer, body: str) -> None:
    islo.faults.add("create", "body", text=body)
    with pytest.raises(SandboxTerminalError, match="create a sandbox"):
        IsloSandboxBackend().create()
    assert not islo.sandboxes()


def test_a_create_is_made_again_only_where_it_was_refused(islo: IsloServer, pauses: list[float]) -> None:
    islo.faults.add("create", "status", status=429, headers={"Retry-After": "7"})
    islo.faults.add("token", "status", status=503)
    name = IsloSandboxBackend().create()
    assert islo.count("create") == 2
    assert islo.sandboxes() == [name]
    assert len(pauses) == 2
    assert pauses[1] == 7


def test_a_retry_after_beyond_the_deadline_is_not_begun(islo: IsloServer, pauses: list[float]) -> None:
    islo.faults.add("create", "status", status=429, headers={"Retry-After": "121"}, times=None)
    with pytest.raises(SandboxTerminalError, match="HTTP 429"):
        IsloSandboxBackend().create()
    assert islo.count("create") == 1
    assert not pauses


# ---- destroy -----------------------------------------------------------------------------------------


@pytest.mark.parity("A Destroy#1")
def test_destroying_twice_and_what_never_was(box: Sandbox) -> None:
    box.backend.destroy(box.name)
    assert not box.stands()
    box.backend.destroy(box.name)
    box.backend.destroy("never-was")


@pytest.mark.parity("A Destroy#2", "A Destroy#3")
def test_a_delete_is_tried_three_times(box: Sandbox, pauses: list[float]) -> None:
    box.server.faults.add("delete", "status", status=503, times=3)
    with pytest.raises(SandboxTerminalError, match=r"delete a sandbox \(HTTP 503\)"):
        box.backend.destroy(box.name)
    assert box.server.count("delete") == 3
    assert 0.4 < pauses[0] < 0.6 < 0.8 < pauses[1] < 1.2
    box.backend.destroy(box.name)
    assert not box.stands()


@pytest.mark.parametrize(
    "fault", [{"kind": "close"}, {"kind": "close", "reset": True}, {"kind": "status", "status": 429}]
)
def test_a_delete_outlives_a_lost_answer(box: Sandbox, pauses: list[float], fault: dict[str, Any]) -> None:
    box.server.faults.add("delete", **fault)
    box.backend.destroy(box.name)
    assert not box.stands()
