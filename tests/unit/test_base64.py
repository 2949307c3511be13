# SPDX-License-Identifier: Apache-2.0
"""Base64 in C, beside the standard library's."""

from __future__ import annotations

import base64
import gc
import random
import re
import sys

import pytest

from sandbox_native import _sandbox_native as native


@pytest.mark.parametrize("size", [*range(100), 1000, 65_536, 300_001])
def test_round_trip(size: int) -> None:
    data = random.Random(size).randbytes(size)
    coded = native.b64encode(data)
    assert coded == base64.b64encode(data)
    assert native.b64decode(coded) == data
    assert native.b64decode(memoryview(base64.encodebytes(data))) == data


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 64, 1000, 70_000])
def test_a_text_in_pieces(piece: int) -> None:
    data = random.Random(piece).randbytes(piece * 40 + 1 if piece < 1000 else 200_000)
    text = base64.encodebytes(data)
    decoder = native.Base64Decoder()
    parts = [decoder.feed(text[begin : begin + piece]) for begin in range(0, len(text), piece)]
    decoder.finish()
    assert b"".join(parts) == data


@pytest.mark.parametrize(
    ("text", "index"),
    [(b"!", 0), (b"Zm9v\x00", 4), (b"Zg==Zg==", 4), (b"Zh==", 2), (b"Zm9v" * 50 + b"-", 200)],
)
def test_what_is_not_base64_is_an_error_with_its_place(text: bytes, index: int) -> None:
    with pytest.raises(ValueError, match=f"^not base64 at index {index}$"):
        native.b64decode(text)
    decoder = native.Base64Decoder()
    with pytest.raises(ValueError, match=f"^not base64 at index {index}$"):
        for byte in text:
            decoder.feed(bytes([byte]))
    with pytest.raises(ValueError, match="failed before"):
        decoder.feed(b"Zm9v")
    with pytest.raises(ValueError, match="failed before"):
        decoder.finish()


@pytest.mark.parametrize("text", [b"Z", b"Zg", b"Zg=", b"Zm9vZ"])
def test_an_end_that_is_missing_is_an_error(text: bytes) -> None:
    message = re.escape(f"base64 ends inside of a group of four, after {len(text)} characters")
    with pytest.raises(ValueError, match=message):
        native.b64decode(text)
    decoder = native.Base64Decoder()
    decoder.feed(text)
    with pytest.raises(ValueError, match=message):
        decoder.finish()


def test_every_byte_is_judged_as_the_standard_library_does() -> None:
    for byte in range(256):
        text = b"Zm9vZm9vZm9vZm9vZm9vZm9vZm9vZm9vZm9v" + bytes([byte]) + b"m9v"
        if byte in b" \t\n\v\f\r":
            assert native.b64decode(text[:37] + b"Zm9v") == b"foo" * 10
            continue
        try:
            wanted = base64.b64decode(text, validate=True)
        except ValueError:
            with pytest.raises(ValueError, match=r"not base64 at index 3[67]"):
                native.b64decode(text)
        else:
            assert native.b64decode(text) == wanted


def test_other_types_are_refused() -> None:
    for call in (native.b64encode, native.b64decode, native.Base64Decoder().feed):
        with pytest.raises(TypeError):
            call("text")  # type: ignore[arg-type]


def test_nothing_is_left_behind() -> None:
    def work() -> None:
        decoder = native.Base64Decoder()
        decoder.feed(b"Zm9v\nZm")
        for bad in (b"!", b"Z"):
            with pytest.raises(ValueError, match="base64"):
                native.b64decode(bad)
        native.b64decode(native.b64encode(b"x" * 1000))

    work()
    gc.collect()
    references, blocks = sys.getrefcount(native.Base64Decoder), sys.getallocatedblocks()
    for _ in range(500):
        work()
    gc.collect()
    assert sys.getrefcount(native.Base64Decoder) - references < 50
    assert sys.getallocatedblocks() - blocks < 400
