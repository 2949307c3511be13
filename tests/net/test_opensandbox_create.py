# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox: a sandbox is created as asked or not at all, found again, and destroyed."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from opensandbox_box import OpenBox, body_of
from sandbox_native import calls
from sandbox_native.backends import _opensandbox_lifecycle as lifecycle
from sandbox_native.backends import _opensandbox_policy as policy
from sandbox_native.backends import _opensandbox_service
from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sandbox_native.contract import SandboxSpec, SandboxTerminalError
from servers.opensandbox.handle import OpenSandboxServer

POLICY_ERROR = "did not enforce the requested network policy"


@pytest.fixture
def server(opensandbox_server: OpenSandboxServer, hasty: None) -> OpenSandboxServer:
    return opensandbox_server


@pytest.mark.parity("B Create#2", "B Create#3")
def test_everything_asked_for_reaches_the_server(server: OpenSandboxServer) -> None:
    backend = OpenSandboxBackend(
        None, image="img:1", cpu="2", memory="1Gi", sandbox_timeout=300, ready_timeout=45
    )
    spec = SandboxSpec(env={"A": "b"}, allow_egress_to=["packages.example", "*.cdn.example"])
    box = backend.create(spec=spec)
    (request,) = server.requests("create")
    body = body_of(request)
    name = body["metadata"].pop("name")
    assert re.fullmatch("airflow-sandbox-[0-9a-f]{12}", name)
    assert body == {
        "image": {"uri": "img:1"},
        "timeout": 300,
        "resourceLimits": {"cpu": "2", "memory": "1Gi"},
        "env": {"A": "b"},
        "metadata": {"created-by": "airflow"},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "secureAccess": False,
        "networkPolicy": {
            "defaultAction": "deny",
            "egress": [
                {"action": "allow", "target": "packages.example"},
                {"action": "allow", "target": "*.cdn.example"},
            ],
        },
    }
    assert [found["id"] for found in server.sandboxes()] == [box]
    assert backend.run_command(box, "echo $A", timeout=60, max_output_bytes=10).stdout == "b\n"


@pytest.mark.parity("B Create#4", "B Create#5", "B Create#12")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (SandboxSpec(), {"defaultAction": "deny"}),
        (SandboxSpec(allow_egress_to=[]), {"defaultAction": "deny"}),
        (SandboxSpec(block_network=False), None),
        (None, None),
    ],
)
def test_the_policy_of_a_spec(server: OpenSandboxServer, spec: SandboxSpec | None, expected: Any) -> None:
    OpenSandboxBackend(None).create(spec=spec)
    assert body_of(server.requests("create")[0]).get("networkPolicy") == expected
    assert len(server.requests("policy")) == (expected is not None)


@pytest.mark.parity("B Create#6", "B Create#7")
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SandboxSpec(block_network=False, allow_egress_to=["a.example"]), "block_network=True"),
        (
            SandboxSpec(allow_egress_to_cidrs=["10.0.0.0/8"]),
            "allow_egress_to_cidrs, which this backend does not support yet",
        ),
        (SandboxSpec(env={"A=B": "c"}), "A=B"),
        (SandboxSpec(owner=""), "owner"),
    ],
)
def test_what_cannot_be_enforced_is_refused_before_anything(
    server: OpenSandboxServer, spec: SandboxSpec, words: str
) -> None:
    with pytest.raises(SandboxTerminalError, match=words):
        OpenSandboxBackend(None).create(spec=spec)
    assert server.requests() == []


@pytest.mark.parametrize(
    "host",
    [
        "https://a.example",
        "a.example:443",
        "a.example.",
        "a.example/path",
        "10.0.0.0/8",
        ".example",
        "a..example",
        "",
        " a.example",
        "münchen.example",
        "a" * 64 + ".example",
        "*",
        "a.*.example",
    ],
)
def test_provider_fault_22_hosts_that_match_nothing_are_refused(server: OpenSandboxServer, host: str) -> None:
    with pytest.raises(SandboxTerminalError, match="allow_egress_to has") as caught:
        OpenSandboxBackend(None).create(spec=SandboxSpec(allow_egress_to=["good.example", host]))
    assert repr(host) in str(caught.value)
    assert server.requests() == []


