# SPDX-License-Identifier: Apache-2.0
"""Islo from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_program import cli
from servers.islo.handle import IsloServer


def test_a_command_with_files_in_and_out(islo: IsloServer, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("b\na\n")
    done = cli(
        *("run", "--backend", "islo", "--env", "LIMIT=7", "--put", f"{tmp_path}/in.csv:/data/in.csv"),
        *(
            "--export",
            f"out.csv={tmp_path}/out.csv",
            "--",
            "sort /data/in.csv >out.csv; echo $LIMIT; echo e >&2",
        ),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"7\n", b"e\n")
    assert (tmp_path / "out.csv").read_text() == "a\nb\n"
    assert not islo.sandboxes()


def test_the_status_is_the_commands(islo: IsloServer) -> None:
    assert cli("run", "--backend", "islo", "--", "exit 7").returncode == 7
    done = cli("run", "--backend", "islo", "--timeout", "1", "--", "sleep 100")
    assert done.returncode == 124
    assert not islo.sandboxes()


def test_doctor_finds_a_service_that_works(islo: IsloServer) -> None:
    done = cli("doctor", "--backend", "islo")
    text = done.stdout.decode()
    assert done.returncode == 0, text
    states = [line.split()[0] for line in text.splitlines()[:-2]]
    assert set(states) == {"ok"}
    assert islo.control in text and islo.compute in text
    assert text.endswith("The backend islo works here.\n")
    assert "test-key" not in text and "token-" not in text
    assert not islo.sandboxes()


@pytest.mark.parametrize(
    ("environment", "fault", "mend"),
    [
        ({"ISLO_API_KEY": ""}, "ISLO_API_KEY", "export ISLO_API_KEY="),
        ({"ISLO_API_KEY": "wrong-key"}, "rejected ISLO_API_KEY (HTTP 401)", "new key"),
        ({"ISLO_BASE_URL": "http://me:secret@127.0.0.1"}, "ISLO_BASE_URL", "unset"),
        ({"ISLO_BASE_URL": "http://127.0.0.1:1"}, "control plane", "ISLO_BASE_URL"),
        ({"ISLO_COMPUTE_URL": "http://127.0.0.1:1"}, "compute plane", "ISLO_COMPUTE_URL"),
        ({"ISLO_COMPUTE_URL": "https://nowhere.invalid"}, "compute plane", "ISLO_COMPUTE_URL"),
    ],
)
def test_doctor_names_what_does_not_work(
    islo: IsloServer, environment: dict[str, str], fault: str, mend: str
) -> None:
    done = cli("doctor", "--backend", "islo", **environment)
    text = done.stdout.decode()
    assert done.returncode == 1, text
    assert not done.stderr
    (line,) = [line for line in text.splitlines() if line.startswith("FAULT")]
    assert fault in line
    (fix,) = [line for line in text.splitlines() if "fix: " in line]
    assert mend in fix
    assert text.endswith("The backend islo does not work here; see above.\n")
    for secret in ("wrong-key", "test-key", "token-", "secret@"):
        assert secret not in text


def test_a_backend_that_is_none() -> None:
    done = cli("doctor", "--backend", "nowhere")
    assert done.returncode == 2
    assert b"known are:" in done.stderr


def test_a_sandbox_that_cannot_be_made(islo: IsloServer) -> None:
    islo.faults.add("create", "status", status=402, body={"code": "NO_CREDITS", "message": "no credits left"})
    done = cli("run", "--backend", "islo", "--", "true")
    assert done.returncode == 125
    assert b"Islo could not create a sandbox (HTTP 402): no credits left." in done.stderr


@pytest.mark.parametrize("operation", ["create", "exec", "delete", "list", "token"])
def test_what_the_service_says_of_the_key_is_not_shown(islo: IsloServer, operation: str) -> None:
    body = {"code": "X", "message": "of no use: Bearer token-1, test-key"}
    islo.faults.add(operation, "status", status=400, body=body, times=None)
    for arguments in (("doctor", "--backend", "islo"), ("run", "--backend", "islo", "--", "true")):
        done = cli(*arguments)
        said = done.stdout + done.stderr
        assert b"test-key" not in said, (arguments, done)
        if operation in ("list", "token") if arguments[0] == "doctor" else operation != "list":
            assert b"HTTP 400" in said, (arguments, done)
