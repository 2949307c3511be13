# SPDX-License-Identifier: Apache-2.0
"""Faults of the provider that need a server that misbehaves: shown of it, and shown to be mended in ours.

That the provider does here what it did against a real deployment says that the test server does, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.common.ai.sandbox import islo as provider_islo
from airflow.providers.common.ai.sandbox import opensandbox as provider_opensandbox

from sandbox_native.backends import islo as our_islo
from sandbox_native.backends import opensandbox as our_opensandbox
from sandbox_native.contract import SandboxSpec
from servers.islo.handle import IsloServer
from servers.opensandbox.fixtures import opensandbox_process, opensandbox_server  # noqa: F401 (fixtures)
from servers.opensandbox.handle import OpenSandboxServer
from suite.table import Sink, Subject


@pytest.fixture(params=["provider", "ours"])
def who(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def subject(who: str, opensandbox_server: OpenSandboxServer) -> Subject:  # noqa: F811
    module: Any = provider_opensandbox if who == "provider" else our_opensandbox
    return Subject(module.OpenSandboxBackend(None))


@pytest.fixture
def server(opensandbox_server: OpenSandboxServer) -> OpenSandboxServer:  # noqa: F811
    return opensandbox_server


def pick(who: str, *, provider: Any, ours: Any) -> Any:
    return provider if who == "provider" else ours


def test_provider_fault_11_ends_inside_its_time(who: str, server: OpenSandboxServer) -> None:
    server.set(linger=6)
    module: Any = provider_opensandbox if who == "provider" else our_opensandbox
    subject = Subject(module.OpenSandboxBackend(None))
    result = subject.run("exit 3", timeout=5)
    assert (result.exit_code, result.timed_out) == pick(who, provider=(3, True), ours=(3, False))


def test_provider_fault_16_a_file_that_shrinks(who: str, subject: Subject, server: OpenSandboxServer) -> None:
    subject.made("head -c 30000000 /dev/zero >/tmp/large")
    server.faults.add("download", "cut", after_bytes=1000, act="run:: >/tmp/large")
    outcome = subject.kind(lambda: subject.export("/tmp/large", into=Sink()))
    assert outcome == pick(who, provider="terminal", ours="recoverable")


def test_provider_fault_18_the_sandbox_dies_under_a_command(
    who: str, subject: Subject, server: OpenSandboxServer
) -> None:
    server.faults.add("command", "cut", after_bytes=1, act="kill-execd")
    outcome = subject.kind(lambda: subject.run("sleep 600").sandbox_terminated)
    assert outcome in pick(who, provider=(False,), ours=(True, "terminal"))


def test_provider_fault_19_destroyed_beside_another_removal(
    who: str, subject: Subject, server: OpenSandboxServer
) -> None:
    conflict = {
        "code": "DOCKER::SANDBOX_DELETE_FAILED",
        "message": "409 Conflict: removal is in progress",
    }
    server.faults.add("delete", "status", status=500, body=conflict, act="remove")
    outcome = subject.kind(subject.close)
    assert outcome == pick(who, provider="terminal", ours=None)


@pytest.mark.parametrize("host", ["https://a.example", "a.example:443", "a.example."])
def test_provider_fault_22_hosts_that_match_nothing(who: str, subject: Subject, host: str) -> None:
    outcome = subject.kind(lambda: subject.backend.create(spec=SandboxSpec(allow_egress_to=[host])))
    assert (outcome == "terminal") == pick(who, provider=False, ours=True)


# -- Islo ---------------------------------------------------------------------------------------


@pytest.fixture
def islo_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[IsloServer]:
    with IsloServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def islo_subject(who: str, islo_server: IsloServer) -> Subject:
    module: Any = provider_islo if who == "provider" else our_islo
    return Subject(module.IsloSandboxBackend())


@pytest.mark.parametrize("body", ["", "<html>not here</html>"])
def test_provider_fault_24_gone_without_json(
    who: str, islo_subject: Subject, islo_server: IsloServer, body: str
) -> None:
    islo_server.faults.add("delete", "status", status=404, body=body, media="text/html")
    assert islo_subject.kind(islo_subject.close) == pick(who, provider="terminal", ours=None)


def test_provider_fault_27_an_upload_without_content(
    who: str, islo_subject: Subject, islo_server: IsloServer
) -> None:
    islo_server.faults.add("upload", "status", status=204, after=True)
    outcome = islo_subject.kind(lambda: islo_subject.write("/tmp/file", b"x"))
    assert outcome in pick(who, provider=("terminal", "recoverable"), ours=(None,))


def test_provider_fault_28_a_token_that_is_refused(
    who: str, islo_subject: Subject, islo_server: IsloServer
) -> None:
    islo_server.act(islo_subject.handle, "revoke")
    outcome = islo_subject.kind(lambda: islo_subject.out("echo again"))
    assert outcome == pick(who, provider="terminal", ours="again\n")
