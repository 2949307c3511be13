# SPDX-License-Identifier: Apache-2.0
"""What is in the sandbox before the model's first command, and what fails a run before it costs anything."""

from __future__ import annotations

import asyncio
import copy
import errno
import io
import logging
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import fsspec
import pytest

from doubles import MemoryBackend, TaggedBackend
from sandbox_native import calls, command_files, input_plan, inputs
from sandbox_native.contract import (
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxSpec,
    SandboxTerminalError,
)
from sandbox_native.toolset import SandboxToolset
from sandbox_native.watching import Progress
from shell_backend import ShellBackend

log = logging.getLogger("inputs")
CTX: Any = None


@pytest.fixture
def memory() -> Iterator[Any]:
    fs = fsspec.filesystem("memory")
    yield fs
    if fs.exists("/inputs"):
        fs.rm("/inputs", recursive=True)


class Seeded(MemoryBackend):
    """Remembers in what order files came, and fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.write_error: BaseException | None = None

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        if self.write_error is not None:
            raise self.write_error
        super().write_file(sandbox, path, content)


async def use(toolset: SandboxToolset) -> None:
    await toolset.call_tool("run_command", {"command": "x"}, CTX, CTX)


def run_once(toolset: SandboxToolset) -> None:
    async def run() -> None:
        async with toolset:
            await use(toolset)

    asyncio.run(run())


def put(backend: tuple[SandboxBackend, str], given: dict[str, Any], max_bytes: int = 1 << 24) -> None:
    from upath import UPath

    found = inputs.look(input_plan.entries(given, max_bytes), UPath, log)
    inputs.seed(*backend, found, log)


def read(backend: tuple[SandboxBackend, str], path: str) -> bytes:
    return backend[0].read_file(backend[1], path, max_bytes=1 << 24)


# ---- what arrives


@pytest.mark.parametrize("size", [0, 1, 48 * 1024 - 1, 48 * 1024, 48 * 1024 + 1, 400_000])
def test_files_of_any_size_from_every_kind_of_source(
    backend: Any, memory: Any, tmp_path: Path, size: int
) -> None:
    data = os.urandom(size)
    (tmp_path / "local file").write_bytes(data)
    memory.pipe_file("/inputs/key", data)
    put(
        backend,
        {
            "a": f"file://{tmp_path}/local file",
            "new/dir/b": "memory://inputs/key",
            "c": data,
            "d": {"from": "memory://inputs/key", "max_bytes": max(size, 1)},
        },
    )
    assert [read(backend, path) == data for path in ("a", "new/dir/b", "c", "d")] == [True] * 4


def test_text_bytes_and_awkward_names(backend: Any) -> None:
    names = ["a b", "-rf", "[x]*?", "é 密", "#?%41&", "n\nl"]
    put(backend, {name: name.encode() for name in names} | {"text": {"text": "s3://not/a/url é"}})
    assert [read(backend, name) for name in names] == [name.encode() for name in names]
    assert read(backend, "text").decode() == "s3://not/a/url é"


def test_trees(backend: Any, memory: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {"a.csv": b"1", "sub/deep/b c": b"2" * 70_000, "sub/empty": b""}
    for name, data in files.items():
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_bytes(data)
        memory.pipe_file(f"/inputs/tree/{name}", data)
    memory.pipe_file("/inputs/tree2/x", b"not below tree/")
    (tmp_path / "src" / "link").symlink_to("/etc/passwd")
    (tmp_path / "src" / "links").symlink_to("/etc")
    os.mkfifo(tmp_path / "src" / "fifo")
    put(backend, {"one/": f"file://{tmp_path}/src/", "two/": "memory://inputs/tree/"})
    for root in ("one", "two"):
        assert {name: read(backend, f"{root}/{name}") for name in files} == files
        listed = command_files.list_tree(lambda *a, **k: backend[0].run_command(backend[1], *a, **k), root)
        assert listed is not None
        assert sorted(one.name for one in listed if one.type != "d") == sorted(files)
    for name in ("link'", "links'", "fifo'"):
        assert name in caplog.text


def test_an_existing_longer_file_is_replaced_whole(backend: Any) -> None:
    put(backend, {"f": b"long" * 100_000})
    put(backend, {"f": b"short"})
    assert read(backend, "f") == b"short"


# ---- what is refused before anything is spent


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"": b"x"}, "no file can have this path"),
        ({"a\0b": b"x"}, "no file can have this path"),
        ({"f": ""}, "is empty"),
        ({"f": None}, None),
        ({"f": {"text": 3}}, "text must be a string"),
        ({"f": {"text": "x", "from": "s3://b/k"}}, "needs a URL, bytes"),
        ({"f": {}}, "needs a URL, bytes"),
        ({"f": {"from": "s3://b/k", "mode": 7}}, "no option 'mode'"),
        ({"f": {"from": "s3://b/k", "required": 0}}, "required must be"),
        ({"f": {"from": "s3://b/k", "max_bytes": 0}}, "max_bytes"),
        ({"f": {"text": "x", "required": False}}, "given here"),
        ({"d/": b"x"}, "is a directory"),
        ({"d/": "s3://b/k"}, "both end in a slash"),
        ({"f": "s3://b/k/"}, "both end in a slash"),
        ({"f": b"x", "./f": b"y"}, "one place"),
    ],
)
def test_what_no_template_can_mend_is_refused_where_it_is_written(given: Any, named: str | None) -> None:
    if named is None:
        with pytest.raises(SandboxTerminalError, match="rendered to None"):
            SandboxToolset(MemoryBackend(), inputs=given).__enter__()
        return
    with pytest.raises(ValueError, match=named):
        SandboxToolset(MemoryBackend(), inputs=given)


def test_inputs_are_for_a_sandbox_of_ones_own() -> None:
    with pytest.raises(ValueError, match="inputs cannot be combined with attach_to"):
        SandboxToolset(TaggedBackend({}), attach_to="sb", owner="me", inputs={"f": b"x"})
    with pytest.raises(ValueError, match="input_conn_id only applies"):
        SandboxToolset(MemoryBackend(), input_conn_id="c")
    with pytest.raises(ValueError, match="max_input_bytes"):
        SandboxToolset(MemoryBackend(), max_input_bytes=0)


@pytest.mark.parametrize(
    ("path", "url", "named"),
    [
        ("f", "memory://inputs/gone", "is missing"),
        ("f", "file://{tmp}/gone", "is missing"),
        ("f", "file://{tmp}/gone/below", "is missing"),
        ("d/", "memory://inputs/gone/", "is missing"),
        ("d/", "file://{tmp}/gone/", "is missing"),
        ("d/", "file://{tmp}/empty/", "no file in"),
        ("f", "file://{tmp}/empty", "a directory"),
        ("f", "file://{tmp}/fifo", "not a regular file"),
        ("f", "file:///dev/zero", "not a regular file"),
        ("f", "memory://inputs/tree", "a folder"),
        ("f", "file://relative/f", "absolute"),
        ("f", "file://{tmp}/large", "has 101B; the limit is 100B"),
        ("f", "memory://inputs/large", "has 101B; the limit is 100B"),
        ("d/", "memory://inputs/tree/", "has 102B; the limit is 100B"),
        ("f", "nosuchprotocol://b/k", "nosuchprotocol"),
        ("f", "no url", "not a storage URL"),
        ("f", "None", "not a storage URL"),
    ],
)
def test_an_input_that_is_not_there_fails_the_run_before_it_costs_anything(
    path: str, url: str, named: str, memory: Any, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"x" * 101)
    memory.pipe_file("/inputs/large", b"x" * 101)
    memory.pipe_file("/inputs/tree/a", b"x" * 51)
    memory.pipe_file("/inputs/tree/b", b"x" * 51)
    backend = MemoryBackend()
    toolset = SandboxToolset(backend, inputs={path: {"from": "{{ rendered }}"}}, max_input_bytes=100)
    toolset._inputs = {path: url.replace("{tmp}", str(tmp_path))}
    with pytest.raises(SandboxTerminalError, match=named) as caught:
        asyncio.run(toolset.__aenter__())
    assert f"inputs[{path!r}]" in str(caught.value)
    assert backend.created == []


def test_what_is_not_required_may_be_missing(memory: Any) -> None:
    backend = Seeded()
    run_once(
        SandboxToolset(
            backend,
            inputs={
                "f": {"from": "memory://inputs/gone", "required": False},
                "d/": {"from": "memory://inputs/gone/", "required": False},
                "there": b"1",
            },
        )
    )
    assert backend.files == {"there": b"1"}


def test_a_file_and_a_tree_that_bring_the_same_path_are_refused(memory: Any) -> None:
    memory.pipe_file("/inputs/tree/a", b"1")
    with pytest.raises(SandboxTerminalError, match=r"both bring 'd/a'"):
        SandboxToolset(MemoryBackend(), inputs={"d/": "memory://inputs/tree/", "d/a": b"x"}).__enter__()


def test_too_many_files_are_refused(memory: Any, tmp_path: Path) -> None:
    for name in "abc":
        memory.pipe_file(f"/inputs/tree/{name}", b"1")
        (tmp_path / name).write_bytes(b"1")
    for url in ("memory://inputs/tree/", f"file://{tmp_path}/"):
        with pytest.raises(SandboxTerminalError, match="max_files"):
            SandboxToolset(MemoryBackend(), inputs={"d/": {"from": url, "max_files": 2}}).__enter__()


@pytest.mark.parametrize("name", ["/a", "x//a", "../a", "x/../../a", "./a"])
def test_keys_that_no_directory_can_have_are_refused(name: str) -> None:
    entry = input_plan.entries({"d/": "s3://b/k/"}, 10)[0]

    class Listing:
        def find(self, key: str, detail: bool) -> dict[str, Any]:
            return {key + name: {"type": "file", "size": 1}}

    with pytest.raises(OSError, match="can be called"):
        inputs._store_tree(entry, Listing(), "b/k")


# ---- life


def test_the_first_call_seeds_and_a_run_without_calls_makes_nothing(memory: Any) -> None:
    backend = Seeded()
    memory.pipe_file("/inputs/key", b"data")
    toolset = SandboxToolset(backend, inputs={"f": "memory://inputs/key"})
    with toolset:
        pass
    assert backend.created == [] and backend.files == {}
    run_once(toolset)
    assert backend.files == {"f": b"data"}
    backend.assert_nothing_left()


def test_a_sandbox_that_takes_the_place_of_a_lost_one_is_seeded_too() -> None:
    backend = Seeded()
    toolset = SandboxToolset(backend, inputs={"f": b"1"})

    async def run() -> None:
        async with toolset:
            backend.result = SandboxExecResult(1, "", "", sandbox_terminated=True)
            await use(toolset)
            backend.files.clear()
            backend.result = SandboxExecResult(0, "", "")
            await use(toolset)
            assert backend.files == {"f": b"1"}

    asyncio.run(run())
    assert len(backend.created) == 2


@pytest.mark.parametrize(
    "error",
    [
        SandboxError("disk full"),
        SandboxTerminalError("gone"),
        OSError("no"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
)
def test_a_sandbox_that_cannot_be_seeded_is_destroyed_and_no_command_runs(error: BaseException) -> None:
    backend = Seeded()
    backend.write_error = error
    toolset = SandboxToolset(backend, inputs={"f": b"1"})
    expected = SandboxTerminalError if isinstance(error, Exception) else type(error)
    with pytest.raises(expected) as caught:
        run_once(toolset)
    assert caught.value is error or "Could not put 'f' into sandbox box-1" in str(caught.value)
    assert backend.commands == []
    backend.assert_nothing_left()


def test_a_cancel_while_seeding_destroys_the_sandbox() -> None:
    backend = MemoryBackend(block_in="write_file")
    toolset = SandboxToolset(backend, inputs={"f": b"1"})

    async def run() -> None:
        async with toolset:
            call = asyncio.create_task(use(toolset))
            while not backend.blocked.is_set():
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(run())
    assert backend.commands == []
    backend.assert_nothing_left()


@pytest.mark.parametrize("change", ["grown", "shrunk", "rewritten", "removed"])
@pytest.mark.parametrize("store", ["file", "memory"])
def test_a_source_that_changed_after_the_run_began_fails_it(
    store: str, change: str, memory: Any, tmp_path: Path
) -> None:
    backend = Seeded()
    source = tmp_path / "key"

    def write(data: bytes | None) -> None:
        if store == "memory":
            memory.rm_file("/inputs/key") if data is None else memory.pipe_file("/inputs/key", data)
        elif data is None:
            source.unlink()
        else:
            source.write_bytes(data)
            os.utime(source, ns=(len(data), hash(data) % 10**9))

    write(b"before")
    url = f"file://{source}" if store == "file" else "memory://inputs/key"

    async def run() -> None:
        async with SandboxToolset(backend, inputs={"f": url}) as toolset:
            write({"grown": b"before!", "shrunk": b"befor", "rewritten": b"BEFORE", "removed": None}[change])
            await use(toolset)

    if (store, change) == ("memory", "rewritten"):
        asyncio.run(run())  # a store that gives nothing to tell it by
        assert backend.files == {"f": b"BEFORE"}
        return
    with pytest.raises(SandboxTerminalError, match="Could not put 'f'"):
        asyncio.run(run())
    backend.assert_nothing_left()


def test_the_model_is_told_what_is_there() -> None:
    toolset = SandboxToolset(MemoryBackend(), inputs={"data.csv": b"x" * 2048, "t": {"text": "é"}})

    async def descriptions() -> tuple[str, str]:
        before = (await toolset.get_tools(CTX))["run_command"].tool_def.description
        async with toolset:
            return str(before), str((await toolset.get_tools(CTX))["run_command"].tool_def.description)

    before, during = asyncio.run(descriptions())
    assert "In the sandbox already, for you to work with: data.csv, t." in before
    assert "In the sandbox already, for you to work with: data.csv (2.0KB), t (2B)." in during
    nothing = asyncio.run(SandboxToolset(MemoryBackend()).get_tools(CTX))
    assert "already" not in str(nothing["run_command"].tool_def.description)


def test_copies_carry_the_inputs() -> None:
    toolset = SandboxToolset(MemoryBackend(), inputs={"f": b"1"}, max_input_bytes=7, checksum=True)
    copies = [copy.copy(toolset), copy.deepcopy(toolset), pickle.loads(pickle.dumps(toolset))]
    copies.append(asyncio.run(toolset.for_run(CTX)))
    for other in copies:
        assert (other._inputs, other._max_input_bytes, other._checksum) == ({"f": b"1"}, 7, True)


# ---- the ways in


class Reader(io.RawIOBase):
    """Gives a little at a time, and fails or ends where it is told to."""

    def __init__(self, data: bytes, error: BaseException | None = None) -> None:
        self.data = io.BytesIO(data)
        self.error = error

    def readable(self) -> bool:
        return True

    def read(self, count: int | None = -1) -> bytes:
        part = self.data.read(min(count or 0, 7000))
        if not part and self.error is not None:
            raise self.error
        return part


@pytest.mark.parametrize(
    "error",
    [None, OSError(errno.EIO, "cut"), TimeoutError("slow"), ValueError("odd"), calls.CallCancelled("c")],
)
def test_a_source_that_fails_comes_out_as_it_is_and_the_file_is_not_there(
    backend: Any, error: BaseException | None
) -> None:
    with pytest.raises(EOFError if error is None else type(error)) as caught:
        backend[0].import_file(backend[1], "f", Reader(b"x" * 100_000, error), size=100_001)
    assert error is None or caught.value is error
    if isinstance(backend[0], ShellBackend) and not isinstance(error, calls.CallCancelled):
        assert os.listdir(backend[0].root) == []


def test_the_first_error_is_told_and_that_of_closing_the_source_is_a_note(backend: Any) -> None:
    class Stubborn(Reader):
        def close(self) -> None:
            raise OSError("no close either")

    seed = inputs.Seed("f", 100_001, lambda: cast("BinaryIO", Stubborn(b"x" * 100_000, OSError("the first"))))
    with pytest.raises(SandboxTerminalError, match="the first") as caught:
        inputs.put(*backend, seed, Progress(every=10))
    assert isinstance(caught.value.__cause__, OSError)
    assert "no close either" in "".join(caught.value.__cause__.__notes__)


def test_only_so_many_bytes_are_read(backend: Any) -> None:
    source = io.BytesIO(b"x" * 100_000)
    backend[0].import_file(backend[1], "f", source, size=60_000)
    assert read(backend, "f") == b"x" * 60_000 and source.tell() == 60_000


def test_a_descriptor_is_read_from_where_it_is(backend: Any, tmp_path: Path) -> None:
    (tmp_path / "src").write_bytes(bytes(range(256)) * 1000)
    for buffering in (0, -1):
        with open(tmp_path / "src", "rb", buffering=buffering) as source:
            source.read(100)
            backend[0].import_file(backend[1], "f", source, size=200_000)
        assert read(backend, "f") == (bytes(range(256)) * 1000)[100:200_100]


class Foreign:
    """A backend that knows nothing of import_file: of the provider, or a user's own."""

    name = "foreign"

    def __init__(self, shell: ShellBackend) -> None:
        self.shell = shell

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        return "box"

    def run_command(self, sandbox: str, command: str, **options: Any) -> SandboxExecResult:
        return self.shell.run_command(sandbox, command, **options)

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        self.shell.commands.append("write_file")
        (self.shell.root / path).write_bytes(content)


