# SPDX-License-Identifier: Apache-2.0
"""The text core beside the provider's ``sandbox.output``: the same result for every valid input.

The provider's module is loaded from its file, so that Airflow is not imported for it. What differs on
purpose (caps below 1, lone surrogates) is tested in tests/unit/test_output.py.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sandbox_native import output

DISTRIBUTION = "apache-airflow-providers-common-ai"
LINE_ENDS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
# Beside them, what looks like one in one encoding or another.
LOOK_ALIKES = ["\x1b", "\x1f", "\t", "\x0e", "\x84", "\x86", "\u2027", "\u202a", "\x00", "\u0a0a", "\u0d0a"]
CHARACTERS = ["a", "bc", " ", "é", "Å", "中", "\u30c5", "😀", "\ufffd", "\U0010ffff", "x" * 40]
# Every kind of start, continuation and early end of a character.
BAD_BYTES = [
    bytes.fromhex(part)
    for part in [
        "80",
        "BF",
        "C0",
        "C18A",
        "C2",
        "C3",
        "DF",
        "E0",
        "E080",
        "E0A0",
        "E2",
        "E280",
        "E280C285",
        "EDA080",
        "ED9F",
        "EFBF",
        "F0",
        "F090",
        "F09080",
        "F0808080",
        "F48FBF",
        "F4908080",
        "F5",
        "FF",
        "85",
        "A8",
    ]
]

PIECES = st.sampled_from(LINE_ENDS * 2 + LOOK_ALIKES + CHARACTERS)
TEXTS = st.one_of(
    st.lists(PIECES, max_size=40).map("".join),
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=60),
    # Wide enough for every register width, on both sides of a line end.
    st.builds(
        lambda before, end, after, tail: "x" * before + end + "y" * after + tail,
        st.integers(0, 200),
        PIECES,
        st.integers(0, 200),
        PIECES,
    ),
)
BYTE_PIECES = st.one_of(PIECES.map(str.encode), st.sampled_from(BAD_BYTES))
DATA = st.one_of(
    TEXTS.map(str.encode),
    st.lists(BYTE_PIECES, max_size=40).map(b"".join),
    st.binary(max_size=80),
)
CAPS = st.one_of(st.integers(1, 12), st.integers(1, 400), st.sampled_from([2**31, 2**63 - 1, 2**64, 2**200]))
NUMBERS = st.one_of(
    st.none(),
    st.integers(-3, 60),
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, 2**64, 2**64 + 1, -(2**64), 10**30]),
)
QUICK = settings(max_examples=700, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def provider() -> ModuleType:
    files = importlib.metadata.files(DISTRIBUTION) or []
    [path] = [file for file in files if str(file).endswith("common/ai/sandbox/output.py")]
    spec = importlib.util.spec_from_file_location("provider_output", str(path.locate()))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@QUICK
@given(TEXTS, CAPS, CAPS, st.booleans())
@example("a\r\nb\r\n", 1, 1, False)
@example("\r\n", 1, 1, False)
@example("\n\r\n\r", 5, 2, True)
def test_truncate_output(provider: ModuleType, text: str, lines: int, size: int, already: bool) -> None:
    ours = output.truncate_output(text, max_lines=lines, max_bytes=size, already_truncated=already)
    assert ours == provider.truncate_output(text, max_lines=lines, max_bytes=size, already_truncated=already)
    assert type(ours) is str


@QUICK
@given(TEXTS, st.integers(1, 30), st.integers(1, 20000), st.integers(2, 400))
def test_truncate_output_of_long_text(
    provider: ModuleType, text: str, lines: int, size: int, times: int
) -> None:
    long = text * times
    for cap in (lines, 10**9):
        assert output.truncate_output(long, max_lines=cap, max_bytes=size) == provider.truncate_output(
            long, max_lines=cap, max_bytes=size
        )


@QUICK
@given(DATA, NUMBERS, NUMBERS, CAPS, CAPS)
@example(b"", None, None, 1, 1)
@example(b"\n", 2, None, 1, 1)
@example(b"\xf0\x90\x80", None, None, 1, 3)
def test_render_file_window(
    provider: ModuleType, data: bytes, offset: int | None, limit: int | None, lines: int, size: int
) -> None:
    arguments: dict[str, Any] = {"offset": offset, "limit": limit, "max_lines": lines, "max_bytes": size}
    assert output.render_file_window(data, **arguments) == provider.render_file_window(data, **arguments)


@QUICK
@given(DATA, st.integers(1, 5000), st.integers(1, 20000), st.integers(2, 400))
def test_render_file_window_of_a_long_file(
    provider: ModuleType, data: bytes, offset: int, size: int, times: int
) -> None:
    arguments: dict[str, Any] = {
        "offset": offset,
        "limit": None,
        "max_lines": 100,
        "max_bytes": size,
        "long_line_hint": "é",
    }
    long = data * times
    assert output.render_file_window(long, **arguments) == provider.render_file_window(long, **arguments)


def test_every_short_text_under_every_small_cap(provider: ModuleType) -> None:
    alphabet = ["\n", "\r", "\x85", "\u2028", "a", "é", "中", "😀"]
    compared = 0
    for length in range(1, 5):
        for parts in itertools.product(alphabet, repeat=length):
            text = "".join(parts)
            for lines, size in ((1, 1), (1, 4), (2, 2), (2, 5), (3, 3), (9, 7)):
                caps: dict[str, Any] = {"max_lines": lines, "max_bytes": size}
                assert output.truncate_output(text, **caps) == provider.truncate_output(text, **caps)
                compared += 1
    assert compared == 6 * sum(8**length for length in range(1, 5))


def test_every_short_file_under_every_small_cap(provider: ModuleType) -> None:
    alphabet = [b"\n", b"\r", b"\xc2", b"\x85", b"\xe2", b"\x80", b"\xa8", b"a", b"\xf0", b"\xed"]
    for length in range(4):
        for parts in itertools.product(alphabet, repeat=length):
            data = b"".join(parts)
            for offset, lines, size in ((1, 1, 1), (1, 9, 3), (2, 1, 4), (1, 2, 7), (3, 2, 9)):
                caps: dict[str, Any] = {
                    "offset": offset,
                    "limit": None,
                    "max_lines": lines,
                    "max_bytes": size,
                }
                assert output.render_file_window(data, **caps) == provider.render_file_window(data, **caps)


@settings(max_examples=1200, deadline=None)
@given(
    st.one_of(
        st.integers(),
        st.integers(0, 2**25),
        st.integers(0, 2**70),
        st.integers(0, 2**1030),
        # Around the values that lie halfway between two tenths.
        st.builds(lambda n, d, s: ((2 * n + 1) << s) // 20 + d, st.integers(0, 2**40), st.integers(-2, 2),
                  st.sampled_from([10, 20])),
    )
)  # fmt: skip
@example(2**53 + 1)
@example(2**64 - 1)
@example(2**63)
def test_format_size(provider: ModuleType, size: int) -> None:
    try:
        wanted = provider.format_size(size)
    except OverflowError:
        with pytest.raises(OverflowError):
            output.format_size(size)
    else:
        assert output.format_size(size) == wanted


def test_a_window_reads_any_bytes_like_object(provider: ModuleType) -> None:
    data = b"one\r\ntwo\xff\nthree"
    arguments: dict[str, Any] = {"offset": 2, "limit": 1, "max_lines": 10, "max_bytes": 100}
    wanted = provider.render_file_window(data, **arguments)
    for kind in (bytes, bytearray, memoryview):
        assert output.render_file_window(kind(data), **arguments) == wanted
