# SPDX-License-Identifier: Apache-2.0
"""A Dag whose files go by S3: into a sandbox, out of it, and to the next task by the manifest from XCom."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "storage")]

from demo.endpoint import ScriptedEndpoint  # noqa: E402
from demo.home import AirflowHome  # noqa: E402
from supervisor.player import FAIL, player  # noqa: E402

import gateway  # noqa: E402

DAG = "files_pipeline"
ADD = "sh src/lib/add.sh numbers.csv > sum.txt"
NOTES = "cat day.txt > notes.txt"
PARTS = "mkdir -p parts/deep && echo a > 'parts/a b' && echo c > parts/deep/c && ln -s /etc/passwd parts/link"


class Pipeline:
    """One Airflow and one S3 server; a run of the Dag for each day."""

    def __init__(self, home: AirflowHome, store: gateway.Gateway, bucket: str) -> None:
        self.home = home
        self.store = store
        self.bucket = bucket

    def run(self, day: str, *plan: Any) -> tuple[str, dict[str, str | None]]:
        """Run the Dag with a model that makes these calls; the run's id and the state of each task."""
        self.home._extra["AIRFLOW_VAR_PIPELINE_DAY"] = day
        self.home._extra["AIRFLOW_VAR_PIPELINE_PLAN"] = json.dumps(plan)
        self.home.airflow("dags", "test", DAG)
        runs = self.home.query("select run_id from dag_run where dag_id = ? order by id", DAG)
        assert runs, self.home.log.read_text()[-5000:]
        run_id: str = runs[-1][0]
        return run_id, self.home.states(DAG, run_id)

    def out(self, day: str) -> dict[str, bytes]:
        prefix = f"out/{day}/"
        there = self.store.objects(self.bucket)
        return {key.removeprefix(prefix): data for key, data in there.items() if key.startswith(prefix)}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    folder = tmp_path_factory.mktemp("pipeline")
    with gateway.running(folder / "s3") as store, ScriptedEndpoint({"player": player}) as endpoint:
        bucket = store.bucket()
        env = {
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(HERE / "plugins"),
            "AIRFLOW_CONN_PIPELINE_MODEL": endpoint.connection("player"),
            "AIRFLOW_CONN_STORE": store.root.connection(),
            "AIRFLOW_VAR_PIPELINE_BUCKET": bucket,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        with AirflowHome(HERE / "dags", env, folder / "airflow.log") as home:
            assert home.airflow("db", "migrate").returncode == 0, home.log.read_text()[-3000:]
            yield Pipeline(home, store, bucket)


def sh(command: str) -> list[Any]:
    return ["run_command", {"command": command}]


def test_data_goes_in_and_out_and_the_next_task_reads_it_by_the_manifest(pipeline: Pipeline) -> None:
    run_id, states = pipeline.run("monday", sh(ADD), sh(NOTES), sh(PARTS))
    log = pipeline.home.log.read_text()
    assert states == {"produce": "success", "agent": "success", "collect": "success"}, log[-5000:]
    collected = pipeline.home.xcom(DAG, run_id, "collect")
    assert collected["contents"] == {
        "sum.txt": "42\n",
        "notes.txt": "monday",
        "parts/a b": "a\n",
        "parts/deep/c": "c\n",
    }
    there = pipeline.out("monday")
    manifest = json.loads(there.pop("manifest.json"))
    assert manifest["files"] == pipeline.home.xcom(DAG, run_id, "agent", "exports")
    assert {file["destination"].partition("/monday/")[2]: file["sha256"] for file in manifest["files"]} == {
        key: hashlib.sha256(data).hexdigest() for key, data in there.items()
    }
    assert pipeline.store.uploads(pipeline.bucket) == []
    out = f"s3://{pipeline.bucket}/out/monday"
    # Each once, a directory as a whole (Airflow drops the slash at its end), no staging key.
    reported = [[uri, count] for uri, count in collected["outputs"] if "/out/" in uri]
    assert sorted(reported) == [
        [f"{out}/{name}", 1] for name in ("manifest.json", "notes.txt", "parts", "sum.txt")
    ]
    inputs = [uri for uri, _ in collected["inputs"]]
    assert f"s3://{pipeline.bucket}/in/monday/numbers.csv" in inputs
    assert f"s3://{pipeline.bucket}/in/src" in inputs
    # A link was left out, in so many words.
    assert "parts/link" in log


@pytest.mark.parametrize(
    ("day", "plan"),
    [
        ("model", (sh(ADD), sh(NOTES), sh(PARTS), FAIL)),
        ("missing", (sh(ADD), sh(PARTS))),
    ],
)
def test_a_run_that_fails_half_way_leaves_the_store_as_it_was(
    pipeline: Pipeline, day: str, plan: tuple[Any, ...]
) -> None:
    client = pipeline.store.client
    for name in ("sum.txt", "manifest.json", "parts/a b"):
        client.put_object(Bucket=pipeline.bucket, Key=f"out/{day}/{name}", Body=b"as it was")
    before = pipeline.out(day)
    _, states = pipeline.run(day, *plan)
    log = pipeline.home.log.read_text()
    assert (states["produce"], states["agent"]) == ("success", "failed"), log[-5000:]
    assert states["collect"] != "success"
    assert pipeline.out(day) == before
    assert pipeline.store.uploads(pipeline.bucket) == []
