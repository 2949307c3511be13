# SPDX-License-Identifier: Apache-2.0
"""The Airflow class against the provider's own operator, masker, templates and storage paths."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast
from unittest.mock import patch

import airflow.providers.common.ai.toolsets.sandbox as provider
import fsspec
import jinja2
import pytest
from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.providers.common.ai.utils.toolset_base import AirflowToolset, MaskingToolset, ensure_masked
from airflow.providers.common.ai.utils.toolsets import find_toolset
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, ObjectStoragePath, TaskGroup
from airflow.sdk._shared.secrets_masker import reset_secrets_masker
from airflow.sdk.log import mask_secret
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import sandbox_native
import sandbox_native.airflow as ours
import sandbox_native.toolset
from sandbox_native._body import SandboxToolsetBody
from sandbox_native.airflow import SandboxToolset, registered_secrets
from sandbox_native.contract import (
    HOLDER_TAG,
    OWNER_TAG,
    AttachableSandboxBackend,
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxTerminalError,
)

CTX = cast("Any", None)
SECRET = "db-password-91c3"


@pytest.fixture
def mask() -> Iterator[Callable[[str], None]]:
    """Registers secrets with Airflow's masker, for one test alone."""
    reset_secrets_masker()
    yield mask_secret
    reset_secrets_masker()


class Backend(SandboxBackend):
    name = "mem"

    def __init__(self) -> None:
        self.result: SandboxExecResult | BaseException = SandboxExecResult(0, "out\n", "")
        self.text = ""
        self.created: list[str] = []
        self.destroyed: list[str] = []
        self.data = b"payload"

    def create(self, *, spec: Any = None) -> str:
        self.created.append(f"box-{len(self.created) + 1}")
        return self.created[-1]

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        if isinstance(self.result, BaseException):
            raise self.result
        if not self.text:
            return self.result
        kept = self.text[-max_output_bytes:]
        return SandboxExecResult(0, kept, "", stdout_truncated=kept != self.text)

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        return self.data

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        return dest.write(self.data)

    def destroy(self, sandbox: str) -> None:
        self.destroyed.append(sandbox)


class Tagged(Backend, AttachableSandboxBackend):
    name = "tagged"

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.tags: dict[str, str] = {OWNER_TAG: owner}

    def read_tags(self, sandbox: str) -> dict[str, str]:
        return dict(self.tags)

    def write_tags(self, sandbox: str, tags: Any) -> None:
        self.tags = dict(tags)


def operator(*toolsets: Any, **options: Any) -> AgentOperator:
    return AgentOperator(task_id="agent", prompt="go", llm_conn_id="llm", toolsets=list(toolsets), **options)


async def call(toolset: SandboxToolset, name: str, args: dict[str, Any]) -> str:
    return cast("str", await toolset.call_tool(name, args, CTX, CTX))


# ---- what it is


def test_this_process_gets_the_airflow_class() -> None:
    assert sandbox_native.SandboxToolset is SandboxToolset
    assert issubclass(SandboxToolset, provider.SandboxToolset)
    assert not issubclass(sandbox_native.toolset.SandboxToolset, provider.SandboxToolset)


def test_call_tool_is_the_providers_own_so_nothing_wraps_it_again() -> None:
    assert SandboxToolset.call_tool is AirflowToolset.call_tool
    assert "call_tool" not in vars(SandboxToolsetBody)
    toolset = SandboxToolset(Backend())
    assert ensure_masked(toolset) is toolset
    assert isinstance(ensure_masked(sandbox_native.toolset.SandboxToolset(Backend())), MaskingToolset)


def test_what_is_still_inherited_from_the_providers_toolset() -> None:
    """Each entry was read: it uses nothing but what the instance has. A new one has to be looked at."""
    inherited = {
        name
        for name in vars(provider.SandboxToolset)
        if not name.startswith(("__", "_abc"))
        and name not in vars(SandboxToolset)
        and name not in vars(SandboxToolsetBody)
    }
    assert inherited == {
        # Private helpers of provider methods that are overridden: nothing calls them any more.
        "_check_export_destinations",
        "_command_timeout",
        "_describe_attached",
        "_describe_network",
        "_export",
        "_export_failed",
        "_identity",
        "_list_directory",
        "_read_file",
        "_release",
        "_run_command",
        "_run_failed",
        "_truncate",
        "_write_file",
    }
    from_base = {
        name
        for name in vars(AirflowToolset)
        if not name.startswith("_") and name not in vars(SandboxToolsetBody)
    }
    assert from_base == {"call_tool", "replayable", "airflow_tools", "run_blocking"}


