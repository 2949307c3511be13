# SPDX-License-Identifier: Apache-2.0
"""Every row, group by group."""

from __future__ import annotations

from suite import commands, exports, files, life
from suite.table import Row

ROWS: tuple[Row, ...] = (*commands.ROWS, *files.ROWS, *exports.ROWS, *life.ROWS)
if len({row.name for row in ROWS}) != len(ROWS):
    raise ValueError("two rows have one name")
