# SPDX-License-Identifier: Apache-2.0
"""Backends of the provider and of users in our toolset, and our backends in the provider's toolset."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import modal_stand_in
import pytest
from airflow.providers.common.ai.sandbox import base
from airflow.providers.common.ai.toolsets.sandbox import SandboxToolset as ProviderToolset
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sandbox_native import operations
from sandbox_native.airflow import SandboxToolset
from sandbox_native.backends.local import LocalSandboxBackend
from sandbox_native.contract import OWNER_TAG, SandboxTerminalError

pytestmark = pytest.mark.needs_airflow


def play(toolset: Any, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """Have an agent make these tool calls, one after the other; what it was answered."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
        if done == len(calls):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*calls[done])])

    result = Agent(FunctionModel(model), toolsets=[toolset]).run_sync("go")
    parts = [part for message in result.all_messages() for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


class Users(base.SandboxBackend):
    """A backend as a user of the provider writes one: the three methods that have to be there."""

    name = "users"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands: list[str] = []
        self.destroyed: list[str] = []

    def create(self, *, spec: base.SandboxSpec | None = None) -> str:
        return "box"

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> base.SandboxExecResult:
        self.commands.append(command)
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, stdin=subprocess.DEVNULL, cwd=self.root, timeout=60
        )
        return base.SandboxExecResult(
            exit_code=done.returncode,
            stdout=done.stdout[-max_output_bytes:].decode(errors="replace"),
            stderr=done.stderr[-max_output_bytes:].decode(errors="replace"),
            stdout_truncated=len(done.stdout) > max_output_bytes,
        )

    def destroy(self, sandbox: str) -> None:
        self.destroyed.append(sandbox)


CONTENT = ("x" * 99 + "\n") * 3000
CALLS = (
    ("write_file", {"path": "out/data.txt", "content": CONTENT}),
    ("run_command", {"command": "wc -c <out/data.txt"}),
    ("list_directory", {"path": "out"}),
    ("read_file", {"path": "out/data.txt", "offset": 1, "limit": 1}),
)


def check_answers(answers: list[str]) -> None:
    assert "300000 bytes" in answers[0]
    assert answers[1].split() == ["[stdout]", "300000"]
    assert answers[2].strip() == "data.txt"
    assert "x" * 99 in answers[3]