def test_one_text_is_no_list_of_hosts(server: OpenSandboxServer) -> None:
    with pytest.raises(SandboxTerminalError, match="must be a list"):
        OpenSandboxBackend(None).create(spec=SandboxSpec(allow_egress_to="a.example"))  # type: ignore[arg-type]


@pytest.mark.parity("B Create#8")
@pytest.mark.parametrize("proxied", [True, False])
def test_the_policy_is_read_back_before_the_handle_is_given(server: OpenSandboxServer, proxied: bool) -> None:
    OpenSandboxBackend(None, use_server_proxy=proxied).create(spec=SandboxSpec(allow_egress_to=["a.example"]))
    operations = [request["operation"] for request in server.requests()]
    assert operations.count("policy") == 1
    assert operations[-2:] == ["endpoint", "policy"]
    asked = server.requests("endpoint")[-1]["target"]
    assert asked.endswith(f"/endpoints/18080?use_server_proxy={'true' if proxied else 'false'}")
    headers = {name.lower(): value for name, value in server.requests("policy")[0]["headers"].items()}
    assert headers["opensandbox-egress-auth"]
    # A sandbox's own address is not given the key.
    assert headers.get("open-sandbox-api-key") == (server.api_key if proxied else None)
    assert len(server.sandboxes()) == 1


@pytest.mark.parity("B Create#9")
@pytest.mark.parametrize("status", [None, 502, 503])
def test_one_failure_of_the_read_back_is_ridden_out_and_no_proxy_used(
    server: OpenSandboxServer, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    if status is not None:
        server.faults.add("policy", "status", status=status)
    backend = OpenSandboxBackend(None)
    box = backend.create(spec=SandboxSpec())
    assert len(server.requests("policy")) == (1 if status is None else 2)
    assert backend.run_command(box, "echo on", timeout=60, max_output_bytes=10).stdout == "on\n"


@pytest.mark.parity("B Create#10", "B Create#11")
@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (
            "mode",
            "dns",
            [r"enforces it in 'dns' mode", r'\[egress\] mode = "dns\+nft"', "block_network=False"],
        ),
        ("mode", "", ["does not report an enforcement mode", "Upgrade", r"v1\.0\.1 or later"]),
        ("close", {"times": None}, ["could not be read back"]),
        ("status", {"status": 500}, [r"could not be read back \(SandboxApiException, HTTP 500\)"]),
        ("status", {"status": 404}, [r"could not be read back \(SandboxApiException, HTTP 404\)"]),
        ("body", {"text": "<html>"}, ["could not be read back"]),
        ("body", {"text": "[]"}, ["could not be read back"]),
        ("json", {"set": {"policy.defaultAction": "allow"}}, ["default 'allow'"]),
        ("json", {"set": {"policy.egress": [{"action": "allow", "target": "b.example"}]}}, ["b.example"]),
        ("json", {"set": {"policy.egress": []}}, [r"with allow \[\]"]),
        (
            "json",
            {
                "set": {
                    "policy.egress": [
                        {"action": "allow", "target": "a.example"},
                        {"action": "allow", "target": "*"},
                    ]
                }
            },
            ["allow"],
        ),
        ("json", {"set": {"policy.egress": [{"target": "a.example"}]}}, ["malformed"]),
    ],
)
def test_a_policy_that_is_not_enforced_ends_the_sandbox(
    server: OpenSandboxServer, kind: str, options: Any, words: list[str]
) -> None:
    if kind == "mode":
        server.set(egress_mode=options)
    else:
        server.faults.add("policy", kind, **options)
    with pytest.raises(SandboxTerminalError, match=POLICY_ERROR) as caught:
        OpenSandboxBackend(None).create(spec=SandboxSpec(allow_egress_to=["a.example"]))
    for each in words:
        assert re.search(each, str(caught.value)), str(caught.value)
    assert server.sandboxes() == []
    assert len(server.requests("delete")) == 1


