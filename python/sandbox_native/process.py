# SPDX-License-Identifier: Apache-2.0
"""Programs on the host, such as the command line tools some backends drive."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    stdin: bytes | bytearray | memoryview = b"",
    stdout: int = -1,
    stderr: int = -1,
) -> CommandOutcome:
    """Run a program to its end.

    It inherits no descriptor and has its own session, so it cannot ask anybody anything. On a timeout, a
    cancel or a signal handler's exception everything it started is killed, also what left its process
    group. What it leaves in the background when it ends by itself lives on.

    :param argv: the program, looked up in the PATH of ``env``, and its arguments.
    :param timeout: seconds.
    :param max_output_bytes: how much of the end of each stream is kept.
    :param env: the whole environment; ``None``: this process' own.
    :param cwd: where it runs; ``None``: where this process is.
    :param cancel_fd: a descriptor that becomes readable when the program is to be stopped; -1: none.
    :param stdin: what it reads.
    :param stdout: a descriptor that its standard output is written to as it comes; -1: none.
    :param stderr: the same for its standard error.
    :return: the outcome. ``ending`` is ``"failed"`` with an errno in ``value`` when it could not be started.
    :raises ValueError: ``timeout`` or ``max_output_bytes`` is not positive, or an argument has a NUL.
    :raises OverflowError: arguments or environment are too large.
    :raises OSError: no process can be made, or one of the descriptors takes no more.
    """
    with _held(stdin) as stdin_fd:
        return native.run_process(
            *_program(argv, env, cwd),
            timeout=timeout,
            max_output_bytes=max_output_bytes,
            cancel_fd=cancel_fd,
            stdin_fd=stdin_fd,
            stdout_fd=stdout,
            stderr_fd=stderr,
        )


def stream_process(
    argv: Sequence[str | bytes | os.PathLike[str]],
    to: int | Callable[[bytes], object],
    *,
    most: int,
    timeout: float,
    stall: float,
    max_output_bytes: int,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    cancel_fd: int = -1,
) -> tuple[CommandOutcome, int]:
    """Run a program as :func:`run_process` does and give its standard output whole to ``to``.

    :param to: the descriptor of a regular file, written at its position; or a callable that takes bytes, in
        this thread. Its exception ends the program and comes out.
    :param most: bytes that ``to`` is given at most.
    :param timeout: seconds for all of it.
    :param stall: seconds without a byte after which it is ended, as by the timeout.
    :param max_output_bytes: how much of the end of standard error is kept.
    :return: the outcome and how many bytes were given.
    :raises OverflowError: there was more than ``most`` bytes, or the arguments are too large.
    :raises OSError: no process can be made, or the descriptor takes no more.
    :raises ValueError: as :func:`run_process`.
    """
    return native.stream_process(
        *_program(argv, env, cwd),
        to,
        most,
        timeout=timeout,
        stall=stall,
        max_output_bytes=max_output_bytes,
        cancel_fd=cancel_fd,
    )


def _program(
    argv: Sequence[str | bytes | os.PathLike[str]],
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
) -> tuple[str, bytes, bytes, bytes]:
    """The first arguments of both functions of the extension."""
    arguments = [os.fsencode(argument) for argument in argv]
    if not arguments:
        raise ValueError("argv must name a program")
    variables = os.environ if env is None else env
    pairs = [os.fsencode(f"{name}={value}") for name, value in variables.items()]
    where = os.fsencode(os.getcwd() if cwd is None else cwd)
    return program_path(), _block(arguments, "argv"), _block(pairs, "env"), where


@contextlib.contextmanager
def _held(content: bytes | bytearray | memoryview) -> Iterator[int]:
    """A descriptor to read ``content`` from; -1 when there is none.

    A file without a name rather than a pipe: nothing has to feed it, whenever the program reads, or never.
    """
    view = memoryview(content).cast("B")
    if not view:
        yield -1
        return
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def _block(strings: Sequence[bytes], name: str) -> bytes:
    if any(b"\0" in string for string in strings):
        raise ValueError(f"{name} must not contain NUL characters")
    return b"".join(string + b"\0" for string in strings)