def test_a_users_backend_gets_the_fast_defaults(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    backend = Users(tmp_path / "box")
    toolset = SandboxToolset(
        cast("Any", backend), exports={"out/data.txt": f"file://{tmp_path}/exported.txt"}
    )
    # More than the provider's default write_file can send (fault 36).
    check_answers(play(toolset, *CALLS))
    assert (tmp_path / "exported.txt").read_text() == CONTENT
    assert backend.destroyed == ["box"]
    assert any("sandbox-native:begin" in command for command in backend.commands)
    # Nothing of the provider's default export was run.
    assert not any("airflow-export-size" in command for command in backend.commands)


def test_provider_fault_36_the_providers_default_cannot_write_what_ours_can(tmp_path: Path) -> None:
    backend = Users(tmp_path)
    with pytest.raises(OSError, match="Argument list too long"):
        backend.write_file("box", "f", b"x" * 300_000)
    operations.write_file(cast("Any", backend), "box", "f", b"x" * 300_000)
    assert (tmp_path / "f").read_bytes() == b"x" * 300_000


def test_what_a_backend_brings_itself_is_used(tmp_path: Path) -> None:
    class Own(Users):
        def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
            return b"own read"

        def write_file(self, sandbox: str, path: str, content: bytes) -> None:
            self.commands.append("own write")

        def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
            return [("own", True)]

        def export_file(self, sandbox: str, path: str, dest: Any, *, max_bytes: int) -> int:
            return int(dest.write(b"own export"))

    backend = cast("Any", Own(tmp_path))
    dest = io.BytesIO()
    assert operations.export_file(backend, "box", "f", dest, max_bytes=100) == 10
    assert operations.read_file(backend, "box", "f", max_bytes=100) == b"own read"
    assert operations.list_directory(backend, "box", ".") == [("own", True)]
    operations.write_file(backend, "box", "f", b"")
    assert dest.getvalue() == b"own export" and backend.commands == ["own write"]
    # On the instance, as a test double may have it.
    plain = cast("Any", Users(tmp_path))
    plain.export_file = lambda *args, **kwargs: 7
    assert operations.export_file(plain, "box", "f", dest, max_bytes=1) == 7


@pytest.mark.parametrize("size", [0, 1, 3 * 1024 * 1024, 7_000_001])
def test_both_default_exports_give_the_same_bytes(tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(os.urandom(size))
    backend = Users(tmp_path)
    ours, theirs = io.BytesIO(), io.BytesIO()
    assert operations.export_file(cast("Any", backend), "box", "f", ours, max_bytes=1 << 24) == size
    assert backend.export_file("box", "f", theirs, max_bytes=1 << 24) == size
    assert ours.getvalue() == theirs.getvalue() == (tmp_path / "f").read_bytes()


def test_our_backend_in_the_providers_toolset(tmp_path: Path) -> None:
    toolset = ProviderToolset(
        cast("Any", LocalSandboxBackend()), exports={"out/data.txt": f"file://{tmp_path}/exported.txt"}
    )
    check_answers(play(toolset, *CALLS))
    assert (tmp_path / "exported.txt").read_text() == CONTENT


# ---- Modal ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def modal() -> Any:
    modal_stand_in.install()
    from airflow.providers.common.ai.sandbox import modal as module

    return module


@pytest.fixture(autouse=True)
def no_sandbox_left() -> Iterator[None]:
    yield
    for sandbox in modal_stand_in.sandboxes.values():
        if not sandbox.ended:
            sandbox.terminate()
    modal_stand_in.sandboxes.clear()


def test_modal_in_our_toolset(modal: Any, tmp_path: Path) -> None:
    toolset = SandboxToolset(
        modal.ModalSandboxBackend(), exports={"out/data.txt": f"file://{tmp_path}/exported.txt"}
    )
    check_answers(play(toolset, *CALLS))
    assert (tmp_path / "exported.txt").read_text() == CONTENT
    (sandbox,) = modal_stand_in.sandboxes.values()
    assert sandbox.ended and sandbox.options["block_network"] is True
    assert any("sandbox-native:begin" in command for command in sandbox.commands)


def test_modal_is_attached_to_by_its_owner_and_given_back(modal: Any) -> None:
    creator = modal.ModalSandboxBackend()
    handle = creator.create(spec=base.SandboxSpec(owner="dag/run"))
    made = modal_stand_in.sandboxes[handle]
    creator.write_file(handle, "/workspace/data.csv", b"a,b\n")
    # Another task has another backend, which only knows the handle.
    toolset = SandboxToolset(modal.ModalSandboxBackend(), attach_to=handle, owner="dag/run")
    answers = play(
        toolset, ("run_command", {"command": "cat data.csv; pwd"}), ("read_file", {"path": "data.csv"})
    )
    assert answers[0].split() == ["[stdout]", "a,b", "/workspace"] and "a,b" in answers[1]
    assert not made.ended and made.tags[OWNER_TAG] == "dag/run"
    assert not any("holder" in name for name in made.tags)
    # And once more, since it was given back.
    assert "a,b" in play(toolset, ("read_file", {"path": "data.csv"}))[0]
    creator.destroy(handle)
    assert made.ended
    with pytest.raises(SandboxTerminalError):
        play(toolset, ("read_file", {"path": "data.csv"}))


def test_modal_is_refused_to_anybody_else(modal: Any) -> None:
    handle = modal.ModalSandboxBackend().create(spec=base.SandboxSpec(owner="dag/run"))
    stranger = SandboxToolset(modal.ModalSandboxBackend(), attach_to=handle, owner="dag/other")
    with pytest.raises(SandboxTerminalError, match="dag/other"):
        play(stranger, ("run_command", {"command": "true"}))
    made = modal_stand_in.sandboxes[handle]
    assert not made.ended and made.commands == []
