# SPDX-License-Identifier: Apache-2.0
"""The sbx backend with a program that stands in for ``sbx`` and runs the commands for real."""

from __future__ import annotations

import copy
import gzip
import io
import os
import pickle
import re
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from cli_program import cli
from local_tools import eventually, host_processes
from sandbox_native import calls, registry
from sandbox_native.backends import sbx as sbx_module
from sandbox_native.backends._sbx_cli import SbxProgram
from sandbox_native.backends.sbx import SbxSandboxBackend
from sandbox_native.contract import (
    SandboxError,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
)
from sbx_tools import OPEN, Sbx


@pytest.fixture
def sbx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sbx:
    return Sbx(tmp_path, monkeypatch)


@pytest.fixture
def box(sbx: Sbx) -> str:
    return sbx.backend.create()


def export(sbx: Sbx, box: str, path: str, max_bytes: int = 1 << 20) -> bytes:
    dest = io.BytesIO()
    assert sbx.backend.export_file(box, path, dest, max_bytes=max_bytes) == len(dest.getvalue())
    return dest.getvalue()


# ---- life ----------------------------------------------------------------------------------------------


def test_the_registry_knows_it() -> None:
    assert isinstance(registry.backend("sbx", memory="4g"), SbxSandboxBackend)


def test_a_sandbox_is_made_as_asked_and_removed(sbx: Sbx) -> None:
    backend = sbx.make(image="alpine:3", memory="3g", cpus=2)
    box = backend.create(spec=SandboxSpec(allow_egress_to=["pypi.org", "files.pythonhosted.org"]))
    assert box.startswith("airflow-sandbox-")
    (workspace,) = sbx.temporary.iterdir()
    assert workspace.name == f"airflow-sandbox-ws-{box}" and workspace.stat().st_mode & 0o777 == 0o700
    assert sbx.calls("create") == [f"--name {box} --memory 3g --template alpine:3 --cpus 2 shell {workspace}"]
    assert sbx.calls("policy") == [f"allow network --sandbox {box} pypi.org files.pythonhosted.org"]
    backend.destroy(box)
    assert sbx.standing() == [] and list(sbx.temporary.iterdir()) == []
    backend.destroy(box)


def test_variables_are_in_the_profile_and_stay_text(sbx: Sbx) -> None:
    env = {"TOKEN": "s3cret", "X": "a b; rm -rf /", "Q": 'it\'s "$HOME"\nline', "E": "é"}
    box = sbx.backend.create(spec=SandboxSpec(env=env))
    for name, value in env.items():
        assert sbx.run(box, f'printf %s "${name}"').stdout == value
    assert sbx.run(box, "echo $PROFILE").stdout == "read\n"
    assert "s3cret" not in (sbx.state / "calls").read_text()


def test_copies_work_in_the_same_sandbox(sbx: Sbx, box: str) -> None:
    for other in (copy.deepcopy(sbx.backend), pickle.loads(pickle.dumps(sbx.backend))):
        assert other.run_command(box, "echo x", timeout=60, max_output_bytes=10).stdout == "x\n"
    other.destroy(box)
    assert sbx.standing() == [] and list(sbx.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"image": ""}, "image"),
        ({"memory": ""}, "memory"),
        ({"sbx_path": ""}, "sbx_path"),
        ({"cpus": 0}, "cpus"),
        ({"cpus": float("nan")}, "cpus"),
        ({"create_timeout": -1}, "create_timeout"),
        ({"create_timeout": float("inf")}, "create_timeout"),
        ({"host_network_policy": "nope"}, "host_network_policy"),
    ],
)
def test_options_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SbxSandboxBackend(**options)