@pytest.mark.parity("B Create#10")
def test_a_sidecar_out_of_reach_ends_the_sandbox(
    server: OpenSandboxServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lifecycle.endpoint

    def nowhere(service: Any, sandbox: str, port: int, *rest: Any, **options: Any) -> Any:
        url, headers = real(service, sandbox, port, *rest, **options)
        return ("http://127.0.0.1:9" if port == policy.EGRESS_PORT else url), headers

    monkeypatch.setattr(lifecycle, "endpoint", nowhere)
    with pytest.raises(SandboxTerminalError, match=r"could not be read back \(ConnectError\)"):
        OpenSandboxBackend(None).create(spec=SandboxSpec())
    assert server.sandboxes() == []


def test_no_sidecar_at_all_ends_the_sandbox(server: OpenSandboxServer) -> None:
    server.set(egress_mode="none")
    with pytest.raises(SandboxTerminalError, match=POLICY_ERROR):
        OpenSandboxBackend(None).create(spec=SandboxSpec())
    assert server.sandboxes() == []


@pytest.mark.parity("B Create#11")
def test_a_sandbox_that_cannot_be_removed_is_named(server: OpenSandboxServer) -> None:
    server.set(egress_mode="dns")
    server.faults.add("delete", "status", status=500, times=None)
    with pytest.raises(SandboxTerminalError, match=POLICY_ERROR) as caught:
        OpenSandboxBackend(None).create(spec=SandboxSpec())
    (left,) = server.sandboxes()
    assert left["id"] in "".join(caught.value.__notes__)


@pytest.mark.parity("B Create#13")
@pytest.mark.parametrize("status", [400, 401, 409, 422, 429, 500, 503])
def test_a_create_that_is_refused(server: OpenSandboxServer, status: int) -> None:
    server.faults.add(
        "create", "status", status=status, body="<html>no</html>", media="text/html", times=None
    )
    with pytest.raises(SandboxTerminalError, match=rf"could not create a sandbox \(HTTP {status}\)"):
        OpenSandboxBackend(None).create()
    # It may have been made all the same, so it is never asked for twice.
    assert len(server.requests("create")) == 1


def test_the_servers_validation_is_told(server: OpenSandboxServer) -> None:
    with pytest.raises(SandboxTerminalError, match=r"HTTP 422\): .*60"):
        OpenSandboxBackend(None, sandbox_timeout=5).create()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("close", {"after": True}),
        ("close", {"after": True, "reset": True}),
        ("status", {"after": True, "status": 502}),
        ("status", {"after": True, "status": 500}),
        ("body", {"text": "<html>"}),
        ("body", {"text": "{}"}),
        ("cut", {"after_bytes": 5}),
    ],
)
def test_a_sandbox_whose_create_was_not_answered_is_removed_by_its_name(
    server: OpenSandboxServer, kind: str, options: dict[str, Any]
) -> None:
    bystander = OpenSandboxBackend(None).create()
    server.forget_requests()
    server.faults.add("create", kind, **options)
    with pytest.raises(SandboxTerminalError, match="create a sandbox"):
        OpenSandboxBackend(None).create()
    assert len(server.requests("create")) == 1
    assert [found["id"] for found in server.sandboxes()] == [bystander]


def test_a_server_that_knows_no_filter_loses_no_other_sandbox(server: OpenSandboxServer) -> None:
    bystander = OpenSandboxBackend(None).create()
    items = [{"id": bystander, "metadata": {"name": "other"}}]
    server.faults.add("list", "json", set={"items": items}, times=None)
    server.faults.add("create", "status", status=500)
    with pytest.raises(SandboxTerminalError, match="HTTP 500"):
        OpenSandboxBackend(None).create()
    assert [found["id"] for found in server.sandboxes()] == [bystander]


def test_what_could_not_be_looked_for_is_a_note(server: OpenSandboxServer) -> None:
    server.faults.add("create", "close", after=True)
    server.faults.add("list", "status", status=500, times=None)
    with pytest.raises(SandboxTerminalError, match="create a sandbox") as caught:
        OpenSandboxBackend(None).create()
    name = server.sandboxes()[0]["metadata"]["name"]
    assert name in "".join(caught.value.__notes__)


