# SPDX-License-Identifier: Apache-2.0
"""The common table of behaviours on a real deployment: the vendor's SDK, the provider's backend, and ours.

Where the SDK and the provider are known to be wrong against the test server they have to be wrong in the same
way here: then the test server is faithful in all that the table looks at.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_native.backends.opensandbox import OpenSandboxBackend
from suite import rows, services
from suite.run import Observations, cases, look, observations  # noqa: F401 (a fixture)
from suite.table import Column, Row, Subject, columns_in

TESTS = Path(__file__).resolve().parents[1]

# The columns find the server by the environment, which names the real one.
services.opensandbox = lambda: None


@contextlib.contextmanager
def _of_image(image: str) -> Iterator[Subject]:
    def make() -> OpenSandboxBackend:
        return OpenSandboxBackend(None, image=image)

    with contextlib.closing(Subject(make(), another=make)) as subject:
        yield subject


def _image(image: str) -> Column:
    return Column(f"opensandbox, {image}", lambda: _of_image(image))


IMAGES = [name for name in os.environ.get("OPEN_SANDBOX_IMAGES", "").split(",") if name]
# In the containers of most images commands are the real root, to whom nothing is denied.
DENIED = {row.name: "commands are root" for row in rows.ROWS if "permission denied" in row.name}


def _as_root(column: Column) -> Column:
    wrong = {name: value for name, value in column.wrong.items() if name not in DENIED}
    return dataclasses.replace(column, wrong=wrong, lacks={**column.lacks, **DENIED})


COLUMNS = [
    _as_root(column)
    for folder in (TESTS / "oracles" / "columns", TESTS / "net" / "suite" / "columns")
    for column in columns_in(folder)
    if column.name.startswith("opensandbox")
] + [_image(image) for image in IMAGES]


@pytest.mark.parametrize(("column", "row"), cases(COLUMNS))
def test_behaviour(column: Column, row: Row, observations: Observations) -> None:  # noqa: F811
    look(column, row, observations)
