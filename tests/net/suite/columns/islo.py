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


_NO_STOP = "the service cannot stop a command, so its sandbox is deleted"

COLUMNS = [
    Column(
        "islo",
        _open,
        {
            "timeout spares the sandbox": Wrong(_NO_STOP, (True, "terminal")),
            "timeout ends the whole tree": Wrong(_NO_STOP, "the sandbox is gone"),
        },
    )
]
