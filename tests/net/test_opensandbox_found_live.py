# SPDX-License-Identifier: Apache-2.0
"""What went wrong against a real deployment, asked of the test server."""

from __future__ import annotations

import io

import pytest

from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sandbox_native.contract import SandboxTerminalError
from servers.opensandbox.handle import OpenSandboxServer


def test_a_life_time_with_a_fraction(opensandbox_server: OpenSandboxServer) -> None:
    backend = OpenSandboxBackend(None, sandbox_timeout=90.7)
    backend.destroy(backend.create())
    (request,) = opensandbox_server.requests("create")
    assert '"timeout":90' in request["body"].replace(" ", "") and "90.7" not in request["body"]


def test_an_export_cut_by_the_end_of_its_sandbox_blames_the_transport(
    opensandbox_server: OpenSandboxServer,
) -> None:
    backend = OpenSandboxBackend(None)
    sandbox = backend.create()
    backend.write_file(sandbox, "/tmp/file", b"x" * 3_000_000)
    dest = io.BytesIO()
    opensandbox_server.faults.add("download", "cut", after_bytes=1_000_000)
    # While a container is being removed the server knows of it, and execd's part of it does not answer well.
    opensandbox_server.faults.add(
        "info", "status", nth=2, times=None, status=500, body={"code": "RUNTIME_ERROR", "message": "lost"}
    )
    with pytest.raises(SandboxTerminalError, match="could not export a sandbox file"):
        backend.export_file(sandbox, "/tmp/file", dest, max_bytes=10_000_000)
    assert len(dest.getvalue()) < 3_000_000
    backend.destroy(sandbox)
