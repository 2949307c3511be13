# SPDX-License-Identifier: Apache-2.0
"""The facts that the test server is held to, asked of a real deployment."""

from __future__ import annotations

from opensandbox_facts import *  # noqa: F403