@pytest.mark.parametrize("policy", ["unknown", "allow-all"])
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (SandboxSpec(), "host policy has not been declared"),
        (SandboxSpec(block_network=False, allow_egress_to=["a.org"]), "narrows a deny-all"),
        (SandboxSpec(block_network=False, allow_egress_to_cidrs=["10.0.0.0/8"]), "allow_egress_to_cidrs"),
        (SandboxSpec(block_network=False, owner="d/r"), "owner"),
    ],
)
def test_what_cannot_be_enforced_is_refused(sbx: Sbx, policy: Any, spec: SandboxSpec, said: str) -> None:
    with pytest.raises(SandboxTerminalError, match=said):
        sbx.make(host_network_policy=policy).create(spec=spec)
    assert sbx.standing() == [] and list(sbx.temporary.iterdir()) == []


@pytest.mark.parametrize("policy", ["unknown", "allow-all", "deny-all"])
def test_no_requirements_are_always_met(sbx: Sbx, policy: Any) -> None:
    backend = sbx.make(host_network_policy=policy)
    backend.destroy(backend.create())
    backend.destroy(backend.create(spec=OPEN))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (SandboxSpec(allow_egress_to=["-g"]), "'-g', which is not a host name"),
        (SandboxSpec(allow_egress_to=["https://a.org"]), "not a host name"),
        (SandboxSpec(allow_egress_to=["a.org b.org"]), "not a host name"),
        (SandboxSpec(allow_egress_to=["a.org\n"]), "not a host name"),
        (SandboxSpec(allow_egress_to=[""]), "not a host name"),
        (SandboxSpec(allow_egress_to_cidrs=["10.0.0.0/8"]), "allow_egress_to_cidrs"),
        (SandboxSpec(owner="d/r"), "owner"),
        (SandboxSpec(env={"A B": "x"}), "not the name of a variable"),
        (SandboxSpec(env={"A;reboot": "x"}), "not the name of a variable"),
        (SandboxSpec(env={"A": "\0"}), "NUL"),
        (SandboxSpec(env={"A": 8080}), "'A'"),  # type: ignore[dict-item]
        (SandboxSpec(env={"A": "\ud800"}), "not valid text"),
    ],
)
def test_a_bad_spec_is_refused_before_anything_is_made(sbx: Sbx, spec: SandboxSpec, said: str) -> None:
    with pytest.raises(SandboxTerminalError, match=said):
        sbx.backend.create(spec=spec)
    assert not (sbx.state / "calls").exists()


@pytest.mark.parametrize("handle", ["", "-f", "--all", "a b", "../x", "a/b", "a\n", None, 7])
def test_a_handle_never_becomes_an_option_or_a_path(sbx: Sbx, handle: Any) -> None:
    for call in (
        lambda: sbx.backend.destroy(handle),
        lambda: sbx.run(handle, "true"),
        lambda: sbx.backend.write_file(handle, "x", b""),
        lambda: export(sbx, handle, "x"),
    ):
        with pytest.raises(SandboxTerminalError, match="not the name of a sandbox"):
            call()
    assert not (sbx.state / "calls").exists()


# ---- commands ------------------------------------------------------------------------------------------


