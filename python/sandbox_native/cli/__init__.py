# SPDX-License-Identifier: Apache-2.0
"""The command ``sandbox-native``: run a command in a fresh sandbox, or say what works on this machine."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence

INTERRUPT_STATUS = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (``sys.argv`` by default) and return its exit status."""
    _open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Split here, so that nothing of the sandbox's command is ever taken for an option.
    own, command = _split(arguments)
    options, left = _parser().parse_known_args(own)
    # The parser of the verb, so that what is wrong is said with its usage.
    parser: argparse.ArgumentParser = options.parser
    if options.verb == "run" and not command and not any(word.startswith("-") for word in left):
        parser.error("the command comes after --, for instance: sandbox-native run -- uname -a")
    if left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    try:
        if options.verb == "doctor":
            if command:
                parser.error("doctor takes no command")
            return _doctor(parser, options.backend)
        from sandbox_native.cli.run import run

        return run(options, command)
    except KeyboardInterrupt:
        return INTERRUPT_STATUS
    except BrokenPipeError:
        # Nobody reads any more. What is buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _doctor(parser: argparse.ArgumentParser, backend: str) -> int:
    from sandbox_native.cli.doctor import doctor

    try:
        return doctor(backend)
    except ValueError as e:
        parser.error(str(e))


def _open_standard_streams() -> None:
    """What the caller has closed becomes /dev/null, before another file gets its number."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, so this one
            setattr(sys, name, os.fdopen(opened, mode, closefd=False))


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    from sandbox_native.registry import names

    known = ", ".join(names())
    parser = argparse.ArgumentParser(
        prog="sandbox-native",
        description="Run a command in a fresh sandbox, or say what works on this machine.",
        epilog="`sandbox-native run --help` and `sandbox-native doctor --help` have the options of each.",
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="{run,doctor}", required=True)
    run = verbs.add_parser(
        "run",
        help="run a command in a fresh sandbox",
        usage="sandbox-native run [options] -- COMMAND",
        description="Run COMMAND in a fresh sandbox, with its output as it comes, and destroy the sandbox. "
        "A COMMAND of one word is a line for the sandbox's shell; several words are a program and its "
        "arguments.",
        epilog="Exit status: the command's; 124 when its time was up; 125 when the sandbox or an export "
        "failed; 130 after Ctrl-C.",
    )
    run.add_argument("--backend", default="local", help=f"where the sandbox runs: {known} (default: local)")
    run.add_argument("--image", help="container image of the sandbox, where the backend has a choice")
    run.add_argument(
        "--env",
        action="append",
        default=[],
        type=_pair("NAME=VALUE"),
        metavar="NAME=VALUE",
        help="a variable of the command's environment, which is empty otherwise; may be given again",
    )
    run.add_argument(
        "--network", action="store_true", help="let the command reach the network (default: it has none)"
    )
    run.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="end the command after this time (default: never)"
    )
    run.add_argument(
        "--put",
        action="append",
        default=[],
        type=_pair("LOCAL:PATH"),
        metavar="LOCAL:PATH",
        help="copy the local file to PATH in the sandbox before the command, or the folder where both end in "
        "a slash; may be given again",
    )
    run.add_argument(
        "--export",
        action="append",
        default=[],
        type=_pair("PATH=URL"),
        metavar="PATH=URL",
        help="after a command that succeeded, copy PATH out of the sandbox to a local path or any URL that "
        "fsspec can open: a file; a folder file by file, where both end in a slash; a folder with a slash at "
        "its end, to one .tar.gz; may be given again",
    )
    doctor = verbs.add_parser(
        "doctor",
        help="say what works on this machine",
        description="Say what works on this machine, what does not, and the command that mends it. "
        "Exit status 0 if a local sandbox ran a command, or if all checks of another backend are well.",
    )
    doctor.add_argument(
        "--backend",
        default="local",
        help=f"look at what this one needs: {known}; of a hosted one the service and the credentials, which "
        "are not shown (default: local)",
    )
    run.set_defaults(parser=run)
    doctor.set_defaults(parser=doctor)
    return parser


class _Version(argparse.Action):
    """Prints the version; looks it up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from sandbox_native import __version__

        print(f"sandbox-native {__version__}")
        parser.exit()


def _pair(form: str) -> Callable[[str], tuple[str, str]]:
    """An argparse type for two texts in the given form, such as ``PATH=URL``."""
    separator = "=" if "=" in form else ":"

    def parse(text: str) -> tuple[str, str]:
        # A local file may have a colon in its name, a path in the sandbox less often: from the right.
        left, found, right = text.rpartition(":") if separator == ":" else text.partition("=")
        # Only a variable may be empty.
        if not found or not left or (not right and not form.startswith("NAME")):
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
        return left, right

    return parse


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds
