# SPDX-License-Identifier: Apache-2.0
"""The common table of behaviours, for our own backends; ``tests/oracles`` adds the columns of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.run import Observations, cases, look, observations  # noqa: F401 (a fixture)
from suite.table import Column, Row, columns_in

COLUMNS = columns_in(Path(__file__).parent / "suite" / "columns")


@pytest.mark.parametrize(("column", "row"), cases(COLUMNS))
def test_behaviour(column: Column, row: Row, observations: Observations) -> None:  # noqa: F811
    look(column, row, observations)
