# SPDX-License-Identifier: Apache-2.0
"""Inputs from a real S3 server, by roles that may do no more than the README says they need."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from upath import UPath

from gateway import Account, Gateway
from sandbox_native import input_plan, inputs
from sandbox_native.contract import SandboxTerminalError


def content(account: Account, given: dict[str, Any]) -> dict[str, bytes]:
    """What would be put into a sandbox."""
    found = inputs.look(
        input_plan.entries(given, 1 << 20),
        lambda url: UPath(url, **account.options()),
        logging.getLogger(__name__),
    )
    taken = {}
    for one in found:
        for seed in one.seeds:
            with seed.open() as stream:
                taken[seed.path] = stream.read()
    return taken


@pytest.fixture
def filled(s3: Gateway, bucket: str) -> str:
    for key, data in (("in/file", b"1"), ("in/tree/a", b"2"), ("in/tree/b/c", b"3")):
        s3.client.put_object(Bucket=bucket, Key=key, Body=data)
    return bucket


def test_a_file_needs_nothing_but_to_be_got(s3: Gateway, filled: str) -> None:
    reader = s3.role(filled, "in/", "GetObject")
    assert content(reader, {"x": f"s3://{filled}/in/file"}) == {"x": b"1"}
    for given in (
        {"t/": f"s3://{filled}/in/tree/"},
        {"x": {"from": f"s3://{filled}/in/no", "required": False}},
    ):
        with pytest.raises(SandboxTerminalError, match=r"^inputs\[.*cannot be read from 's3://"):
            content(reader, given)


def test_a_folder_and_what_may_be_missing_need_a_listing(s3: Gateway, filled: str) -> None:
    reader = s3.role(filled, "in/", "GetObject", "ListBucket")
    assert content(reader, {"t/": f"s3://{filled}/in/tree/"}) == {"t/a": b"2", "t/b/c": b"3"}
    assert content(reader, {"x": {"from": f"s3://{filled}/in/no", "required": False}}) == {}
    with pytest.raises(SandboxTerminalError, match=r"inputs\['x'\] is missing"):
        content(reader, {"x": f"s3://{filled}/in/no"})
