# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

# First: the contract's classes are then the provider's own, which its backends raise and return.
import airflow.providers.common.ai.sandbox.base  # noqa: F401

from suite.run import pytest_terminal_summary  # noqa: F401 (a hook)
