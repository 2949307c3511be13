# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sandbox_native.backends.opensandbox import OpenSandboxBackend
from suite import services
from suite.table import Column, Subject


@contextlib.contextmanager
def _open(use_server_proxy: bool) -> Iterator[Subject]:
    services.opensandbox()

    def make() -> OpenSandboxBackend:
        return OpenSandboxBackend(None, use_server_proxy=use_server_proxy)

    with contextlib.closing(Subject(make(), another=make)) as subject:
        yield subject


COLUMNS = [
    Column("opensandbox", lambda: _open(True)),
    Column("opensandbox-direct", lambda: _open(False)),
]
