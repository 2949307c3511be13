# SPDX-License-Identifier: Apache-2.0
"""An export fails at each call it makes, by each kind of exception.

The store is looked at after each, and once more when the program is gone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import azurite
from gateway import Gateway

PROGRAM = Path(__file__).with_name("walking.py")
# A guard against hanging, never what a test is about.
GUARD = 1200
pytestmark = pytest.mark.timeout(GUARD + 60)
BEFORE = {"two": b"as it was", "other": b"somebody else's"}


def walked(*arguments: str) -> set[str]:
    """Run the program; at which calls exports failed."""
    command = [sys.executable, str(PROGRAM), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=GUARD)
    assert ended.returncode == 0, ended.stderr[-5000:]
    return set(json.loads(ended.stdout))


@pytest.mark.parametrize("way", ["file", "file-at-once"])
def test_provider_fault_31_at_every_call_to_a_file(tmp_path: Path, way: str) -> None:
    calls = {
        "read",
        "write",
        "open",
        "mkdir",
        "flush",
        "fileno",
        "fstat",
        "fsync",
        "close",
        "replace",
        "stat",
    }
    assert walked(way, str(tmp_path)) == calls
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == BEFORE


def test_provider_fault_31_at_every_call_to_memory() -> None:
    assert walked("memory") == {"read", "write", "_open", "commit", "close", "cp_file", "_rm", "isdir"}


def test_provider_fault_31_at_every_call_to_s3(s3: Gateway, bucket: str, writer: str) -> None:
    calls = {"read", "write", "submit", "make_room", "add", "answers"}
    if writer == "obstore":
        calls |= {"begin", "_await", "_hand_over", "commit"}
    assert walked(writer, bucket, json.dumps(s3.root.options())) == calls
    assert s3.objects(bucket) == BEFORE and s3.uploads(bucket) == []


def test_provider_fault_31_at_every_call_to_azure(tmp_path: Path) -> None:
    with azurite.running(tmp_path) as azure:
        container = azure.container()
        calls = {"read", "write", "_submit", "make_room", "add", "answers"}
        assert walked("azure", container, azure.connection_string) == calls
        assert azure.blobs(container) == BEFORE
