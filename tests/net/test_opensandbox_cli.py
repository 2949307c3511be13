# SPDX-License-Identifier: Apache-2.0
"""The command line tool on an OpenSandbox server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opensandbox_box import body_of
from servers.opensandbox.handle import OpenSandboxServer


def cli(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandbox_native.cli", *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_run(opensandbox_server: OpenSandboxServer, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("b\na\n")
    done = cli(
        *("run", "--backend", "opensandbox", "--image", "some:1", "--network", "--env", "A=b"),
        *("--put", f"{tmp_path / 'in'}:/srv/in", "--export", f"/srv/out={tmp_path / 'out'}"),
        *("--", "sort /srv/in >/srv/out; echo $A; echo err >&2"),
    )
    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (0, "b\n", "err")
    assert (tmp_path / "out").read_text() == "a\nb\n"
    assert body_of(opensandbox_server.requests("create")[0])["image"] == {"uri": "some:1"}
    assert opensandbox_server.sandboxes() == []


def test_an_exit_status_and_a_timeout(opensandbox_server: OpenSandboxServer) -> None:
    assert cli("run", "--backend", "opensandbox", "--", "exit 7").returncode == 7
    done = cli("run", "--backend", "opensandbox", "--timeout", "3", "--", "echo part; sleep 900")
    assert (done.returncode, done.stdout) == (124, "part\n")
    assert opensandbox_server.sandboxes() == []


def test_an_image_for_a_backend_without_one() -> None:
    done = cli("run", "--image", "x", "--", "true")
    assert done.returncode == 125
    assert "--image: the backend local takes none" in done.stderr


def test_doctor(opensandbox_server: OpenSandboxServer) -> None:
    done = cli("doctor", "--backend", "opensandbox")
    assert done.returncode == 0, done.stdout
    assert opensandbox_server.domain in done.stdout
    assert opensandbox_server.api_key not in done.stdout
    assert opensandbox_server.requests("create") == []


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"OPEN_SANDBOX_API_KEY": "wrong-key"}, "refused (HTTP 401)"),
        ({"OPEN_SANDBOX_DOMAIN": "127.0.0.1:9"}, "127.0.0.1:9"),
        ({"OPEN_SANDBOX_DOMAIN": "me:wrong-key@127.0.0.1:9"}, "OPEN_SANDBOX_DOMAIN"),
        ({"OPEN_SANDBOX_DOMAIN": "127.0.0.1:9?key=wrong-key"}, "OPEN_SANDBOX_DOMAIN"),
        ({"OPEN_SANDBOX_API_KEY": "wrong-key\n"}, "OPEN_SANDBOX_API_KEY"),
    ],
)
def test_doctor_finds_what_is_wrong(
    opensandbox_server: OpenSandboxServer, env: dict[str, str], words: str
) -> None:
    done = cli("doctor", "--backend", "opensandbox", **env)
    assert done.returncode == 1
    assert words in done.stdout
    assert "wrong-key" not in done.stdout + done.stderr


@pytest.mark.parametrize("operation", ["create", "command", "delete", "list"])
def test_what_a_server_says_of_the_key_is_not_shown(
    opensandbox_server: OpenSandboxServer, operation: str
) -> None:
    key = opensandbox_server.api_key
    body = {"code": "X", "message": f"bad header OPEN-SANDBOX-API-KEY: {key} (of {key})"}
    opensandbox_server.faults.add(operation, "status", status=500, body=body, times=None)
    for arguments in (
        ("doctor", "--backend", "opensandbox"),
        ("run", "--backend", "opensandbox", "--", "true"),
    ):
        done = cli(*arguments)
        assert key not in done.stdout + done.stderr, (arguments, done)
        if operation == ("list" if arguments[0] == "doctor" else "create"):
            assert done.returncode != 0
            assert "HTTP 500" in done.stdout + done.stderr
