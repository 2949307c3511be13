# SPDX-License-Identifier: Apache-2.0
"""The common table of behaviours, with the vendors' SDKs and the provider's backends beside ours.

That they pass is why the test servers are trusted; where they are known to be wrong, they have to be so here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.run import Observations, cases, look, observations  # noqa: F401 (a fixture)
from suite.table import Column, Row, columns_in

TESTS = Path(__file__).resolve().parents[1]
COLUMNS = columns_in(TESTS / "oracles" / "columns") + columns_in(TESTS / "net" / "suite" / "columns")


@pytest.mark.parametrize(("column", "row"), cases(COLUMNS))
def test_behaviour(column: Column, row: Row, observations: Observations) -> None:  # noqa: F811
    look(column, row, observations)