@pytest.mark.parametrize(("size", "own"), [(100, True), (command_files.IMPORT_AT_ONCE_BYTES + 1, False)])
def test_a_backend_of_somebody_else_gets_small_files_by_its_own_way(
    tmp_path: Path, size: int, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_files, "WRITE_PART_BYTES", 96 * 1024 - 3000)
    data = os.urandom(size)
    foreign: Any = Foreign(ShellBackend(tmp_path))
    put((foreign, "box"), {"f": data})
    assert (tmp_path / "f").read_bytes() == data
    assert ("write_file" in foreign.shell.commands) is own


def test_provider_fault_36_a_file_larger_than_a_command_line_goes_in(backend: Any) -> None:
    data = os.urandom(300_000)
    backend[0].write_file(backend[1], "f", data)
    assert read(backend, "f") == data
    backend[0].import_file(backend[1], "g", io.BytesIO(data), size=len(data))
    assert read(backend, "g") == data


def test_an_import_into_a_full_disk_or_over_the_limit_is_refused_by_name() -> None:
    from sandbox_native import registry

    local = registry.backend("local", workspace_bytes=1 << 20, max_file_bytes=2 << 20)
    sandbox = local.create()
    try:
        with pytest.raises(SandboxError, match=r"'f'.*[Nn]o space"):
            local.import_file(sandbox, "f", io.BytesIO(b"x" * (3 << 19)), size=3 << 19)  # type: ignore[attr-defined]
        with pytest.raises(SandboxError, match="over the limit"):
            local.import_file(sandbox, "f", io.BytesIO(), size=3 << 20)  # type: ignore[attr-defined]
    finally:
        local.destroy(sandbox)
