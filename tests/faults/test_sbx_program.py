# SPDX-License-Identifier: Apache-2.0
"""A program ``sbx`` that prompts, hangs, forks, floods, or is gone: an error in time, and nothing left."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_tools import eventually, host_processes
from sandbox_native.backends import sbx as sbx_module
from sandbox_native.contract import SandboxError, SandboxSpec, SandboxTerminalError
from sbx_tools import Sbx

ENDLESS = ("hang", "stubborn", "fork")
FAILING = {
    "prompt": "Continue?",
    "half": '"code": 500',
    "fail": "it does not work",
    "silent": r"\(10\)",
    "killed": r"\(137\)",
    "flood": "something went wrong",
}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def no_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


@pytest.fixture
def sbx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sbx]:
    machine = Sbx(tmp_path, monkeypatch)
    monkeypatch.setenv("SBX_FLOOD", "50000000")
    monkeypatch.setattr(sbx_module, "_HELPER_TIMEOUT", 2.0)
    monkeypatch.setattr(sbx_module, "_STOP_TIMEOUT", 2.0)
    # With the second that the command has and the one to its kill: half a second in all.
    monkeypatch.setattr(sbx_module, "_EXEC_GRACE", -1.5)
    monkeypatch.setattr(sbx_module, "_KILL_AFTER", 1)
    monkeypatch.setattr(sbx_module, "_EXPORT_STALL_TIMEOUT", 0.5)
    machine.backend.destroy(machine.backend.create())  # so that what is made once is there
    before = descriptors()
    yield machine
    assert eventually(lambda: descriptors() <= before)
    assert eventually(no_children)
    assert host_processes(str(tmp_path)) == []


# ---- create --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAILING)
def test_a_create_that_fails_says_why_and_leaves_nothing(sbx: Sbx, kind: str) -> None:
    sbx.fault("create", kind)
    with pytest.raises(SandboxTerminalError, match=FAILING[kind]) as error:
        sbx.backend.create()
    assert "'sbx create' failed" in str(error.value) and len(str(error.value)) < 3000
    assert sbx.standing() == [] and list(sbx.temporary.iterdir()) == []


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_create_that_does_not_end_is_ended(sbx: Sbx, kind: str) -> None:
    sbx.fault("create", kind)
    with pytest.raises(SandboxTerminalError, match=r"'sbx create' failed: it took longer than 0\.5 s"):
        sbx.make(create_timeout=0.5).create()
    assert sbx.standing() == [] and list(sbx.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("verb", "spec"),
    [("policy", SandboxSpec(allow_egress_to=["a.org"])), ("exec", SandboxSpec(env={"A": "1"}))],
)
@pytest.mark.parametrize("kind", ["fail", "hang", "half"])
def test_a_spec_that_could_not_be_applied_leaves_no_sandbox(
    sbx: Sbx, verb: str, spec: SandboxSpec, kind: str
) -> None:
    sbx.fault(verb, kind)
    with pytest.raises(SandboxTerminalError, match=r"could not be (allowed|set)"):
        sbx.backend.create(spec=spec)
    assert len(sbx.calls("create")) == 2 and sbx.standing() == [] and list(sbx.temporary.iterdir()) == []


def test_a_create_that_made_the_sandbox_and_then_failed_removes_it(
    sbx: Sbx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBX_FAIL_LATE", "y")
    with pytest.raises(SandboxTerminalError, match="did not boot"):
        sbx.backend.create()
    assert sbx.standing() == []


def test_the_first_error_is_told_and_what_cleaning_up_met_is_a_note(sbx: Sbx) -> None:
    sbx.fault("create", "fail")
    sbx.fault("rm", "fail")
    sbx.fault("ls", "fail")
    with pytest.raises(SandboxTerminalError, match="'sbx create' failed") as error:
        sbx.backend.create()
    assert "could not be removed" in "".join(error.value.__notes__)


@pytest.mark.parametrize("kind", ["banner", "notice", "child"])
def test_words_and_children_on_the_side_do_no_harm(sbx: Sbx, kind: str) -> None:
    for verb in ("create", "policy", "rm"):
        sbx.fault(verb, kind)
    box = sbx.backend.create(spec=SandboxSpec(allow_egress_to=["a.org"]))
    assert sbx.run(box, "echo x").stdout == "x\n"
    sbx.backend.destroy(box)
    assert sbx.standing() == []
    for pid in host_processes("sleep\x001000"):
        os.kill(pid, 9)


def test_a_program_that_is_not_there(tmp_path: Path, sbx: Sbx) -> None:
    with pytest.raises(SandboxTerminalError, match="was not found on PATH"):
        sbx.make(sbx_path="no-such-sbx").create()
    (tmp_path / "plain").write_text("no program")
    with pytest.raises(SandboxTerminalError, match="was not found on PATH"):
        sbx.make(sbx_path=str(tmp_path / "plain")).create()


def test_a_program_that_vanishes_between_two_calls(sbx: Sbx) -> None:
    box = sbx.backend.create()
    sbx.fault("exec", "vanish")
    assert sbx.run(box, "echo x").stdout == "x\n"
    for call in (
        lambda: sbx.run(box, "echo x"),
        lambda: sbx.backend.write_file(box, "x", b"x"),
        lambda: sbx.backend.read_file(box, "x", max_bytes=1),
        lambda: sbx.backend.export_file(box, "x", io.BytesIO(), max_bytes=1),
        lambda: sbx.backend.destroy(box),
    ):
        with pytest.raises(SandboxTerminalError, match=r"was not found on PATH"):
            call()
    assert list(sbx.temporary.iterdir()) == []


# ---- commands and files --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAILING)
def test_a_call_that_fails_is_told_with_its_status(sbx: Sbx, kind: str) -> None:
    box = sbx.backend.create()
    sbx.fault("exec", kind)
    result = sbx.run(box, "echo x", max_output_bytes=1000)
    assert result.exit_code != 0 and len(result.stderr) <= 1000 and not result.timed_out
    for call in (
        lambda: sbx.backend.write_file(box, "x", b"x"),
        lambda: sbx.backend.read_file(box, "x", max_bytes=10),
        lambda: sbx.backend.export_file(box, "x", io.BytesIO(), max_bytes=10_000),
    ):
        with pytest.raises(SandboxError) as error:
            call()
        assert len(str(error.value)) < 3000
    assert not (sbx.work(box) / "x").exists()


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_call_that_does_not_end_ends_the_sandbox_and_says_so(sbx: Sbx, kind: str) -> None:
    box = sbx.backend.create()
    sbx.fault("exec", kind)
    result = sbx.run(box, "echo x", timeout=0.1)
    assert (result.timed_out, result.sandbox_terminated, result.exit_code) == (True, True, -1)
    assert sbx.standing() == []
    box = sbx.backend.create()
    with pytest.raises(SandboxError, match="stalled"):
        sbx.backend.export_file(box, "x", io.BytesIO(), max_bytes=10)


def test_a_sandbox_that_cannot_be_ended_is_logged(sbx: Sbx, caplog: pytest.LogCaptureFixture) -> None:
    box = sbx.backend.create()
    for verb in ("exec", "rm", "ls"):
        sbx.fault(verb, "hang")
    assert sbx.run(box, "echo x", timeout=0.1).sandbox_terminated
    assert f"{box} did not end" in caplog.text and "manual cleanup" in caplog.text


def test_words_on_standard_output_never_end_up_in_a_file(sbx: Sbx) -> None:
    box = sbx.backend.create()
    (sbx.work(box) / "x").write_bytes(b"content")
    sbx.fault("exec", "banner")
    with pytest.raises(SandboxError, match="its size is given as 7 bytes"):
        sbx.backend.export_file(box, "x", io.BytesIO(), max_bytes=1000)
    # In frames they do no harm.
    assert sbx.backend.read_file(box, "x", max_bytes=1000) == b"content"
    assert sbx.backend.list_directory(box, ".") == [("x", False)]


def test_endless_output_costs_what_is_kept(sbx: Sbx) -> None:
    box = sbx.backend.create()
    result = sbx.run(box, "head -c 100000000 /dev/zero | tr '\\0' x; exit 5", max_output_bytes=1000)
    assert (result.exit_code, result.stdout, result.stdout_truncated) == (5, "x" * 1000, True)


# ---- destroy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fail", "hang", "half", "silent"])
def test_a_removal_that_fails_is_an_error_only_while_the_sandbox_stands(sbx: Sbx, kind: str) -> None:
    box = sbx.backend.create()
    sbx.fault("rm", kind)
    with pytest.raises(SandboxTerminalError, match="could not be removed"):
        sbx.backend.destroy(box)
    assert list(sbx.temporary.iterdir()) == []
    sbx.fault("rm", "")
    sbx.backend.destroy(box)
    sbx.fault("rm", kind)
    sbx.backend.destroy(box)
