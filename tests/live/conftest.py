# SPDX-License-Identifier: Apache-2.0
"""Tests against a real OpenSandbox, named by ``OPEN_SANDBOX_DOMAIN`` and ``OPEN_SANDBOX_API_KEY``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# First: the contract's classes are then the provider's own, which its backends raise and return.
import airflow.providers.common.ai.sandbox.base  # noqa: F401
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "net"))
pytest.register_assert_rewrite("opensandbox_facts", "opensandbox_raw")

from opensandbox_raw import Deployment  # noqa: E402
from suite.run import pytest_terminal_summary  # noqa: E402, F401 (a hook)

NAMES = ("OPEN_SANDBOX_DOMAIN", "OPEN_SANDBOX_API_KEY")


def pytest_configure(config: pytest.Config) -> None:
    missing = [name for name in NAMES if not os.environ.get(name)]
    if missing:
        raise pytest.UsageError(
            "the live tests run against a real OpenSandbox: "
            f"set {' and '.join(missing)} to its host:port and key"
        )


@pytest.fixture(scope="session")
def deployment() -> Deployment:
    domain, key = (os.environ[name] for name in NAMES)
    return Deployment(domain, key, os.environ.get("OPEN_SANDBOX_IMAGE", "python:3.12-slim"))
