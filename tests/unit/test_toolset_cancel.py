# SPDX-License-Identifier: Apache-2.0
"""Cancelled at every await, once or more: as many destroys as creates, and no thread left working."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from doubles import GUARD, MemoryBackend, TaggedBackend, until
from sandbox_native import calls
from sandbox_native.contract import OWNER_TAG, SandboxTerminalError
from sandbox_native.toolset import SandboxToolset

CTX = cast("Any", None)
ARGS: dict[str, tuple[str, dict[str, Any]]] = {
    "create": ("run_command", {"command": "x"}),
    "run_command": ("run_command", {"command": "x"}),
    "read_file": ("read_file", {"path": "f"}),
    "write_file": ("write_file", {"path": "f", "content": "x"}),
    "list_directory": ("list_directory", {}),
}


async def cancelled(body: Coroutine[Any, Any, Any], backend: MemoryBackend, times: int) -> None:
    """Run ``body``, cancel it ``times`` times once the backend is blocked, and see that it ends by that."""
    task = asyncio.create_task(body)
    await asyncio.wait_for(until(backend.blocked), GUARD)
    for _ in range(times):
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, GUARD)
    assert backend.inside == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("times", [1, 2, 4])
@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("operation", ARGS)
async def test_in_a_tool_call(operation: str, deaf: bool, times: int) -> None:
    backend = MemoryBackend(block_in=operation, deaf=deaf)
    name, args = ARGS[operation]

    async def body() -> None:
        async with SandboxToolset(backend) as toolset:
            await toolset.call_tool(name, args, CTX, CTX)

    await cancelled(body(), backend, times)
    backend.assert_nothing_left()
    assert len(backend.created) == (0 if operation == "create" and not deaf else 1)


@pytest.mark.asyncio
@pytest.mark.parametrize("times", [1, 2, 4])
@pytest.mark.parametrize("operation", ARGS)
async def test_in_an_agent_run(operation: str, times: int) -> None:
    backend = MemoryBackend(block_in=operation)
    name, args = ARGS[operation]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(name, args)])

    agent = Agent(FunctionModel(model), toolsets=[SandboxToolset(backend)])
    await cancelled(agent.run("go"), backend, times)
    backend.assert_nothing_left()


@pytest.mark.asyncio
@pytest.mark.parametrize("times", [1, 2, 4])
async def test_while_attaching(times: int) -> None:
    tags = {"sb-1": {OWNER_TAG: "me"}}
    backend = TaggedBackend(tags, block_in="attach")

    async def body() -> None:
        async with SandboxToolset(backend, attach_to="sb-1", owner="me"):
            pytest.fail("opened")

    backend_write = backend.write_tags

    def write_once(sandbox: str, new: Any) -> None:
        try:
            backend_write(sandbox, new)
        finally:
            backend.block_in = ""

    backend.write_tags = write_once  # type: ignore[method-assign]
    await cancelled(body(), backend, times)
    assert backend.tags == tags, "the claim was given back"


@pytest.mark.asyncio
@pytest.mark.parametrize("times", [1, 2])
async def test_just_as_the_attach_has_succeeded(times: int) -> None:
    tags = {"sb-1": {OWNER_TAG: "me"}}
    backend = TaggedBackend(tags, block_in="attach")
    backend.deaf = True

    async def body() -> None:
        async with SandboxToolset(backend, attach_to="sb-1", owner="me"):
            pytest.fail("opened")

    release: Callable[..., None] = backend.release

    def unblocked(sandbox: str, *, holder: str) -> None:
        backend.block_in = ""
        release(sandbox, holder=holder)

    backend.release = unblocked  # type: ignore[method-assign]
    await cancelled(body(), backend, times)
    assert backend.tags == tags


@pytest.mark.asyncio
@pytest.mark.parametrize("times", [1, 2, 4])
@pytest.mark.parametrize("deaf", [False, True])
async def test_provider_fault_31_in_an_export(deaf: bool, times: int, tmp_path: Path) -> None:
    backend = MemoryBackend(block_in="export_file", deaf=deaf)
    backend.files["f"] = b"content"
    (tmp_path / "f").write_bytes(b"before")

    async def body() -> None:
        async with SandboxToolset(backend, exports={"f": f"file://{tmp_path}/f"}) as toolset:
            await toolset.call_tool("list_directory", {}, CTX, CTX)

    await cancelled(body(), backend, times)
    backend.assert_nothing_left()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f", b"before")]


@pytest.mark.asyncio
async def test_one_of_two_that_wait_for_the_first_sandbox() -> None:
    backend = MemoryBackend()
    let_go, creating = threading.Event(), threading.Event()
    create = backend.create

    def slow(**options: Any) -> str:
        creating.set()
        assert let_go.wait(GUARD)
        calls.check_cancelled()
        return create(**options)

    backend.create = slow  # type: ignore[method-assign]
    async with SandboxToolset(backend) as toolset:
        one, two = (
            asyncio.create_task(toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)) for _ in "12"
        )
        await until(creating)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        let_go.set()
        assert await two == "[stdout]\nout"
    backend.assert_nothing_left()
    assert len(backend.created) == 1


@pytest.mark.asyncio
async def test_both_that_wait_for_it_and_one_that_comes_as_it_is_given_up() -> None:
    backend = MemoryBackend(block_in="create")
    async with SandboxToolset(backend) as toolset:
        tasks = [
            asyncio.create_task(toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)) for _ in "12"
        ]
        await until(backend.blocked)
        for task in tasks:
            task.cancel()
        backend.block_in = ""
        late = asyncio.create_task(toolset.call_tool("run_command", {"command": "x"}, CTX, CTX))
        for task in tasks:
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await late == "[stdout]\nout"
    backend.assert_nothing_left()
    assert len(backend.created) == 1


@pytest.mark.parametrize("operation", ["create", "run_command"])
def test_a_block_that_ends_stops_what_other_threads_do_in_it(operation: str) -> None:
    backend = MemoryBackend(block_in=operation)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(toolset.call_tool("run_command", {"command": "x"}, CTX, CTX))
        except BaseException as e:
            errors.append(e)

    with SandboxToolset(backend) as toolset:
        thread = threading.Thread(target=work)
        thread.start()
        assert backend.blocked.wait(GUARD)
    thread.join(GUARD)
    assert [type(e) for e in errors] == [SandboxTerminalError]
    backend.assert_nothing_left()


@pytest.mark.asyncio
async def test_a_block_that_ends_with_tasks_still_in_it() -> None:
    backend = MemoryBackend(block_in="run_command")
    async with SandboxToolset(backend) as toolset:
        tasks = [
            asyncio.create_task(toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)) for _ in "123"
        ]
        await until(backend.blocked)
    assert backend.inside == 0
    for task in tasks:
        with pytest.raises(SandboxTerminalError, match="closed"):
            await task
    backend.assert_nothing_left()


def test_a_closed_coroutine_leaves_nothing() -> None:
    backend = MemoryBackend(block_in="run_command")

    async def body() -> None:
        async with SandboxToolset(backend) as toolset:
            await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)

    async def main() -> None:
        coroutine = body()
        # By hand, as a loop that is dropped would: no task ever cancels it.
        while not backend.blocked.is_set():
            future = coroutine.send(None)
            while not backend.blocked.is_set() and not cast("Any", future).done():
                await asyncio.sleep(0.001)
        coroutine.close()

    asyncio.run(main())
    backend.assert_nothing_left()


class Terminated(BaseException):
    pass


@pytest.mark.parametrize("operation", ["run_command", "export_file", "create"])
def test_an_exception_out_of_a_signal_handler(operation: str, tmp_path: Path) -> None:
    """As Airflow ends a task: by a handler in the main thread that raises wherever that is."""
    backend = MemoryBackend(block_in=operation)
    backend.files["f"] = b"x"
    exports = {"f": f"file://{tmp_path}/f"}

    def handler(*_: object) -> None:
        raise Terminated

    def send() -> None:
        assert backend.blocked.wait(GUARD)
        signal.pthread_kill(cast("int", threading.main_thread().ident), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(Terminated), SandboxToolset(backend, exports=exports) as toolset:
            asyncio.run(toolset.call_tool("run_command", {"command": "x"}, CTX, CTX))
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, previous)
    backend.assert_nothing_left()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
async def test_at_every_step_of_the_loop() -> None:
    """The whole of a run, cancelled after 0, 1, 2... turns of the loop until it is through."""
    tested = 0
    for turns in range(10_000):
        backend = MemoryBackend()
        backend.files["f"] = b"x"

        async def body(backend: MemoryBackend = backend) -> str:
            exports = {"f": "memory://cancel/f"}
            async with SandboxToolset(backend, exports=exports) as toolset:
                await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)
                await toolset.call_tool("read_file", {"path": "f"}, CTX, CTX)
            return "through"

        task = asyncio.create_task(body())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        try:
            assert await task == "through"
            break
        except asyncio.CancelledError:
            backend.assert_nothing_left()
            tested += 1
    backend.assert_nothing_left()
    assert tested >= 5


def local_backend() -> Any:
    from sandbox_native.backends.local import LocalSandboxBackend

    return LocalSandboxBackend()


def tasks_inside(marker: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize("times", [1, 2])
async def test_provider_fault_35_a_cancelled_command_of_a_real_sandbox_ends_with_its_tree(times: int) -> None:
    backend = local_backend()
    marker = f"31{time.time_ns() % 10**9}"
    started = time.monotonic()
    async with SandboxToolset(backend, default_command_timeout=300) as toolset:
        task = asyncio.create_task(
            toolset.call_tool(
                "run_command",
                {"command": f"setsid sleep {marker} & sleep {marker}; echo never"},
                CTX,
                CTX,
            )
        )
        while len(tasks_inside(marker)) < 2 and time.monotonic() < started + GUARD:
            await asyncio.sleep(0.01)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, GUARD)
        assert tasks_inside(marker) == []
        assert await toolset.call_tool("run_command", {"command": "echo on"}, CTX, CTX) == "[stdout]\non"


@pytest.mark.asyncio
@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancelled_export_of_a_real_sandbox_leaves_nothing(times: int, tmp_path: Path) -> None:
    backend = local_backend()
    destroyed: list[str] = []
    destroy = backend.destroy

    def counted(sandbox: str) -> None:
        destroyed.append(sandbox)
        destroy(sandbox)

    backend.destroy = counted

    async def body() -> None:
        async with SandboxToolset(backend, exports={"big": f"file://{tmp_path}/new/big"}) as toolset:
            shown = await toolset.call_tool("run_command", {"command": "truncate -s 900M big"}, CTX, CTX)
            assert shown == "(no output)"

    task = asyncio.create_task(body())
    deadline = time.monotonic() + GUARD
    while not list(tmp_path.glob("new/*.partial")) and time.monotonic() < deadline:
        assert not task.done(), task
        await asyncio.sleep(0.001)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, GUARD)
    assert list(tmp_path.iterdir()) == []
    assert len(destroyed) == 1


@pytest.mark.asyncio
async def test_a_cancel_before_the_close_has_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MemoryBackend()
    waiting: list[calls.Call[Any]] = []

    async def body() -> None:
        async with SandboxToolset(backend) as toolset:
            await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)
            monkeypatch.setattr(calls._executor, "submit", waiting.append)

    task = asyncio.create_task(body())
    while not waiting:
        await asyncio.sleep(0.001)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    monkeypatch.undo()
    waiting[0].start()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, GUARD)
    assert len(backend.created) == 1
    backend.assert_nothing_left()