def test_every_attribute_that_the_operator_reads_is_there() -> None:
    toolset = SandboxToolset(Backend())
    assert toolset.attach_to is None
    theirs = provider.SandboxToolset.agent_template_fields
    assert toolset.agent_template_fields[: len(theirs)] == theirs
    assert all(hasattr(toolset, field) for field in toolset.agent_template_fields)


def test_the_constructor_is_the_providers_with_more_keywords() -> None:
    def of(cls: type) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(cls).parameters.values()]

    mine, theirs = of(SandboxToolset), of(provider.SandboxToolset)
    assert mine[: len(theirs)] == theirs
    assert all(kind is inspect.Parameter.KEYWORD_ONLY for _, kind, _ in mine[len(theirs) :])


def test_public_names_of_the_providers_module_are_here() -> None:
    for name in ("RUN_COMMAND", "READ_FILE", "WRITE_FILE", "LIST_DIRECTORY"):
        assert getattr(ours, name) == getattr(provider, name)
    assert ours.log.name == "sandbox_native.airflow"
    for name in (
        "SandboxToolset",
        "SandboxSpec",
        "SandboxError",
        "SandboxTerminalError",
        "ObjectStoragePath",
    ):
        assert hasattr(ours, name)


@pytest.mark.asyncio
async def test_the_tools_have_the_providers_names_arguments_and_metadata() -> None:
    def shape(tool: Any) -> Any:
        definition = tool.tool_def
        schema = copy.deepcopy(definition.parameters_json_schema)
        for field in schema["properties"].values():
            assert field.pop("description")
        return (
            definition.name,
            schema,
            definition.metadata,
            definition.sequential,
            definition.return_schema,
            tool.max_retries,
        )

    mine = await SandboxToolset(Backend(), tool_prefix="p").get_tools(CTX)
    theirs = await provider.SandboxToolset(Backend(), tool_prefix="p").get_tools(CTX)
    assert [shape(tool) for tool in mine.values()] == [shape(tool) for tool in theirs.values()]
    for name, tool in mine.items():
        assert tool.tool_def.description != theirs[name].tool_def.description


# ---- the operator


def test_the_operator_finds_it_inside_wrappers_and_refuses_what_cannot_work() -> None:
    toolset = SandboxToolset(Backend())
    for given in (toolset, toolset.prefixed("p"), toolset.filtered(lambda ctx, tool: True).prefixed("q")):
        assert find_toolset([given], provider.SandboxToolset) is toolset
        with pytest.raises(ValueError, match="durable=True cannot be used with a SandboxToolset"):
            operator(given, durable=True)
        with pytest.raises(ValueError, match="enable_hitl_review=True cannot be used with a SandboxToolset"):
            operator(given, enable_hitl_review=True)
    operator(SandboxToolset(Tagged("me"), attach_to="sb", owner="me"), enable_hitl_review=True)
    assert not operator(toolset)._supports_tool_approval()
    assert operator(SandboxToolset(Tagged("me"), attach_to="sb", owner="me"))._supports_tool_approval()


def test_templates_are_rendered_on_a_copy() -> None:
    toolset = SandboxToolset(
        Backend(), exports={"f": "file:///out/{{ name }}/f"}, export_conn_id="{{ name }}_store"
    )
    attached = SandboxToolset(Tagged("me"), attach_to="{{ name }}-1", owner="me", tool_prefix="p")
    task = operator(toolset, attached.prefixed("q"))
    task._do_render_template_fields(
        task, task.template_fields, cast("Any", {"name": "r7"}), jinja2.Environment(), set()
    )
    rendered, wrapped = cast("list[Any]", task.toolsets)
    assert rendered is not toolset and type(rendered) is SandboxToolset
    assert rendered._exports == {"f": "file:///out/r7/f"} and rendered._export_conn_id == "r7_store"
    assert wrapped.wrapped.attach_to == "r7-1"
    assert toolset._exports == {"f": "file:///out/{{ name }}/f"} and attached.attach_to == "{{ name }}-1"


