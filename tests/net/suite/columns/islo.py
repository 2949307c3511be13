# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sandbox_native.backends.islo import IsloSandboxBackend
from suite import services
from suite.table import Column, Subject, Wrong


@contextlib.contextmanager
def _open() -> Iterator[Subject]:
    services.islo()
    with contextlib.closing(Subject(IsloSandboxBackend(), another=IsloSandboxBackend)) as subject:
        yield subject


_DELETED = "Islo ends a command only with its sandbox"

COLUMNS = [
    Column(
        "islo",
        _open,
        {
            "timeout keeps output": Wrong(_DELETED, (True, "", "")),
            "timeout spares the sandbox": Wrong(_DELETED, (True, "terminal")),
            "timeout ends the whole tree": Wrong(_DELETED, "the sandbox is gone"),
            "relative paths start where commands do": Wrong("Islo takes absolute paths only", "recoverable"),
        },
    ),
]
