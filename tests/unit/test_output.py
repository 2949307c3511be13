# SPDX-License-Identifier: Apache-2.0
"""What the model is shown of texts, files and listings, and where this differs from the provider."""

from __future__ import annotations

import gc
import inspect
import re
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from sandbox_native import _sandbox_native as native
from sandbox_native import output

MARKER = "[... earlier output truncated]\n"


def tail(text: str, max_lines: int = 1000, max_bytes: int = 10**6, **more: bool) -> str:
    return output.truncate_output(text, max_lines=max_lines, max_bytes=max_bytes, **more)


def window(data: bytes, offset: int | None = None, max_bytes: int = 10**6, **more: object) -> str:
    arguments = {"limit": None, "max_lines": 1000, **more}
    return output.render_file_window(data, offset=offset, max_bytes=max_bytes, **arguments)  # type: ignore[arg-type]


class TestTruncateOutput:
    @pytest.mark.parametrize("text", ["abcd\nef", "é中\n😀", "\n\n\n"])
    def test_what_is_exactly_at_a_cap_is_whole_and_one_more_is_not(self, text: str) -> None:
        lines, size = len(text.splitlines()), len("\n".join(text.splitlines()).encode())
        assert MARKER not in tail(text, lines, size)
        assert tail(text, lines - 1, size).startswith(MARKER)
        assert tail(text, lines, size - 1).startswith(MARKER)

    @pytest.mark.parametrize("end", ["", "\n", "\r\n", "\u2028"])
    @pytest.mark.parametrize("character", ["x", "é", "中", "😀"])
    def test_a_line_over_the_cap_is_shown_by_its_end(self, character: str, end: str) -> None:
        for cap in range(1, 20):
            whole = cap // len(character.encode())
            assert tail("before\n" + character * 100 + end, max_bytes=cap) == MARKER + character * whole

    def test_already_truncated_is_marked_although_the_rest_fits(self) -> None:
        assert tail("a\nb\n", already_truncated=True) == MARKER + "a\nb"
        assert tail("", already_truncated=True) == ""

    @pytest.mark.parametrize("caps", [(1, 1), (5, 9), (10**30, 10**30), (True, True)])
    def test_lone_surrogates_become_replacement_characters(self, caps: tuple[int, int]) -> None:
        shown = tail("\ud800a\udfff\n\udc80b", *caps)
        assert not any("\ud800" <= c <= "\udfff" for c in shown)
        if caps[0] > 1000:
            assert shown == "\ufffda\ufffd\n\ufffdb"
        if caps == (5, 9):
            assert shown == MARKER + "\ufffdb"

    def test_a_surrogate_outside_of_what_is_shown_does_no_harm(self) -> None:
        assert tail("\ud800\n" * 5000 + "é", 2, 100) == MARKER + "\ufffd\né"

    @pytest.mark.parametrize("character", ["x", "é", "ж", "😀"])
    @pytest.mark.parametrize("before", ["a", "é", "ж", "😀"])
    def test_the_result_equals_another_str_with_the_same_text(self, before: str, character: str) -> None:
        for cut in (0, 1, 29, 30, 31, 32, 100):
            for shown in (character * 5, "", "\n\n"):
                text = before * cut + "\n" + shown + "\n"
                lines = len(shown.splitlines()) or 1
                result = tail(text, lines)
                wanted = "".join([MARKER, *("\n".join(shown.splitlines()))])
                assert result == wanted
                assert hash(result) == hash(wanted)
                assert sys.getsizeof(result) == sys.getsizeof(wanted)
                # What was given is as it was.
                assert text == "".join([before * cut, "\n", shown, "\n"])

    def test_nul_passes_through(self) -> None:
        assert tail("a\0b\n\0é") == "a\0b\n\0é"

    def test_a_subclass_of_str_becomes_a_str(self) -> None:
        class Text(str):
            def isascii(self) -> bool:
                raise AssertionError("not to be asked")

        assert type(tail(Text("abc"))) is str
        assert type(tail(Text("é\n"))) is str

    @pytest.mark.parametrize("name", ["max_lines", "max_bytes"])
    @pytest.mark.parametrize("cap", [0, -1, False, -(2**70)])
    def test_a_cap_below_one_is_named(self, name: str, cap: int) -> None:
        caps: dict[str, Any] = {"max_lines": 5, "max_bytes": 5, name: cap}
        for text in ("", "abc", "é"):
            with pytest.raises(ValueError, match=f"^{name} must be at least 1, got {cap}$"):
                output.truncate_output(text, **caps)
            with pytest.raises(ValueError, match=f"^{name} must be at least 1"):
                output.truncate_listing(text, **caps)
        with pytest.raises(ValueError, match=f"^{name} must be at least 1"):
            output.render_file_window(b"", offset=1, limit=1, **caps)

    @pytest.mark.parametrize("call", [lambda: tail(b"x"), lambda: tail("x", 1.5), lambda: tail("x", "2")])  # type: ignore[arg-type]
    def test_other_types_are_refused(self, call: Callable[[], str]) -> None:
        with pytest.raises(TypeError, match="must be"):
            call()


class TestRenderFileWindow:
    FILE = b"".join(b"line %d\n" % n for n in range(1, 1001))

    @pytest.mark.parametrize("max_bytes", [9, 10, 17, 100, 5000])
    @pytest.mark.parametrize("max_lines", [1, 7, 400])
    def test_paging_by_the_offset_visits_every_line_once_and_ends(
        self, max_bytes: int, max_lines: int
    ) -> None:
        seen: list[str] = []
        offset: int | None = 1
        while offset is not None:
            shown = window(self.FILE, offset, max_bytes, max_lines=max_lines)
            note = re.search(r"\n\[\.\.\. (\d+) more lines?; read on with offset=(\d+)\]\Z", shown)
            if note is not None:
                shown = shown[: note.start()]
            seen += shown.split("\n")
            if note is not None:
                assert int(note[2]) == len(seen) + 1
                assert int(note[1]) == 1000 - len(seen)
            offset = int(note[2]) if note is not None else None
        assert seen == self.FILE.decode().splitlines()

    def test_a_line_too_long_is_passed_by_the_offset_after_it(self) -> None:
        data = b"a\n" + b"x" * 2000 + b"\nb\n" + b"y" * 2000
        assert window(data, 2, 1024, long_line_hint="Cut it.") == (
            "Line 2 is longer than the 1.0KB output limit. Cut it."
        )
        assert window(data, 2, 1024, long_line_hint="Cut it.", next_offset_hint=True) == (
            "Line 2 is longer than the 1.0KB output limit. Cut it. The next line is at offset=3."
        )
        assert window(data, 4, 1024, long_line_hint="Cut it.", next_offset_hint=True) == (
            "Line 4 is longer than the 1.0KB output limit. Cut it."
        )
        assert window(data, 3, 1024) == "b\n[... 1 more line; read on with offset=4]"

    @pytest.mark.parametrize("offset", [1001, 2**62, 2**63, 2**64, 2**64 + 1, 10**40])
    def test_any_offset_beyond_the_end_is_answered(self, offset: int) -> None:
        assert window(self.FILE, offset) == f"(no lines at offset {offset}; file has 1000 lines)"

    @pytest.mark.parametrize("offset", [None, 0, -1, 1, True, -(2**70)])
    @pytest.mark.parametrize("limit", [None, 0, -5, 2**64, -(2**64)])
    def test_no_offset_and_no_limit(self, offset: int | None, limit: int | None) -> None:
        assert window(b"a\nb", offset, limit=limit) == "a\nb"

    def test_an_empty_file_a_blank_window_and_the_end_are_told_apart(self) -> None:
        assert window(b"") == "(no lines at offset 1; file has 0 lines)"
        assert window(b"\n\n", 2) == ""
        assert window(b"a", 2) == "(no lines at offset 2; file has 1 line)"

    def test_a_buffer_that_is_not_contiguous_is_refused(self) -> None:
        with pytest.raises(BufferError):
            window(memoryview(b"abcdef")[::2])  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            window("text")  # type: ignore[arg-type]

    def test_the_buffer_is_released(self) -> None:
        data = bytearray(b"a\nb\n" * 100_000)
        for cap in (1, 10**6):
            window(data, 5, cap)  # type: ignore[arg-type]
        data.append(1)

    def test_a_buffer_that_changes_meanwhile_never_breaks_the_result(self) -> None:
        data = bytearray(b"\xf0\x9f\x98\x80 text\n" * 40_000)
        stop = threading.Event()

        def scribble() -> None:
            while not stop.is_set():
                for fill in (b"\xff", b"\n", b"a"):
                    data[100:300_000] = fill * 299_900

        thread = threading.Thread(target=scribble)
        thread.start()
        try:
            for _ in range(60):
                assert len(window(data, 2, 200_000, max_lines=10**6)) < 200_100  # type: ignore[arg-type]
        finally:
            stop.set()
            thread.join()

    def test_a_hint_may_be_any_text(self) -> None:
        assert window(b"abc", 1, 2, long_line_hint="é\0\ud800").endswith("limit. é\0\ud800")
        with pytest.raises(TypeError, match="long_line_hint"):
            window(b"abc", 1, 2, long_line_hint=None)


