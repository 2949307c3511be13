# SPDX-License-Identifier: Apache-2.0
"""Which tags of sections A and B of ``backends.md`` no test names, but for those its head calls superseded.

A test names tags by ``@pytest.mark.parity("B Run#5")``. Prints what is missing, section by section; the exit
status is 1 where a test names a tag that is not there, and with ``--strict`` where a tag has no test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
_BULLET = re.compile(r"- (\w+#\d+|ctor|Missing SDK)\b(.*)")
_ITEM = re.compile(r"(?:(\w+)?#(\d+)(?: to #(\d+))?)(.*)")


def tags(text: str) -> dict[str, str]:
    """Tag -> its line, of sections A and B."""
    found: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if match := re.match(r"# ([A-Z])\. ", line):
            section = match[1]
        elif section in ("A", "B") and (match := _BULLET.match(line)):
            # A tag may have several lines, such as the two halves of one test.
            tag = f"{section} {match[1]}"
            found[tag] = found.get(tag, "") + match[2]
    return found


def superseded(text: str, known: dict[str, str]) -> set[str]:
    """The tags that the table at the head takes out as a whole; a part of one still needs its test."""
    out = {tag for tag, line in known.items() if tag.endswith("Missing SDK") or "SDK not installed" in line}
    for line in text.splitlines():
        match = re.match(r"\| ([AB]) ([^|]*?)(?: \([^|]*\))? \|", line)
        if not match:
            continue
        group = ""
        for item in match[2].split(", "):
            part = _ITEM.fullmatch(item)
            if part is None:
                raise ValueError(f"cannot read {item!r} in: {line}")
            group = part[1] or group
            if not part[4].strip():
                numbers = range(int(part[2]), int(part[3] or part[2]) + 1)
                out |= {f"{match[1]} {group}#{number}" for number in numbers}
    unknown = out - known.keys()
    if unknown:
        raise ValueError(f"superseded, but there is no such tag: {sorted(unknown)}")
    return out


def named(folder: Path) -> Iterator[tuple[str, str]]:
    """Every tag that a test names, with where."""
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            for argument in node.args if node.func.attr == "parity" else ():
                if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                    raise ValueError(f"{path}:{node.lineno}: a tag has to be written out")
                yield argument.value, f"{path.relative_to(folder)}:{node.lineno}"


def main(arguments: list[str]) -> int:
    text = (HERE / "backends.md").read_text()
    known = tags(text)
    needed = known.keys() - superseded(text, known)
    have: dict[str, list[str]] = {}
    for tag, place in named(TESTS):
        have.setdefault(tag, []).append(place)
    unknown = {tag: places for tag, places in have.items() if tag not in known}
    for tag, places in unknown.items():
        print(f"no such tag in backends.md: {tag!r} ({', '.join(places)})")
    missing = [tag for tag in known if tag in needed and tag not in have]
    for section, name in (("A", "Islo"), ("B", "OpenSandbox")):
        mine = [tag for tag in needed if tag.startswith(section)]
        without = [tag for tag in missing if tag.startswith(section)]
        print(f"{section} ({name}): {len(mine) - len(without)} of {len(mine)} tags have a test")
        for tag in without:
            print(f"  without: {tag}{known[tag][:90]}")
    return 1 if unknown or ("--strict" in arguments and missing) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
