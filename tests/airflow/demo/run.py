# SPDX-License-Identifier: Apache-2.0
"""``make demo``: an Airflow Dag runs an agent in a local sandbox; what the model saw, and what came out.

Everything is offline: Airflow on SQLite in a temporary home, a scripted model on loopback. With
``OPENAI_API_KEY`` or ``ANTHROPIC_API_KEY`` in the environment the real model answers instead (its name in
``SANDBOX_NATIVE_DEMO_MODEL``, as pydantic-ai names it); ``--scripted`` keeps to the script.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from demo import check, dataset, show  # noqa: E402
from demo.analyst import analyst  # noqa: E402
from demo.endpoint import ScriptedEndpoint, connection  # noqa: E402
from demo.home import AirflowHome  # noqa: E402

ROOT = HERE.parents[2]
DAG = "city_bikes"
NETWORK = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")


class DemoError(Exception):
    """What went wrong, a line each."""


def main() -> int:
    parser = argparse.ArgumentParser(description="An agent in a sandbox, in an Airflow Dag")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "demo", help="folder of the results")
    parser.add_argument("--scripted", action="store_true", help="the scripted model even where a key is set")
    options = parser.parse_args()
    output: Path = options.output.resolve()
    shutil.rmtree(output / "exports", ignore_errors=True)
    (output / "data").mkdir(parents=True, exist_ok=True)
    log = output / "airflow.log"
    log.write_text("")
    try:
        play(output, log, None if options.scripted else real_model())
    except DemoError as e:
        print("\nThe demo failed:", *(f"  {reason}" for reason in e.args), sep="\n", file=sys.stderr)
        print(f"The end of {log}:", file=sys.stderr)
        for line in log.read_text(errors="replace").splitlines()[-25:]:
            print(f"  {line[:200]}", file=sys.stderr)
        return 1
    return 0


def play(output: Path, log: Path, model: tuple[str, str] | None) -> None:
    """Run the Dag and show it.

    :param model: name and Airflow connection of a real model; None for the scripted one.
    :raises DemoError: the Dag failed, or the files are not what the data says.
    """
    exports = output / "exports"
    data = output / "data" / f"rides_{dataset.YEAR}.csv"
    print(f"model:  {model[0] if model else 'scripted, on loopback'}")
    print(f"log:    {log}\n")
    with step("Data: a year of bike rides, by the hour"):
        dataset.write(data)
    with step("Python: matplotlib compiled, since the sandbox cannot write beside it"):
        compile_for_sandbox()
    with ScriptedEndpoint({"analyst": analyst}) as endpoint:
        env = {
            # The script needs no way out; a real model may need the user's proxy and certificates.
            **({name: os.environ[name] for name in NETWORK if name in os.environ} if model else {}),
            "AIRFLOW_CONN_BIKES_MODEL": model[1] if model else endpoint.connection("analyst"),
            "AIRFLOW_VAR_BIKES_DATA": str(data),
            "AIRFLOW_VAR_BIKES_OUTPUT": str(exports),
        }
        with AirflowHome(HERE / "dags", env, log) as home:
            with step("Airflow: a new home with a SQLite database"):
                if home.airflow("db", "migrate").returncode:
                    raise DemoError("airflow db migrate failed")
            with step(f"Airflow: airflow dags test {DAG}"):
                tested = home.airflow("dags", "test", DAG)
            runs = home.query("select run_id, state from dag_run where dag_id = ?", DAG)
            if not runs:
                raise DemoError(f"airflow dags test ended with {tested.returncode} before it made a run")
            run_id, state = runs[-1]
            show_run(home, run_id)
            if tested.returncode or state != "success":
                raise DemoError(*endpoint.errors, f"the Dag run ended as {state}: {home.states(DAG, run_id)}")
    print("\nWhat came out\n-------------")
    folder = exports / run_id
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        print(f"{path.stat().st_size:>9,} bytes  {path}")
    with step("\nCheck: the summary worked out again from the data, the chart decoded"):
        faults = check.check(data, folder)
    if faults:
        raise DemoError(*faults)


def compile_for_sandbox() -> None:
    """Have Python write the compiled modules that the agent's program will read, once per environment."""
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        program = "import matplotlib.pyplot, matplotlib.backends.backend_agg"
        subprocess.run([sys.executable, "-c", program], env={**env, "MPLCONFIGDIR": folder}, check=True)


def show_run(home: AirflowHome, run_id: str) -> None:
    """Print the conversation of the agent's task, if it came to its end, and what each task took."""
    messages = home.xcom(DAG, run_id, "analyse", "message_history")
    if messages:
        print("\nWhat the model saw\n------------------")
        for line in show.conversation(messages):
            print(line)
    print("\nThe tasks of the Dag\n--------------------")
    for task, state, seconds in home.query(
        "select task_id, state, duration from task_instance where dag_id = ? and run_id = ? order by task_id",
        *(DAG, run_id),
    ):
        result = home.xcom(DAG, run_id, task) if task == "best_month" else None
        print(f"{task:<12} {state}, {seconds or 0:.1f} s{f': {result}' if result else ''}")


def real_model() -> tuple[str, str] | None:
    """Name and Airflow connection of the model that the environment has a key for."""
    name = os.environ.get("SANDBOX_NATIVE_DEMO_MODEL")
    if key := os.environ.get("OPENAI_API_KEY"):
        name = name or "openai:gpt-5-mini"
        return name, connection(name, key, os.environ.get("OPENAI_BASE_URL"))
    if key := os.environ.get("ANTHROPIC_API_KEY"):
        # Through the provider's OpenAI-compatible endpoint: the one client that the demo installs.
        name = name or "openai-chat:claude-sonnet-4-5"
        return name, connection(name, key, "https://api.anthropic.com/v1/")
    return None


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    print(what, end=" ... ", flush=True)
    start = time.monotonic()
    try:
        yield
    finally:
        print(f"{time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
