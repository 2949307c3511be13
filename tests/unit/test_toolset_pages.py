# SPDX-License-Identifier: Apache-2.0
"""PROVIDER_FAULT 4: a page of a file does not move and mask the whole file again."""

from __future__ import annotations

import pytest

from doubles import MemoryBackend
from sandbox_native import SandboxToolset
from sandbox_native.masking import Secrets
from test_toolset import call

LINES = [f"line {i}" for i in range(1000)]


class Stamping(MemoryBackend):
    stamp: object | None = 1
    asked = 0

    def file_stamp(self, sandbox: str, path: str) -> object | None:
        self.asked += 1
        return self.stamp


async def page(toolset: SandboxToolset, offset: int, path: str = "f") -> str:
    return (await call(toolset, "read_file", {"path": path, "offset": offset, "limit": 1})).split("\n")[0]


def backend() -> Stamping:
    made = Stamping()
    made.files["f"] = made.files["g"] = "\n".join(LINES).encode()
    return made


@pytest.mark.asyncio
async def test_provider_fault_4_the_pages_of_a_file_are_read_twice_at_most() -> None:
    mem = backend()
    async with SandboxToolset(mem, max_output_bytes=500) as toolset:
        for at in range(1, 200):
            assert await page(toolset, at) == LINES[at - 1]
    assert mem.reads == 2


@pytest.mark.asyncio
async def test_a_first_page_costs_one_call() -> None:
    mem = backend()
    async with SandboxToolset(mem, max_output_bytes=500) as toolset:
        for path in "fgf":
            await page(toolset, 1, path)
    assert (mem.reads, mem.asked) == (3, 0)


@pytest.mark.asyncio
@pytest.mark.parametrize("why", ["changed", "unknown", "another tool", "another file", "small"])
async def test_it_is_read_again_when_it_may_be_another(why: str) -> None:
    mem = backend()
    if why == "small":
        mem.files["f"] = b"line 0\nline 1\nline 2\nline 3\n"
    async with SandboxToolset(mem, max_output_bytes=500) as toolset:
        assert await page(toolset, 2) == "line 1"
        if why == "changed":
            mem.files["f"], mem.stamp = mem.files["f"].replace(b"line", b"news"), 2
        elif why == "unknown":
            mem.stamp = None
        elif why == "another tool":
            await call(toolset, "list_directory", {"path": "."})
        elif why == "another file":
            await page(toolset, 2, "g")
        reads = mem.reads
        assert await page(toolset, 3) == ("news 2" if why == "changed" else "line 2")
        assert mem.reads == reads + 1


@pytest.mark.asyncio
async def test_a_secret_that_became_known_between_two_pages_is_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mem = backend()
    async with SandboxToolset(mem, max_output_bytes=500) as toolset:
        assert await page(toolset, 2) == "line 1"
        monkeypatch.setattr(toolset, "_current_secrets", lambda: Secrets(["line"]))
        assert await page(toolset, 3) == "*** 2"
        assert await page(toolset, 4) == "*** 3"
    assert mem.reads == 2
