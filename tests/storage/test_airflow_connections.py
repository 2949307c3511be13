# SPDX-License-Identifier: Apache-2.0
"""Exports of the Airflow toolset with each way of naming an account: connection, URL, environment."""

from __future__ import annotations

import secrets
from typing import Any, BinaryIO, cast

import airflow.sdk.io.store as airflow_stores
import jinja2
import pytest
from airflow.providers.common.ai.operators.agent import AgentOperator
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from gateway import Account, Gateway
from proxy import Proxy
from sandbox_native.airflow import SandboxToolset
from sandbox_native.contract import SandboxBackend, SandboxExecResult, SandboxTerminalError

DATA = {"report.csv": b"a,b\n" * 2_000_000, "note.txt": b"done"}


class Backend(SandboxBackend):
    name = "files"

    def create(self, *, spec: Any = None) -> str:
        return "box-1"

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        return SandboxExecResult(0, "out\n", "")

    def destroy(self, sandbox: str) -> None:
        pass

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        return dest.write(DATA[path])


@pytest.fixture
def account(s3: Gateway, bucket: str) -> Account:
    """One that may write below ``out/`` and nothing else."""
    return s3.role(bucket, "out/", "PutObject", "GetObject", "DeleteObject", "AbortMultipartUpload")


@pytest.fixture
def conn(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a connection; Airflow keeps the file system of one for the life of the process."""
    monkeypatch.setattr(airflow_stores, "_STORE_CACHE", {})
    return f"exports_{secrets.token_hex(4)}"


def run(toolset: SandboxToolset, conn: str = "", ds: str = "2026-01-31") -> None:
    """Render the toolset as the operator does for a Dag run, and have an agent use it."""
    task = AgentOperator(task_id="t", prompt="p", llm_conn_id="c", toolsets=[toolset])
    context = cast("Any", {"ds": ds, "conn": conn, "empty": ""})
    task._do_render_template_fields(task, task.template_fields, context, jinja2.Environment(), set())
    rendered = cast("list[Any]", task.toolsets)
    Agent(TestModel(call_tools=["run_command"]), toolsets=rendered).run_sync("go")


def check(s3: Gateway, bucket: str, proxy: Proxy, writer: str) -> None:
    assert s3.objects(bucket) == {f"out/2026-01-31/{path}": data for path, data in DATA.items()}
    assert s3.uploads(bucket) == []
    sent = [request for request in proxy.seen if request.operation == "UploadPart"]
    # The other is less than a part, which s3fs sends in any case.
    agents = [request.agent for request in sent if request.key.endswith("report.csv")]
    assert agents and all(("object_store" in agent) == (writer == "obstore") for agent in agents)


WRONG = Account("wrong", "credentials", "http://127.0.0.1:1")


@pytest.mark.parametrize("named_by", ["export_conn_id", "template", "url", "environment"])
def test_the_account_is_the_one_that_is_named(
    s3: Gateway,
    bucket: str,
    account: Account,
    writer: str,
    proxy: Proxy,
    conn: str,
    named_by: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the other ways leading to credentials that are no good, so that none of them was taken."""
    right, wrong = account.connection(proxy.endpoint), WRONG.connection()
    by_connection = named_by != "environment"
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn.upper()}", right if by_connection else wrong)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", wrong)
    surroundings = WRONG.environment() if by_connection else account.environment(proxy.endpoint)
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    host = f"{conn}@{bucket}" if named_by == "url" else bucket
    conn_id = {"export_conn_id": conn, "template": "{{ conn }}"}.get(named_by)
    if named_by == "environment":
        # Where no connection is named, the amazon provider's hook asks for this one first.
        monkeypatch.delenv("AIRFLOW_CONN_AWS_DEFAULT")
    toolset = SandboxToolset(
        Backend(),
        exports={path: f"s3://{host}/out/{{{{ ds }}}}/{path}" for path in DATA},
        export_conn_id=conn_id,
    )
    run(toolset, conn)
    check(s3, bucket, proxy, writer)


def test_a_run_whose_second_file_is_not_there_leaves_the_bucket_as_it_was(
    s3: Gateway,
    bucket: str,
    account: Account,
    writer: str,
    proxy: Proxy,
    conn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Failing(Backend):
        def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
            if path == "note.txt":
                raise RuntimeError("it is not there")
            return super().export_file(sandbox, path, dest, max_bytes=max_bytes)

    monkeypatch.setenv(f"AIRFLOW_CONN_{conn.upper()}", account.connection(proxy.endpoint))
    toolset = SandboxToolset(
        Failing(),
        exports={path: f"s3://{conn}@{bucket}/out/{path}" for path in DATA},
    )
    with pytest.raises(SandboxTerminalError, match="it is not there"):
        run(toolset)
    assert s3.objects(bucket) == {} and s3.uploads(bucket) == []


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        ("s3://{conn}@{bucket}", "file name"),
        ("s3://{conn}@{bucket}/", "slash"),
        ("s3://{conn}@{bucket}/folder", "existing directory"),
        ("s3://{conn}@{bucket}/folder/", "slash"),
        ("s3://{bucket}/out/{{{{ empty }}}}", "slash"),
        ("{{{{ empty }}}}", "not a storage URL"),
    ],
)
def test_provider_fault_34_a_destination_nothing_can_be_published_at(
    s3: Gateway, bucket: str, conn: str, destination: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.client.put_object(Bucket=bucket, Key="folder/file", Body=b"x")
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn.upper()}", s3.root.connection())
    toolset = SandboxToolset(Backend(), exports={"note.txt": destination.format(bucket=bucket, conn=conn)})
    with pytest.raises(SandboxTerminalError, match=reason):
        run(toolset)
    assert s3.objects(bucket) == {"folder/file": b"x"}


def test_provider_fault_33_one_key_by_two_ways(
    s3: Gateway, bucket: str, conn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn.upper()}", s3.root.connection())
    toolset = SandboxToolset(
        Backend(),
        exports={
            "report.csv": f"s3://{conn}@{bucket}/out/{{{{ ds }}}}",
            "note.txt": f"s3://{bucket}/out//2026-01-31",
        },
        export_conn_id=conn,
    )
    with pytest.raises(SandboxTerminalError, match="one of the files would be lost"):
        run(toolset)
    assert s3.objects(bucket) == {}
