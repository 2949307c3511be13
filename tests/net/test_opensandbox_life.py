# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox: tags and attaching, many at once, forks, cancelled transfers."""

from __future__ import annotations

import io
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from net_tools import run_python
from opensandbox_box import OpenBox
from sandbox_native import calls
from sandbox_native.backends import _opensandbox_tags as tags
from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sandbox_native.contract import (
    EXPIRES_AT_TAG,
    HOLDER_TAG,
    NETWORK_TAG,
    OWNER_TAG,
    WORKDIR_TAG,
    SandboxSpec,
    SandboxTerminalError,
)
from servers.opensandbox.handle import OpenSandboxServer

OWNER = "my dag/manual__2026-11-30T23:44:47+00:00 é"
VALUES = [
    "",
    "plain",
    "a.b_c-d",
    "-",
    "a-",
    ".",
    "a b",
    "b64.1",
    "x" * 63,
    "x" * 64,
    "é" * 500,
    OWNER,
    "\n",
    "zz",
]


# ---- tags ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES)
def test_any_text_survives_as_a_tag(value: str) -> None:
    metadata = tags.encode({"airflow_owner": value, "other": "1"})
    assert all(len(text) <= 63 for text in (*metadata, *metadata.values()))
    assert tags.decode({**metadata, "created-by": "airflow", "name": "n"}) == {
        "airflow_owner": value,
        "other": "1",
    }


def test_a_value_of_which_a_piece_is_missing_is_absent() -> None:
    metadata = tags.encode({"a": "é" * 100, "b": "1"})
    del metadata["a.1"]
    assert tags.decode(metadata) == {"b": "1"}


@pytest.mark.parametrize("before", VALUES)
def test_a_patch_leaves_nothing_of_what_was(before: str) -> None:
    own = {"created-by": "airflow", "name": "n", "opensandbox.io/x": "theirs"}
    metadata: dict[str, str] = {**own, **tags.encode({"a": before, "gone": before})}
    for value in VALUES:
        for key, new in tags.patch(metadata, {"a": value}).items():
            metadata.pop(key, None)
            if new is not None:
                metadata[key] = new
        assert metadata == {**own, **tags.encode({"a": value})}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 64, "name", "é", "-a"])
def test_what_is_no_name_of_a_tag(name: str) -> None:
    with pytest.raises(ValueError, match="name of a tag"):
        tags.encode({name: "x"})


@pytest.mark.parametrize("value", VALUES)
def test_tags_on_the_server(opened: OpenBox, value: str) -> None:
    opened.backend.write_tags(opened.id, {"a": value, "b": "1"})
    assert opened.backend.read_tags(opened.id) == {"a": value, "b": "1"}
    opened.backend.write_tags(opened.id, {"b": value})
    assert opened.backend.read_tags(opened.id) == {"b": value}
    (found,) = opened.server.sandboxes()
    assert found["metadata"]["created-by"] == "airflow"


def test_tags_that_cannot_be_kept(opened: OpenBox) -> None:
    with pytest.raises(SandboxTerminalError, match="name of a tag"):
        opened.backend.write_tags(opened.id, {"a b": "x"})
    with pytest.raises(SandboxTerminalError, match="HTTP 404"):
        opened.backend.write_tags("nobody", {"a": "x"})


def test_an_owned_sandbox_is_found_and_claimed_by_another_process(
    opensandbox_server: OpenSandboxServer,
) -> None:
    spec = SandboxSpec(owner=OWNER, allow_egress_to=["a.example"])
    box = OpenSandboxBackend(None, sandbox_timeout=600).create(spec=spec)
    other = OpenSandboxBackend(None)
    found = other.read_tags(box)
    assert found[OWNER_TAG] == OWNER
    assert found[WORKDIR_TAG] == "/"
    assert {EXPIRES_AT_TAG, NETWORK_TAG} <= set(found)
    attached = other.attach(box, owner=OWNER, holder=f"{OWNER}/task")
    assert attached.remaining_lifetime is not None
    assert 0 < attached.remaining_lifetime <= 600
    assert attached.network == SandboxSpec(allow_egress_to=["a.example"])
    assert attached.workdir == "/"
    assert other.read_tags(box) == {**found, HOLDER_TAG: f"{OWNER}/task"}
    third = OpenSandboxBackend(None)
    with pytest.raises(SandboxTerminalError, match="already held"):
        third.attach(box, owner=OWNER, holder="other")
    with pytest.raises(SandboxTerminalError, match="not owned by"):
        third.attach(box, owner="x", holder="x")
    third.release(box, holder="other")
    assert other.read_tags(box)[HOLDER_TAG] == f"{OWNER}/task"
    other.release(box, holder=f"{OWNER}/task")
    assert other.read_tags(box) == found
    third.attach(box, owner=OWNER, holder="other")


