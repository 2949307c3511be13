# SPDX-License-Identifier: Apache-2.0
"""The test server does on the wire what a real deployment was seen to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opensandbox_facts import *  # noqa: F403
from opensandbox_raw import Deployment, Sandbox
from servers.opensandbox.handle import OpenSandboxServer

LINGER = 0.1


class OurDeployment(Deployment):
    """There the agent cannot be ended from inside."""

    server: OpenSandboxServer

    def kill_execd(self, sandbox: Sandbox) -> None:
        self.server.act(sandbox.id, "kill-execd")


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with OpenSandboxServer(linger=LINGER) as server:
        deployment = OurDeployment(server.domain, server.api_key, linger=LINGER)
        deployment.server = server
        yield deployment
