# SPDX-License-Identifier: Apache-2.0
"""``sandbox-native run``: one command in a fresh sandbox."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sandbox_native import calls, registry
from sandbox_native.contract import SandboxBackend, SandboxError, SandboxExecResult, SandboxSpec

if TYPE_CHECKING:
    from sandbox_native.inputs import Seed

TIMED_OUT_STATUS = 124
"""As of timeout(1)."""
SANDBOX_STATUS = 125
"""The sandbox failed, not the command: the status that container tools use for it."""
OUTPUT_BYTES = 1024 * 1024
"""What is kept of each stream where a backend gives the output only at the end."""
FOREVER = 10 * 365 * 86400.0
"""Seconds. The contract asks for a finite time."""


def run(options: argparse.Namespace, command: list[str]) -> int:
    """Create the sandbox, run, export, destroy; errors of ours go to standard error.

    :param options: what the argument parser made of the command line.
    :param command: one word is a shell line; several are a program and its arguments.
    :return: the exit status.
    """
    line = command[0] if len(command) == 1 else shlex.join(command)
    try:
        # Only the one who exports pays for what exports load.
        destinations = _exports().checked(options.export) if options.export else []
        seeds = [seed for local, path in options.put for seed in local_files(local, path)]
        backend = make_backend(options)
        with signals_raise(), sandbox_of(backend, options) as sandbox:
            if seeds:
                put_all(backend, sandbox, seeds)
            result = execute(backend, sandbox, line, options.timeout or FOREVER)
            if result.timed_out:
                say(f"the command was ended after {result.applied_timeout or options.timeout:g} s")
                return TIMED_OUT_STATUS
            if result.sandbox_terminated:
                say("the sandbox ended under the command")
                return SANDBOX_STATUS
            if destinations and result.exit_code == 0:
                _exports().export(backend, sandbox, destinations)
            elif destinations:
                say("nothing is exported, because the command failed")
            return result.exit_code
    except (SandboxError, ValueError, OSError) as e:
        if isinstance(e, BrokenPipeError):
            raise
        say(str(e))
        for note in getattr(e, "__notes__", ()):
            say(note)
        return SANDBOX_STATUS


def make_backend(options: argparse.Namespace) -> SandboxBackend:
    """The backend that the options name, set up from the environment where Airflow would use a connection.

    :raises ValueError: there is no such backend, or it has no images to choose from.
    """
    cls = registry.backend_class(options.backend)
    given = {} if options.image is None else {"image": options.image}
    try:
        made: SandboxBackend = getattr(cls, "from_environment", cls)(**given)
    except TypeError as e:
        if not given:
            raise
        raise ValueError(f"--image: the backend {options.backend} takes none") from e
    return made


def _exports() -> ModuleType:
    from sandbox_native.cli import export

    return export


def say(text: str) -> None:
    print(f"sandbox-native: {text}", file=sys.stderr, flush=True)


def local_files(name: str, path: str) -> list[Seed]:
    """What ``--put name:path`` brings: a file of this machine, or the files of a folder.

    :raises SandboxError: it cannot be read, or is no such thing.
    """
    from sandbox_native import inputs

    try:
        return inputs.local_seeds(path, name, logging.getLogger("sandbox_native.cli"))
    except OSError as e:
        raise SandboxError(f"--put {name}: {e.strerror or e}") from e


def put_all(backend: SandboxBackend, sandbox: str, seeds: list[Seed]) -> None:
    """Copy the files into the sandbox.

    :raises SandboxError: one cannot be copied.
    """
    from sandbox_native import inputs
    from sandbox_native.cli.progress import Bar
    from sandbox_native.watching import Progress

    shown = sys.stderr.isatty()
    with Bar(sys.stderr) if shown else Progress(every=FOREVER) as looking:
        for seed in seeds:
            calls.run_sync(inputs.put, backend, sandbox, seed, looking)


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Inside the block, a signal to end the program raises ``SystemExit``, so that the sandbox goes first."""

    def handler(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def sandbox_of(backend: SandboxBackend, options: argparse.Namespace) -> Iterator[str]:
    """A sandbox for the block, with what the options ask for."""
    spec = SandboxSpec(env=dict(options.env) or None, block_network=not options.network)
    sandbox = calls.run_sync(backend.create, spec=spec)
    try:
        yield sandbox
    finally:
        backend.destroy(sandbox)


def execute(backend: SandboxBackend, sandbox: str, line: str, timeout: float) -> SandboxExecResult:
    """Run the command with its output going to ours.

    A backend with ``stream_command`` hands it over as it comes; of any other it is printed at the end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    stream = getattr(backend, "stream_command", None)
    if stream is not None:
        result: SandboxExecResult = stream(
            sandbox, line, timeout=timeout, stdout=sys.stdout.fileno(), stderr=sys.stderr.fileno()
        )
        return result
    result = calls.run_sync(
        backend.run_command, sandbox, line, timeout=timeout, max_output_bytes=OUTPUT_BYTES
    )
    for text, cut, to in (
        (result.stdout, result.stdout_truncated, sys.stdout),
        (result.stderr, result.stderr_truncated, sys.stderr),
    ):
        if cut:
            say(f"only the end of {to.name} follows: this backend keeps {OUTPUT_BYTES} bytes")
        write_all(to.fileno(), text.encode("utf-8", "surrogateescape"))
    return result


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
