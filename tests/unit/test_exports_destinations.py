# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import socket
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from doubles import MemoryBackend
from sandbox_native.contract import SandboxError, SandboxTerminalError
from sandbox_native.exports import Export, Item, Source
from sandbox_native.storage import STAGING_SUFFIX, staging_name
from sandbox_native.toolset import SandboxToolset

CTX = cast("Any", None)
AWKWARD = [
    "a b",
    "it's",
    'say "x"',
    "a#b?c=d&e",
    "100%41",
    "[ab]*?",
    "-rf",
    "näme 密",
    "trailing ",
    " leading",
    "a\nb",
    "semi;colon$HOME`x`",
    "~",
    "..hidden..",
    "back\\slash",
    "x" * 250,
]


def found(fs: Any) -> dict[str, bytes]:
    return {path: fs.cat_file(path) for path in fs.find("/dest")}


async def exported(exports: dict[str, str], files: dict[str, bytes]) -> MemoryBackend:
    backend = MemoryBackend()
    backend.files.update(files)
    async with SandboxToolset(backend, exports=exports) as toolset:
        await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)
    backend.assert_nothing_left()
    return backend


@pytest.mark.asyncio
@pytest.mark.parametrize("name", AWKWARD, ids=range(len(AWKWARD)))
async def test_names_are_taken_as_they_are(name: str, tmp_path: Path, memory: Any) -> None:
    # A sibling that a pattern would match must not be touched.
    (tmp_path / "a").write_bytes(b"sibling")
    await exported({"f": f"file://{tmp_path}/{name}", "g": f"memory://dest/{name}"}, {"f": b"1", "g": b"2"})
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"sibling", name: b"1"}
    assert list(found(memory).values()) == [b"2"]
    assert next(iter(found(memory))) == f"/dest/{name}"


@pytest.mark.parametrize("name", AWKWARD, ids=range(len(AWKWARD)))
def test_provider_fault_34_names_are_taken_as_they_are_by_a_store_behind_another(
    name: str, memory: Any
) -> None:
    """Whose own move only passes on what the one behind it would take for a pattern."""
    memory.pipe_file("/dest/in/a", b"sibling")
    folder = DirFileSystem("/dest", memory)
    Export(
        [Item("f", f"x://in/{name}", lambda dest: dest.write(b"1"), 10)],
        source=Source("box", "mem"),
        resolve=lambda url: SimpleNamespace(fs=folder, path=url.removeprefix("x://")),
        log=logging.getLogger("exports"),
    ).run()
    assert found(memory) == {"/dest/in/a": b"sibling", f"/dest/in/{name}": b"1"}


@pytest.mark.parametrize("name", [*AWKWARD, "é" * 127, "x" * 255])
def test_a_staging_name_fits_beside_any_name(name: str) -> None:
    staging = staging_name(name)
    assert staging.endswith(STAGING_SUFFIX) and len(os.fsencode(staging)) <= 255
    assert staging_name(name) != staging


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        (None, "not a storage URL"),
        ("", "not a storage URL"),
        ("None", "not a storage URL"),
        ("relative/out", "not a storage URL"),
        ("/absolute/out", "not a storage URL"),
        (7, "not a storage URL"),
        ("file://relative/out", "absolute"),
        ("file://{tmp}/", "slash"),
        ("file:///", "slash"),
        ("file://{tmp}/folder", "existing directory"),
        ("file://{tmp}/link-to-folder", "existing directory"),
        ("file://{tmp}/socket", "not a regular file"),
        ("file:///dev/null", "not a regular file"),
        ("file://{tmp}/file/below", "not a directory"),
        ("file://{tmp}/" + "n" * 256, "name too long"),
        ("file://{tmp}/..", "file name"),
        ("file://{tmp}/a\0b", "NUL"),
        ("memory://", "slash"),
        ("memory:///", "slash"),
        ("memory://dest/folder", "existing directory"),
        ("memory://dest/folder/", "slash"),
        ("nosuchprotocol://bucket/key", "nosuchprotocol"),
    ],
)
async def test_provider_fault_34_what_nothing_can_be_published_at_is_refused_before_the_run(
    destination: Any, reason: str, tmp_path: Path, memory: Any
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link-to-folder").symlink_to("folder")
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "socket"))
    memory.pipe_file("/dest/folder/x", b"")
    backend = MemoryBackend()
    toolset = SandboxToolset(backend, exports={"f": "{{ a template }}"})
    toolset._exports = {
        "f": destination.replace("{tmp}", str(tmp_path)) if isinstance(destination, str) else destination
    }
    with pytest.raises(SandboxTerminalError, match=reason) as caught:
        await toolset.__aenter__()
    assert "exports['f']" in str(caught.value)
    assert backend.created == []


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("file:///{tmp}/x", "file:///{tmp}/x"),
        ("file://{tmp}/x", "file://{tmp}/./x"),
        ("file://{tmp}/x", "file://{tmp}//x"),
        ("file://{tmp}/x", "file://{tmp}/sub/../x"),
        ("file://{tmp}/x", "file://{tmp}/link/x"),
        ("file://{tmp}/x", "local://{tmp}/x"),
        ("memory://dest/x", "memory:///dest/x"),
        ("memory://dest/x", "memory://dest//x"),
        ("memory://dest/x", "memory://dest/y/../x"),
    ],
)
def test_provider_fault_33_a_destination_named_twice_is_refused(one: str, two: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "sub").mkdir()
    urls = [url.replace("{tmp}", str(tmp_path)) for url in (one, two)]
    with pytest.raises(SandboxTerminalError, match=r"exports\['b'\] and exports\['a'\]"):
        SandboxToolset(MemoryBackend(), exports=dict(zip("ab", urls, strict=True))).__enter__()


