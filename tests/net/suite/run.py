# SPDX-License-Identifier: Apache-2.0
"""Look at one row in one column; keep the outcome for the printed table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from suite import rows, services
from suite.table import Column, Row, Subject

RIGHT, WRONG, LACKS, FAILED = "+", "~", ".", "F"
_outcomes: dict[tuple[str, str], tuple[str, str]] = {}
_columns: list[Column] = []


def cases(columns: Iterable[Column]) -> list[Any]:
    """Parameters for every row that can be asked of each column."""
    params = []
    names = {row.name for row in rows.ROWS}
    for column in columns:
        _columns.append(column)
        unknown = (column.wrong.keys() | column.lacks.keys()) - names
        if unknown:
            raise ValueError(f"{column.name}: there are no rows {sorted(unknown)}")
        for row in rows.ROWS:
            if row.name in column.lacks:
                _outcomes[row.name, column.name] = LACKS, column.lacks[row.name]
            else:
                params.append(pytest.param(column, row, id=f"{column.name}: {row.name}"))
    return params


class Subjects:
    """The sandboxes of the columns, made when they are first asked for."""

    def __init__(self) -> None:
        self._open: dict[str, Subject] = {}
        self._stack = contextlib.ExitStack()

    def get(self, column: Column) -> Subject:
        if column.name not in self._open:
            self._open[column.name] = self._stack.enter_context(column.open())
        return self._open[column.name]

    def close(self) -> None:
        self._stack.close()
        services.close()


@pytest.fixture(scope="session")
def subjects() -> Iterator[Subjects]:
    opened = Subjects()
    yield opened
    opened.close()


def look(column: Column, row: Row, subject: Subject) -> None:
    """Fails where the column does not do the right thing, or not the wrong one that is known of it."""
    known = column.wrong.get(row.name)
    place = row.name, column.name
    _outcomes[place] = FAILED, ""
    got = row.observe(subject)
    if known is None:
        assert got == row.right, f"{column.name}, {row.name}: {got!r} is not {row.right!r}"
        _outcomes[place] = RIGHT, ""
        return
    assert got != row.right, f"{column.name} is right about {row.name!r} by now: take it off its list"
    assert got == known.value, f"{column.name}, {row.name}: {got!r} is not {known.value!r} ({known.why})"
    _outcomes[place] = WRONG, known.why


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """For a conftest: print the table of what was looked at."""
    looked_at = {name for (_, name), (mark, _) in _outcomes.items() if mark != LACKS}
    columns = [column for column in _columns if column.name in looked_at]
    seen = [row for row in rows.ROWS if any((row.name, column.name) in _outcomes for column in columns)]
    if not columns:
        return
    write = terminalreporter.write_line
    terminalreporter.section("backends, row by row")
    write(f"{RIGHT} right   {WRONG} known to be wrong   {LACKS} cannot be asked   {FAILED} failed")
    width = max(len(row.name) for row in seen)
    for number, column in enumerate(columns):
        write(" " * width + "  " + "| " * number + column.name)
    group = ""
    for row in seen:
        if row.group != group:
            group = row.group
            write(f"{group}:")
        marks = [_outcomes.get((row.name, column.name), (" ", "")) for column in columns]
        whys = [f"{c.name}: {why}" for c, (mark, why) in zip(columns, marks, strict=True) if mark == WRONG]
        line = f"{row.name:{width}}  " + " ".join(mark for mark, _ in marks)
        write(line + ("   " + "; ".join(whys) if whys else ""))
    for column in columns:
        all_of_it = [_outcomes.get((row.name, column.name), ("", ""))[0] for row in seen]
        right, wrong, lacks, failed = (all_of_it.count(mark) for mark in (RIGHT, WRONG, LACKS, FAILED))
        counts = f"{right:3} right, {wrong:2} known to be wrong, {lacks:2} not asked, {failed} failed"
        write(f"{column.name:24} {counts}")
