# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from demo import dataset  # noqa: E402
from demo.analyst import analyst  # noqa: E402
from demo.endpoint import ScriptedEndpoint  # noqa: E402
from supervisor.harness import Supervisor  # noqa: E402
from supervisor.player import player  # noqa: E402
from supervisor.runs import SECRET, Runs  # noqa: E402


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """One Airflow for all the tests of this folder."""
    folder = tmp_path_factory.mktemp("supervisor")
    data = folder / "data" / "rides.csv"
    data.parent.mkdir()
    (folder / "output").mkdir()
    dataset.write(data)
    with ScriptedEndpoint({"analyst": analyst, "player": player}) as endpoint:
        env = {
            "AIRFLOW_CONN_BIKES_MODEL": endpoint.connection("analyst"),
            "AIRFLOW_VAR_BIKES_DATA": str(data),
            "AIRFLOW_VAR_BIKES_OUTPUT": str(folder / "output"),
            "AIRFLOW_CONN_PLAYED_MODEL": endpoint.connection("player"),
            "AIRFLOW_VAR_PLAYED_OUTPUT": str(folder / "output"),
            "PLANTED_SECRET": SECRET,
        }
        dags = [HERE.parent / "demo" / "dags" / "city_bikes.py", HERE / "dags" / "played.py"]
        with Supervisor(folder, dags, env) as airflow:
            yield Runs(airflow, folder / "output", data)
