# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import pytest

from sandbox_native import _sandbox_native as native
from sandbox_native.masking import Secrets


@pytest.mark.parametrize(
    ("data", "needles", "result"),
    [
        (b"", (b"a",), None),
        (b"abc", (), None),
        (b"abc", (b"x",), None),
        (b"abc", (b"abcd",), None),
        (b"abc", (b"c",), b"ab***"),
        (b"aXbXc", (b"X",), b"a***b***c"),
        (b"XX", (b"X",), b"******"),
        (b"aaaaa", (b"aa",), b"***"),
        (b"abcdef", (b"abc", b"cde"), b"***f"),
        (b"abcdef", (b"abc", b"def"), b"******"),
        (b"abcdef", (b"abcdef", b"b"), b"***"),
        (b"\0\xff\0", (b"\xff",), b"\0***\0"),
    ],
)
def test_occurrences_are_replaced(data: bytes, needles: tuple[bytes, ...], result: bytes | None) -> None:
    assert native.replace_all(data, needles, b"***") == result
    assert native.replace_all(memoryview(bytearray(data)), needles, b"***") == result


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="empty"):
        native.replace_all(b"abc", (b"a", b""), b"*")
    with pytest.raises(TypeError, match="tuple"):
        native.replace_all(b"abc", [b"a"], b"*")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.replace_all(b"abc", ("a",), b"*")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.replace_all("abc", (b"a",), b"*")  # type: ignore[arg-type]


def test_bytes_are_masked_as_their_text_is() -> None:
    rng = random.Random(4)
    letters = "abé\u2028😀"
    for _ in range(2000):
        text = "".join(rng.choices(letters, k=rng.randrange(40)))
        values = ["".join(rng.choices(letters, k=rng.randrange(1, 5))) for _ in range(rng.randrange(4))]
        secrets = Secrets(values)
        assert secrets.mask_bytes(text.encode()).decode() == secrets.mask(text)


def test_a_large_file_of_a_periodic_secret_is_one_stretch() -> None:
    """And takes one pass without the lock, where a search from each hit would take a step for each byte."""
    assert Secrets(["x" * 50]).mask_bytes(b"-" + b"x" * (3 << 20) + b"-") == b"-***-"


def test_nothing_of_it_stays() -> None:
    before = native.allocated_bytes()
    for _ in range(100):
        native.replace_all(b"secret" * 1000, (b"secret", b"other"), b"***")
    assert native.allocated_bytes() == before
