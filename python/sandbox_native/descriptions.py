# SPDX-License-Identifier: Apache-2.0
"""What the model is told: the four tools, their arguments, and what this sandbox is like.

Tool descriptions are the one text that every model reads. What is not in them, such as that there is no
network, it finds out by failing, at the price of a turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sandbox_native.contract import SandboxSpec
from sandbox_native.export_plan import Entry, Kind
from sandbox_native.output import format_size

RUN_COMMAND = "run_command"
READ_FILE = "read_file"
WRITE_FILE = "write_file"
LIST_DIRECTORY = "list_directory"

# Names, types and the required ones are an interface: models and stored histories know them.
SCHEMAS: dict[str, dict[str, Any]] = {
    RUN_COMMAND: {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command line, run by a shell."},
            "timeout_seconds": {
                "type": ["number", "null"],
                "description": "Stop the command after this many seconds. Has a default and an upper limit.",
            },
        },
        "required": ["command"],
    },
    READ_FILE: {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file to read, in the sandbox."},
            "offset": {
                "type": ["integer", "null"],
                "description": "Number of the first line to show; the file begins with line 1.",
            },
            "limit": {"type": ["integer", "null"], "description": "How many lines to show at most."},
        },
        "required": ["path"],
    },
    WRITE_FILE: {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file to write, in the sandbox."},
            "content": {"type": "string", "description": "The whole text the file is to have."},
        },
        "required": ["path", "content"],
    },
    LIST_DIRECTORY: {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "The directory to list; the working directory when left out.",
            },
        },
        "required": [],
    },
}

DESCRIPTIONS = {
    RUN_COMMAND: (
        "Run a command line in a sandbox, an isolated machine of your own, and get what it printed. It is "
        "run by a shell, so pipes, redirections, && and globs are at hand. A command that fails is an "
        "answer too: you get its exit code and what it wrote to stderr, so read that and correct the "
        "command. Each call is a new shell in the same working directory ('pwd' tells which): files stay, "
        "variables and 'cd' do not. Long output is cut to its end. Nothing of the program that runs you, "
        "its credentials or its environment is in the sandbox."
    ),
    READ_FILE: (
        "Read a text file in the sandbox. Of a long file you get a part, and the offset to read on with."
    ),
    WRITE_FILE: (
        "Write a text file in the sandbox, replacing one that is there. Missing parent directories are made."
    ),
    LIST_DIRECTORY: (
        "List what is in a directory of the sandbox, by name. The names of directories end in a slash."
    ),
}


def network_note(spec: SandboxSpec) -> str:
    """What the sandbox can reach under ``spec``."""
    if not spec.block_network:
        return "The sandbox has outbound network access."
    hosts = ", ".join(spec.allow_egress_to or ())
    ranges = ", ".join(spec.allow_egress_to_cidrs or ())
    by_name = f"these hosts, over HTTPS on port 443 only: {hosts}"
    by_address = f"these address ranges, on any port: {ranges}"
    if hosts and ranges:
        return (
            f"The sandbox reaches only {by_name}; and {by_address}. Nothing else answers. The hosts take "
            "HTTPS alone, so plain HTTP to them fails, while the address ranges accept any port. Other names "
            "may resolve without being reachable."
        )
    if hosts:
        return f"The sandbox reaches only {by_name}. Nothing else answers, and plain HTTP to any host fails."
    if ranges:
        return (
            f"The sandbox reaches only {by_address}. Nothing else answers; hostnames still resolve, whether "
            "or not their address can be reached."
        )
    return (
        "The sandbox has NO network access, and no DNS either: downloads and package installations fail. "
        "Use what is installed."
    )


def attached_note(network: SandboxSpec | None, remaining_lifetime: float | None) -> str:
    """What there is to know of a sandbox that another task made.

    :param network: the policy it was made with, if its maker recorded that.
    :param remaining_lifetime: seconds, if its maker recorded when it ends.
    """
    policy = (
        "What it can reach is whatever the task that set it up allowed; try before you count on it."
        if network is None
        else network_note(network)
    )
    return (
        "This sandbox was set up by an earlier task. The files you leave in it stay, for a later task to "
        f"collect. {policy} {_clock(remaining_lifetime)}"
    )


ATTACHED_UNKNOWN = "This sandbox was set up by an earlier task."
"""The note before the run has attached."""


def _clock(remaining: float | None) -> str:
    if remaining is None:
        return "How long it has left is not known."
    if remaining < 60:
        return "Under a minute of its lifetime remained when this run began, so come to an end."
    minutes = round(remaining / 60)
    unit = "minute" if minutes == 1 else "minutes"
    return f"About {minutes} {unit} of its lifetime remained when this run began."


def inputs_note(found: Iterable[tuple[str, int | None, int | None]]) -> str:
    """What is in the sandbox from the beginning; empty for nothing.

    :param found: each path, its size in bytes and its number of files, None while they are not known.
    """
    listed = ", ".join(_present(*one) for one in found)
    return f" In the sandbox already, for you to work with: {listed}." if listed else ""


def _present(path: str, size: int | None, files: int | None) -> str:
    if size is None:
        return path
    if not path.endswith("/"):
        return f"{path} ({format_size(size)})"
    return f"{path} ({files} {'file' if files == 1 else 'files'}, {format_size(size)})"


def exports_note(entries: Iterable[Entry], *, attached: bool = False) -> str:
    """Which files are kept; empty when none is promised.

    :param attached: whether the sandbox is another task's, and stays.
    """
    listed = ", ".join(_promised(entry) for entry in entries)
    if not listed:
        return ""
    fate = "" if attached else ", and it is deleted with everything else in it"
    return (
        f" When you are done, these files are copied out of the sandbox{fate}: {listed}. Your results "
        "have to be in them by then."
    )


def _promised(entry: Entry) -> str:
    what = {Kind.FILE: "", Kind.DIRECTORY: "all the files in it", Kind.GLOB: "every file that matches"}
    remarks = [what[entry.kind], "" if entry.required else "if there is one"]
    shown = ", ".join(remark for remark in remarks if remark)
    return f"{entry.path} ({shown})" if shown else entry.path
