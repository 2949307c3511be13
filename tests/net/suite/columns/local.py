# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sandbox_native.backends.local import LocalSandboxBackend
from suite.table import Column, Subject


@contextlib.contextmanager
def _open() -> Iterator[Subject]:
    with contextlib.closing(Subject(LocalSandboxBackend())) as subject:
        yield subject


COLUMNS = [
    Column(
        "local",
        _open,
        lacks={"a handle in another process": "a local sandbox is its own process' alone"},
    )
]
