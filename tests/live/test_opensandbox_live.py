# SPDX-License-Identifier: Apache-2.0
"""Our backend against a real deployment: what only a real one can show, through its proxy and directly."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opensandbox_raw import EGRESS, Deployment, Sandbox
from sandbox_native import calls
from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sandbox_native.contract import SandboxError, SandboxSpec, SandboxTerminalError

LIFETIME = 600.0
CAP = 100

IMAGES = [name for name in os.environ.get("OPEN_SANDBOX_IMAGES", "python:3.12-slim").split(",") if name]


@pytest.fixture(scope="module", params=["proxied", "direct"])
def proxied(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "proxied")


@pytest.fixture(scope="module", params=IMAGES)
def backend(proxied: bool, request: pytest.FixtureRequest) -> OpenSandboxBackend:
    return OpenSandboxBackend(
        None, image=request.param, use_server_proxy=proxied, memory="1Gi", sandbox_timeout=LIFETIME
    )


@contextlib.contextmanager
def made(backend: OpenSandboxBackend, spec: SandboxSpec | None = None) -> Iterator[str]:
    handle = backend.create(spec=spec)
    try:
        yield handle
    finally:
        backend.destroy(handle)


@pytest.fixture(scope="module")
def sandbox(backend: OpenSandboxBackend) -> Iterator[str]:
    """A sandbox that tests leave alive."""
    with made(backend) as handle:
        yield handle


@pytest.fixture
def own(backend: OpenSandboxBackend) -> Iterator[str]:
    """A sandbox for this test, which it may end."""
    with made(backend) as handle:
        yield handle


@contextlib.contextmanager
def soon(act: Callable[[], Any], seconds: float = 1.0) -> Iterator[None]:
    timer = threading.Timer(seconds, act)
    timer.start()
    yield
    timer.join()


def run(backend: OpenSandboxBackend, sandbox: str, command: str, timeout: float = 60.0) -> Any:
    return backend.run_command(sandbox, command, timeout=timeout, max_output_bytes=CAP)


# Commands


def test_output_is_exact(backend: OpenSandboxBackend, sandbox: str) -> None:
    done = run(backend, sandbox, "printf 'a\\rb\\377\\n\\nend'; printf 'err' >&2; exit 3")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "a\rb\ufffd\n\nend", "err")
    assert not (done.timed_out or done.stdout_truncated or done.stderr_truncated)


def test_a_line_of_50_mb(backend: OpenSandboxBackend, sandbox: str) -> None:
    done = run(backend, sandbox, "head -c 50000000 /dev/zero | tr '\\0' x; exit 7")
    assert (done.exit_code, done.stdout, done.stdout_truncated) == (7, "x" * CAP, True)


def test_a_million_and_a_half_lines(backend: OpenSandboxBackend, sandbox: str) -> None:
    done = run(backend, sandbox, "seq 1500000; seq 1500000 >&2")
    assert done.exit_code == 0 and done.stdout_truncated and done.stderr_truncated
    for text in (done.stdout, done.stderr):
        assert text.endswith("\n1499999\n1500000\n") and CAP // 2 < len(text) <= CAP


def test_a_timeout_ends_everything_and_keeps_the_output(backend: OpenSandboxBackend, sandbox: str) -> None:
    done = run(backend, sandbox, "echo begun; setsid sleep 4321 & setsid nohup sleep 4322 & sleep 4323", 1.5)
    assert (done.timed_out, done.sandbox_terminated, done.stdout) == (True, False, "begun\n")
    assert run(backend, sandbox, "pgrep -fc '^sleep 432'").stdout == "0\n"


def test_a_cancel_ends_everything(backend: OpenSandboxBackend, sandbox: str) -> None:
    import asyncio

    async def cancelled() -> None:
        task = asyncio.ensure_future(
            calls.run(run, backend, sandbox, "setsid sleep 5321 & sleep 5322", 100.0)
        )
        await asyncio.sleep(1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert run(backend, sandbox, "pgrep -fc '^sleep 532'").stdout == "0\n"


def test_a_background_child_lives_on(backend: OpenSandboxBackend, sandbox: str) -> None:
    assert run(backend, sandbox, "sleep 6321 & echo hi").stdout == "hi\n"
    assert run(backend, sandbox, "pgrep -fc '^sleep 6321'; pkill -f '^sleep 6321'").stdout == "1\n"


def test_nothing_is_left_in_tmp(backend: OpenSandboxBackend, own: str) -> None:
    """But for the files of the command that looks."""
    count = run(backend, own, "ls -A /tmp | wc -l").stdout
    for _ in range(3):
        run(backend, own, "echo x; echo y >&2")
    assert run(backend, own, "ls -A /tmp | wc -l").stdout == count
    assert backend.list_directory(own, "/tmp") == []


def test_the_sandbox_ends_under_a_command(
    backend: OpenSandboxBackend, own: str, deployment: Deployment
) -> None:
    with soon(lambda: deployment.call(f"/sandboxes/{own}", "DELETE")):
        done = run(backend, own, "sleep 50")
    assert (done.exit_code, done.sandbox_terminated, done.timed_out) == (-1, True, False)
    with pytest.raises(SandboxTerminalError):
        run(backend, own, "true")
    with pytest.raises(SandboxTerminalError):
        backend.read_file(own, "/etc/passwd", max_bytes=10_000)


def test_execd_dies_under_a_command(backend: OpenSandboxBackend, own: str) -> None:
    try:
        done = run(backend, own, "kill -9 $(pgrep -x execd)")
    except SandboxTerminalError:
        return
    assert (done.exit_code, done.sandbox_terminated) == (-1, True)


def test_a_sandbox_paused_under_a_command_ends_the_call(
    backend: OpenSandboxBackend, own: str, deployment: Deployment
) -> None:
    with soon(lambda: deployment.call(f"/sandboxes/{own}/pause", "POST")):
        done = run(backend, own, "sleep 3", 4.0)
    assert (done.timed_out, done.sandbox_terminated) == (True, True)
    assert deployment.call(f"/sandboxes/{own}").status == 404


# Files


NAMES = [
    "a b",
    "$HOME",
    "~",
    "${X}",
    "#?%41+&;",
    "'\"\\",
    "new\nline",
    "-rf",
    "[a]*",
    "é\U0001f600",
    "trailing ",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files(backend: OpenSandboxBackend, sandbox: str, name: str) -> None:
    folder = f"/tmp/names/{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    content = os.urandom(2000)
    backend.write_file(sandbox, f"{folder}/{name}", content)
    assert backend.list_directory(sandbox, folder) == [(name, False)]
    assert backend.read_file(sandbox, f"{folder}/{name}", max_bytes=5000) == content
    assert run(backend, sandbox, f"cat {folder}/* | wc -c").stdout.strip() == "2000"


def test_parents_keep_their_mode(backend: OpenSandboxBackend, sandbox: str) -> None:
    before = run(backend, sandbox, "stat -c %a /tmp").stdout
    backend.write_file(sandbox, "/tmp/parent/deep/file", b"x")
    assert run(backend, sandbox, "stat -c %a /tmp").stdout == before


@pytest.mark.parametrize("path", ["/etc", "/nowhere", "/etc/passwd/below", "/tmp/loop", ""], ids=repr)
def test_what_cannot_be_read_is_the_model_s_to_mend(
    backend: OpenSandboxBackend, sandbox: str, path: str
) -> None:
    run(backend, sandbox, "ln -sfn loop /tmp/loop")
    with pytest.raises(SandboxError) as error:
        backend.read_file(sandbox, path, max_bytes=100)
    assert not isinstance(error.value, SandboxTerminalError)


def test_an_export(backend: OpenSandboxBackend, sandbox: str, tmp_path: Path) -> None:
    run(backend, sandbox, "head -c 50000001 /dev/urandom > /tmp/big")
    with (tmp_path / "big").open("wb") as file:
        assert backend.export_file(sandbox, "/tmp/big", file, max_bytes=10**9) == 50_000_001
    digest = hashlib.sha256((tmp_path / "big").read_bytes()).hexdigest()
    assert run(backend, sandbox, "sha256sum < /tmp/big").stdout.split()[0] == digest


def test_an_export_of_a_file_that_is_written(
    backend: OpenSandboxBackend, sandbox: str, tmp_path: Path
) -> None:
    command = "head -c 80000000 /dev/zero > /tmp/log; (while :; do echo x; done >> /tmp/log) & echo $!"
    writer = run(backend, sandbox, command).stdout
    with (tmp_path / "log").open("wb") as file, pytest.raises(SandboxError, match="changed"):
        backend.export_file(sandbox, "/tmp/log", file, max_bytes=10**10)
    run(backend, sandbox, f"kill {writer}; rm /tmp/log")


def test_the_sandbox_ends_under_an_export(
    backend: OpenSandboxBackend, own: str, deployment: Deployment
) -> None:
    run(backend, own, "truncate -s 4G /tmp/big")
    with (
        soon(lambda: deployment.call(f"/sandboxes/{own}", "DELETE"), 0.3),
        open("/dev/null", "wb") as null,
        pytest.raises(SandboxTerminalError),
    ):
        backend.export_file(own, "/tmp/big", WriteOnly(null), max_bytes=10**10)  # type: ignore[arg-type]


class WriteOnly:
    """A destination without a descriptor."""

    def __init__(self, file: Any) -> None:
        self.write = file.write


# Network and life


def test_a_blocked_network_is_enforced_or_refused(
    backend: OpenSandboxBackend, deployment: Deployment, proxied: bool
) -> None:
    """By the mode of this deployment: with any but ``dns+nft`` there must be no sandbox."""
    denied = {"networkPolicy": {"defaultAction": "deny", "egress": []}}
    with deployment.sandbox(proxied, **denied) as raw:
        endpoint = raw.endpoint(EGRESS)
        sidecar = Sandbox(deployment, raw.made, proxied)
        sidecar.execd = f"http://{endpoint['endpoint']}"
        mode = sidecar.call("/policy", headers=endpoint["headers"]).json().get("enforcementMode")
    spec = SandboxSpec(block_network=True, allow_egress_to=["packages.example"])
    if mode != "dns+nft":
        before = deployment.call("/sandboxes?pageSize=200").json()["pagination"]["totalItems"]
        with pytest.raises(SandboxTerminalError, match=r"did not enforce .*mode = \"dns\+nft\""):
            backend.create(spec=spec)
        assert deployment.call("/sandboxes?pageSize=200").json()["pagination"]["totalItems"] == before
        return
    with made(backend, spec) as handle:
        command = "timeout 5 bash -c 'echo > /dev/tcp/192.0.2.1/80' || echo none"
        done = backend.run_command(handle, command, timeout=60, max_output_bytes=1000)
        assert done.stdout == "none\n", done


def test_tags_and_attaching(backend: OpenSandboxBackend, proxied: bool) -> None:
    owner = "a dag / run at 2026-12-01T00:00:00+00:00 é"
    with made(backend, SandboxSpec(block_network=False, owner=owner)) as handle:
        other = OpenSandboxBackend(None, use_server_proxy=proxied)
        found = other.attach(handle, owner=owner, holder="one")
        assert found.network is not None and found.network.block_network is False
        assert found.workdir == run(backend, handle, "pwd").stdout.strip()
        assert 0 < found.remaining_lifetime <= LIFETIME
        with pytest.raises(SandboxTerminalError, match="held by"):
            backend.attach(handle, owner=owner, holder="two")
        other.release(handle, holder="one")
        with pytest.raises(SandboxTerminalError):
            other.attach(handle, owner="another", holder="one")
        backend.attach(handle, owner=owner, holder="two")
        backend.release(handle, holder="two")


def test_a_handle_works_in_another_process(backend: OpenSandboxBackend, sandbox: str, proxied: bool) -> None:
    source = """
import sys
from sandbox_native.backends.opensandbox import OpenSandboxBackend
backend = OpenSandboxBackend(None, use_server_proxy=sys.argv[2] == "True")
print(backend.run_command(sys.argv[1], "cat /tmp/shared", timeout=30, max_output_bytes=100).stdout, end="")
backend.write_file(sys.argv[1], "/tmp/answer", b"from there")
"""
    backend.write_file(sandbox, "/tmp/shared", b"from here")
    command = [sys.executable, "-c", source, sandbox, str(proxied)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "from here"
    assert backend.read_file(sandbox, "/tmp/answer", max_bytes=100) == b"from there"


def test_ending_twice(backend: OpenSandboxBackend) -> None:
    handle = backend.create()
    backend.destroy(handle)
    backend.destroy(handle)
    with pytest.raises(SandboxTerminalError):
        run(backend, handle, "true")


def test_a_life_time_with_a_fraction(backend: OpenSandboxBackend, proxied: bool) -> None:
    short = OpenSandboxBackend(None, use_server_proxy=proxied, image=backend.image, sandbox_timeout=90.7)
    short.destroy(short.create())