def test_streams_and_status(sbx: Sbx, box: str) -> None:
    result = sbx.run(box, "echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert not (result.timed_out or result.stdout_truncated or result.stderr_truncated)
    assert sbx.run(box, "cat; echo end").stdout == "end\n"
    # Statuses that timeout(1) has a use for are the command's own.
    for status in (124, 137, 143):
        result = sbx.run(box, f"exit {status}")
        assert (result.exit_code, result.timed_out) == (status, False)


def test_provider_fault_2_one_long_line_is_shown_and_never_no_output(sbx: Sbx, box: str) -> None:
    for end in ("", "\n"):
        result = sbx.run(box, f"head -c 100000 /dev/zero | tr '\\0' x; printf '{end}'", max_output_bytes=1000)
        assert result.stdout == ("x" * 1000 + end)[-1000:]
        assert result.stdout_truncated and result.exit_code == 0 and not result.stderr_truncated


def test_what_was_printed_before_a_timeout_is_kept(sbx: Sbx, box: str) -> None:
    number = f"{uuid.uuid4().int % 10**9 + 10**9}"
    result = sbx.run(box, f"echo begun; setsid sleep {number} & sleep {number}", timeout=0.5)
    assert (result.timed_out, result.stdout, result.sandbox_terminated) == (True, "begun\n", False)
    assert result.applied_timeout == 1.0
    # timeout(1) does not reach what has a session of its own.
    assert host_processes(number) == []
    assert sbx.run(box, "echo on").stdout == "on\n"


def test_a_cancel_stops_the_command_in_the_sandbox_too(sbx: Sbx, box: str) -> None:
    number = f"{uuid.uuid4().int % 10**9 + 10**9}"
    call = calls.prepare(sbx.run, box, f"echo > begun; setsid sleep {number} & sleep {number}")
    call.start()
    assert eventually((sbx.work(box) / "begun").exists)
    call.abandon()
    assert call.finished and host_processes(number) == []
    with pytest.raises(calls.CallCancelled):
        call.wait()


def test_a_background_child_does_not_hold_the_call(sbx: Sbx, box: str) -> None:
    number = f"{uuid.uuid4().int % 10**9 + 10**9}"
    assert sbx.run(box, f"sleep {number} & echo here").stdout == "here\n"
    (pid,) = host_processes(number)
    os.kill(pid, 9)


def test_a_command_that_no_command_line_takes(sbx: Sbx, box: str) -> None:
    for command, said in (("x" * 200_000, "too long"), ("a\0b", "NUL"), ("\udc80\ud800", "not valid text")):
        with pytest.raises(SandboxError, match=said) as error:
            sbx.run(box, command)
        assert not isinstance(error.value, SandboxTerminalError)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True])
def test_limits_are_checked(sbx: Sbx, box: str, bad: Any) -> None:
    with pytest.raises(ValueError, match="timeout"):
        sbx.run(box, "true", timeout=bad)
    with pytest.raises(ValueError, match="max_output_bytes"):
        sbx.run(box, "true", max_output_bytes=bad)


def test_a_sandbox_that_is_gone_is_told_from_a_command_that_failed(sbx: Sbx, box: str) -> None:
    # The command says what sbx would say.
    assert sbx.run(box, f"echo sandbox {box} not found >&2; exit 1").exit_code == 1
    sbx.make().destroy(box)
    for call in (
        lambda: sbx.run(box, "true"),
        lambda: sbx.backend.write_file(box, "x", b"x"),
        lambda: sbx.backend.read_file(box, "x", max_bytes=1),
        lambda: export(sbx, box, "x"),
    ):
        with pytest.raises(SandboxTerminalError, match="is gone"):
            call()
    # Where the list cannot be had, nothing is claimed.
    sbx.fault("ls", "fail")
    assert sbx.run(box, "true").exit_code == 1


def test_a_stream_is_written_as_it_comes(sbx: Sbx, box: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        result = sbx.backend.stream_command(
            box, "echo a; echo b >&2; exit 4", timeout=60, stdout=out.fileno(), stderr=err.fileno()
        )
    assert (result.exit_code, result.stdout, result.stderr) == (4, "", "")
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()) == (b"a\n", b"b\n")