def test_nothing_to_connect_to(monkeypatch: pytest.MonkeyPatch, hasty: None) -> None:
    monkeypatch.setenv("OPEN_SANDBOX_DOMAIN", "127.0.0.1:9")
    monkeypatch.setenv("OPEN_SANDBOX_API_KEY", "key")
    with pytest.raises(SandboxTerminalError, match="create a sandbox"):
        OpenSandboxBackend(None).create()


@pytest.mark.parametrize("after", [False, True])
def test_a_cancelled_create_leaves_no_sandbox(server: OpenSandboxServer, after: bool) -> None:
    """Cancelled while the server makes it, or while it comes up."""
    if after:
        server.faults.add("ping", "status", status=503, times=None)
    else:
        server.faults.add("create", "hang", seconds=1, after=True)
    call = calls.prepare(OpenSandboxBackend(None).create)
    call.start()
    waiting = threading.Event()
    for _ in range(600):
        if server.requests("ping" if after else "create"):
            break
        waiting.wait(0.05)
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()
    assert server.sandboxes() == []


@pytest.mark.parametrize("operation", ["ping", "endpoint"])
def test_a_sandbox_that_is_not_up_at_once_is_waited_for(server: OpenSandboxServer, operation: str) -> None:
    server.faults.add(operation, "status", status=503, times=3)
    backend = OpenSandboxBackend(None)
    box = backend.create()
    assert backend.run_command(box, "echo up", timeout=60, max_output_bytes=10).stdout == "up\n"


@pytest.mark.parametrize("status", [401, 403])
def test_a_wait_ends_at_once_when_it_is_refused(server: OpenSandboxServer, status: int) -> None:
    server.faults.add("ping", "status", status=status, times=None)
    with pytest.raises(SandboxTerminalError, match=f"HTTP {status}"):
        OpenSandboxBackend(None).create()
    assert len(server.requests("ping")) == 1
    assert server.sandboxes() == []


def test_a_sandbox_that_never_comes_up_is_destroyed(server: OpenSandboxServer) -> None:
    server.faults.add("ping", "status", status=503, times=None)
    with pytest.raises(SandboxTerminalError, match=r"did not serve within 1 s \(HTTP 503\)"):
        OpenSandboxBackend(None, ready_timeout=1).create()
    assert server.sandboxes() == []


def test_a_sandbox_that_failed_is_not_waited_for(server: OpenSandboxServer) -> None:
    server.faults.add("ping", "status", status=503, times=None)
    server.faults.add("get", "json", set={"status.state": "Failed"}, times=None)
    with pytest.raises(SandboxTerminalError, match="the sandbox is Failed"):
        OpenSandboxBackend(None, ready_timeout=100).create()


# ---- handles and destroy -------------------------------------------------------------------------------


@pytest.mark.parity("B Get#1")
@pytest.mark.parametrize("proxied", [True, False])
def test_a_handle_of_another_process_is_connected_to_once(opened: OpenBox, proxied: bool) -> None:
    other = OpenSandboxBackend(None, use_server_proxy=proxied)
    for _ in range(2):
        assert other.run_command(opened.id, "echo hi", timeout=60, max_output_bytes=10).stdout == "hi\n"
    operations = [request["operation"] for request in opened.sent()]
    assert operations == ["get", "endpoint", "ping", "command", "command"]


@pytest.mark.parity("B Get#2")
def test_a_handle_that_cannot_be_connected_to(opened: OpenBox) -> None:
    opened.server.faults.add("get", "status", status=503, times=None)
    with pytest.raises(SandboxTerminalError, match="HTTP 503"):
        OpenSandboxBackend(None).read_file(opened.id, "/x", max_bytes=1)


@pytest.mark.parametrize("handle", ["", ".", "..", "nobody", "a/../b", "x y?z#", "\udcff"])
def test_a_handle_that_names_nothing(opened: OpenBox, handle: str) -> None:
    with pytest.raises(SandboxTerminalError):
        opened.backend.run_command(handle, "true", timeout=60, max_output_bytes=10)
    assert len(opened.server.sandboxes()) == 1


