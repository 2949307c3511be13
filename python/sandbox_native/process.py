# SPDX-License-Identifier: Apache-2.0
"""Programs on the host, such as the command line tools some backends drive."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sandbox_native
from sandbox_native import _sandbox_native as native

if TYPE_CHECKING:
    from sandbox_native._sandbox_native import CommandOutcome

PROGRAM = "_guest"


def program_path() -> str:
    """The static program that supervises commands, which is installed beside this module."""
    return os.path.join(sandbox_native.__path__[0], PROGRAM)


def run_process(
    argv: Sequence[str | bytes | os.PathLike[str]],
    *,
    timeout: float,
    max_output_bytes: int,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    cancel_fd: int = -1,
) -> CommandOutcome:
    """Run a program to its end.

    Its standard input is empty, it inherits no descriptor, it has its own session. On a timeout, a cancel
    or a signal handler's exception everything it started is killed, also what left its process group. What
    it leaves in the background when it ends by itself lives on.

    :param argv: the program, looked up in the PATH of ``env``, and its arguments.
    :param timeout: seconds.
    :param max_output_bytes: how much of the end of each stream is kept.
    :param env: the whole environment; ``None``: this process' own.
    :param cwd: where it runs; ``None``: where this process is.
    :param cancel_fd: a descriptor that becomes readable when the program is to be stopped; -1: none.
    :return: the outcome. ``ending`` is ``"failed"`` with an errno in ``value`` when it could not be started.
    :raises ValueError: ``timeout`` or ``max_output_bytes`` is not positive, or an argument has a NUL.
    :raises OverflowError: arguments or environment are too large.
    :raises OSError: no process can be made.
    """
    arguments = [os.fsencode(argument) for argument in argv]
    if not arguments:
        raise ValueError("argv must name a program")
    variables = os.environ if env is None else env
    pairs = [os.fsencode(f"{name}={value}") for name, value in variables.items()]
    return native.run_process(
        program_path(),
        _block(arguments, "argv"),
        _block(pairs, "env"),
        os.fsencode(os.getcwd() if cwd is None else cwd),
        timeout=timeout,
        max_output_bytes=max_output_bytes,
        cancel_fd=cancel_fd,
    )


def _block(strings: Sequence[bytes], name: str) -> bytes:
    if any(b"\0" in string for string in strings):
        raise ValueError(f"{name} must not contain NUL characters")
    return b"".join(string + b"\0" for string in strings)
