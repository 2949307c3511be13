# SPDX-License-Identifier: Apache-2.0
"""Look at one row in one column; keep the outcome for the printed table."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
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


class Observations:
    """What was seen of each row in each column. Each column has a thread, all at once.

    :param wanted: which rows of which columns.
    """

    def __init__(self, wanted: Iterable[tuple[Column, Row]]) -> None:
        self._seen: dict[tuple[str, str], Future[Any]] = {}
        plan: dict[str, tuple[Column, list[Row]]] = {}
        for column, row in wanted:
            plan.setdefault(column.name, (column, []))[1].append(row)
            self._seen[column.name, row.name] = Future()
        self._threads = [
            threading.Thread(target=self._observe, args=each, daemon=True) for each in plan.values()
        ]
        for thread in self._threads:
            thread.start()

    def _observe(self, column: Column, rows: list[Row]) -> None:
        left = list(rows)
        try:
            with column.open() as subject:
                while left:
                    self._look(column, left[0], subject)
                    left.pop(0)
        except BaseException as e:
            # It could not be opened; or not be closed, and no row is left that could say so.
            for row in left:
                self._seen[column.name, row.name].set_exception(e)
            if not left:
                raise

    def _look(self, column: Column, row: Row, subject: Subject) -> None:
        seen = self._seen[column.name, row.name]
        try:
            seen.set_result(row.observe(subject))
        except Exception as e:
            seen.set_exception(e)

    def get(self, column: Column, row: Row) -> Any:
        """What the row saw, or the exception that it got."""
        return self._seen[column.name, row.name].result()

    def close(self) -> None:
        for thread in self._threads:
            thread.join()
        services.close()


@pytest.fixture(scope="session")
def observations(request: pytest.FixtureRequest) -> Iterator[Observations]:
    """Of the rows and columns that this run has selected."""
    chosen = (item.callspec.params for item in request.session.items if hasattr(item, "callspec"))
    seen = Observations((each["column"], each["row"]) for each in chosen if {"column", "row"} <= each.keys())
    yield seen
    seen.close()


def look(column: Column, row: Row, observations: Observations) -> None:
    """Fails where the column does not do the right thing, or not the wrong one that is known of it."""
    known = column.wrong.get(row.name)
    place = row.name, column.name
    _outcomes[place] = FAILED, ""
    got = observations.get(column, row)
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
