# SPDX-License-Identifier: Apache-2.0
"""What is in the store once the process is gone that was in the middle of an export."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import Gateway
from proxy import Proxy

PROGRAM = Path(__file__).with_name("exiting.py")
FORKING = Path(__file__).with_name("forking.py")


CODES = {"exit": 3, "interrupt": -2, "error": 1, "main-ends": 0, "os-exit": 3, "killed": -9}


def run(*arguments: str) -> int:
    command = [sys.executable, str(PROGRAM), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    print(ended.stderr)
    return ended.returncode


@pytest.mark.parametrize(
    ("how", "point"),
    [
        ("exit", "part"),
        ("interrupt", "end"),
        ("error", "sealed"),
        ("main-ends", "part"),
        ("main-ends", "sealed"),
        ("killed", "end"),
    ],
)
def test_provider_fault_31_nothing_appears_when_the_process_ends(
    s3: Gateway, bucket: str, writer: str, point: str, how: str
) -> None:
    s3.client.put_object(Bucket=bucket, Key="out/two", Body=b"as it was")
    assert run(writer, point, how, bucket, json.dumps(s3.root.options())) == CODES[how]
    assert s3.objects(bucket) == {"out/two": b"as it was"}
    if how in ("exit", "interrupt", "error"):
        assert s3.uploads(bucket) == []


def test_a_process_that_ends_at_once_after_an_export(s3: Gateway, bucket: str, writer: str) -> None:
    assert run(writer, "never", "", bucket, json.dumps(s3.root.options())) == 0
    assert {key: len(data) for key, data in s3.objects(bucket).items()} == {
        "out/one": 10485761,
        "out/two": 10485761,
    }


def test_a_forked_process_exports_by_the_file_system(s3: Gateway, bucket: str, proxy: Proxy) -> None:
    """The threads of obstore are not in it, so an upload by it would never end."""
    options = json.dumps(s3.root.options(proxy.endpoint))
    ended = subprocess.run([sys.executable, str(FORKING), bucket, options], timeout=120)
    assert ended.returncode == 0
    agents = {r.key: "object_store" in r.agent for r in proxy.seen if r.operation == "UploadPart"}
    assert agents == {"parent": True, "child": False, "parent-again": True}
    assert {key: len(data) for key, data in s3.objects(bucket).items()} == dict.fromkeys(agents, 18_000_000)
