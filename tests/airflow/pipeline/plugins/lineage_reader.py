# SPDX-License-Identifier: Apache-2.0
"""Has Airflow collect what hooks and paths report; without a reader it collects nothing."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk.lineage import HookLineageReader


class LineageReaderPlugin(AirflowPlugin):
    name = "lineage_reader"
    hook_lineage_readers = [HookLineageReader]  # noqa: RUF012 (as Airflow declares it)
