# SPDX-License-Identifier: Apache-2.0
"""Every backend to every kind of destination, with the sizes at which a copy could go wrong by one."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from gateway import Gateway
from guests import guest
from sandbox_native import _obstore, export_plan, uploads
from sandbox_native._delivery import Delivery
from sandbox_native.backends.islo import IsloSandboxBackend
from sandbox_native.backends.local import LocalSandboxBackend
from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sbx_tools import Sbx
from shell_backend import ShellBackend
from suite import services
from test_s3_exports import content

log = logging.getLogger("exports")
PART = uploads.MIN_PART
FILES = {f"f{size}": content(size, number) for number, size in enumerate((0, 1, PART - 1, PART, PART + 1))}
TREE = {f"tree/{number % 3}/f {number}": content(1000 * number, number) for number in range(12)}
SPARSE = 1 << 30
GUESTS = {"debian": "dash", "busybox": "busybox", "posix": "bare"}
BACKENDS = ["local", "sbx", "opensandbox", "islo", *(f"commands-{name}" for name in GUESTS)]


class Source:
    """A sandbox with the files in it."""

    def __init__(self, backend: Any, folder: Callable[[str], Path] | None = None) -> None:
        """:param folder: where commands start, seen from the host. None: the backend brings them."""
        self.backend = backend
        self.handle: str = backend.create()
        for name, data in {**FILES, **TREE}.items():
            if folder is not None:
                path = folder(self.handle) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            else:
                backend.import_file(self.handle, name, io.BytesIO(data), size=len(data))

    def deliver(self, exports: dict[str, str], resolve: Any, *, checksum: bool) -> dict[str, str | None]:
        """Export; the checksum of each file as its record has it."""
        delivery = Delivery(self.backend, self.handle, resolve=resolve, log=log, checksum=checksum)
        records = delivery.deliver(export_plan.entries(exports, 2 << 30))
        known = {**FILES, **TREE}
        assert all(one.bytes == len(known[one.path]) for one in records if one.path in known)
        return {one.path: one.sha256 for one in records}

    def close(self) -> None:
        self.backend.destroy(self.handle)


@contextlib.contextmanager
def opened(name: str, folder: Path) -> Iterator[Source]:
    with contextlib.ExitStack() as stack:
        if name == "local":
            source = Source(LocalSandboxBackend(workspace_bytes=2 << 30, max_file_bytes=2 << 30))
        elif name == "sbx":
            sbx = Sbx(folder / "sbx", stack.enter_context(pytest.MonkeyPatch.context()))
            source = Source(sbx.backend, sbx.work)
        elif name == "opensandbox":
            services.opensandbox()
            source = Source(OpenSandboxBackend(None))
        elif name == "islo":
            services.islo()
            source = Source(IsloSandboxBackend())
        else:
            (folder / "work").mkdir()
            kind = GUESTS[name.removeprefix("commands-")]
            source = Source(
                ShellBackend(folder / "work", **guest(kind, folder / "tools")), lambda _: folder / "work"
            )
        stack.callback(source.close)
        yield source


@pytest.fixture(scope="module")
def servers() -> Iterator[None]:
    yield
    services.close()


@pytest.fixture(scope="module", params=BACKENDS)
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, servers: None
) -> Iterator[Source]:
    with opened(request.param, tmp_path_factory.mktemp("source")) as made:
        yield made


class Destination:
    """A folder of one kind of store."""

    def __init__(self, kind: str, folder: Path, s3: Gateway, bucket: str) -> None:
        self._kind = kind
        self._options = s3.root.options() if kind.startswith("s3") else {}
        self._root = {"file": f"file://{folder}", "memory": f"memory://matrix/{secrets.token_hex(4)}"}.get(
            kind, f"s3://{bucket}"
        )
        self._objects = lambda: s3.objects(bucket)
        self._uploads = lambda: s3.uploads(bucket)

    def url(self, name: str) -> str:
        return f"{self._root}/{name}"

    def resolve(self, url: str) -> Any:
        return UPath(url, **self._options)

    def digests(self) -> dict[str, str]:
        """All that is there, the checksum of each."""
        if self._kind.startswith("s3"):
            assert self._uploads() == []
            found = self._objects()
        else:
            fs, root = UPath(self._root).fs, UPath(self._root).path
            found = {path.removeprefix(f"{root}/"): fs.cat_file(path) for path in fs.find(root)}
        return {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}


@pytest.fixture(params=["file", "memory", "s3-obstore", "s3-s3fs"])
def destination(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    s3: Gateway,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Destination]:
    if request.param == "s3-s3fs":
        monkeypatch.setattr(_obstore, "installed", lambda: False)
    made = Destination(request.param, tmp_path, s3, bucket)
    yield made
    if request.param == "memory":
        UPath("memory://matrix").fs.rm("/matrix", recursive=True)


@pytest.mark.parametrize("checksum", [True, False], ids=["checksum", "plain"])
def test_each_backend_to_each_destination(source: Source, destination: Destination, checksum: bool) -> None:
    right = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    exports = {name: destination.url(name) for name in FILES}
    told = source.deliver(exports, destination.resolve, checksum=checksum)
    assert destination.digests() == right
    assert told == (right if checksum else dict.fromkeys(FILES))


def test_a_folder_of_each_backend_to_each_destination(source: Source, destination: Destination) -> None:
    """Small files, which most backends let be copied several at a time."""
    right = {name: hashlib.sha256(data).hexdigest() for name, data in TREE.items()}
    told = source.deliver({"tree/": destination.url("tree/")}, destination.resolve, checksum=True)
    assert told == right and list(told) == sorted(right)
    assert destination.digests() == right


def test_a_gigabyte_with_holes(tmp_path: Path) -> None:
    """From a local sandbox to a file; what is in it is told by its end and by its checksum."""
    end = b"the end"
    with opened("local", tmp_path) as source:
        made = source.backend.run_command(
            source.handle,
            f"truncate -s {SPARSE} big && printf '{end.decode()}' >> big",
            timeout=60,
            max_output_bytes=1000,
        )
        assert made.exit_code == 0, made.stderr
        source.deliver({"big": f"file://{tmp_path}/big"}, UPath, checksum=False)
    zeros = bytes(1 << 20)
    right = hashlib.sha256()
    for _ in range(SPARSE >> 20):
        right.update(zeros)
    right.update(end)
    with open(tmp_path / "big", "rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == right.hexdigest()
    assert (tmp_path / "big").stat().st_size == SPARSE + len(end)
    (tmp_path / "big").unlink()
