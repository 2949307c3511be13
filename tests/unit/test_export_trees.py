# SPDX-License-Identifier: Apache-2.0
"""Directories and patterns out of real guests: what is copied, what is left out, what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import logging
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import guests
from doubles import MemoryBackend, TaggedBackend
from sandbox_native import export_plan
from sandbox_native._delivery import Delivery
from sandbox_native.archive import Archive
from sandbox_native.contract import (
    OWNER_TAG,
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxTerminalError,
)
from sandbox_native.manifest import ExportedFile
from sandbox_native.toolset import SandboxToolset
from shell_backend import ShellBackend

log = logging.getLogger("exports")
CTX: Any = None
NAMES = [
    "a.csv",
    "b c",
    "-rf",
    "new\nline",
    "[ab]*?",
    "é 密",
    " lead",
    "trail ",
    ".hidden",
    "..x",
    "#?%41&",
    "'\"$(x)`\\",
]


def found(fs: Any) -> dict[str, bytes]:
    return {path.removeprefix("/dest/"): fs.cat_file(path) for path in fs.find("/dest")}


def sh(backend: tuple[SandboxBackend, str], command: str) -> None:
    # With tools to set things up that a bare guest has not.
    command = f'PATH="$PATH:/usr/bin:/bin"; {command}'
    result = backend[0].run_command(backend[1], command, timeout=60, max_output_bytes=10_000)
    assert result.exit_code == 0, result


def is_bare(backend: tuple[SandboxBackend, str]) -> bool:
    """Whether the guest has nothing that tells the mode of a file."""
    return (
        isinstance(backend[0], ShellBackend)
        and backend[0].env is not None
        and backend[0].shell[0] == "/bin/sh"
    )


def put(backend: tuple[SandboxBackend, str], files: dict[str, bytes]) -> None:
    for path, data in files.items():
        backend[0].write_file(backend[1], path, data)


def deliver(
    backend: tuple[SandboxBackend, str], exports: dict[str, Any], *, max_bytes: int = 1 << 20, **options: Any
) -> tuple[ExportedFile, ...]:
    from upath import UPath

    export_plan.check_options(exports, max_bytes)
    delivery = Delivery(*backend, resolve=UPath, log=log, **options)
    return delivery.deliver(export_plan.entries(exports, max_bytes))


def members(data: bytes) -> dict[str, tuple[bytes, int]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        infos = tar.getmembers()
        assert all(info.isreg() and info.uid == info.gid == info.mtime == 0 for info in infos)
        return {info.name: (tar.extractfile(info).read(), info.mode) for info in infos}  # type: ignore[union-attr]


FILES = {f"out/{name}": name.encode() for name in NAMES} | {
    "out/sub/deep/big": os.urandom(200_000),
    "out/sub/empty": b"",
}


def test_a_directory_becomes_a_tree_or_an_archive(backend: Any, memory: Any, tmp_path: Path) -> None:
    put(backend, FILES)
    sh(
        backend,
        "chmod 750 out/sub/empty; mkdir out/nothing; ln -s /etc/passwd out/link; ln -s /etc out/links",
    )
    records = deliver(
        backend,
        {"out/": "memory://dest/tree/", "./out/": "memory://dest/all.tar.gz"},
        checksum=True,
        manifest_url="memory://dest/manifest.json",
    )
    below = {path.removeprefix("out/"): data for path, data in FILES.items()}
    there = found(memory)
    assert {k.removeprefix("tree/"): v for k, v in there.items() if k.startswith("tree/")} == below
    archived = members(there["all.tar.gz"])
    assert {name: data for name, (data, _) in archived.items()} == below
    assert archived["sub/empty"][1] == 0o750 or is_bare(backend)
    assert set(there) == {"all.tar.gz", "manifest.json", *(f"tree/{name}" for name in below)}
    assert [(r.path, r.destination, r.bytes) for r in records[:-1]] == [
        (f"out/{name}", f"memory://dest/tree/{name}", len(below[name])) for name in sorted(below)
    ]
    assert records[-1].path == "./out/" and records[-1].bytes == len(there["all.tar.gz"])
    for record in records:
        data = there[record.destination.removeprefix("memory://dest/")]
        assert record.sha256 == hashlib.sha256(data).hexdigest() and record.seconds >= 0
    assert json.loads(there["manifest.json"]) == {"files": [vars(record) for record in records]}


def test_a_pattern_takes_what_it_matches_and_nothing_else(backend: Any, memory: Any) -> None:
    put(
        backend,
        FILES
        | {"out/b.csv": b"b", "out/sub/c.csv": b"c", "out/.h/d.csv": b"d", "e.csv": b"e", "*.csv": b"*"},
    )
    deliver(
        backend,
        {
            "out/*.csv": {"to": "memory://dest/flat/", "glob": True},
            "out/**/*.csv": {"to": "memory://dest/deep.tgz", "glob": True},
            # No pattern unless it says so.
            "*.csv": "memory://dest/star",
        },
    )
    there = found(memory)
    assert sorted(members(there.pop("deep.tgz"))) == ["a.csv", "b.csv", "sub/c.csv"]
    assert there == {"flat/a.csv": b"a.csv", "flat/b.csv": b"b", "star": b"*"}


def test_a_tree_onto_a_local_disk(backend: Any, tmp_path: Path) -> None:
    put(backend, FILES)
    (tmp_path / "dest").mkdir()
    (tmp_path / "dest" / "a.csv").write_bytes(b"before")
    (tmp_path / "dest" / "stays").write_bytes(b"stays")
    deliver(backend, {"out/": f"file://{tmp_path}/dest/"})
    below = {path.removeprefix("out/"): data for path, data in FILES.items()} | {"stays": b"stays"}
    assert {
        str(p.relative_to(tmp_path / "dest")): p.read_bytes()
        for p in (tmp_path / "dest").rglob("*")
        if p.is_file()
    } == below


@pytest.mark.parametrize(
    ("exports", "named"),
    [
        ({"gone/": "memory://dest/t/"}, "'gone/' does not exist"),
        ({"empty/": "memory://dest/t/"}, "'empty/' has no file in it"),
        ({"links/": "memory://dest/t.tgz"}, "'links/' has no file in it"),
        ({"file/": "memory://dest/t/"}, "'file/' is not a directory"),
        ({"out/*.x": {"to": "memory://dest/t/", "glob": True}}, r"'out/\*\.x' matches no file"),
        ({"gone/*": {"to": "memory://dest/t/", "glob": True}}, "'gone' does not exist"),
        ({"out/": {"to": "memory://dest/t/", "max_bytes": 9}}, "10B in 2 files.*max_bytes"),
        ({"out/": {"to": "memory://dest/t.tgz", "max_files": 1}}, "2 files.*max_files"),
        ({"out/": "memory://dest/t/", "file": "memory://dest/t/1"}, "goes there, too"),
        ({"bad/": "memory://dest/t/"}, "not UTF-8"),
        ({"bad/": "memory://dest/t.tgz"}, "not UTF-8"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_published(
    backend: Any, memory: Any, exports: dict[str, Any], named: str
) -> None:
    put(backend, {"file": b"x", "out/1": b"12345", "out/2": b"12345"})
    sh(backend, "mkdir empty links bad; ln -s ../out/1 links/one; printf x > \"bad/$(printf 'b\\377')\"")
    with pytest.raises(SandboxTerminalError, match=named):
        deliver(backend, exports)
    assert not memory.exists("/dest")


def test_what_is_not_required_may_be_missing_but_not_broken(backend: Any, memory: Any) -> None:
    put(backend, {"there": b"1"})
    sh(backend, "mkdir dir")
    optional = {"required": False}
    exports = {
        "gone": {"to": "memory://dest/gone", **optional},
        "gone/": {"to": "memory://dest/d/", **optional},
        "dir/": {"to": "memory://dest/e/", **optional},
        "*.x": {"to": "memory://dest/x.tgz", "glob": True, **optional},
        "there": {"to": "memory://dest/there", **optional},
    }
    assert [record.path for record in deliver(backend, exports)] == ["there"]
    assert found(memory) == {"there": b"1"}
    with pytest.raises(SandboxTerminalError, match="'dir'"):
        deliver(backend, {"dir": {"to": "memory://dest/dir", **optional}})
    sh(backend, "ln -s nowhere dangling")
    with pytest.raises(SandboxTerminalError, match="'dangling'"):
        deliver(backend, {"dangling": {"to": "memory://dest/dangling", **optional}})
    assert deliver(backend, {"gone": {"to": "memory://dest/gone", **optional}}) == ()


def test_an_unreadable_directory_is_named(tmp_path: Path, memory: Any) -> None:
    nobody = 65534 if os.geteuid() == 0 else None
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(parent.stat().st_mode | 0o011)
    for name in guests.NAMES:
        root = tmp_path / name
        (root / "out" / "shut").mkdir(parents=True)
        (root / "out" / "f").write_bytes(b"1")
        (root / "out" / "shut").chmod(0)
        box = ShellBackend(root, user=nobody, **guests.guest(name, tmp_path / f"tools-{name}"))
        for exports in ({"out/": "memory://dest/t/"}, {"out/**/f": {"to": "memory://dest/t/", "glob": True}}):
            with pytest.raises(SandboxTerminalError, match=r"Could not list 'out/?': (permission|a part)"):
                deliver((box, "box"), exports)
    assert not memory.exists("/dest")


# ---- changes under the copy


class Meddling(ShellBackend):
    """Does something in the sandbox after the n-th export of a file."""

    after = 1
    meddle: Callable[[], None]

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        copied = super().export_file(sandbox, path, dest, max_bytes=max_bytes)
        self.after -= 1
        if not self.after:
            self.meddle()
        return copied


@pytest.mark.parametrize("to", ["memory://dest/t/", "memory://dest/t.tar.gz"])
@pytest.mark.parametrize("what", ["new file", "rewritten", "removed", "swapped directory", "grown", "shrunk"])
@pytest.mark.parametrize("after", [1, 3])
def test_a_directory_that_changes_meanwhile_is_not_exported(
    tmp_path: Path, memory: Any, what: str, to: str, after: int
) -> None:
    out = tmp_path / "out"
    box = Meddling(tmp_path)
    box.after = after
    for name in ("a", "b/x", "c"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(name.encode() * 10)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_bytes(b"secret" * 5)

    def meddle() -> None:
        if what == "new file":
            (out / "b" / "y").touch()
        elif what == "rewritten":
            (out / "a").write_bytes(b"A" * 10)
        elif what == "removed":
            (out / "c").unlink()
        elif what == "swapped directory":
            (out / "b").rename(out / "was")
            (out / "b").symlink_to("../other")
        elif what == "grown":
            (out / "c").write_bytes(b"c" * 11)
        else:
            (out / "c").write_bytes(b"c" * 9)

    box.meddle = meddle
    with pytest.raises(SandboxTerminalError, match=r"changed|more than|limit|does not exist|bytes came"):
        deliver((box, "box"), {"out/": to})
    assert not memory.exists("/dest")


def test_a_pattern_does_not_mind_what_it_does_not_match(tmp_path: Path, memory: Any) -> None:
    (tmp_path / "a.csv").write_bytes(b"1")
    box = Meddling(tmp_path)
    box.meddle = lambda: (tmp_path / "server.log").touch()
    deliver((box, "box"), {"*.csv": {"to": "memory://dest/", "glob": True}})
    assert found(memory) == {"a.csv": b"1"}


@pytest.mark.parametrize("fate", ["cut", "no end", "terminated", "timed out", "other text"])
def test_a_listing_that_did_not_arrive_whole_is_no_listing(tmp_path: Path, memory: Any, fate: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_bytes(b"1")

    def tamper(command: str, result: SandboxExecResult) -> SandboxExecResult:
        from dataclasses import replace

        if "-printf" not in command:
            return result
        if fate == "cut":
            return replace(result, stdout_truncated=True)
        if fate == "no end":
            return replace(result, stdout=result.stdout[: len(result.stdout) // 2])
        if fate == "terminated":
            return replace(result, sandbox_terminated=True)
        if fate == "timed out":
            return replace(result, timed_out=True, exit_code=-1)
        return replace(result, stdout="out\n")

    with pytest.raises(SandboxTerminalError, match="Could not export 'out/'"):
        deliver((ShellBackend(tmp_path, tamper=tamper), "box"), {"out/": "memory://dest/t/"})
    assert not memory.exists("/dest")


def test_an_archive_that_fails_has_no_end() -> None:
    out = io.BytesIO()
    with pytest.raises(OSError, match="3 bytes came of the 4"), Archive(out) as archive:
        archive.add("whole", 0o644, 2, lambda dest: dest.write(b"ok"))
        archive.add("f", 0o644, 4, lambda dest: dest.write(b"123"))
    with (
        pytest.raises((EOFError, tarfile.ReadError)),
        tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar,
    ):
        tar.getmembers()
    with pytest.raises(OSError, match="more than the 2 bytes"):
        Archive(io.BytesIO()).add("f", 0o644, 2, lambda dest: dest.write(b"123"))


# ---- runs


async def use(toolset: SandboxToolset) -> None:
    await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)


def salvaging(backend: SandboxBackend, **options: Any) -> SandboxToolset:
    exports = {
        "result": "memory://dest/result",
        "gone": {"to": "memory://dest/gone", "on_failure": True},
        "log": {"to": "memory://dest/log", "on_failure": True},
    }
    return SandboxToolset(backend, exports=exports, **options)


@pytest.mark.parametrize(
    "error", [KeyError("k"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
@pytest.mark.parametrize("how", ["with", "async with"])
def test_of_a_failed_run_what_is_there_is_saved_and_its_exception_comes_out(
    error: BaseException, how: str, memory: Any
) -> None:
    backend = MemoryBackend()
    backend.files.update(result=b"1", log=b"why")
    toolset = salvaging(backend, export_manifest="memory://dest/manifest")

    async def run() -> None:
        try:
            if how == "with":
                with toolset:
                    await use(toolset)
                    raise error
            async with toolset:
                await use(toolset)
                raise error
        except BaseException as e:
            assert e is error
            return
        raise AssertionError("the exception was lost")

    asyncio.run(run())
    assert found(memory) == {"log": b"why"}
    assert [record.destination for record in toolset.manifest] == ["memory://dest/log"]
    backend.assert_nothing_left()


@pytest.mark.parametrize("error", [SandboxError("no"), OSError("no"), KeyboardInterrupt(), MemoryError()])
def test_saving_never_replaces_the_exception_of_the_run(error: BaseException, memory: Any) -> None:
    backend = MemoryBackend()
    backend.files.update(log=b"why")
    backend.export_error = error

    async def run() -> None:
        async with salvaging(backend) as toolset:
            await use(toolset)
            raise KeyError("the run's own")

    with pytest.raises(KeyError, match="the run's own"):
        asyncio.run(run())
    assert not memory.exists("/dest")
    backend.assert_nothing_left()


def test_a_failed_export_saves_what_is_to_be_saved_and_nothing_else(memory: Any) -> None:
    backend = MemoryBackend()
    backend.files.update(log=b"why", gone=b"here")

    async def run() -> None:
        async with salvaging(backend) as toolset:
            await use(toolset)

    with pytest.raises(SandboxTerminalError, match="Could not export 'result'"):
        asyncio.run(run())
    assert found(memory) == {"log": b"why", "gone": b"here"}
    backend.assert_nothing_left()


def test_a_run_without_a_sandbox_delivers_what_is_not_required(memory: Any) -> None:
    with SandboxToolset(
        MemoryBackend(), exports={"f": {"to": "memory://dest/f", "required": False}}
    ) as toolset:
        pass
    assert toolset.manifest == ()
    with (
        pytest.raises(SandboxTerminalError, match=r"no sandbox standing.*'g'"),
        SandboxToolset(
            MemoryBackend(),
            exports={"f": {"to": "memory://dest/f", "required": False}, "g": "memory://dest/g"},
        ),
    ):
        pass


def test_the_manifest_of_a_run_is_on_the_toolset_it_was_made_from(memory: Any) -> None:
    backend = MemoryBackend()
    backend.files["f"] = b"data"
    toolset = SandboxToolset(backend, exports={"f": "memory://dest/f"}, checksum=True)

    async def run() -> None:
        async with await toolset.for_run(CTX) as forked:
            await use(forked)

    asyncio.run(run())
    (record,) = toolset.manifest
    assert (record.path, record.destination, record.bytes) == ("f", "memory://dest/f", 4)
    assert record.sha256 == hashlib.sha256(b"data").hexdigest()


@pytest.mark.parametrize("failed", [False, True])
def test_an_attached_sandbox_is_exported_from_before_it_is_given_back(failed: bool, memory: Any) -> None:
    backend = TaggedBackend({"sb": {OWNER_TAG: "me"}})
    backend.files["f"] = b"1"
    toolset = SandboxToolset(
        backend, attach_to="sb", owner="me", exports={"f": "memory://dest/f"}, export_attached=True
    )
    described: list[str] = []

    async def run() -> None:
        async with toolset:
            forked = await toolset.for_run(CTX)
            async with forked:
                described.append(forked._export_note)
                if failed:
                    raise KeyError("own")
            memory.rm_file("/dest/f")

    with contextlib.suppress(KeyError):
        asyncio.run(run())
    assert found(memory) == {}
    assert "copied out of the sandbox" in described[0] and "deleted" not in described[0]
    assert backend.destroyed == [] and backend.tags == {"sb": {OWNER_TAG: "me"}}


def test_the_model_is_told_what_each_key_means() -> None:
    toolset = SandboxToolset(
        MemoryBackend(),
        exports={
            "f[1]": "memory://dest/f",
            "out/": "memory://dest/out/",
            "*.csv": {"to": "memory://dest/csv/", "glob": True, "required": False},
        },
    )
    assert (
        "f[1], out/ (all the files in it), *.csv (every file that matches, if there is one)."
        in toolset._export_note
    )
