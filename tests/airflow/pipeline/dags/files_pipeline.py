# SPDX-License-Identifier: Apache-2.0
"""Data goes by S3 from a task to an agent's sandbox, and from there to the next task by the manifest."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.sdk import DAG, ObjectStoragePath, Variable, get_current_context, task
from airflow.sdk.lineage import get_hook_lineage_collector

from sandbox_native.airflow import SandboxToolset, push_manifest
from sandbox_native.backends.local import LocalSandboxBackend

STORE = "store"
BUCKET = os.environ["AIRFLOW_VAR_PIPELINE_BUCKET"]
OUT = f"s3://{BUCKET}/out/{{{{ var.value.pipeline_day }}}}"

with DAG("files_pipeline", schedule=None):

    @task
    def produce() -> str:
        url = f"s3://{BUCKET}/in/{Variable.get('pipeline_day')}/numbers.csv"
        ObjectStoragePath(url, conn_id=STORE).write_text("n\n1\n2\n39\n")
        source = ObjectStoragePath(f"s3://{BUCKET}/in/src/lib/add.sh", conn_id=STORE)
        source.write_text("awk 'NR > 1 { s += $1 } END { print s }' \"$1\"\n")
        return url

    agent = AgentOperator(
        task_id="agent",
        llm_conn_id="pipeline_model",
        prompt="{{ var.value.pipeline_plan }}",
        toolsets=[
            SandboxToolset(
                LocalSandboxBackend(),
                inputs={
                    "numbers.csv": "{{ ti.xcom_pull('produce') }}",
                    "src/": f"s3://{BUCKET}/in/src/",
                    "day.txt": {"text": "{{ var.value.pipeline_day }}"},
                },
                input_conn_id=STORE,
                exports={
                    "sum.txt": f"{OUT}/sum.txt",
                    "notes.txt": f"{OUT}/notes.txt",
                    "parts/": f"{OUT}/parts/",
                },
                export_conn_id=STORE,
                export_manifest=f"{OUT}/manifest.json",
                checksum=True,
            )
        ],
        message_history=[],
        post_execute=push_manifest,
    )

    @task
    def collect() -> dict[str, Any]:
        records = get_current_context()["ti"].xcom_pull(task_ids="agent", key="exports")
        contents = {}
        for record in records:
            data = ObjectStoragePath(record["destination"], conn_id=STORE).read_bytes()
            assert len(data) == record["bytes"], record
            assert hashlib.sha256(data).hexdigest() == record["sha256"], record
            contents[record["path"]] = data.decode()
        lineage = get_hook_lineage_collector().collected_assets
        return {
            "contents": contents,
            "inputs": [[info.asset.uri, info.count] for info in lineage.inputs],
            "outputs": [[info.asset.uri, info.count] for info in lineage.outputs],
        }

    produce() >> agent >> collect()