def test_outputs_of_other_tasks_are_taken_where_templates_are() -> None:
    """The operator renders them when the task runs."""
    with DAG(dag_id="outputs", schedule=None):
        output = EmptyOperator(task_id="before").output
        toolset = SandboxToolset(Backend(), exports={"f": cast("Any", output)}, export_conn_id=output)
        attached = SandboxToolset(Tagged("me"), attach_to=output, owner="me", tool_prefix="p")
        task = operator(toolset, attached)
    with patch.object(type(output), "resolve", lambda self, context: "file:///out/f"):
        task._do_render_template_fields(
            task, task.template_fields, cast("Any", {}), jinja2.Environment(), set()
        )
    rendered, wrapped = cast("list[Any]", task.toolsets)
    assert rendered._exports == {"f": "file:///out/f"} and rendered._export_conn_id == "file:///out/f"
    assert wrapped.attach_to == "file:///out/f"


def test_airflow_copies_tasks_and_groups_with_it() -> None:
    with DAG(dag_id="copies", schedule=None):
        group = TaskGroup(group_id="g", default_args={"toolsets": [SandboxToolset(Backend())]})
        task = operator(SandboxToolset(Backend(), tool_prefix="p"))
    assert type(cast("Any", group.default_args)["toolsets"][0]) is SandboxToolset
    copied = copy.deepcopy(task)
    assert cast("Any", copied.toolsets)[0].id == "sandbox-mem-p"


@pytest.mark.asyncio
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
async def test_a_copy_of_one_in_use_is_another_toolset(how: Callable[[Any], Any]) -> None:
    async with SandboxToolset(Backend(), exports={"f": "file:///nowhere/f"}) as toolset:
        await call(toolset, "run_command", {"command": "x"})
        other = how(toolset)
        with pytest.raises(SandboxTerminalError, match="not open"):
            await call(other, "run_command", {"command": "x"})
        toolset._exports = {}
    assert other._exports == {"f": "file:///nowhere/f"} and type(other) is SandboxToolset


# ---- masking


@pytest.mark.asyncio
async def test_provider_fault_1_no_part_of_a_registered_secret_at_any_cut(
    mask: Callable[[str], None],
) -> None:
    mask(SECRET)
    mask("long-" * 20)
    backend = Backend()
    for pad in range(0, len(SECRET) + 30, 3):
        backend.text = "1" * 300 + SECRET + "2" * pad + "long-" * 20 + "3" * 10 + "\n"
        for cap in range(1, 160, 9):
            async with SandboxToolset(backend, max_output_bytes=cap) as toolset:
                shown = await call(toolset, "run_command", {"command": "x"})
            body = shown.replace("[stdout]", "").replace("[... earlier output truncated]", "")
            assert not re.search("[a-z]", body), (pad, cap, shown)


@pytest.mark.asyncio
async def test_files_results_and_errors_are_masked(mask: Callable[[str], None]) -> None:
    mask(SECRET)
    backend = Backend()
    backend.data = f"a {SECRET}\n".encode()
    async with SandboxToolset(backend) as toolset:
        assert await call(toolset, "read_file", {"path": "f"}) == "a ***"
        backend.result = SandboxError(f"curl {SECRET}")
        with pytest.raises(ModelRetry, match=r"curl \*\*\*"):
            await call(toolset, "run_command", {"command": "x"})
        backend.result = SandboxTerminalError(f"rejected {SECRET}")
        with pytest.raises(SandboxTerminalError, match=r"rejected \*\*\*"):
            await call(toolset, "run_command", {"command": "x"})


def test_the_registered_secrets_are_read_back_exactly(mask: Callable[[str], None]) -> None:
    odd = [SECRET, "with\\backslash\\", "a.b*c?[d]", "line\none", "ümläut-ß", "trailing\\", "#sp ace\t"]
    for secret in odd:
        mask(secret)
    secrets = registered_secrets()
    assert sorted(secrets._values) == sorted(odd) and secrets._extra is None
    assert all(secret not in repr(secrets) for secret in odd)


def test_a_masker_that_keeps_its_secrets_otherwise_still_masks_and_the_cut_is_wide(
    mask: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk._shared.secrets_masker import secrets_masker

    mask(SECRET)
    masker = secrets_masker._secrets_masker()
    monkeypatch.setattr(masker, "patterns", {"(?i)" + re.escape(SECRET)})
    secrets = registered_secrets()
    assert secrets.mask(f"a {SECRET}") == "a ***"
    assert secrets.mask_bytes(f"a {SECRET}".encode()) == b"a ***"
    assert secrets.mask_tail(SECRET[3:] + "1" * 100, start_cut=True, end_cut=False) == ""
    shown = secrets.mask_tail(SECRET[3:] + "1" * 8179 + SECRET + "2", start_cut=True, end_cut=False)
    assert shown in ("2", "***2", "1***2")


# ---- tasks


def context(map_index: int) -> dict[str, Any]:
    return {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=map_index)}


