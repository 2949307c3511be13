# SPDX-License-Identifier: Apache-2.0
"""Exports to Azure's blob service, as its own emulator has it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from azurite import Azurite, running
from sandbox_native import uploads
from sandbox_native.contract import SandboxTerminalError
from sandbox_native.exports import Export, Item, Source
from test_s3_exports import KINDS, NAMES, Files, content

log = logging.getLogger("exports")
PART = uploads.MIN_PART


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with running(Path(tmp_path_factory.mktemp("azurite"))) as server:
        yield server


@pytest.fixture
def container(azure: Azurite) -> str:
    return azure.container()


def export(files: Files, container: str, azure: Azurite) -> None:
    def resolve(url: str) -> Any:
        return UPath(url, **azure.options())

    items = [
        Item(path, f"abfs://{container}/out/{path}", partial(files.copy, path), 1 << 30)
        for path in files.files
    ]
    Export(items, source=Source("box-1", "files"), resolve=resolve, log=log).run()


@pytest.mark.parametrize("size", [0, 1, PART, 2 * PART + 17])
def test_what_arrives_is_what_was_copied_and_nothing_else(azure: Azurite, container: str, size: int) -> None:
    files = Files({"a f#%.bin": content(size), "g": content(size, 1)}, piece=777_777)
    export(files, container, azure)
    assert azure.blobs(container) == {f"out/{path}": data for path, data in files.files.items()}
    # Once more, onto what is there.
    changed = Files({"g": content(size + 5, 2)})
    export(changed, container, azure)
    assert azure.blobs(container)["out/g"] == changed.files["g"]


@pytest.mark.parametrize("kind", ["OSError", "KeyboardInterrupt", "SystemExit", "CallCancelled"])
def test_provider_fault_31_a_copy_that_ends_in_any_exception(
    azure: Azurite, container: str, kind: str
) -> None:
    client = azure.client.get_container_client(container)
    client.upload_blob("out/two", b"as it was")
    files = Files({"one": content(2 * PART + 1), "two": content(2 * PART + 1), "three": b""})
    error = KINDS[NAMES.index(kind)]()

    def fail(path: str, position: int) -> None:
        if path == "two" and position >= 6 << 20:
            raise error

    files.between = fail
    with pytest.raises(BaseException, match="injected"):
        export(files, container, azure)
    assert azure.blobs(container) == {"out/two": b"as it was"}
    # What it left with the service does not come between the next.
    files.between = lambda path, position: None
    export(files, container, azure)
    assert azure.blobs(container) == {f"out/{path}": data for path, data in files.files.items()}


def test_no_container_is_made(azure: Azurite) -> None:
    with pytest.raises(SandboxTerminalError, match="Could not export 'f' from sandbox box-1"):
        export(Files({"f": content(3)}), "no-such-container", azure)
    assert "no-such-container" not in [found.name for found in azure.client.list_containers()]


def test_provider_fault_34_a_folder_is_no_destination(azure: Azurite, container: str) -> None:
    azure.client.get_container_client(container).upload_blob("out/folder/file", b"x")
    with pytest.raises(SandboxTerminalError, match="existing directory"):
        export(Files({"folder": content(3)}), container, azure)
    assert azure.blobs(container) == {"out/folder/file": b"x"}