@pytest.mark.parity("B Destroy#1", "B Destroy#3")
def test_destroying_twice(opened: OpenBox) -> None:
    opened.backend.destroy(opened.id)
    assert opened.server.sandboxes() == []
    opened.backend.destroy(opened.id)
    assert [request["operation"] for request in opened.sent()] == ["delete", "delete"]


@pytest.mark.parity("B Destroy#2")
def test_destroying_what_another_process_made(opened: OpenBox) -> None:
    opened.server.act(opened.id, "kill-execd")
    OpenSandboxBackend(None).destroy(opened.id)
    assert [request["operation"] for request in opened.sent()] == ["delete"]


@pytest.mark.parity("B Destroy#4")
def test_a_destroy_that_fails(opened: OpenBox) -> None:
    opened.server.faults.add("delete", "status", status=503, times=None)
    with pytest.raises(SandboxTerminalError, match="HTTP 503"):
        opened.backend.destroy(opened.id)
    opened.server.faults.clear()
    opened.backend.destroy(opened.id)


@pytest.mark.parametrize("status", [409, 500])
def test_provider_fault_19_a_destroy_beside_another_removal_succeeds(opened: OpenBox, status: int) -> None:
    conflict = {
        "code": "DOCKER::SANDBOX_DELETE_FAILED",
        "message": "409 Client Error: Conflict (removal of container x is already in progress)",
    }
    opened.server.faults.add("delete", "status", status=status, body=conflict, after=True)
    opened.backend.destroy(opened.id)
    assert opened.server.sandboxes() == []


def test_a_conflict_over_a_sandbox_that_stays_is_an_error(
    opened: OpenBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_REMOVAL_SECONDS", 0.5)
    opened.server.faults.add("delete", "status", status=409, times=None)
    with pytest.raises(SandboxTerminalError, match="HTTP 409"):
        opened.backend.destroy(opened.id)


def test_a_destroy_is_not_cancelled(opened: OpenBox) -> None:
    opened.server.faults.add("delete", "hang", seconds=0.5)
    call = calls.prepare(opened.backend.destroy, opened.id)
    call.start()
    call.cancel()
    try:
        call.wait()
    except calls.CallCancelled:
        return  # before it began
    assert opened.server.sandboxes() == []


# ---- asking again ----------------------------------------------------------------------------------------


def test_a_retry_after_within_the_time_is_heeded(opened: OpenBox) -> None:
    opened.server.faults.add("get", "status", status=503, headers={"Retry-After": "2"})
    assert opened.backend.read_tags(opened.id) == {}
    first, second = (request["at"] for request in opened.sent("get"))
    assert second - first >= 1.9


@pytest.mark.parametrize("operation", ["get", "delete", "info"])
def test_no_retry_after_holds_a_call_beyond_its_time(opened: OpenBox, operation: str) -> None:
    opened.out("true")
    opened.server.faults.add(operation, "status", status=429, headers={"Retry-After": "600"}, times=None)
    call = {
        "get": lambda: opened.backend.read_tags(opened.id),
        "delete": lambda: opened.backend.destroy(opened.id),
        "info": lambda: opened.backend.read_file(opened.id, "/f", max_bytes=1),
    }[operation]
    with pytest.raises(SandboxTerminalError, match="HTTP 429"):
        call()
    assert len(opened.sent(operation)) == 1


@pytest.mark.parametrize("operation", ["endpoint", "ping"])
def test_a_wait_until_ready_ends_in_its_time_whatever_hangs(
    server: OpenSandboxServer, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    real = _opensandbox_service.Service.ask

    def ask(self: Any, operation: str, method: str, url: str, *, timeout: Any = None, **options: Any) -> Any:
        if "/endpoints/" in url or url.endswith("/ping"):
            asked.append(timeout)
        return real(self, operation, method, url, timeout=timeout, **options)

    monkeypatch.setattr(_opensandbox_service.Service, "ask", ask)
    server.faults.add(operation, "hang", seconds=600, times=None)
    with pytest.raises(SandboxTerminalError, match="did not serve within 2 s"):
        OpenSandboxBackend(None, ready_timeout=2.0).create()
    assert server.sandboxes() == []
    assert asked and all(timeout is not None and timeout <= 2.0 for timeout in asked)
