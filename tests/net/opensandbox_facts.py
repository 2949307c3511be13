# SPDX-License-Identifier: Apache-2.0
"""What OpenSandbox does on the wire, as tests, through ``opensandbox_raw`` alone.

Two test modules take all of it: one has the fixture ``deployment`` of a real deployment, one that of the test
server, which is so held to what the real one was seen to do.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from opensandbox_raw import EGRESS, EXECD, Deployment, Ran, Sandbox


@pytest.fixture(scope="module", params=["proxied", "direct"])
def proxied(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "proxied")


@pytest.fixture(scope="module")
def sandbox(deployment: Deployment, proxied: bool) -> Iterator[Sandbox]:
    """A sandbox that tests leave alive."""
    with deployment.sandbox(proxied) as sandbox:
        yield sandbox


@pytest.fixture
def own(deployment: Deployment, proxied: bool) -> Iterator[Sandbox]:
    """A sandbox for this test."""
    with deployment.sandbox(proxied) as sandbox:
        yield sandbox


# Lifecycle


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "MISSING_API_KEY"),
        ({"OPEN-SANDBOX-API-KEY": "wrong"}, "INVALID_API_KEY"),
        ({"OPEN-SANDBOX-API-KEY": ""}, "MISSING_API_KEY"),
        ({"Authorization": "Bearer x"}, "MISSING_API_KEY"),
    ],
    ids=str,
)
def test_keys(deployment: Deployment, headers: dict[str, str], code: str) -> None:
    answer = deployment.call("/sandboxes", headers=headers)
    assert (answer.status, answer.code) == (401, code)
    assert set(answer.json()) == {"code", "message"}


def test_the_way_to_a_sandbox_asks_for_no_key(sandbox: Sandbox) -> None:
    for headers in ({}, {"OPEN-SANDBOX-API-KEY": "wrong"}):
        answer = sandbox.call("/ping", headers=headers)
        assert (answer.status, answer.body) == (200, b"")


def test_create_info_delete(deployment: Deployment, proxied: bool) -> None:
    answer = deployment.create(metadata={"a": "b"}, timeout=90.0)
    assert answer.status == 202, answer.body
    made = answer.json()
    assert set(made) == {"id", "status", "metadata", "expiresAt", "createdAt", "entrypoint"}
    assert made["status"]["state"] == "Running" and made["status"]["reason"] == "CONTAINER_RUNNING"
    assert made["metadata"] == {"a": "b"}
    info = deployment.call(f"/sandboxes/{made['id']}")
    assert info.status == 200 and info.json()["image"] == {"uri": deployment.image}
    # The info has the image, its labels among the metadata, and a time of its own.
    assert set(info.json()) == {*made, "image"}
    assert info.json()["metadata"].items() >= made["metadata"].items()
    assert {name: info.json()[name] for name in ("id", "expiresAt", "entrypoint")} == {
        name: made[name] for name in ("id", "expiresAt", "entrypoint")
    }
    assert info.headers["x-request-id"]
    gone = deployment.call(f"/sandboxes/{made['id']}", "DELETE")
    assert (gone.status, gone.body) == (204, b"")
    for method in ("GET", "DELETE"):
        again = deployment.call(f"/sandboxes/{made['id']}", method)
        assert (again.status, again.code) == (404, "DOCKER::SANDBOX_NOT_FOUND")
    flag = str(proxied).lower()
    lost = deployment.call(f"/sandboxes/{made['id']}/endpoints/{EXECD}?use_server_proxy={flag}")
    assert (lost.status, lost.code) == (404, "DOCKER::SANDBOX_NOT_FOUND")


@pytest.mark.parametrize(("timeout", "status"), [(59, 422), (90.5, 422), (10_000_000, 400), ("x", 422)])
def test_lifetimes_that_are_refused(deployment: Deployment, timeout: Any, status: int) -> None:
    answer = deployment.create(timeout=timeout)
    assert answer.status == status
    assert ("detail" if status == 422 else "code") in answer.json()


def test_endpoints(deployment: Deployment, sandbox: Sandbox) -> None:
    through = sandbox.endpoint(EXECD, proxied=True)
    assert through == {"endpoint": f"{deployment.domain}/v1/sandboxes/{sandbox.id}/proxy/{EXECD}"}
    direct = sandbox.endpoint(EXECD, proxied=False)
    assert direct["endpoint"].endswith(f"/proxy/{EXECD}")
    assert direct["endpoint"].split("/")[0] != deployment.domain
    named = deployment.call(
        f"/sandboxes/{sandbox.id}/endpoints/{EXECD}?use_server_proxy=true",
        headers={"OPEN-SANDBOX-API-KEY": deployment.key, "Host": "sandboxes.example:8443"},
    )
    assert named.json()["endpoint"] == f"sandboxes.example:8443/v1/sandboxes/{sandbox.id}/proxy/{EXECD}"


def test_metadata(deployment: Deployment, sandbox: Sandbox) -> None:
    where = f"/sandboxes/{sandbox.id}/metadata"
    # The labels of the image show up, too.
    before = deployment.call(f"/sandboxes/{sandbox.id}").json()["metadata"]
    assert before.items() >= {"created-by": "wire-facts"}.items()
    answer = deployment.call(where, "PATCH", {"a": "1", "b": "2", "x.example/c": "A_b-c.9", "empty": ""})
    assert answer.status == 200 and answer.json()["id"] == sandbox.id
    answer = deployment.call(where, "PATCH", {"a": None, "b": "3", "never": None})
    expected = {**before, "b": "3", "x.example/c": "A_b-c.9", "empty": ""}
    assert answer.json()["metadata"] == expected
    assert deployment.call(f"/sandboxes/{sandbox.id}").json()["metadata"] == expected
    many = {f"k{i}": str(i) for i in range(200)}
    assert deployment.call(where, "PATCH", many).status == 200
    assert deployment.call(where, "PATCH", dict.fromkeys(many)).json()["metadata"] == expected


@pytest.mark.parametrize(
    "value", ["a b", "a/b", "a:b", "a@b", "a=b", "a,b", "a+b", "é", "-a", "a-", ".a", "a_", "x" * 64]
)
def test_metadata_values_that_are_refused(deployment: Deployment, sandbox: Sandbox, value: str) -> None:
    answer = deployment.call(f"/sandboxes/{sandbox.id}/metadata", "PATCH", {"k": value})
    assert (answer.status, answer.code) == (400, "SANDBOX::INVALID_METADATA_LABEL"), answer.body


@pytest.mark.parametrize("key", ["opensandbox.io/x", "-a", "a b", "", "x" * 64, "a/b/c", "/a"])
def test_metadata_keys_that_are_refused(deployment: Deployment, sandbox: Sandbox, key: str) -> None:
    answer = deployment.call(f"/sandboxes/{sandbox.id}/metadata", "PATCH", {key: "v"})
    assert answer.status == 400, answer.body


@pytest.mark.parametrize("value", [1, True, {}, []])
def test_metadata_is_text(deployment: Deployment, sandbox: Sandbox, value: Any) -> None:
    assert deployment.call(f"/sandboxes/{sandbox.id}/metadata", "PATCH", {"k": value}).status == 422


def test_finding_by_metadata(deployment: Deployment, sandbox: Sandbox) -> None:
    mark = f"m{os.getpid()}-{threading.get_native_id()}{sandbox.id[:8]}"
    deployment.call(f"/sandboxes/{sandbox.id}/metadata", "PATCH", {"mark": mark})
    found = deployment.call(f"/sandboxes?metadata=mark%3D{mark}").json()
    assert [item["id"] for item in found["items"]] == [sandbox.id]
    assert found["pagination"]["totalItems"] == 1
    assert deployment.call(f"/sandboxes?metadata=mark%3D{mark}x").json()["items"] == []
    both = deployment.call(f"/sandboxes?metadata=mark%3D{mark}%26created-by%3Dwire-facts").json()
    assert [item["id"] for item in both["items"]] == [sandbox.id]


TARGETS = ["packages.example", "Packages.Example", "*.wild.example", "10.1.2.3", "10.0.0.0/8"]


def test_egress_policy(deployment: Deployment, proxied: bool) -> None:
    egress = [{"action": "allow", "target": target} for target in TARGETS]
    policy = {"defaultAction": "deny", "egress": egress}
    with deployment.sandbox(proxied, networkPolicy=policy) as sandbox:
        endpoint = sandbox.endpoint(EGRESS)
        token = endpoint["headers"]
        assert set(token) == {"OPENSANDBOX-EGRESS-AUTH"}
        sidecar = Sandbox(deployment, sandbox.made, proxied)
        sidecar.execd = f"http://{endpoint['endpoint']}"
        read = sidecar.call("/policy", headers=token)
        assert read.status == 200
        assert read.json() == {
            "status": "ok",
            "mode": "enforcing",
            "enforcementMode": "dns+nft",
            "policy": {"egress": egress, "defaultAction": "deny"},
        }
        for wrong in ({}, {"OPENSANDBOX-EGRESS-AUTH": "x"}):
            refused = sidecar.call("/policy", headers=wrong)
            assert (refused.status, refused.body.strip()) == (401, b"unauthorized")


# Commands


def test_frames_of_a_command(sandbox: Sandbox) -> None:
    ran = sandbox.run("echo out; echo err >&2; exit 3")
    assert next(event["type"] for event in ran.events if event["type"] != "ping") == "init"
    assert (ran.lines("stdout"), ran.lines("stderr"), ran.exit) == (["out"], ["err"], "3")
    assert ran.last is not None
    assert ran.last["error"] == {"ename": "CommandExecError", "evalue": "3", "traceback": ["exit status 3"]}
    assert not ran.raw.startswith(b"data:") and ran.raw.endswith(b"}\n\n")
    assert all("timestamp" in event for event in ran.events)
    assert not ran.cut
    ran = sandbox.run("true")
    assert ran.last is not None and set(ran.last) == {"type", "execution_time", "timestamp"}
    assert [event["text"] for event in ran.events if event["type"] == "ping"]


def test_the_stream_stays_open_after_the_command(sandbox: Sandbox) -> None:
    assert sandbox.run("true").lingered > sandbox.deployment.linger / 2


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("printf 'a\\nb'", ["a", "b"]),
        ("printf 'a\\nb\\n'", ["a", "b"]),
        ("printf 'a\\r\\nb\\rc\\n'", ["a", "b", "c"]),
        ("printf 'a\\n\\nb\\n'", ["a", "\n", "b"]),
        ("printf '\\n'", ["\n"]),
        ("printf 'abc'; sleep 0.5; printf 'def\\n'", ["abcdef"]),
        ("printf 'x\\377y\\n'", ["x\ufffdy"]),
        ("printf 'a\\000b\\033c\\014d\\n'", ["a\0b\x1bc\x0cd"]),
        ("echo '<>&\u2028\u0085'", ["<>&\u2028\u0085"]),
        ("head -c 3000000 /dev/zero | tr '\\0' x", ["x" * 3_000_000]),
        ("true", []),
    ],
)
def test_lines(sandbox: Sandbox, command: str, lines: list[str]) -> None:
    ran = sandbox.run(command)
    assert (ran.lines(), ran.exit) == (lines, "0")


def test_some_characters_are_escaped(sandbox: Sandbox) -> None:
    assert b'"\\u003c\\u003e\\u0026\\u2028"' in sandbox.run("echo '<>&\u2028'").raw


@pytest.mark.parametrize(
    ("command", "value", "traceback"),
    [
        ("exit 1", "1", "exit status 1"),
        ("exit 255", "255", "exit status 255"),
        ("exit 256", "0", ""),
        ("kill -9 $$", "-1", "signal: killed"),
        ("kill -15 $$", "-1", "signal: terminated"),
        ("no-such-program", "127", "exit status 127"),
        ("cd /nowhere", "1", "exit status 1"),
        ("if", "2", "exit status 2"),
    ],
)
def test_how_commands_end(sandbox: Sandbox, command: str, value: str, traceback: str) -> None:
    ran = sandbox.run(command)
    assert ran.exit == value
    if traceback:
        assert ran.last is not None and ran.last["error"]["traceback"] == [traceback]


@pytest.mark.parametrize("body", [{"command": ""}, {"command": "true", "cwd": "/nowhere"}, {}, b"{"], ids=str)
def test_commands_that_are_refused(sandbox: Sandbox, body: Any) -> None:
    answer = sandbox.call("/command", "POST", body)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST_BODY")


def test_the_shell_and_its_surroundings(sandbox: Sandbox) -> None:
    ran = sandbox.run('echo "$0"; readlink /proc/self/fd/0; [ "$(ps -o pgid= -p $$)" -eq $$ ] && echo leads')
    assert ran.lines()[0].endswith("bash") and ran.lines()[1:] == ["/dev/null", "leads"]
    ran = sandbox.run('echo "$PWD $A"', cwd="/usr", envs={"A": "b c"})
    assert ran.lines() == ["/usr b c"]


def test_a_timeout_kills_the_group_and_says_killed(sandbox: Sandbox) -> None:
    ran = sandbox.run("trap 'echo trapped' TERM; echo one; sleep 987 & setsid sleep 986 & sleep 985", 1000)
    assert (ran.lines(), ran.exit) == (["one"], "-1")
    assert ran.last is not None and ran.last["error"]["traceback"] == ["signal: killed"]
    left = sandbox.run("pgrep -af 'sleep 98[0-9]' | grep -v pgrep | cut -d' ' -f2-").lines()
    assert left == ["sleep 986"]
    sandbox.run("pkill -f 'sleep 986'")


def test_a_timeout_of_nothing_is_none(sandbox: Sandbox) -> None:
    assert sandbox.run("sleep 0.5; echo end", 0).lines() == ["end"]


def test_a_background_child_does_not_hold_the_stream(sandbox: Sandbox) -> None:
    ran = sandbox.run("sleep 984 & echo hi")
    assert (ran.lines(), ran.exit) == (["hi"], "0")
    assert sandbox.run("pgrep -fc '^sleep 984'").lines() == ["1"]
    sandbox.run("pkill -f '^sleep 984'")


def test_output_stays_in_files(sandbox: Sandbox) -> None:
    ran = sandbox.run("echo kept")
    (number,) = (event["text"] for event in ran.events if event["type"] == "init")
    assert sandbox.run(f"cat /tmp/{number}.stdout").lines() == ["kept"]


def test_a_client_that_leaves_does_not_end_its_command(sandbox: Sandbox) -> None:
    for event in sandbox.follow(Ran(), "sleep 1; echo done > /tmp/left-behind"):
        if event["type"] == "ping":
            break
    assert sandbox.download("/tmp/left-behind").status == 404
    for _ in range(100):
        if sandbox.download("/tmp/left-behind").body == b"done\n":
            break
        time.sleep(0.1)
    else:
        raise AssertionError("it did not go on")


def test_stopping_a_command(sandbox: Sandbox) -> None:
    ran = Ran()
    for event in sandbox.follow(ran, "echo on; sleep 983"):
        if event["type"] == "stdout":
            (number,) = (e["text"] for e in ran.events if e["type"] == "init")
            stopped = sandbox.call(f"/command?id={number}", "DELETE")
            assert stopped.status == 200, stopped.body
    assert ran.exit == "-1"
    assert sandbox.run("pgrep -fc '^sleep 983'").lines() == ["0"]


def test_the_sandbox_ends_under_its_command(own: Sandbox) -> None:
    ran = Ran()
    for event in own.follow(ran, "echo on; sleep 60; echo end"):
        if event["type"] == "stdout":
            assert own.delete().status == 204
    assert (ran.lines(), ran.last) == (["on"], None)
    assert ran.cut == (not own.proxied)
    if own.proxied:
        answer = own.call("/ping")
        assert (answer.status, answer.code) == (404, "DOCKER::SANDBOX_NOT_FOUND")
    else:
        with pytest.raises(ConnectionError):
            own.call("/ping")


def test_a_paused_sandbox_says_nothing(own: Sandbox) -> None:
    paused = own.deployment.call(f"/sandboxes/{own.id}/pause", "POST")
    assert paused.status == 202, paused.body
    assert own.deployment.call(f"/sandboxes/{own.id}").json()["status"]["state"] == "Paused"
    with pytest.raises(TimeoutError):
        own.call("/ping", timeout=1)
    resumed = own.deployment.call(f"/sandboxes/{own.id}/resume", "POST")
    assert resumed.status == 202, resumed.body
    assert own.run("echo back").lines() == ["back"]


# Files


NAMES = [
    "plain",
    "with space",
    "trailing ",
    "-dash",
    "quote'\"",
    "back\\slash",
    "new\nline",
    "cr\rname",
    "hash#ask?percent%41plus+and&semi;",
    "[a]*?",
    "é\U0001f600",
    "$(id)`id`",
    "colon:",
]


@pytest.mark.parametrize("name", NAMES)
def test_names(sandbox: Sandbox, name: str) -> None:
    folder = f"/tmp/names-{time.monotonic_ns()}"
    path = f"{folder}/{name}"
    content = os.urandom(1000)
    uploaded = sandbox.upload(path, content)
    assert (uploaded.status, uploaded.body) == (200, b"")
    assert [entry["path"] for entry in sandbox.list(folder).json()] == [path]
    assert sandbox.download(path).body == content
    info = sandbox.info(path).json()
    assert list(info) == [path]
    assert (info[path]["size"], info[path]["type"], info[path]["mode"]) == (1000, "file", 644)


def test_info(sandbox: Sandbox) -> None:
    sandbox.run(
        "mkdir -p /tmp/i/d; cd /tmp/i; echo hello > f; chmod 600 f; ln -sf f l; mkfifo p; chmod 1777 d"
    )
    made = sandbox.info("/tmp/i/f", "/tmp/i/d", "/tmp/i/l", "/tmp/i/p").json()
    assert {path: (it["type"], it["mode"]) for path, it in made.items()} == {
        "/tmp/i/f": ("file", 600),
        "/tmp/i/d": ("directory", 777),
        "/tmp/i/l": ("symlink", 777),
        "/tmp/i/p": ("other", 644),
    }
    assert set(made["/tmp/i/f"]) == {
        *("path", "type", "size", "modified_at", "created_at", "owner", "group", "mode"),
    }
    assert made["/tmp/i/f"]["size"] == 6 and made["/tmp/i/f"]["path"] == "/tmp/i/f"
    assert {entry["path"]: entry["type"] for entry in sandbox.list("/tmp/i").json()} == {
        "/tmp/i/f": "file",
        "/tmp/i/d": "directory",
        "/tmp/i/l": "symlink",
        "/tmp/i/p": "other",
    }
    missing = sandbox.info("/tmp/i/f", "/tmp/i/none")
    assert (missing.status, missing.code) == (404, "FILE_NOT_FOUND")


@pytest.mark.parametrize(
    ("wanted", "status", "content_range", "body"),
    [
        (None, 200, None, b"0123456789"),
        ("bytes=0-3", 206, "bytes 0-3/10", b"0123"),
        ("bytes=4-", 206, "bytes 4-9/10", b"456789"),
        ("bytes=-3", 206, "bytes 7-9/10", b"789"),
        ("bytes=0-999", 206, "bytes 0-9/10", b"0123456789"),
        ("bytes=1-2,5-6", 206, "bytes 1-2/10", b"12"),
    ],
)
def test_ranges(
    sandbox: Sandbox, wanted: str | None, status: int, content_range: str | None, body: bytes
) -> None:
    sandbox.upload("/tmp/ranges", b"0123456789")
    answer = sandbox.download("/tmp/ranges", wanted)
    assert (answer.status, answer.headers["content-range"], answer.body) == (status, content_range, body)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] and answer.headers["content-length"] == str(len(body))


def test_a_range_behind_the_end(sandbox: Sandbox) -> None:
    sandbox.upload("/tmp/ranges", b"0123456789")
    assert sandbox.download("/tmp/ranges", "bytes=10-").status == 416


@pytest.mark.parametrize("wanted", ["foo", "bytes=5-2"])
def test_malformed_ranges_are_announced_at_the_length_of_the_file(sandbox: Sandbox, wanted: str) -> None:
    sandbox.upload("/tmp/ranges", b"0" * 5000)
    answer = sandbox.download("/tmp/ranges", wanted)
    assert (answer.status, answer.headers["content-length"], answer.cut) == (416, "5000", True)


def test_an_empty_file_has_no_range(sandbox: Sandbox) -> None:
    sandbox.upload("/tmp/empty", b"")
    for wanted in (None, "bytes=0-10"):
        answer = sandbox.download("/tmp/empty", wanted)
        assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")


def test_paths_are_expanded(sandbox: Sandbox) -> None:
    home = sandbox.run('printf %s "$HOME"').lines()[0]
    assert sandbox.upload("/tmp/x$HOME-y", b"1").status == 200
    assert sandbox.run(f"cat /tmp/x{home}-y").lines() == ["1"]
    assert sandbox.upload("~/in-home", b"2").status == 200
    assert sandbox.run("cat ~/in-home; rm ~/in-home").lines() == ["2"]
    for path in ("/tmp/$NO_SUCH_NAME", "/tmp/${NO_SUCH_NAME}"):
        assert sandbox.upload(path, b"3").status == 500
        assert sandbox.download(path).status == 500


def test_relative_paths(sandbox: Sandbox) -> None:
    where = sandbox.run("pwd").lines()[0].rstrip("/")
    assert sandbox.upload("relative-file", b"1").status == 200
    assert sandbox.run(f"cat {where}/relative-file; rm {where}/relative-file").lines() == ["1"]


def test_uploads_make_parents_and_keep_what_is_there(sandbox: Sandbox) -> None:
    sandbox.run("rm -rf /tmp/u; mkdir -p /tmp/u/d; chmod 700 /tmp/u/d; echo old > /tmp/u/t; ln -s t /tmp/u/l")
    assert sandbox.upload("/tmp/u/d/new/deep/file", b"x").status == 200
    assert sandbox.run("stat -c %a /tmp/u/d").lines() == ["700"]
    assert sandbox.upload("/tmp/u/l", b"through").status == 200
    assert sandbox.run("test -L /tmp/u/l && echo link").lines() == ["link"]
    assert sandbox.download("/tmp/u/t").body == b"through"
    assert sandbox.upload("/tmp/u/m", b"x", mode=600).status == 200
    assert sandbox.run("stat -c %a /tmp/u/m").lines() == ["600"]


def test_mkdir_changes_the_mode_of_a_directory_that_is_there(sandbox: Sandbox) -> None:
    sandbox.run("mkdir -p '/tmp/a b'; chmod 1777 '/tmp/a b'")
    answer = sandbox.call("/directories", "POST", {"/tmp/a b": {"mode": 755, "owner": None, "group": None}})
    assert (answer.status, answer.body) == (200, b"")
    assert sandbox.run("stat -c %a '/tmp/a b'").lines() == ["755"]


def test_errors_of_files_carry_the_system_message(sandbox: Sandbox) -> None:
    sandbox.run("mkdir -p /tmp/e/d; echo x > /tmp/e/f; ln -sfn loop /tmp/e/loop; ln -sfn d /tmp/e/ld")
    for path, message in [
        ("/tmp/e/d", "is a directory"),
        ("/tmp/e/f/below", "not a directory"),
        ("/tmp/e/loop", "too many levels of symbolic links"),
        ("/tmp/" + "n" * 300, "file name too long"),
    ]:
        answer = sandbox.upload(path, b"x")
        assert (answer.status, answer.code) == (500, "RUNTIME_ERROR"), (path, answer)
        assert message in answer.json()["message"]
    for path in ("/tmp/e/loop", "/tmp/" + "n" * 300, "/tmp/e/f/below"):
        assert (sandbox.download(path).status, sandbox.download(path).code) == (500, "RUNTIME_ERROR"), path
    missing = sandbox.download("/tmp/e/none")
    assert (missing.status, missing.code) == (404, "FILE_NOT_FOUND")


@pytest.mark.parametrize("path", ["/tmp/dd", "/tmp/dl"])
def test_downloading_a_directory(sandbox: Sandbox, path: str) -> None:
    sandbox.run("mkdir -p /tmp/dd; ln -sfn dd /tmp/dl")
    # Where the file system lets it seek in a directory the size is absurd, else it is an error in words.
    whole = sandbox.download(path)
    if whole.headers["content-length"] == str(2**63 - 1):
        assert (whole.status, whole.body, whole.cut) == (200 if sandbox.proxied else 500, b"", True)
    else:
        assert (whole.status, whole.body) == (500, b"seeker can't seek\n")
    ranged = sandbox.download(path, "bytes=0-19")
    assert (ranged.status, ranged.body, ranged.cut) == (206 if sandbox.proxied else 500, b"", True)
    assert ranged.headers["content-length"] == "20"
    assert ranged.headers["content-range"].startswith("bytes 0-19/")


def test_procfs_files_cannot_be_downloaded(sandbox: Sandbox) -> None:
    answer = sandbox.download("/proc/version")
    assert answer.status == 500 and "seeker can't seek" in answer.body.decode()


def test_listing(sandbox: Sandbox) -> None:
    sandbox.run(
        "rm -rf /tmp/s; mkdir -p /tmp/s/d/deep; echo x > /tmp/s/f; ln -sfn d /tmp/s/ld; ln -sfn s /tmp/sl"
    )
    assert sorted(entry["path"] for entry in sandbox.list("/tmp/s").json()) == [
        "/tmp/s/d",
        "/tmp/s/f",
        "/tmp/s/ld",
    ]
    assert sandbox.list("/tmp/s", depth=0).json() == []
    assert sandbox.list("/tmp/s/d/deep").json() == []
    for path, message in [
        ("/tmp/s/f", "path is not a directory"),
        ("/tmp/sl", "path is a symbolic link, refusing to traverse"),
    ]:
        answer = sandbox.list(path)
        assert answer.status == 400 and message in answer.json()["message"]
    assert sandbox.list("/tmp/s/none").status == 404


def test_a_file_that_grows_is_sent_at_its_first_length(sandbox: Sandbox) -> None:
    writer = "for i in $(seq 100); do head -c 10000 /dev/zero; sleep 0.01; done >> /tmp/grows"
    sandbox.run(f"head -c 20000000 /dev/zero > /tmp/grows; ({writer}) & true")
    answer = sandbox.download("/tmp/grows")
    assert answer.status == 200 and not answer.cut
    assert len(answer.body) == int(answer.headers["content-length"])
    sandbox.run("rm -f /tmp/grows")


def test_a_dead_execd(own: Sandbox) -> None:
    ran = Ran()
    for event in own.follow(ran, "echo on; sleep 60"):
        assert event["type"] not in ("error", "execution_complete")
        if event["type"] == "stdout":
            own.deployment.kill_execd(own)
    assert ran.lines() == ["on"]
    assert ran.cut == (not own.proxied)
    if own.proxied:
        assert own.call("/ping").status == 502
    else:
        with pytest.raises(ConnectionError):
            own.call("/ping")
