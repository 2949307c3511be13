# SPDX-License-Identifier: Apache-2.0
"""Keeping registered secrets, and every part of one, out of what the model reads.

A secret is masked wherever it occurs, also where it overlaps another. A text that somebody cut before it
came here may begin or end with a part of a secret, which nothing matches any more; :meth:`Secrets.mask_tail`
takes care of those ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sandbox_native import _sandbox_native as native

MASK = "***"
# Parts of a secret this short say nothing, and they occur in every text.
_TRIVIAL = 2
# A backend is asked for no more than this beyond the cap, however long a secret is.
_MAX_MARGIN = 1024 * 1024


class Secrets:
    """The secrets of this moment. Immutable; never shows them."""

    __slots__ = ("_extra", "_longest", "_values")

    def __init__(
        self,
        values: Iterable[str] = (),
        *,
        extra: Callable[[str], str] | None = None,
        longest: int = 0,
    ) -> None:
        """
        :param values: the secrets; an empty one is ignored.
        :param extra: masks further secrets, which ``values`` does not name. At the end of a text that was
            cut there, a part of one may be left.
        :param longest: how many characters the longest of those further ones may have.
        """
        self._values = tuple(sorted({value for value in values if value}, key=lambda v: (-len(v), v)))
        self._longest = max([longest, *map(len, self._values[:1])])
        self._extra = extra

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secrets):
            return NotImplemented
        return (self._values, self._extra, self._longest) == (other._values, other._extra, other._longest)

    def __hash__(self) -> int:
        return hash((self._values, self._extra, self._longest))

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._values)}>"

    @property
    def margin(self) -> int:
        """How many bytes beyond its cap to ask a backend for, so that after :meth:`mask_tail` of what it cut
        about the cap is left: what is dropped, and as much again for secrets that shrink.
        """
        # A character of UTF-8 is up to four bytes.
        return min(2 * 4 * self._longest, _MAX_MARGIN)

    def mask(self, text: str) -> str:
        """Replace each secret by :data:`MASK`; secrets that overlap become one."""
        return self._finish(_replace(text, self._spans(text)))

    def mask_bytes(self, data: bytes) -> bytes:
        """:meth:`mask` for UTF-8 text, whatever else is in it. Returns ``data`` itself when it holds none."""
        if self._extra is None:
            # UTF-8 is such that the bytes of a secret are found exactly where its characters are.
            masked_bytes = native.replace_all(data, tuple(self._encoded()), MASK.encode())
            return data if masked_bytes is None else masked_bytes
        text = data.decode("utf-8", "surrogateescape")
        masked = self.mask(text)
        return data if masked == text else masked.encode("utf-8", "surrogateescape")

    def mask_tail(self, text: str, *, start_cut: bool, end_cut: bool) -> str:
        """Mask a text of which the rest was cut off, leaving no part of a secret at either cut.

        At the start as much is dropped as the longest secret could reach into the text, and then on to where
        no secret is cut again. At the end only what is the beginning of a secret is masked, since there the
        text is most likely whole and what it says last matters most.

        :param start_cut: text before this was cut off.
        :param end_cut: text after this may have been cut off.
        """
        spans = list(self._spans(text))
        start = self._safe_start(text, spans) if start_cut else 0
        end = self._safe_end(text) if end_cut else len(text)
        if start >= len(text):
            return ""
        spans = [(a, b) for a, b in spans if a >= start]
        if end < len(text):
            spans = list(_merge([*spans, (max(end, start), len(text))]))
        return self._finish(_replace(text, spans, start))

    def _safe_start(self, text: str, spans: list[tuple[int, int]]) -> int:
        start = max(self._longest - 1, 0)
        while True:
            inside = next((b for a, b in spans if a < start < b), None)
            if inside is not None:
                start = inside
            elif self._cuts_further(text, start):
                start += 1
            else:
                return start

    def _cuts_further(self, text: str, at: int) -> bool:
        """Whether a cut there would go through one of the secrets that only their own masker knows."""
        if self._extra is None:
            return False
        before, after = text[max(at - self._longest, 0) : at], text[at : at + self._longest]
        return self._extra(before) + self._extra(after) != self._extra(before + after)

    def _safe_end(self, text: str) -> int:
        """Where the longest beginning of a secret that ends the text begins."""
        for length in range(min(self._longest - 1, len(text)), _TRIVIAL, -1):
            part = text[-length:]
            if any(len(value) > length and value.startswith(part) for value in self._values):
                return len(text) - length
        return len(text)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The parts of ``text`` that are secret: sorted, disjoint, and merged where they overlap."""
        found: list[tuple[int, int]] = []
        for value in self._values:
            found.extend(_occurrences(text, value))
        return _merge(found)

    def _encoded(self) -> Iterator[bytes]:
        for value in self._values:
            # Surrogates as the text of mask_bytes has them; others cannot occur in it.
            try:
                yield value.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                continue

    def _finish(self, text: str) -> str:
        return text if self._extra is None else self._extra(text)


def _occurrences(text: str, value: str) -> Iterator[tuple[int, int]]:
    """All occurrences, overlapping ones joined on the way, so a periodic text makes one span."""
    start = end = -1
    at = text.find(value)
    while at >= 0:
        if at >= end:
            if end >= 0:
                yield start, end
            start = at
        end = at + len(value)
        at = text.find(value, at + 1)
    if end >= 0:
        yield start, end


def _merge(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    start = end = -1
    for a, b in sorted(spans):
        if a >= end:
            if end >= 0:
                yield start, end
            start, end = a, b
        else:
            end = max(end, b)
    if end >= 0:
        yield start, end


def _replace(text: str, spans: Iterable[tuple[int, int]], start: int = 0) -> str:
    parts: list[str] = []
    for a, b in spans:
        parts += (text[start:a], MASK)
        start = b
    if not parts:
        return text[start:] if start else text
    parts.append(text[start:])
    return "".join(parts)