@pytest.mark.asyncio
async def test_provider_fault_34_a_directory_that_appears_meanwhile_takes_nothing_in(tmp_path: Path) -> None:
    backend = MemoryBackend()
    backend.files.update(one=b"1", two=b"2")
    with pytest.raises(SandboxTerminalError, match=r"two: it is an existing directory"):
        async with SandboxToolset(
            backend, exports={"one": f"file://{tmp_path}/one", "two": f"file://{tmp_path}/two"}
        ) as toolset:
            await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)
            (tmp_path / "two").mkdir()
    backend.assert_nothing_left()
    assert [p.name for p in tmp_path.rglob("*")] == ["two"]


@pytest.mark.asyncio
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
async def test_a_local_file_has_the_permissions_the_umask_says_and_replaces_what_was_there(
    umask: int, tmp_path: Path
) -> None:
    target = tmp_path / "new" / "f"
    previous = os.umask(umask)
    try:
        await exported({"f": f"file://{target}"}, {"f": b"1"})
        assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
        with open(target, "rb") as reader:
            await exported({"f": f"file://{target}"}, {"f": b"22"})
            assert reader.read() == b"1", "who reads the old file goes on reading it"
    finally:
        os.umask(previous)
    assert target.read_bytes() == b"22"
    assert [p.name for p in target.parent.iterdir()] == ["f"]


@pytest.mark.asyncio
async def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pointed").write_bytes(b"keep")
    (tmp_path / "f").symlink_to("pointed")
    await exported({"f": f"file://{tmp_path}/f"}, {"f": b"1"})
    assert (tmp_path / "pointed").read_bytes() == b"keep"
    assert not (tmp_path / "f").is_symlink() and (tmp_path / "f").read_bytes() == b"1"


@pytest.mark.asyncio
async def test_files_go_in_the_given_order_while_the_sandbox_stands(tmp_path: Path, memory: Any) -> None:
    order: list[str] = []

    class Watching(MemoryBackend):
        def export_file(self, sandbox: str, path: str, dest: Any, *, max_bytes: int) -> int:
            assert max_bytes == 99
            order.append(path)
            return super().export_file(sandbox, path, dest, max_bytes=max_bytes)

    backend = Watching()
    backend.files.update(z=b"1", a=b"2")
    async with SandboxToolset(
        backend, exports={"z": f"file://{tmp_path}/z", "a": "memory://dest/a"}, max_export_bytes=99
    ) as toolset:
        await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)
    assert order == ["z", "a"]
    assert (tmp_path / "z").read_bytes() == b"1" and found(memory) == {"/dest/a": b"2"}
    backend.assert_nothing_left()


# ---- which runs export


def agent_of(toolset: SandboxToolset) -> Agent[None, str]:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(p, ToolReturnPart) for m in messages for p in m.parts):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("run_command", {"command": "x"})])

    return Agent(FunctionModel(model), toolsets=[toolset])


def test_a_run_that_succeeded_exports_once_also_of_an_agent_held_open(memory: Any) -> None:
    import asyncio

    backend = MemoryBackend()
    backend.files["f"] = b"1"
    agent = agent_of(SandboxToolset(backend, exports={"f": "memory://dest/f"}))

    async def held() -> None:
        async with agent:
            await agent.run("go")
            assert found(memory) == {"/dest/f": b"1"}
            memory.rm_file("/dest/f")

    asyncio.run(held())
    assert not memory.exists("/dest/f")
    backend.assert_nothing_left()


def test_a_run_begun_while_an_exception_is_handled_exports(memory: Any) -> None:
    backend = MemoryBackend()
    backend.files["f"] = b"1"
    try:
        raise KeyError("cache miss")
    except KeyError:
        agent_of(SandboxToolset(backend, exports={"f": "memory://dest/f"})).run_sync("go")
    assert found(memory) == {"/dest/f": b"1"}


def test_a_run_that_failed_exports_nothing_and_its_exception_comes_out(memory: Any) -> None:
    backend = MemoryBackend()
    backend.files["f"] = b"1"
    backend.result = SandboxTerminalError("rejected")
    with pytest.raises(SandboxTerminalError, match="rejected"):
        agent_of(SandboxToolset(backend, exports={"f": "memory://dest/f"})).run_sync("go")
    assert not memory.exists("/dest")
    backend.assert_nothing_left()


def test_a_file_that_is_not_there_fails_the_run(memory: Any) -> None:
    backend = MemoryBackend()
    backend.files["f"] = b"1"
    with pytest.raises(SandboxTerminalError, match="Could not export 'gone' from sandbox box-1"):
        agent_of(
            SandboxToolset(backend, exports={"f": "memory://dest/f", "gone": "memory://dest/gone"})
        ).run_sync("go")
    assert not memory.exists("/dest")
    backend.assert_nothing_left()


def test_a_run_that_never_had_a_sandbox_cannot_deliver(memory: Any) -> None:
    with (
        pytest.raises(SandboxTerminalError, match=r"no sandbox standing.*'f'"),
        SandboxToolset(MemoryBackend(), exports={"f": "memory://dest/f"}),
    ):
        pass


def test_a_backend_error_of_any_kind_is_final(memory: Any) -> None:
    backend = MemoryBackend()
    backend.files["f"] = b"1"
    backend.export_error = SandboxError("stopped sending")
    with pytest.raises(SandboxTerminalError, match=r"memory://dest/f: stopped sending\."):
        agent_of(SandboxToolset(backend, exports={"f": "memory://dest/f"})).run_sync("go")
    assert not memory.exists("/dest")