class TestTruncateListing:
    NAMES = "\n".join(f"file-{n}" for n in range(40))

    def listing(self, text: str, max_lines: int = 1000, max_bytes: int = 10**6) -> str:
        return output.truncate_listing(text, max_lines=max_lines, max_bytes=max_bytes)

    def test_the_first_entries_are_kept_and_the_others_counted(self) -> None:
        shown = self.listing(self.NAMES, 3).split("\n")
        assert shown[:3] == ["file-0", "file-1", "file-2"]
        assert shown[3:] == [
            "[... 37 more entries truncated; list a subdirectory or use a shell command such as ls | tail]"
        ]
        assert self.listing(self.NAMES, 39).endswith(
            "file-38\n"
            "[... 1 more entry truncated; list a subdirectory or use a shell command such as ls | tail]"
        )

    @pytest.mark.parametrize("names", [["a", "bb", "", "ccc"], ["é", "中中", "😀", "x"], ["", "", "z"]])
    @pytest.mark.parametrize("end", ["", "\n"])
    def test_both_caps_hold_at_every_size(self, names: list[str], end: str) -> None:
        text = "\n".join(names) + end
        for lines in range(1, 6):
            for size in range(1, 20):
                kept: list[str] = []
                for name in names[:lines]:
                    if len("\n".join([*kept, name]).encode()) > size:
                        break
                    kept.append(name)
                left = len(names) - len(kept)
                shown = self.listing(text, lines, size)
                if left == 0:
                    assert shown == "\n".join(names)
                else:
                    assert shown.startswith("".join(name + "\n" for name in kept) + f"[... {left} more entr")

    def test_only_a_newline_ends_an_entry(self) -> None:
        assert self.listing("a\rb\u2028c\x85\vd") == "a\rb\u2028c\x85\vd"
        assert self.listing("a\rb\u2028\nc", 1).startswith("a\rb\u2028\n[... 1 more entry")

    def test_names_that_are_not_utf8_are_shown(self) -> None:
        assert self.listing("a\udcff\nb") == "a\ufffd\nb"
        assert self.listing("") == ""


class TestFormatSize:
    @pytest.mark.parametrize(
        ("size", "text"),
        [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0KB"),
            (1024**2 - 1, "1024.0KB"),
            (1024**2, "1.0MB"),
            (-5, "-5B"),
        ],
    )
    def test_values(self, size: int, text: str) -> None:
        assert output.format_size(size) == text

    def test_any_integer_and_nothing_else(self) -> None:
        assert output.format_size(2**100) == f"{2**100 / 2**20:.1f}MB"
        with pytest.raises(TypeError, match="num_bytes"):
            output.format_size(1.5)  # type: ignore[arg-type]


class TestMemory:
    def test_what_is_kept_does_not_pin_what_was_given(self) -> None:
        text = "x" * 80 + "\n"
        big = text * 100_000
        before = sys.getsizeof(big)
        shown = tail(big, 10, 10**6)
        assert sys.getsizeof(shown) < 2000
        assert sys.getsizeof(big) == before

    def test_a_large_text_that_is_not_ascii_gets_no_second_form(self) -> None:
        big = "ж" * 79 + "\n"
        big *= 50_000
        before = sys.getsizeof(big)
        tail(big, 100, 10_000)
        output.truncate_listing(big, max_lines=100, max_bytes=10_000)
        assert sys.getsizeof(big) == before

    @pytest.mark.parametrize("unit", ["log line\n", "журнал\n", "a\r\n", "\n", "x", "😀"])
    def test_memory_follows_the_caps_and_not_the_text(self, unit: str) -> None:
        text = unit * (4_000_000 // len(unit))
        data = text.encode()
        calls: list[Callable[[], str]] = [
            lambda: tail(text, 2000, 50_000),
            lambda: window(data, 1, 50_000),
            lambda: window(data, 10**6, 50_000),
            lambda: output.truncate_listing(text, max_lines=500, max_bytes=50_000),
        ]
        for call in calls:
            call()
            tracemalloc.start()
            try:
                call()
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 600_000

    def test_nothing_is_left_behind(self) -> None:
        text, data = "журнал\r\nx" * 5000, b"\xffjournal\r\n" * 5000

        def work() -> None:
            tail(text, 100, 1000)
            tail(text, 10**6, 10**6)
            tail("a\r\n" * 100, 5, 50)
            window(data, 3, 1000)
            window(data, 10**30)
            window(b"x" * 100, 1, 5)
            output.truncate_listing(text, max_lines=3, max_bytes=500)
            output.truncate_listing("\udcff\n" * 20, max_lines=3, max_bytes=500)
            output.format_size(2**100)
            for bad in (0, "x"):
                with pytest.raises((ValueError, TypeError)):
                    tail(text, bad)  # type: ignore[arg-type]

        work()
        gc.collect()
        held, blocks = native.allocated_bytes(), sys.getallocatedblocks()
        for _ in range(200):
            work()
        gc.collect()
        assert native.allocated_bytes() == held
        assert sys.getallocatedblocks() - blocks < 400


def test_every_public_function_says_what_it_takes_and_raises() -> None:
    for name in output.__all__:
        function = getattr(output, name)
        text = inspect.getdoc(function) or ""
        for parameter in inspect.signature(function).parameters:
            assert f":param {parameter}:" in text, f"{name}: {parameter}"
        assert ":raises" in text
