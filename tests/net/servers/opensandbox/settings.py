# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Settings:
    """What a deployment decides.

    :param api_key: "": no key is asked for.
    :param egress_mode: what the egress sidecar reports: ``dns+nft``, ``dns``, ``""`` (an old one, which
        does not report it); ``none``: there is no sidecar, and policies are taken and not enforced.
    :param max_timeout: longest life of a sandbox in seconds.
    :param linger: seconds a command's stream stays open after its last event.
    """

    api_key: str = "test-key"
    egress_mode: str = "dns+nft"
    max_timeout: float | None = 86400
    linger: float = 1.0
