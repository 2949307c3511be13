# SPDX-License-Identifier: Apache-2.0
"""A year of bike rides: an agent analyses it inside a sandbox, and two files come out."""

from __future__ import annotations

import csv
import os
import sys

from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.sdk import DAG, ObjectStoragePath, Variable, task

from sandbox_native.airflow import SandboxToolset
from sandbox_native.backends.local import LocalSandboxBackend

DATA = os.environ["AIRFLOW_VAR_BIKES_DATA"]
OUTPUT = "file://{{ var.value.bikes_output }}/{{ run_id }}"

# All that the sandbox sees beside the system's read-only tree: this Python environment with its base
# interpreter, and the folder of the data.
SHOWN = [sys.prefix, os.path.dirname(DATA)]
if sys.base_prefix != sys.prefix and not sys.base_prefix.startswith("/usr"):
    SHOWN.append(sys.base_prefix)

with DAG("city_bikes", schedule=None, tags=["demo"]):
    analyse = AgentOperator(
        task_id="analyse",
        llm_conn_id="bikes_model",
        system_prompt=(
            "You are a data analyst with a sandbox. Write programs to files, run them, read what they "
            f"print, and mend them until they work. Python with matplotlib is {sys.executable}. Write your "
            "files to the working directory."
        ),
        prompt=(
            f"{DATA} has a line for each hour of a year of our bike hire. Write a program that makes two "
            "files. summary.csv: a line a month with the columns month (YYYY-MM), rides (members and "
            "casual), mean_temp_c (one decimal), rain_mm (one decimal), rides_dry_day and rides_wet_day "
            "(mean rides of the days with no rain and with some, rounded to whole rides; empty if there "
            "is no such day). chart.png: the rides of each month as bars with the mean temperature as a "
            "line over them. Then tell me the best and the worst month and what a wet day costs us."
        ),
        toolsets=[
            SandboxToolset(
                LocalSandboxBackend(read_only_paths=SHOWN),
                exports={"summary.csv": f"{OUTPUT}/summary.csv", "chart.png": f"{OUTPUT}/chart.png"},
            )
        ],
        # Keeps the conversation in XCom: what the model saw can be read afterwards.
        message_history=[],
    )

    @task
    def best_month(run_id: str | None = None) -> str:
        """The next task of the pipeline finds the file where the Dag said."""
        folder = ObjectStoragePath(f"file://{Variable.get('bikes_output')}/{run_id}")
        with (folder / "summary.csv").open("r") as file:
            return max(csv.DictReader(file), key=lambda row: int(row["rides"]))["month"]

    analyse >> best_month()
