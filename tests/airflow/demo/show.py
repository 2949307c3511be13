# SPDX-License-Identifier: Apache-2.0
"""Print a conversation as the model saw it, each text cut to a few lines."""

from __future__ import annotations

import datetime as dt
import difflib
import json
import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

LINES = 12


def width() -> int:
    """Columns to print to: the terminal's, 100 where there is none."""
    return max(60, min(140, shutil.get_terminal_size((100, 24)).columns))


def conversation(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Lines for the messages of a pydantic-ai run, in their JSON form.

    Each tool call has the seconds from the answer that asked for it to the result that went back.
    """
    asked: dict[str, float] = {}
    written: dict[str, str] = {}
    for message in messages:
        when = _seconds(message.get("timestamp"))
        for part in message["parts"]:
            kind = part["part_kind"]
            if kind == "tool-call":
                asked[part["tool_call_id"]] = when
                args = part["args"] if isinstance(part["args"], dict) else json.loads(part["args"] or "{}")
                yield from _call(part["tool_name"], args, written)
            elif kind in ("tool-return", "retry-prompt") and part.get("tool_call_id") in asked:
                took = _seconds(part["timestamp"]) - asked[part["tool_call_id"]]
                content = part["content"]
                yield from _bounded(content if isinstance(content, str) else json.dumps(content), "    | ")
                yield f"    ({took:.2f} s)"
            elif kind == "text" and part["content"]:
                yield "model:"
                yield from textwrap.wrap(
                    part["content"], width() - 4, initial_indent="    ", subsequent_indent="    "
                )


def _seconds(timestamp: str | None) -> float:
    return dt.datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def _call(tool: str, args: dict[str, Any], written: dict[str, str]) -> Iterator[str]:
    short = {name: value for name, value in args.items() if name != "content"}
    yield f"tool call: {tool}({', '.join(f'{name}={value!r}' for name, value in short.items())})"
    if "content" not in args:
        return
    before = written.get(args.get("path", ""))
    written[args.get("path", "")] = args["content"]
    if before is None:
        yield from _bounded(args["content"], "    > ")
        return
    yield "    > the file again, with this change:"
    change = list(difflib.unified_diff(before.splitlines(), args["content"].splitlines(), n=0, lineterm=""))
    yield from _bounded("\n".join(change[2:]), "    > ")


def _bounded(text: str, lead: str) -> Iterator[str]:
    lines = text.splitlines() or [""]
    head = LINES if len(lines) <= LINES else LINES // 2
    for line in lines[:head]:
        yield _fit(lead + line)
    if len(lines) > LINES:
        yield f"{lead}... {len(lines) - 2 * head} more lines ..."
        for line in lines[-head:]:
            yield _fit(lead + line)


def _fit(line: str) -> str:
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line.expandtabs(4))
    room = width()
    return line if len(line) <= room else f"{line[: room - 1]}\N{HORIZONTAL ELLIPSIS}"
