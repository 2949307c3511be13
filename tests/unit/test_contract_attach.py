# SPDX-License-Identifier: Apache-2.0
"""The rules of attaching, over a backend that keeps tags in a dictionary."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from sandbox_native.contract import (
    EXPIRES_AT_TAG,
    HOLDER_TAG,
    NETWORK_TAG,
    OWNER_TAG,
    WORKDIR_TAG,
    AttachableSandboxBackend,
    SandboxExecResult,
    SandboxSpec,
    SandboxTerminalError,
    encode_network_policy,
)


class Tagged(AttachableSandboxBackend):
    name = "tagged"

    def __init__(self, **tags: str) -> None:
        self.tags: dict[str, dict[str, str]] = {"sb": tags}
        self.writes = 0

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        raise AssertionError("attaching creates nothing")

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        raise AssertionError("attaching runs nothing")

    def destroy(self, sandbox: str) -> None:
        raise AssertionError("attaching ends nothing")

    def read_tags(self, sandbox: str) -> Mapping[str, str]:
        if sandbox not in self.tags:
            raise SandboxTerminalError(f"there is no sandbox {sandbox!r}")
        return dict(self.tags[sandbox])

    def write_tags(self, sandbox: str, tags: Mapping[str, str]) -> None:
        self.writes += 1
        self.tags[sandbox] = dict(tags)


def attach(backend: Tagged, owner: str = "etl/run", holder: str = "etl/run/agent"):  # type: ignore[no-untyped-def]
    return backend.attach("sb", owner=owner, holder=holder)


@pytest.mark.parametrize("tags", [{}, {OWNER_TAG: ""}])
@pytest.mark.parametrize("owner", ["etl/run", ""])
def test_a_sandbox_without_owner_is_nobodys(tags: dict[str, str], owner: str) -> None:
    backend = Tagged(**tags)
    with pytest.raises(SandboxTerminalError, match="carries no owner"):
        attach(backend, owner=owner)
    assert backend.writes == 0


def test_another_owner_is_refused_with_both_names() -> None:
    backend = Tagged(**{OWNER_TAG: "other/run"})
    with pytest.raises(SandboxTerminalError, match=r"not owned by 'etl/run'.*'other/run'"):
        attach(backend)
    assert HOLDER_TAG not in backend.tags["sb"]


def test_another_holder_is_refused_and_keeps_its_claim() -> None:
    backend = Tagged(**{OWNER_TAG: "etl/run", HOLDER_TAG: "etl/run/first"})
    with pytest.raises(SandboxTerminalError, match="already held by 'etl/run/first'"):
        attach(backend)
    assert backend.tags["sb"][HOLDER_TAG] == "etl/run/first"


def test_the_same_holder_comes_back_without_a_write() -> None:
    backend = Tagged(**{OWNER_TAG: "etl/run", HOLDER_TAG: "etl/run/agent"})
    attach(backend)
    assert backend.tags["sb"][HOLDER_TAG] == "etl/run/agent"
    assert backend.writes == 0


def test_a_claim_adds_one_tag() -> None:
    backend = Tagged(**{OWNER_TAG: "etl/run", "team": "data"})
    attach(backend)
    assert backend.tags["sb"] == {OWNER_TAG: "etl/run", "team": "data", HOLDER_TAG: "etl/run/agent"}


@pytest.mark.parametrize("left", ["someone/faster", None])
def test_a_claim_that_did_not_stay_is_no_claim(left: str | None) -> None:
    class Contested(Tagged):
        def write_tags(self, sandbox: str, tags: Mapping[str, str]) -> None:
            super().write_tags(sandbox, tags)
            self.tags[sandbox].pop(HOLDER_TAG)
            if left:
                self.tags[sandbox][HOLDER_TAG] = left

    with pytest.raises(SandboxTerminalError, match=f"claimed by {left!r} while 'etl/run/agent'"):
        attach(Contested(**{OWNER_TAG: "etl/run"}))


def test_the_lifetime_that_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    backend = Tagged(**{OWNER_TAG: "etl/run", EXPIRES_AT_TAG: "1000600"})
    assert attach(backend).remaining_lifetime == 600.0
    backend.tags["sb"][EXPIRES_AT_TAG] = "999000"
    assert attach(backend).remaining_lifetime == 0.0


@pytest.mark.parametrize("stamp", [None, "", "soon", "nan", "inf", "12:30"])
def test_without_a_usable_expiry_nothing_is_said(stamp: str | None) -> None:
    tags = {OWNER_TAG: "etl/run"} | ({EXPIRES_AT_TAG: stamp} if stamp is not None else {})
    assert attach(Tagged(**tags)).remaining_lifetime is None


def test_what_the_creator_recorded_comes_back() -> None:
    policy = SandboxSpec(allow_egress_to=["pypi.org"], allow_egress_to_cidrs=["203.0.113.7/32"])
    attached = attach(
        Tagged(**{OWNER_TAG: "etl/run", NETWORK_TAG: encode_network_policy(policy), WORKDIR_TAG: "/work"})
    )
    assert attached.network == policy
    assert attached.workdir == "/work"


def test_what_was_not_recorded_is_none() -> None:
    attached = attach(Tagged(**{OWNER_TAG: "etl/run", NETWORK_TAG: "", WORKDIR_TAG: ""}))
    assert (attached.network, attached.workdir, attached.remaining_lifetime) == (None, None, None)


def test_a_foreign_network_stamp_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    attached = attach(Tagged(**{OWNER_TAG: "etl/run", NETWORK_TAG: "open-ish"}))
    assert attached.network is None
    assert "Sandbox sb carries a network stamp this backend cannot read: 'open-ish'" in caplog.messages


def test_release_takes_only_the_own_claim() -> None:
    backend = Tagged(**{OWNER_TAG: "etl/run", HOLDER_TAG: "etl/run/other"})
    backend.release("sb", holder="etl/run/agent")
    assert backend.tags["sb"] == {OWNER_TAG: "etl/run", HOLDER_TAG: "etl/run/other"}
    assert backend.writes == 0


def test_release_twice_is_release_once() -> None:
    backend = Tagged(**{OWNER_TAG: "etl/run", "team": "data"})
    attach(backend)
    backend.release("sb", holder="etl/run/agent")
    backend.release("sb", holder="etl/run/agent")
    assert backend.tags["sb"] == {OWNER_TAG: "etl/run", "team": "data"}


def test_a_sandbox_that_is_gone_is_terminal_for_both() -> None:
    backend = Tagged()
    backend.tags.clear()
    with pytest.raises(SandboxTerminalError):
        attach(backend)
    with pytest.raises(SandboxTerminalError):
        backend.release("sb", holder="etl/run/agent")