def test_a_claim_that_was_overtaken_is_given_up(opened: OpenBox) -> None:
    opened.backend.write_tags(opened.id, {OWNER_TAG: "me"})
    opened.server.faults.add("get", "json", nth=3, set={"metadata.airflow_holder": "faster"})
    with pytest.raises(SandboxTerminalError, match="claimed by 'faster'"):
        opened.backend.attach(opened.id, owner="me", holder="slower")


def test_without_an_owner_nothing_is_stamped(opensandbox_server: OpenSandboxServer) -> None:
    backend = OpenSandboxBackend(None)
    box = backend.create(spec=SandboxSpec())
    assert backend.read_tags(box) == {}
    with pytest.raises(SandboxTerminalError, match="carries no owner"):
        backend.attach(box, owner="me", holder="me")


def test_a_sandbox_that_ended_has_no_tags(opened: OpenBox) -> None:
    opened.server.act(opened.id, "stop")
    with pytest.raises(SandboxTerminalError, match="read the tags"):
        opened.backend.read_tags(opened.id)


# ---- at once ---------------------------------------------------------------------------------------------


def test_twenty_sandboxes_at_once(opensandbox_server: OpenSandboxServer) -> None:
    backend = OpenSandboxBackend(None)

    def agent(number: int) -> tuple[int, str, bytes]:
        box = backend.create()
        for turn in range(3):
            backend.write_file(box, f"/srv/{turn}", b"%d" % number)
        result = backend.run_command(box, f"cat /srv/*; exit {number}", timeout=100, max_output_bytes=100)
        content = backend.read_file(box, "/srv/2", max_bytes=10)
        backend.destroy(box)
        return result.exit_code, result.stdout, content

    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(agent, range(20)))
    assert done == [(number, f"{number}" * 3, b"%d" % number) for number in range(20)]
    assert opensandbox_server.sandboxes() == []


def test_many_threads_on_one_sandbox(opened: OpenBox) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda n: opened.out(f"echo {n}; seq 1 {n}"), range(24)))
    assert done == ["".join(f"{i}\n" for i in (n, *range(1, n + 1))) for n in range(24)]


FORK = """
import os, sys
from sandbox_native.backends.opensandbox import OpenSandboxBackend
backend = OpenSandboxBackend(None)
box = backend.create()
assert backend.run_command(box, "echo a", timeout=60, max_output_bytes=10).stdout == "a\\n"
child = os.fork()
if child == 0:
    ok = backend.run_command(box, "echo child", timeout=60, max_output_bytes=10).stdout == "child\\n"
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert backend.run_command(box, "echo b", timeout=60, max_output_bytes=10).stdout == "b\\n"
backend.destroy(box)
"""


def test_a_forked_child_uses_the_sandbox_as_another_process_does(
    opensandbox_server: OpenSandboxServer,
) -> None:
    done = run_python(FORK)
    assert done.returncode == 0, done.stderr
    operations = [request["operation"] for request in opensandbox_server.requests()]
    # The child found the sandbox again; the parent's own connection and knowledge were not touched.
    assert operations == [
        *("create", "endpoint", "ping", "command"),
        *("get", "endpoint", "ping", "command"),
        *("command", "delete"),
    ]


# ---- cancelled transfers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["info", "download", "upload", "directory"])
def test_a_cancelled_file_operation_ends_at_once(opened: OpenBox, operation: str) -> None:
    opened.out("head -c 1000 /dev/zero >/srv/f")
    opened.server.forget_requests()
    opened.server.faults.add(operation, "hang", seconds=5)
    run: dict[str, Any] = {
        "info": lambda: opened.backend.export_file(opened.id, "/srv/f", io.BytesIO(), max_bytes=10**6),
        "download": lambda: opened.backend.read_file(opened.id, "/srv/f", max_bytes=10**6),
        "upload": lambda: opened.backend.write_file(opened.id, "/srv/new", b"x"),
        "directory": lambda: opened.backend.list_directory(opened.id, "/srv"),
    }
    call = calls.prepare(run[operation])
    call.start()
    until = time.monotonic() + 60
    while not opened.sent(operation):
        assert time.monotonic() < until
        time.sleep(0.02)
    call.cancel()
    with pytest.raises(calls.CallCancelled):
        call.wait()


def test_descriptors_do_not_pile_up(opened: OpenBox) -> None:
    def work(turns: int) -> int:
        for number in range(turns):
            opened.out(f"echo {number}")
            opened.backend.write_file(opened.id, f"/srv/{number}", b"x")
            opened.backend.read_file(opened.id, f"/srv/{number}", max_bytes=10)
        return len(os.listdir("/proc/self/fd"))

    # Streams that execd still holds open are left to drain, so it is a few connections and not one.
    before = work(20)
    assert work(60) <= before + 20
