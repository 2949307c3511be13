# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox: a page of a file does not fetch the file again where execd can tell that it is the same."""

from __future__ import annotations

from typing import Any, cast

import pytest

from opensandbox_box import OpenBox, recoverable
from sandbox_native import SandboxToolset
from sandbox_native.backends import _opensandbox_files as files
from sandbox_native.contract import SandboxError, SandboxTerminalError

ANY = cast("Any", None)


def operations(box: OpenBox) -> list[str]:
    return [request["operation"] for request in box.sent()]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock has no ticks, so a file need not grow old before it can be told from a later one."""
    monkeypatch.setattr(files, "_CLOCK_TICK", -3600.0)


def test_a_stamp_is_another_one_for_any_other_content(opened: OpenBox, pages: None) -> None:
    opened.out("printf 12345 >/srv/f")
    seen = {opened.backend.file_stamp(opened.id, "/srv/f")}
    for command in (
        "printf 2 | dd of=/srv/f conv=notrunc status=none",
        "printf 3 | dd of=/srv/f conv=notrunc status=none; touch -d 2001-01-01 /srv/f",
        "printf 4 | dd of=/srv/f conv=notrunc status=none; touch -d 2001-01-01 /srv/f",
        "cp -p /srv/f /srv/other; mv /srv/other /srv/f",
        "truncate -s 4 /srv/f",
    ):
        opened.out(f"sleep 0.02; {command}")
        opened.server.forget_requests()
        stamp = opened.backend.file_stamp(opened.id, "/srv/f")
        assert stamp is not None and stamp not in seen
        assert opened.backend.file_stamp(opened.id, "/srv/f") == stamp
        assert operations(opened) == ["info", "info"]
        seen.add(stamp)


def test_a_file_that_changed_just_now_has_no_stamp(opened: OpenBox) -> None:
    opened.out("printf 12345 >/srv/f")
    for date, known in (
        ("Tue, 01 Jan 2030 00:00:00 GMT", True),
        ("Tue, 01 Jan 2030 00:00:00 GMT, Tue, 01 Jan 2030 00:00:09 GMT", True),
        ("Tue, 01 Jan 2030 00:00:00 GMT, Thu, 01 Jan 1970 00:00:00 GMT", False),
        ("Thu, 01 Jan 1970 00:00:00 GMT", False),
        ("yesterday", False),
        ("", False),
    ):
        opened.server.faults.add("info", "headers", set={"Date": date})
        opened.server.faults.add(
            "info", "json", set={"/srv/f": {"type": "file", "size": 5, "created_at": "2029-12-31T00:00:00Z"}}
        )
        assert (opened.backend.file_stamp(opened.id, "/srv/f") is not None) == known, date
    for changed in ("", None, 5, "soon", "2029-12-31T25:00:00Z"):
        opened.server.faults.add("info", "headers", set={"Date": "Tue, 01 Jan 2030 00:00:00 GMT"})
        opened.server.faults.add(
            "info", "json", set={"/srv/f": {"type": "file", "size": 5, "created_at": changed}}
        )
        assert opened.backend.file_stamp(opened.id, "/srv/f") is None, changed


@pytest.mark.parametrize("path", ["/srv/l", "/srv", "/proc/version", "/srv/$HOME", "/srv/empty"])
def test_what_cannot_be_told_from_another_has_no_stamp(opened: OpenBox, pages: None, path: str) -> None:
    opened.out("printf 12345 >/srv/f; ln -s f /srv/l; cp /srv/f '/srv/$HOME'; touch /srv/empty")
    assert opened.backend.file_stamp(opened.id, path) is None


def test_no_stamp_of_what_is_missing_or_gone(opened: OpenBox) -> None:
    with pytest.raises(SandboxError, match="does not exist") as caught:
        opened.backend.file_stamp(opened.id, "/srv/none")
    assert recoverable(caught)
    opened.server.act(opened.id, "remove")
    with pytest.raises(SandboxTerminalError):
        opened.backend.file_stamp(opened.id, "/srv/none")


@pytest.mark.asyncio
async def test_provider_fault_4_pages_of_a_file_are_not_fetched_again_and_again(
    opened: OpenBox, pages: None
) -> None:
    async with SandboxToolset(opened.backend, max_output_bytes=500) as toolset:

        async def use(name: str, **arguments: Any) -> str:
            shown: str = await toolset.call_tool(name, arguments, ANY, ANY)
            return shown.split("\n")[0]

        async def page(offset: int) -> str:
            return await use("read_file", path="/srv/f", offset=offset, limit=1)

        await use("run_command", command="seq -f 'line %.0f' 0 99999 >/srv/f")
        opened.server.forget_requests()
        assert [await page(n) for n in range(1, 21)] == [f"line {n}" for n in range(20)]
        assert len(opened.sent("download")) == 2
        assert (
            len(opened.sent()) == 2 + 19 + 2
        )  # a look and the file, twice, and a look for each page but one
        await use("write_file", path="/srv/f", content="new\n" * 500)
        assert [await page(n) for n in (1, 2)] == ["new", "new"]