@pytest.mark.asyncio
@pytest.mark.parametrize(("map_index", "holder"), [(-1, "d/r/t"), (3, "d/r/t[3]")])
async def test_in_a_task_the_dag_run_owns_and_the_task_holds(map_index: int, holder: str) -> None:
    backend = Tagged("d/r")
    with patch.object(ours, "get_current_context", autospec=True, return_value=context(map_index)):
        async with SandboxToolset(backend, attach_to="sb-1"):
            assert backend.tags[HOLDER_TAG] == holder
    assert backend.tags == {OWNER_TAG: "d/r"}


@pytest.mark.asyncio
async def test_outside_of_a_task_an_owner_is_needed() -> None:
    with pytest.raises(SandboxTerminalError, match="needs an owner"):
        await SandboxToolset(Tagged("me"), attach_to="sb-1").__aenter__()


# ---- exports


def scripted(command: str) -> FunctionModel:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(p, ToolReturnPart) for m in messages for p in m.parts):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("run_command", {"command": command})])

    return FunctionModel(model)


def test_a_run_exports_and_the_lineage_hears_of_the_final_file_once(tmp_path: Path) -> None:
    collected: list[str] = []
    collector = SimpleNamespace(
        add_output_asset=lambda context, uri: collected.append(uri),
        add_input_asset=lambda context, uri: collected.append("input " + uri),
    )
    toolset = SandboxToolset(Backend(), exports={"f": f"file://{tmp_path}/f"})
    with patch("airflow.sdk.lineage.get_hook_lineage_collector", return_value=collector):
        Agent(scripted("x"), toolsets=[toolset]).run_sync("go")
    assert (tmp_path / "f").read_bytes() == b"payload"
    assert collected == [f"file://{tmp_path}/f"]


def test_a_lineage_collector_that_fails_does_not_fail_the_export(tmp_path: Path) -> None:
    toolset = SandboxToolset(Backend(), exports={"f": f"file://{tmp_path}/f"})
    with patch("airflow.sdk.lineage.get_hook_lineage_collector", side_effect=RuntimeError("no")):
        Agent(scripted("x"), toolsets=[toolset]).run_sync("go")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_the_connection_is_given_only_when_there_is_one() -> None:
    plain = SandboxToolset(Backend(), exports={"f": "s3://conn@bucket/f"})
    given = SandboxToolset(Backend(), exports={"f": "s3://bucket/f"}, export_conn_id="store")
    forked = cast("SandboxToolset", asyncio.run(given.for_run(CTX)))
    with patch.object(ours, "ObjectStoragePath", autospec=True) as path:
        plain._export_target("s3://conn@bucket/f")
        forked._export_target("s3://bucket/f")
    assert [c.args + tuple(c.kwargs.items()) for c in path.call_args_list] == [
        ("s3://conn@bucket/f",),
        ("s3://bucket/f", ("conn_id", "store")),
    ]


def test_provider_fault_33_the_same_key_by_url_and_by_connection_is_one_destination() -> None:
    from sandbox_native.storage import StoreSlot

    one = ObjectStoragePath("memory://store@bucket/f")
    two = ObjectStoragePath("memory://bucket//f", conn_id="store")
    fs = fsspec.filesystem("memory")
    slots = [StoreSlot(fs, p.path, str(p), account=p.conn_id) for p in (one, two)]
    assert slots[0].identity == slots[1].identity


def test_native_frameworks_use_its_tools_in_a_with_block(tmp_path: Path) -> None:
    backend = Backend()
    with SandboxToolset(backend, exports={"f": f"file://{tmp_path}/f"}) as toolset:
        tool = {tool.name: tool for tool in toolset.airflow_tools()}["run_command"]
        result = asyncio.run(tool.call({"command": "x"}))
    assert not result.is_error and result.content == "[stdout]\nout"
    assert backend.destroyed == backend.created == ["box-1"]
    assert (tmp_path / "f").read_bytes() == b"payload"


# ---- the other order of imports


def test_imported_after_the_own_contract_it_says_what_to_do() -> None:
    import subprocess
    import sys

    code = "import sandbox_native.contract\nimport sandbox_native.airflow\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert done.returncode == 1 and "Import Airflow first" in done.stderr
    code = "import sandbox_native.airflow, sandbox_native.contract as c\nassert c.home == 'airflow'\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=280)
