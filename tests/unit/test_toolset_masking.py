# SPDX-License-Identifier: Apache-2.0
"""No part of a secret reaches the model, wherever whoever cuts the text cuts it.

Secrets are made of letters and everything else of digits, so a letter in what is shown is a leak.
"""

from __future__ import annotations

import itertools
import random
import re
from typing import Any, cast

import pytest
from pydantic_ai.exceptions import ModelRetry

from doubles import MemoryBackend
from sandbox_native.contract import SandboxError, SandboxExecResult
from sandbox_native.masking import MASK, Secrets
from sandbox_native.toolset import SandboxToolset

CTX = cast("Any", None)
MARKER = "[... earlier output truncated]"

CASES: dict[str, tuple[list[str], str]] = {
    "one": (["secretvalue"], "012345secretvalue678901secretvalue"),
    "adjacent": (["abcdef", "ghijkl"], "01abcdefghijklabcdef23ghijklabcdef4"),
    "overlapping": (["abcdef", "defghi", "ghixyz"], "012abcdefghixyz345defghi6abcdefghi7"),
    "periodic": (["ababab"], "0abababababab1ababab23abababab4"),
    "one in another": (["password", "mypasswordistoolong", "long"], "1mypasswordistoolong2password3long4"),
    "begin as others end": (["aaab", "baaa"], "1aaabaaab2baaabaaa3"),
    "lines": (["line\none", "two\r\nlines"], "1\nline\none\n2two\r\nlines\n3line\none4"),
    "wide": (["pässwörd", "密码秘密碼"], "0pässwörd1密码秘密碼pässwörd2密码秘密碼3"),
    "pattern characters": (["a.b*c\\d", "[e](f)|g"], "0a.b*c\\d1[e](f)|g2a.b*c\\d[e](f)|g"),
    "much shrinking": (["s" * 90], "0" + ("s" * 90 + "1") * 5 + "2"),
}


def parts_shown(secrets: list[str], shown: str) -> list[str]:
    letters = {c for secret in secrets for c in secret if not c.isspace() and c not in MASK}
    return re.findall("[" + re.escape("".join(letters)) + "]+", shown.replace(MARKER, "").replace(MASK, ""))


@pytest.mark.parametrize("case", CASES)
def test_a_whole_text_shows_none(case: str) -> None:
    secrets, text = CASES[case]
    masked = Secrets(secrets).mask(text)
    assert parts_shown(secrets, masked) == []
    assert [c for c in masked if c.isdigit()] == [c for c in text if c.isdigit()], "nothing else is touched"


@pytest.mark.parametrize("case", CASES)
def test_at_every_cut_the_end_of_the_masked_text_is_shown(case: str) -> None:
    secrets, text = CASES[case]
    whole = Secrets(secrets).mask(text)
    for cut in range(len(text) + 1):
        shown = Secrets(secrets).mask_tail(text[cut:], start_cut=True, end_cut=False)
        assert whole.endswith(shown), cut
        assert parts_shown(secrets, shown) == [], cut


@pytest.mark.parametrize("case", CASES)
def test_no_more_is_dropped_than_a_secret_may_reach(case: str) -> None:
    secrets, _ = CASES[case]
    longest = max(map(len, secrets))
    text = "0123456789" * 40
    shown = Secrets(secrets).mask_tail(text, start_cut=True, end_cut=False)
    assert shown == text[longest - 1 :]
    assert len(text.encode()) - len(shown.encode()) <= Secrets(secrets).margin


@pytest.mark.parametrize("case", CASES)
def test_at_every_end_the_beginning_of_a_secret_is_masked(case: str) -> None:
    secrets, text = CASES[case]
    for end in range(len(text) + 1):
        shown = Secrets(secrets).mask_tail(text[:end], start_cut=False, end_cut=True)
        assert all(len(part) <= 2 for part in parts_shown(secrets, shown)), end
        for start in range(0, end, 3):
            shown = Secrets(secrets).mask_tail(text[start:end], start_cut=True, end_cut=True)
            assert all(len(part) <= 2 for part in parts_shown(secrets, shown)), (start, end)


def test_random_texts_of_random_secrets() -> None:
    """Few letters, so that secrets overlap, touch and contain each other in every way."""
    rng = random.Random(3)
    for _ in range(400):
        secrets = ["".join(rng.choices("abc", k=rng.randint(3, 8))) for _ in range(rng.randint(1, 4))]
        text = "".join(
            rng.choice(secrets) if rng.random() < 0.6 else "".join(rng.choices("01\n", k=rng.randint(0, 5)))
            for _ in range(8)
        )
        masker = Secrets(secrets)
        whole = masker.mask(text)
        assert parts_shown(secrets, whole) == []
        for cut in range(len(text) + 1):
            shown = masker.mask_tail(text[cut:], start_cut=True, end_cut=False)
            assert whole.endswith(shown) and parts_shown(secrets, shown) == []
        data = text.encode()
        assert masker.mask_bytes(data) == whole.encode()


