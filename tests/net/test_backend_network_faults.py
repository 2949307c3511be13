# SPDX-License-Identifier: Apache-2.0
"""What a network does to the backends over HTTP, done by Toxiproxy between them and their test servers."""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from sandbox_native.backends import _islo_token
from sandbox_native.backends.islo import IsloSandboxBackend
from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sandbox_native.contract import SandboxError, SandboxTerminalError
from servers.islo.handle import IsloServer
from servers.opensandbox.handle import OpenSandboxServer
from toxiproxy import Proxy, Toxiproxy

LARGE = 3_500_000


class Reached(NamedTuple):
    """A sandbox behind a spoiled network."""

    backend: Any
    handle: str
    proxy: Proxy
    server: Any

    def run(self, command: str, timeout: float = 60.0) -> Any:
        return self.backend.run_command(self.handle, command, timeout=timeout, max_output_bytes=1000)

    def export(self, path: str) -> bytes:
        dest = io.BytesIO()
        size = self.backend.export_file(self.handle, path, dest, max_bytes=10**8)
        assert size == len(dest.getvalue())
        return dest.getvalue()

    def large(self) -> str:
        """Make a file; the digest of its content."""
        made = self.run(f"head -c {LARGE} /dev/urandom > /tmp/large; sha256sum /tmp/large")
        digest: str = made.stdout.split()[0]
        return digest

    @contextlib.contextmanager
    def broken_for_a_moment(self, after: float) -> Iterator[None]:
        """Close all connections once, ``after`` seconds from now, and refuse new ones for half a second."""

        def breaks() -> None:
            self.proxy.enable(False)
            time.sleep(0.5)
            self.proxy.enable(True)

        timer = threading.Timer(after, breaks)
        timer.start()
        yield
        timer.join()


@pytest.fixture
def opensandbox(
    opensandbox_server: OpenSandboxServer, toxiproxy: Toxiproxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reached]:
    proxy = toxiproxy.proxy(int(opensandbox_server.domain.rpartition(":")[2]))
    # The server names itself as it was asked for, so all that follows goes through there, too.
    monkeypatch.setenv("OPEN_SANDBOX_DOMAIN", proxy.address)
    backend = OpenSandboxBackend(None)
    yield Reached(backend, backend.create(), proxy, opensandbox_server)
    proxy.end()


@pytest.fixture
def islo_behind(islo: IsloServer, toxiproxy: Toxiproxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reached]:
    port = urlsplit(islo.environment["ISLO_COMPUTE_URL"]).port
    assert port is not None
    proxy = toxiproxy.proxy(port)
    monkeypatch.setenv("ISLO_COMPUTE_URL", f"http://{proxy.address}")
    _islo_token._sessions.clear()
    backend = IsloSandboxBackend()
    yield Reached(backend, backend.create(), proxy, islo)
    proxy.end()


@pytest.fixture(params=["opensandbox", "islo_behind"])
def reached(request: pytest.FixtureRequest) -> Reached:
    found: Reached = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("latency", {"latency": 50, "jitter": 30}),
        ("bandwidth", {"rate": 8000}),
        ("slicer", {"average_size": 3000, "size_variation": 1000, "delay": 10}),
        ("slow_close", {"delay": 100_000}),
    ],
)
@pytest.mark.parametrize("stream", ["downstream", "upstream"])
def test_a_slow_network_is_no_fault(
    reached: Reached, kind: str, stream: str, attributes: dict[str, int]
) -> None:
    reached.proxy.add(kind, stream, **attributes)
    done = reached.run("echo out; echo err >&2; exit 3")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")
    content = bytes(range(256)) * 400
    reached.backend.write_file(reached.handle, "/tmp/slow", content)
    assert reached.backend.read_file(reached.handle, "/tmp/slow", max_bytes=10**6) == content
    assert reached.export("/tmp/slow") == content


def test_a_port_that_refuses_is_said_and_nothing_is_done(reached: Reached) -> None:
    reached.proxy.enable(False)
    for call in (
        lambda: reached.run("true"),
        lambda: reached.backend.write_file(reached.handle, "/tmp/never", b"x"),
    ):
        with pytest.raises(SandboxTerminalError):
            call()
    reached.proxy.enable(True)
    assert reached.run("test -e /tmp/never || echo none").stdout == "none\n"


def test_a_command_whose_connection_breaks_has_no_exit_status(opensandbox: Reached) -> None:
    with opensandbox.broken_for_a_moment(0.5):
        done = opensandbox.run("echo begun; sleep 87651; echo end")
    assert done.exit_code != 0 and not done.timed_out
    assert "end" not in done.stdout
    if not done.sandbox_terminated:
        assert "without reporting an exit status" in done.stderr
        assert opensandbox.run("pgrep -fc '^sleep 8765'; true").stdout in ("0\n", "")
    assert sum("sleep 87651" in each["body"] for each in opensandbox.server.requests("command")) == 1


def test_a_poll_whose_connection_breaks_is_made_again(islo_behind: Reached) -> None:
    with islo_behind.broken_for_a_moment(0.5):
        done = islo_behind.run("echo begun; sleep 2; echo end; exit 4")
    assert (done.exit_code, done.stdout) == (4, "begun\nend\n")


def test_an_export_goes_on_where_its_connection_broke(opensandbox: Reached) -> None:
    digest = opensandbox.large()
    opensandbox.proxy.add("limit_data", bytes=1_000_000)  # of each connection
    assert hashlib.sha256(opensandbox.export("/tmp/large")).hexdigest() == digest
    assert len(opensandbox.server.requests("download")) >= LARGE // 1_000_000


def test_a_cut_export_is_never_a_whole_one(islo_behind: Reached) -> None:
    digest = islo_behind.large()
    islo_behind.proxy.add("limit_data", bytes=1_000_000)
    dest = io.BytesIO()
    try:
        islo_behind.backend.export_file(islo_behind.handle, "/tmp/large", dest, max_bytes=10**8)
    except SandboxError:
        assert len(dest.getvalue()) < LARGE
    else:
        assert hashlib.sha256(dest.getvalue()).hexdigest() == digest


def test_a_cut_upload_is_never_a_written_file(reached: Reached) -> None:
    reached.proxy.add("limit_data", "upstream", bytes=300_000)
    with pytest.raises(SandboxTerminalError):
        reached.backend.write_file(reached.handle, "/tmp/cut", b"x" * 2_000_000)
