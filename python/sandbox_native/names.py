# SPDX-License-Identifier: Apache-2.0
"""Names for sandboxes on services that let the creator choose."""

from __future__ import annotations

import secrets

PREFIX = "airflow-sandbox-"
"""Every generated name begins with it, the provider's too, so that forgotten sandboxes can be found."""


def new_sandbox_name() -> str:
    """A name that no other sandbox has: :data:`PREFIX` and 12 random hexadecimal digits."""
    return PREFIX + secrets.token_hex(6)
