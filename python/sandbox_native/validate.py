# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that several parts of the package share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


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


def positive_whole(value: float, name: str) -> None:
    """Refuse a number of things or seconds that is not above zero, or not whole.

    :param value: the number to check, of any unit.
    :param name: the argument's name, which the error carries.
    :raises ValueError: ``value`` is not a positive whole number.
    """
    positive_finite(value, name)
    if value != int(value):
        raise ValueError(f"{name} must be a whole number, got {value!r}.")


def flag(value: Any, name: str) -> bool:
    """Refuse what only counts as true or false: ``"no"`` counts as true.

    :param name: the argument's name, which the error carries.
    :raises ValueError: ``value`` is neither True nor False.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}.")
    return value


def text(value: Any, name: str) -> str:
    """Refuse what is no text, or empty.

    :param name: the argument's name, which the error carries.
    :raises ValueError: ``value`` is empty or not a string.
    """
    if value is None or value == "":
        raise ValueError(f"{name} must not be empty.")
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {value!r}.")
    return value


def connection(value: Any, name: str) -> None:
    """Refuse what cannot name a connection of Airflow. None is none.

    :param name: the argument's name, which the error carries.
    :raises ValueError: ``value`` is neither a string nor something that Airflow renders to one.
    """
    # The output of another task is an XComArg until the operator renders its fields.
    if value is not None and not isinstance(value, str) and not hasattr(value, "resolve"):
        raise ValueError(f"{name} must be the name of a connection, got {value!r}.")


def paths(value: Any, name: str) -> None:
    """Refuse what does not map paths in a sandbox to something. None is nothing to map.

    :param name: the argument's name, which the error carries.
    :raises ValueError: ``value`` is no mapping, or one of its keys is no path.
    """
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping from paths in the sandbox, got {value!r}.")
    for path in value:
        if path is not None and not isinstance(path, str):
            raise ValueError(f"{name} must have strings as its keys, got {path!r}.")
        if path and "\0" in path:
            raise ValueError(f"{name}[{path!r}]: no file can have this path.")