def test_the_command_line_tool_runs_in_it(sbx: Sbx, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 200_000)
    args = [
        "--put",
        f"{tmp_path}/in:in",
        "--export",
        f"out={tmp_path}/out",
        "--",
        "cat in in > out; echo done",
    ]
    done = cli("run", "--backend", "sbx", "--network", *args, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr
    assert (tmp_path / "out").read_bytes() == b"x" * 400_000 and sbx.standing() == []
    done = cli("run", "--backend", "sbx", "--", "true", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 125 and b"host policy has not been declared" in done.stderr


# ---- files ---------------------------------------------------------------------------------------------

NAMES = ["with space", "quo'te", "$HOME", "*", "new\nline", "-rf", "-", "é😀", "end "]


@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
def test_provider_fault_36_files_of_any_size_are_written_and_read_back(sbx: Sbx, box: str, size: int) -> None:
    content = os.urandom(size)
    sbx.backend.write_file(box, "deep/down/file.bin", content)
    assert (sbx.work(box) / "deep/down/file.bin").read_bytes() == content
    assert sbx.backend.read_file(box, "deep/down/file.bin", max_bytes=max(size, 1)) == content
    assert sbx.backend.list_directory(box, "deep/down") == [("file.bin", False)]
    assert export(sbx, box, "deep/down/file.bin", max(size, 1)) == content


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_exact(sbx: Sbx, box: str, name: str) -> None:
    (sbx.work(box) / "decoy").write_bytes(b"other")
    sbx.backend.write_file(box, name, b"payload")
    assert (sbx.work(box) / name).read_bytes() == b"payload"
    assert export(sbx, box, name) == b"payload"


def test_a_write_that_fails_leaves_the_target(sbx: Sbx, box: str) -> None:
    (sbx.work(box) / "folder").mkdir()
    (sbx.work(box) / "file").write_bytes(b"old")
    for path, said in (("folder", "directory"), ("file/below", "Could not write"), ("x/", "directory")):
        with pytest.raises(SandboxError, match=said):
            sbx.backend.write_file(box, path, b"new")
    sbx.fault("exec", "fail")
    with pytest.raises(SandboxError, match="it does not work"):
        sbx.backend.write_file(box, "file", b"new")
    assert (sbx.work(box) / "file").read_bytes() == b"old"
    assert sorted(os.listdir(sbx.work(box))) == ["file", "folder"]


@pytest.mark.parametrize("kind", [calls.CallCancelled, KeyboardInterrupt, SystemExit, MemoryError])
def test_a_write_that_is_interrupted_leaves_no_partial_file(
    sbx: Sbx, box: str, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SbxProgram.run
    partial: list[Path] = []

    def interrupted(self: SbxProgram, args: Any, **options: Any) -> Any:
        if not options.get("stdin"):
            return run(self, args, **options)
        token = re.search(r"\b[0-9a-f]{16}\b", args[-1])
        assert token is not None
        partial.append(sbx.work(box) / f".sandbox-native-{token[0]}.partial")
        partial[0].write_bytes(b"half")
        raise kind("injected")

    monkeypatch.setattr(SbxProgram, "run", interrupted)
    with pytest.raises(kind, match="injected"):
        sbx.backend.write_file(box, "file", b"new")
    assert partial and list(sbx.work(box).iterdir()) == []


def test_an_export_goes_to_any_kind_of_destination(sbx: Sbx, box: str, tmp_path: Path) -> None:
    content = os.urandom(3_000_017)
    (sbx.work(box) / "out.bin").write_bytes(content)
    with (tmp_path / "plain").open("wb") as dest:
        dest.write(b"before ")
        assert sbx.backend.export_file(box, "out.bin", dest, max_bytes=len(content)) == len(content)
        dest.write(b" after")
    assert (tmp_path / "plain").read_bytes() == b"before " + content + b" after"
    with gzip.open(tmp_path / "packed", "wb") as dest:
        sbx.backend.export_file(box, "out.bin", dest, max_bytes=len(content))  # type: ignore[arg-type]
    assert gzip.decompress((tmp_path / "packed").read_bytes()) == content
    sbx.fault("exec", "notice")
    assert export(sbx, box, "out.bin", len(content)) == content


@pytest.mark.parametrize("plain", [True, False])
def test_a_file_over_the_budget_is_refused_unread(sbx: Sbx, box: str, tmp_path: Path, plain: bool) -> None:
    sbx.fault("exec", "notice")
    (sbx.work(box) / "out.bin").write_bytes(b"x" * 500)
    with (tmp_path / "o").open("wb") if plain else io.BytesIO() as dest:  # type: ignore[attr-defined]
        with pytest.raises(SandboxFileTooLargeError) as error:
            sbx.backend.export_file(box, "out.bin", dest, max_bytes=100)
        assert (error.value.size_bytes, error.value.max_bytes, dest.tell()) == (500, 100, 0)


def test_only_regular_files_are_exported(sbx: Sbx, box: str) -> None:
    work = sbx.work(box)
    (work / "sub").mkdir()
    (work / "dangling").symlink_to("nowhere")
    (work / "loop").symlink_to("loop")
    os.mkfifo(work / "fifo")
    for path, said in {
        "nope": "does not exist",
        "dangling": "does not exist",
        "loop": "does not exist",
        "sub": "is a directory",
        "fifo": "not a regular file",
        "/dev/zero": "not a regular file",
        "/proc/version": "of the system",
        "": "empty",
    }.items():
        dest = io.BytesIO()
        with pytest.raises(SandboxError, match=said) as error:
            sbx.backend.export_file(box, path, dest, max_bytes=1 << 20)
        assert not isinstance(error.value, SandboxTerminalError)


def test_provider_fault_32_a_file_that_changes_while_it_is_copied_is_an_error(sbx: Sbx, box: str) -> None:
    target = sbx.work(box) / "out.bin"

    def changed(change: Any, max_bytes: int = 1 << 26) -> SandboxError:
        target.write_bytes(b"x" * 10_000_000)
        (sbx.work(box) / "new").write_bytes(b"y" * 10_000_000)

        class Dest(io.BytesIO):
            done = False

            def write(self, data: Any) -> int:
                if not self.done:
                    self.done = True
                    change()
                return super().write(data)

        with pytest.raises(SandboxError) as error:
            sbx.backend.export_file(box, "out.bin", Dest(), max_bytes=max_bytes)
        return error.value

    def grow() -> None:
        with target.open("ab") as file:
            file.write(b"y" * 10)

    assert "changed while it was exported" in str(changed(grow))
    assert "changed while it was exported" in str(changed(lambda: os.truncate(target, 70)))
    # The same size, another file or another content.
    assert "changed while it was exported" in str(changed(lambda: (sbx.work(box) / "new").rename(target)))
    assert "changed while it was exported" in str(changed(lambda: target.write_bytes(b"z" * 10_000_000)))
    assert isinstance(changed(grow, max_bytes=10_000_000), SandboxFileTooLargeError)


def test_an_error_of_the_destination_comes_out_and_ends_the_copy(sbx: Sbx, box: str) -> None:
    (sbx.work(box) / "out.bin").write_bytes(bytes(20_000_000))
    error = PermissionError("the bucket says no")

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise error

    with pytest.raises(PermissionError) as raised:
        sbx.backend.export_file(box, "out.bin", Full(), max_bytes=1 << 30)
    assert raised.value is error
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError, match="No space left"):
        sbx.backend.export_file(box, "out.bin", full, max_bytes=1 << 30)


def test_a_cancelled_export_ends(sbx: Sbx, box: str) -> None:
    (sbx.work(box) / "out.bin").write_bytes(bytes(20_000_000))
    begun, go_on = threading.Event(), threading.Event()

    class Dest(io.BytesIO):
        def write(self, data: Any) -> int:
            begun.set()
            go_on.wait(60)
            return len(data)

    call = calls.prepare(sbx.backend.export_file, box, "out.bin", Dest(), max_bytes=1 << 30)
    call.start()
    assert begun.wait(60)
    call.cancel()
    go_on.set()
    with pytest.raises(calls.CallCancelled):
        call.wait()


def test_an_export_that_stalls_or_trickles_is_ended(
    sbx: Sbx, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sbx.work(box) / "out.bin").write_bytes(b"x")
    sbx.fault("exec", "hang")
    monkeypatch.setattr(sbx_module, "_EXPORT_STALL_TIMEOUT", 0.3)
    with pytest.raises(SandboxError, match=r"stalled: no data arrived for 0\.3 s"):
        export(sbx, box, "out.bin")
    monkeypatch.setattr(sbx_module, "_EXPORT_STALL_TIMEOUT", 3600.0)
    monkeypatch.setattr("sandbox_native.contract._export_allowance", lambda max_bytes: 0.3)
    with pytest.raises(SandboxError, match=r"took longer than the 0\.3 s"):
        export(sbx, box, "out.bin")
