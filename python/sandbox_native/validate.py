# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that several parts of the package share."""

from __future__ import annotations

import math


def positive_finite(value: float, name: str) -> None:
    """Refuse a bound that no budget can be made of: zero, negative, infinite, NaN, or a truth value.

    :param value: the number to check, of any unit.
    :param name: the argument's name, which the error carries.
    :raises ValueError: ``value`` is not a positive finite number.
    """
    # bool is an int to Python; ``timeout=True`` is a slip, not one second.
    try:
        usable = (
            not isinstance(value, bool) and value > 0 and (isinstance(value, int) or math.isfinite(value))
        )
    except TypeError:
        usable = False
    if not usable:
        raise ValueError(f"{name} must be a positive finite number, got {value!r}.")