class Cutting(MemoryBackend):
    """Keeps the last ``max_output_bytes`` of a text, and takes ``give_or_take`` more away, as services do."""

    def __init__(self, text: str, give_or_take: int) -> None:
        super().__init__()
        self.text = text
        self.give_or_take = give_or_take

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        data = self.text.encode()
        kept = data[-max(1, max_output_bytes - self.give_or_take) :]
        text = kept.decode("utf-8", "ignore")
        return SandboxExecResult(0, text, text, stdout_truncated=kept != data, stderr_truncated=kept != data)


@pytest.mark.asyncio
@pytest.mark.parametrize("case", CASES)
async def test_provider_fault_1_no_part_is_shown_whatever_the_caps(case: str) -> None:
    secrets, once = CASES[case]
    text = "7" * 40 + "\n" + once + "\n" + once
    for cap, less in itertools.product((1, 2, 3, 7, 16, 33, 60, 100), range(0, 60, 7)):
        async with SandboxToolset(Cutting(text, less), secrets=secrets, max_output_bytes=cap) as toolset:
            shown = await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)
        body = shown.replace("[stdout]\n", "").replace("[stderr]\n", "")
        assert parts_shown(secrets, body) == [], (cap, less, shown)
        if len(Secrets(secrets).mask(text).encode()) > cap:
            assert MARKER in shown


@pytest.mark.asyncio
async def test_provider_fault_1_the_cap_is_used_up_in_spite_of_the_margin() -> None:
    text = "".join(f"{n:09}\n" for n in range(100_000))
    async with SandboxToolset(Cutting(text, 0), secrets=["s" * 2000], max_output_bytes=1000) as toolset:
        shown = await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)
    assert shown.partition("\n[stderr]")[0] == f"[stdout]\n{MARKER}\n" + text[-1000:-1]


@pytest.mark.asyncio
async def test_without_secrets_a_backend_is_asked_for_the_cap_alone() -> None:
    backend = MemoryBackend()
    async with SandboxToolset(backend, max_output_bytes=1000) as toolset:
        await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)
    assert backend.commands[0][3] == 1000


@pytest.mark.asyncio
@pytest.mark.parametrize("case", CASES)
async def test_pages_of_a_file_show_none_wherever_they_begin_and_end(case: str) -> None:
    secrets, once = CASES[case]
    backend = MemoryBackend()
    backend.files["f"] = f"{once}\n{once}\xff\n".encode() + b"\xff\xfe" + once.encode()
    for cap in (3, 10, 30, 100):
        async with SandboxToolset(backend, secrets=secrets, max_output_bytes=cap) as toolset:
            for offset in range(1, 12):
                shown = await toolset.call_tool("read_file", {"path": "f", "offset": offset}, CTX, CTX)
                if not shown.startswith(("Line ", "(no lines")):
                    body = re.sub(r"\[\.\.\. .*\]$", "", shown)
                    assert parts_shown(secrets, body) == [], (cap, offset, shown)


@pytest.mark.asyncio
async def test_names_and_errors_show_none() -> None:
    backend = MemoryBackend()
    backend.entries = [("1hush-hush2", False), ("hush-hush", True)]
    async with SandboxToolset(backend, secrets=["hush-hush"]) as toolset:
        assert await toolset.call_tool("list_directory", {}, CTX, CTX) == "1***2\n***/"
        backend.result = SandboxError("curl -u hush-hush: no such host")
        with pytest.raises(ModelRetry) as caught:
            await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)
    assert str(caught.value) == "The run_command tool failed: curl -u ***: no such host"


def test_a_file_of_any_bytes_survives_masking() -> None:
    masker = Secrets(["secret"])
    data = bytes(range(256)) * 3 + b"secret" + bytes(range(255, -1, -1))
    assert masker.mask_bytes(data) == data.replace(b"secret", b"***")
    assert masker.mask_bytes(bytes(range(256))) == bytes(range(256))


def test_further_secrets_are_masked_by_their_own_masker_before_the_cut() -> None:
    masker = Secrets((), extra=lambda text: text.replace("foreign", MASK), longest=7)
    text = "0foreign1foreign2"
    for cut in range(len(text) + 1):
        shown = masker.mask_tail(text[cut:], start_cut=True, end_cut=False)
        assert "0***1***2".endswith(shown), (cut, shown)
    assert masker.mask_bytes(b"\xff foreign") == b"\xff ***"
