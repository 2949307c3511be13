# SPDX-License-Identifier: Apache-2.0
"""A store's server as a process, from the moment it answers to the end of the block."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def started(
    command: list[str], environment: dict[str, str], log: Path, answers: Callable[[], object]
) -> Iterator[None]:
    """Run ``command`` for the block.

    :param log: where its output goes.
    :param answers: raises while the server does not answer yet.
    :raises RuntimeError: it did not start; the text has its log.
    """
    with open(log, "wb") as output:
        server = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            # A group of its own, to be ended as a whole: the lock's `node` is a program that starts Node.js.
            process_group=0,
        )
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                answers()
                break
            except Exception as e:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} did not start: {log.read_text()}") from e
                time.sleep(0.1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
