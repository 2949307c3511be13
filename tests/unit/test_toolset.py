# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import copy
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_core import ValidationError

import sandbox_native
from doubles import GUARD, MemoryBackend, TaggedBackend
from sandbox_native.contract import (
    EXPIRES_AT_TAG,
    HOLDER_TAG,
    OWNER_TAG,
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
)
from sandbox_native.toolset import LIST_DIRECTORY, READ_FILE, RUN_COMMAND, WRITE_FILE, SandboxToolset

CTX = cast("Any", None)


async def call(toolset: SandboxToolset, name: str, args: dict[str, Any]) -> str:
    return cast("str", await toolset.call_tool(name, args, CTX, CTX))


def scripted(*steps: ToolCallPart) -> FunctionModel:
    """A model that makes these calls, one a turn, and then says what the last one returned."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returns = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
        if len(returns) < len(steps):
            return ModelResponse(parts=[steps[len(returns)]])
        return ModelResponse(parts=[TextPart(str(returns[-1].content))])

    return FunctionModel(model)


def test_airflow_is_not_needed_nor_loaded() -> None:
    code = (
        "import sys, sandbox_native\n"
        "cls = sandbox_native.SandboxToolset\n"
        "assert cls.__module__ == 'sandbox_native.toolset', cls\n"
        "loaded = [m for m in sys.modules if m.split('.')[0] in ('airflow', 'fsspec', 'upath')]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=GUARD)
    assert sandbox_native.SandboxToolset is SandboxToolset


@pytest.mark.asyncio
async def test_the_four_tools_their_arguments_and_what_they_tell() -> None:
    tools = await SandboxToolset(
        MemoryBackend(), exports={"a.csv": "memory://a", "b.png": "memory://b"}
    ).get_tools(CTX)
    assert set(tools) == {RUN_COMMAND, READ_FILE, WRITE_FILE, LIST_DIRECTORY}
    for name, tool in tools.items():
        assert tool.tool_def.sequential and tool.max_retries == 2
        assert tool.tool_def.return_schema == {"type": "string"}
        assert (tool.tool_def.metadata is not None) == (name == RUN_COMMAND)
        assert ("network" in (tool.tool_def.description or "")) == (name == RUN_COMMAND)
    description = tools[RUN_COMMAND].tool_def.description or ""
    assert "NO network access" in description and "a.csv, b.png" in description
    validate = {name: tool.args_validator.validate_python for name, tool in tools.items()}
    assert validate[RUN_COMMAND]({"command": "ls", "timeout_seconds": None})
    assert validate[READ_FILE]({"path": "a", "offset": 3, "limit": None})
    assert validate[LIST_DIRECTORY]({}) == {}
    for name, bad in [
        (RUN_COMMAND, {}),
        (RUN_COMMAND, {"command": 1}),
        (RUN_COMMAND, {"command": "ls", "timeout": 3}),
        (READ_FILE, {"path": "a", "offset": "soon"}),
        (WRITE_FILE, {"path": "a"}),
        (LIST_DIRECTORY, {"path": None}),
    ]:
        with pytest.raises(ValidationError):
            validate[name](bad)


@pytest.mark.asyncio
async def test_prefixed_names_and_only_those_are_known() -> None:
    toolset = SandboxToolset(MemoryBackend(), tool_prefix="left")
    assert set(await toolset.get_tools(CTX)) == {
        "left_run_command",
        "left_read_file",
        "left_write_file",
        "left_list_directory",
    }
    assert toolset.id == "sandbox-mem-left"
    async with toolset:
        assert await call(toolset, "left_run_command", {"command": "x"}) == "[stdout]\nout"
        for wrong in ("run_command", "left_", "left_nope", "right_run_command"):
            with pytest.raises(ValueError, match="Unknown tool"):
                await call(toolset, wrong, {"command": "x"})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_output_bytes": 0}, "max_output_bytes"),
        ({"max_read_bytes": True}, "max_read_bytes"),
        ({"max_export_bytes": float("nan")}, "max_export_bytes"),
        ({"default_command_timeout": 9, "max_command_timeout": 8}, "must not exceed"),
        ({"tool_prefix": "no way"}, "tool_prefix"),
        ({"attach_to": "sb"}, "not an AttachableSandboxBackend"),
        ({"owner": "me"}, "owner only applies"),
        ({"spec": SandboxSpec(owner="me")}, "SandboxSpec.owner is for"),
        ({"exports": {"": "memory://x"}}, "neither may be empty"),
        ({"exports": {"x": ""}}, "neither may be empty"),
        ({"export_conn_id": "aws"}, "only applies together with exports"),
        ({"secrets": "one string"}, "several strings"),
    ],
)
def test_the_constructor_names_what_is_wrong(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        SandboxToolset(MemoryBackend(), **options)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (SandboxExecResult(0, "", ""), "(no output)"),
        (SandboxExecResult(3, "hi\n", "bad\n"), "[stdout]\nhi\n[stderr]\nbad\n[exit code: 3]"),
        (SandboxExecResult(-1, "", "", timed_out=True), "(no output)\n[timed out after 60s]"),
        (
            SandboxExecResult(-1, "a", "", timed_out=True, applied_timeout=23.5),
            "[stdout]\na\n[timed out after 23.5s]",
        ),
        (
            SandboxExecResult(0, "tail", "", stdout_truncated=True),
            "[stdout]\n[... earlier output truncated]\ntail",
        ),
    ],
)
async def test_what_a_command_looks_like_to_the_model(result: SandboxExecResult, expected: str) -> None:
    backend = MemoryBackend()
    backend.result = result
    async with SandboxToolset(backend) as toolset:
        assert await call(toolset, "run_command", {"command": "x"}) == expected
    backend.assert_nothing_left()


@pytest.mark.asyncio
async def test_provider_fault_2_output_that_was_cut_is_never_no_output() -> None:
    backend = MemoryBackend()
    backend.result = SandboxExecResult(0, "", "", stdout_truncated=True)
    async with SandboxToolset(backend) as toolset:
        assert (
            await call(toolset, "run_command", {"command": "x"}) == "[stdout]\n[... earlier output truncated]"
        )
        backend.result = SandboxExecResult(0, "x" * 200 + "\n", "")
        small = SandboxToolset(backend, max_output_bytes=50)
        async with small:
            assert await call(small, "run_command", {"command": "x"}) == (
                "[stdout]\n[... earlier output truncated]\n" + "x" * 50
            )


@pytest.mark.asyncio
async def test_provider_fault_3_a_listing_over_the_cap_keeps_its_beginning_and_says_so() -> None:
    backend = MemoryBackend()
    backend.entries = [(f"f{n:03}", n % 2 == 0) for n in range(300)]
    async with SandboxToolset(backend, max_output_lines=20) as toolset:
        lines = (await call(toolset, "list_directory", {})).splitlines()
    assert lines[:3] == ["f000/", "f001", "f002/"]
    assert len(lines) == 21 and "truncated" in lines[-1] and "280" in lines[-1]


@pytest.mark.asyncio
async def test_a_name_with_a_line_end_stays_one_entry() -> None:
    backend = MemoryBackend()
    backend.entries = [("b\nc", True), ("a", False)]
    async with SandboxToolset(backend) as toolset:
        assert await call(toolset, "list_directory", {"path": "/"}) == "a\n'b\\nc'/"
        backend.entries = []
        assert await call(toolset, "list_directory", {}) == "(empty)"


@pytest.mark.asyncio
async def test_provider_fault_4_a_page_is_not_copied_for_masking_when_it_holds_no_secret() -> None:
    toolset = SandboxToolset(MemoryBackend(), secrets=["not in it", "nor this"])
    data = b"line\xff\n" * 1000
    assert toolset._current_secrets().mask_bytes(data) is data


@pytest.mark.asyncio
@pytest.mark.parametrize("cap", [0, -1])
async def test_provider_fault_5_a_cap_below_one_never_gets_to_the_output(cap: int) -> None:
    for field in ("max_output_lines", "max_output_bytes"):
        with pytest.raises(ValueError, match=field):
            SandboxToolset(MemoryBackend(), **{field: cap})
    backend = MemoryBackend()
    backend.result = SandboxExecResult(0, "a\ud800b", "")
    # A fraction of one is positive, so it is taken; what is shown is a whole byte then.
    async with SandboxToolset(backend, max_output_bytes=0.5) as toolset:  # type: ignore[arg-type]
        assert (await call(toolset, "run_command", {"command": "x"})).endswith("\nb")
    async with SandboxToolset(backend) as toolset:
        assert await call(toolset, "run_command", {"command": "x"}) == "[stdout]\na\ufffdb"


@pytest.mark.asyncio
async def test_provider_fault_6_every_line_of_a_file_is_reached_past_one_too_long_to_show() -> None:
    backend = MemoryBackend()
    backend.files["f"] = b"one\n" + b"x" * 500 + b"\ntwo\nthree\n"
    async with SandboxToolset(backend, max_output_bytes=100) as toolset:
        seen, offset = "", 1
        for _ in range(10):
            page = await call(toolset, "read_file", {"path": "f", "offset": offset})
            seen += page + "\n"
            if "offset=" not in page:
                break
            offset = int(page.rpartition("offset=")[2].split("]")[0].rstrip(". "))
    assert "one\n" in seen and "two\nthree" in seen and "longer than" in seen


@pytest.mark.asyncio
async def test_reading_and_writing() -> None:
    backend = MemoryBackend()
    async with SandboxToolset(backend) as toolset:
        assert (
            await call(toolset, "write_file", {"path": "/w/ä", "content": "hällo"})
            == "Wrote 6 bytes to '/w/ä'."
        )
        assert await call(toolset, "read_file", {"path": "/w/ä", "offset": None}) == "hällo"
        with pytest.raises(ModelRetry, match="surrogate"):
            await call(toolset, "write_file", {"path": "x", "content": "a\ud800"})
        with pytest.raises(ModelRetry, match="read_file tool failed: 'gone' does not exist"):
            await call(toolset, "read_file", {"path": "gone"})


@pytest.mark.asyncio
async def test_errors_the_model_can_mend_and_those_it_cannot() -> None:
    backend = MemoryBackend()
    async with SandboxToolset(backend) as toolset:
        backend.result = SandboxFileTooLargeError("/w/big", 6 * 1024 * 1024, 5 * 1024 * 1024)
        with pytest.raises(ModelRetry, match=r"6\.0MB, over the 5\.0MB read limit"):
            await call(toolset, "run_command", {"command": "x"})
        backend.result = SandboxTerminalError("gone")
        with pytest.raises(SandboxTerminalError) as caught:
            await call(toolset, "run_command", {"command": "x"})
        assert caught.value is backend.result
        for timeout in (0, -5, float("nan"), float("inf")):
            with pytest.raises(ModelRetry, match="timeout_seconds must be greater than 0"):
                await call(toolset, "run_command", {"command": "x", "timeout_seconds": timeout})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error",
    [SandboxError("e" * 1_000_000), SandboxFileTooLargeError("p" * 1_000_000, 2, 1)],
    ids=["any", "size"],
)
async def test_an_error_is_no_longer_than_output_may_be(error: SandboxError) -> None:
    backend = MemoryBackend()
    backend.result = error
    async with SandboxToolset(backend, max_output_bytes=500) as toolset:
        with pytest.raises(ModelRetry) as caught:
            await call(toolset, "run_command", {"command": "x"})
    assert "[..." in caught.value.message and len(caught.value.message) < 700


@pytest.mark.asyncio
async def test_timeouts_have_a_default_and_a_ceiling() -> None:
    backend = MemoryBackend()
    async with SandboxToolset(backend, default_command_timeout=7, max_command_timeout=9) as toolset:
        for asked in (None, 8, 10_000):
            await call(toolset, "run_command", {"command": "x", "timeout_seconds": asked})
    assert [c[2] for c in backend.commands] == [7, 8, 9]


# ---- the life of the sandbox


def test_an_agent_run_creates_uses_and_destroys_one_sandbox() -> None:
    backend = MemoryBackend()
    agent = Agent(
        scripted(
            ToolCallPart("write_file", {"path": "a", "content": "text"}),
            ToolCallPart("read_file", {"path": "a"}),
        ),
        toolsets=[SandboxToolset(backend)],
    )
    assert agent.run_sync("go").output == "text"
    assert backend.created == [SandboxSpec()]
    backend.assert_nothing_left()


def test_every_tool_can_be_called_by_a_model_that_calls_all() -> None:
    backend = MemoryBackend()
    backend.files["a"] = b"x"
    Agent(TestModel(), toolsets=[SandboxToolset(backend)], retries=3)
    agent = Agent(
        TestModel(call_tools=["run_command", "write_file", "list_directory"]),
        toolsets=[SandboxToolset(backend)],
    )
    agent.run_sync("go")
    backend.assert_nothing_left()
    assert len(backend.created) == 1


@pytest.mark.asyncio
async def test_nothing_is_created_without_a_call_and_nothing_outside_a_block() -> None:
    backend = MemoryBackend()
    toolset = SandboxToolset(backend)
    with pytest.raises(SandboxTerminalError, match="not open"):
        await call(toolset, "run_command", {"command": "x"})
    async with toolset:
        pass
    with toolset:
        pass
    with pytest.raises(SandboxTerminalError, match="not open"):
        await call(toolset, "run_command", {"command": "x"})
    assert backend.created == []


@pytest.mark.asyncio
async def test_twenty_first_calls_at_once_make_one_sandbox() -> None:
    backend = MemoryBackend()
    async with SandboxToolset(backend) as toolset:
        await asyncio.gather(*(call(toolset, "run_command", {"command": "x"}) for _ in range(20)))
    assert len(backend.created) == 1 and len(backend.commands) == 20
    backend.assert_nothing_left()


def test_first_calls_from_threads_with_loops_of_their_own_share_it() -> None:
    backend = MemoryBackend()
    errors: list[BaseException] = []

    def one() -> None:
        try:
            asyncio.run(call(toolset, "run_command", {"command": "x"}))
        except BaseException as e:
            errors.append(e)

    with SandboxToolset(backend) as toolset:
        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD)
    assert errors == []
    assert len(backend.created) == 1
    backend.assert_nothing_left()


@pytest.mark.asyncio
async def test_overlapping_runs_have_sandboxes_of_their_own() -> None:
    backend = MemoryBackend()
    base = SandboxToolset(backend, tool_prefix="p", max_export_bytes=7)

    async def one() -> None:
        run = await base.for_run(CTX)
        assert run is not base and run.id == base.id and run._max_export_bytes == 7
        async with run:
            await call(run, "p_run_command", {"command": "x"})
            await asyncio.sleep(0.01)

    await asyncio.gather(*(one() for _ in range(5)))
    assert len({c[0] for c in backend.commands}) == 5
    assert sorted(backend.destroyed) == [f"box-{n}" for n in range(1, 6)]


@pytest.mark.asyncio
async def test_one_that_is_entered_twice_is_open_until_the_last_leaves() -> None:
    backend = MemoryBackend()
    toolset = SandboxToolset(backend)
    async with toolset:
        async with toolset:
            await call(toolset, "run_command", {"command": "x"})
        assert backend.destroyed == []
        await call(toolset, "run_command", {"command": "x"})
    assert [c[0] for c in backend.commands] == ["box-1", "box-1"]
    backend.assert_nothing_left()
    async with toolset:
        await call(toolset, "run_command", {"command": "x"})
    assert len(backend.created) == 2
    backend.assert_nothing_left()


@pytest.mark.asyncio
async def test_a_lost_sandbox_is_said_and_replaced_by_the_next_call() -> None:
    backend = MemoryBackend()
    async with SandboxToolset(backend) as toolset:
        backend.result = SandboxExecResult(128, "", "", sandbox_terminated=True)
        text = await call(toolset, "run_command", {"command": "x"})
        assert "[exit code: 128]" in text and "sandbox was replaced" in text
        backend.result = SandboxExecResult(0, "", "")
        await call(toolset, "run_command", {"command": "y"})
    assert [c[0] for c in backend.commands] == ["box-1", "box-2"]
    assert backend.destroyed == ["box-2"], "the first ended by itself"


@pytest.mark.asyncio
async def test_a_create_that_fails_is_final_for_the_call_and_tried_again_by_the_next() -> None:
    class Flaky(MemoryBackend):
        errors: tuple[BaseException, ...] = (
            SandboxError("image pull"),
            SandboxTerminalError("key"),
            ValueError("bug"),
        )

        def create(self, *, spec: SandboxSpec | None = None) -> str:
            if self.errors:
                error, *rest = self.errors
                self.errors = tuple(rest)
                raise error
            return super().create(spec=spec)

    backend = Flaky()
    async with SandboxToolset(backend) as toolset:
        with pytest.raises(SandboxTerminalError, match=r"Could not provision.*'mem'.*image pull"):
            await call(toolset, "run_command", {"command": "x"})
        with pytest.raises(SandboxTerminalError, match=r"^key$"):
            await call(toolset, "run_command", {"command": "x"})
        with pytest.raises(ValueError, match="bug"):
            await call(toolset, "run_command", {"command": "x"})
        await call(toolset, "run_command", {"command": "x"})
    assert len(backend.created) == 1
    backend.assert_nothing_left()


@pytest.mark.asyncio
async def test_a_failing_teardown_does_not_fail_a_finished_run(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(MemoryBackend):
        def destroy(self, sandbox: str) -> None:
            raise RuntimeError("no")

    async with SandboxToolset(Stubborn()) as toolset:
        await call(toolset, "run_command", {"command": "x"})
    assert "Failed to destroy sandbox box-1 on backend mem; it may need manual cleanup" in caplog.messages


# ---- copies


@pytest.fixture(params=["deepcopy", "copy", "pickle"])
def copied(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield {
        "deepcopy": copy.deepcopy,
        "copy": copy.copy,
        "pickle": lambda toolset: pickle.loads(pickle.dumps(toolset)),
    }[request.param]


@pytest.mark.asyncio
async def test_a_copy_works_also_of_one_in_use(copied: Any) -> None:
    toolset = SandboxToolset(MemoryBackend(), tool_prefix="p", secrets=["hush hush"])
    async with toolset:
        await call(toolset, "p_run_command", {"command": "x"})
        other = copied(toolset)
        with pytest.raises(SandboxTerminalError, match="not open"):
            await call(other, "p_run_command", {"command": "x"})
        async with other:
            assert await call(other, "p_run_command", {"command": "x"}) == "[stdout]\nout"
        await call(toolset, "p_run_command", {"command": "x"})
    assert other.id == toolset.id
    assert other._current_secrets().mask("hush hush") == "***"


def test_secrets_are_in_no_repr() -> None:
    toolset = SandboxToolset(MemoryBackend(), secrets=["hush hush"])
    assert "hush" not in repr(toolset) + repr(vars(toolset)) + str(toolset._secrets)


# ---- attaching


def owned(**extra: str) -> dict[str, dict[str, str]]:
    return {"sb-1": {OWNER_TAG: "me", **extra}}


@pytest.mark.asyncio
async def test_an_attached_sandbox_is_claimed_used_given_back_and_never_destroyed() -> None:
    backend = TaggedBackend(owned())
    base = SandboxToolset(backend, attach_to="sb-1", owner="me")
    for _ in range(2):
        run = await base.for_run(CTX)
        async with run:
            assert backend.tags["sb-1"][HOLDER_TAG] == "me"
            await call(run, "run_command", {"command": "x"})
            note = (await run.get_tools(CTX))["run_command"].tool_def.description
            assert "set up by an earlier task" in note
        assert HOLDER_TAG not in backend.tags["sb-1"]
    assert [c[0] for c in backend.commands] == ["sb-1", "sb-1"]
    assert backend.created == backend.destroyed == []


@pytest.mark.asyncio
@pytest.mark.parametrize("value", [None, "", "None", 7])
async def test_a_handle_that_rendered_to_nothing(value: Any) -> None:
    backend = TaggedBackend(owned())
    toolset = SandboxToolset(backend, attach_to="{{ x }}", owner="me")
    toolset.attach_to = value
    with pytest.raises(SandboxTerminalError, match="attach_to rendered to"):
        await toolset.__aenter__()
    with pytest.raises(SandboxTerminalError, match="attach_to rendered to"):
        await toolset.for_run(CTX)
    assert backend.created == []


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [SandboxError("blip"), RuntimeError("bug"), KeyboardInterrupt()])
async def test_a_claim_of_an_attach_that_failed_is_given_back(error: BaseException) -> None:
    class Fails(TaggedBackend):
        def write_tags(self, sandbox: str, tags: Any) -> None:
            super().write_tags(sandbox, tags)
            if HOLDER_TAG in tags:
                raise error

    backend = Fails(owned())
    kind = SandboxTerminalError if isinstance(error, SandboxError) else type(error)
    with pytest.raises(kind), SandboxToolset(backend, attach_to="sb-1", owner="me"):
        pytest.fail("opened")
    assert backend.tags == owned()


@pytest.mark.asyncio
async def test_an_attached_sandbox_that_ended_is_not_replaced() -> None:
    backend = TaggedBackend(owned())
    backend.result = SandboxExecResult(-1, "", "", timed_out=True, sandbox_terminated=True)
    async with SandboxToolset(backend, attach_to="sb-1", owner="me") as toolset:
        with pytest.raises(SandboxTerminalError, match="stopped while running a command"):
            await call(toolset, "run_command", {"command": "x"})
        with pytest.raises(SandboxTerminalError, match="the sandbox ended"):
            await call(toolset, "run_command", {"command": "x"})
    assert backend.created == backend.destroyed == []


@pytest.mark.asyncio
async def test_commands_are_told_what_is_left_of_an_attached_sandbox() -> None:
    backend = TaggedBackend(owned(**{EXPIRES_AT_TAG: "0"}))
    async with SandboxToolset(backend, attach_to="sb-1", owner="me") as toolset:
        await call(toolset, "run_command", {"command": "x", "timeout_seconds": 100})
        note = (await toolset.get_tools(CTX))["run_command"].tool_def.description
        assert note is not None and "Under a minute" in note
    assert backend.commands[0][2] == 1.0


def test_a_forked_child_starts_with_threads_of_its_own() -> None:
    backend = MemoryBackend()
    with SandboxToolset(backend) as toolset:
        asyncio.run(call(toolset, "run_command", {"command": "x"}))
        pid = os.fork()
        if pid == 0:
            with SandboxToolset(MemoryBackend()) as own:
                shown = asyncio.run(call(own, "run_command", {"command": "x"}))
            os._exit(0 if shown == "[stdout]\nout" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    backend.assert_nothing_left()
