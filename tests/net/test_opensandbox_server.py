# SPDX-License-Identifier: Apache-2.0
"""The OpenSandbox test server says what a real one says, as far as no vendor's client looks at it."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from opensandbox_wire import Wire, texts
from servers.opensandbox.handle import OpenSandboxServer


@pytest.fixture
def wire(opensandbox_server: OpenSandboxServer) -> Wire:
    return Wire(opensandbox_server)


def test_events_of_a_command(wire: Wire) -> None:
    events = wire.events("printf 'a\\r\\nb\\n\\nc\\rd'; printf '<&>\\377\\0' >&2; exit 3")
    assert [event["type"] for event in events][:2] == ["init", "ping"]
    assert texts(events, "stdout") == ["a", "b", "\n", "c", "d"]
    assert texts(events, "stderr") == ["<&>\ufffd\0"]
    error = {"ename": "CommandExecError", "evalue": "3", "traceback": ["exit status 3"]}
    assert events[-1]["error"] == error
    assert wire.events("true")[-1]["type"] == "execution_complete"


def test_markup_in_events_is_escaped_as_go_does(wire: Wire) -> None:
    _, _, data = wire.raw("POST", f"{wire.proxy}/command", {"command": "echo '<&>'"})
    assert rb'"text":"\u003c\u0026\u003e"' in data


def test_a_timeout_looks_like_a_kill(wire: Wire) -> None:
    killed = {"ename": "CommandExecError", "evalue": "-1", "traceback": ["signal: killed"]}
    assert wire.events("echo begun; sleep 60", timeout=300)[-1]["error"] == killed
    assert wire.events("kill -9 $$")[-1]["error"] == killed
    assert wire.events("kill -TERM $$")[-1]["error"]["traceback"] == ["signal: terminated"]


def test_output_files_stay_in_the_sandbox(wire: Wire) -> None:
    command = texts(wire.events("echo kept"), "init")[0]
    assert texts(wire.events(f"cat /tmp/{command}.stdout"), "stdout") == ["kept"]


def test_a_background_child_lives_on_and_holds_nothing(wire: Wire) -> None:
    assert texts(wire.events("sleep 300 & echo $!"), "stdout")[0].isdigit()
    assert wire.events("pkill -0 -x sleep || kill -0 $(pidof sleep)")[-1]["type"] == "execution_complete"


@pytest.mark.parametrize("body", [{"command": ""}, {"command": "true", "cwd": "/nowhere"}])
def test_commands_that_are_refused(wire: Wire, body: dict[str, str]) -> None:
    status, answer = wire.json("POST", f"{wire.proxy}/command", body)
    assert (status, answer["code"]) == (400, "INVALID_REQUEST_BODY")


def test_interrupting_a_command_ends_its_group(wire: Wire) -> None:
    wire.server.faults.add("command", "cut", after_bytes=20)
    with pytest.raises(http.client.IncompleteRead):
        wire.events("exec sleep 1000")
    running = texts(wire.events("ls -t /tmp | grep stdout"), "stdout")
    ids = [name.removesuffix(".stdout") for name in running]
    states = {command: wire.json("GET", f"{wire.proxy}/command/status/{command}")[1] for command in ids}
    (left,) = [command for command, state in states.items() if state["content"] == "exec sleep 1000"]
    # Its client is gone, and it runs on.
    assert states[left]["running"] is True
    assert wire.raw("DELETE", f"{wire.proxy}/command?id={left}")[0] == 200
    assert wire.json("GET", f"{wire.proxy}/command/status/{left}")[1]["exit_code"] == -1


def test_ranges(wire: Wire) -> None:
    wire.events("printf 0123456789 >/tmp/ten; : >/tmp/none")
    status, headers, data = wire.download("/tmp/ten", "bytes=2-4")
    assert (status, headers["content-range"], data) == (206, "bytes 2-4/10", b"234")
    assert wire.download("/tmp/ten", "bytes=8-99")[2] == b"89"
    assert wire.download("/tmp/ten", "bytes=-3")[2] == b"789"
    assert wire.download("/tmp/ten", "bytes=7-")[2] == b"789"
    assert wire.download("/tmp/ten", "bytes=1-2,5-6")[2] == b"12"
    assert wire.download("/tmp/ten", "bytes=10-")[0] == 416
    assert wire.download("/tmp/none", "bytes=0-5")[::2] == (200, b"")
    assert wire.download("/tmp/ten")[::2] == (200, b"0123456789")
    wire.events("head -c 1000 /dev/zero >/tmp/more")
    with pytest.raises(http.client.IncompleteRead):
        wire.download("/tmp/more", "bytes=5-2")


def test_directories_and_procfs_cannot_be_downloaded(wire: Wire) -> None:
    for path in ("/tmp", "/proc/version"):
        assert wire.download(path)[::2] == (500, b"seeker can't seek\n")
    with pytest.raises(http.client.IncompleteRead):
        wire.download("/tmp", "bytes=0-10")
    wire.events("ln -s /tmp /srv/link")
    with pytest.raises(http.client.IncompleteRead):
        wire.download("/srv/link", "bytes=0-10")


def test_file_errors(wire: Wire) -> None:
    wire.events(
        "touch /tmp/file; ln -s loop /tmp/loop; touch /tmp/shut; chmod 0 /tmp/shut; ln -s /tmp /srv/link"
    )
    assert wire.json("GET", f"{wire.proxy}/files/info?path=/tmp&path=/nope")[1]["code"] == "FILE_NOT_FOUND"
    for path, words in (
        ("/tmp/loop", "too many levels of symbolic links"),
        ("/tmp/shut", "permission denied"),
        ("/tmp/file/below", "not a directory"),
        ("/tmp/" + "x" * 300, "file name too long"),
    ):
        status, _, data = wire.download(path)
        assert (status, json.loads(data)["code"]) == (500, "RUNTIME_ERROR")
        assert words in json.loads(data)["message"]
    for path, words in (("/tmp/file", "is not a directory"), ("/srv/link", "refusing to traverse")):
        status, answer = wire.json("GET", f"{wire.proxy}/directories/list?path={path}&depth=1")
        assert (status, answer["code"]) == (400, "INVALID_REQUEST_BODY")
        assert words in answer["message"]
    assert wire.json("GET", f"{wire.proxy}/directories/list?path=/nope")[0] == 404
    assert wire.json("GET", f"{wire.proxy}/directories/list?path=/tmp&depth=0") == (200, [])


def test_paths_are_expanded(wire: Wire) -> None:
    wire.events("echo inside >/root/f; mkdir /tmp/root-x")
    assert wire.download("~/f")[2] == b"inside\n"
    info = wire.json("GET", f"{wire.proxy}/files/info?path=/tmp/$HOME-x")[1]
    assert info["/tmp/$HOME-x"]["path"] == "/tmp/root-x"
    assert wire.download("/tmp/$NOWHERE")[0] == 500
    assert wire.download("/tmp/$(id)")[0] == 404


def upload(wire: Wire, meta: Any, content: bytes, host: str = "") -> tuple[int, bytes]:
    described = json.dumps(meta).encode()
    body = b"".join(
        b'--B\r\nContent-Disposition: form-data; name="%b"; filename="%b"\r\n\r\n%b\r\n' % part
        for part in ((b"metadata", b"metadata", described), (b"file", b"file", content))
    )
    headers = {"Content-Type": "multipart/form-data; boundary=B"}
    answer = wire.raw("POST", f"{wire.proxy}/files/upload", body + b"--B--\r\n", headers)
    return answer[0], answer[2]


def test_uploads_and_modes(wire: Wire) -> None:
    assert upload(wire, {"path": "/srv/new/er/file", "mode": 640}, b"\r\n--C content")[0] == 200
    info = wire.json("GET", f"{wire.proxy}/files/info?path=/srv/new/er/file")[1]["/srv/new/er/file"]
    assert (info["type"], info["size"], info["mode"], info["owner"]) == ("file", 13, 640, "root")
    status, message = upload(wire, {"path": "/tmp", "mode": 644}, b"x")
    assert status == 500
    assert b"is a directory" in message
    assert b"not a directory" in upload(wire, {"path": "/srv/new/er/file/x", "mode": 644}, b"x")[1]
    # The sticky bit of a directory that was there is lost.
    assert wire.raw("POST", f"{wire.proxy}/directories", {"/tmp": {"mode": 755}})[0] == 200
    assert texts(wire.events("stat -c %a /tmp"), "stdout") == ["755"]


def test_an_image_that_does_not_run_as_root(opensandbox_server: OpenSandboxServer) -> None:
    wire = Wire(opensandbox_server, image={"uri": "nonroot:1"})
    assert texts(wire.events("id -u; pwd"), "stdout") == ["1000", "/home/app"]
    status, answer = wire.json("POST", f"{wire.proxy}/directories", {"/tmp": {"mode": 755}})
    assert (status, answer["code"]) == (500, "RUNTIME_ERROR")
    assert "operation not permitted" in answer["message"]
    assert b"permission denied" in upload(wire, {"path": "/srv/x", "mode": 644}, b"x")[1]


def test_keys(wire: Wire) -> None:
    for headers, code in (({}, "MISSING_API_KEY"), ({"OPEN-SANDBOX-API-KEY": "no"}, "INVALID_API_KEY")):
        status, answer = wire.json("GET", f"/v1/sandboxes/{wire.id}", headers=headers)
        assert (status, answer["code"]) == (401, code)
        assert wire.raw("GET", f"{wire.proxy}/ping", headers=headers)[0] == 200


def test_metadata(wire: Wire) -> None:
    path = f"/v1/sandboxes/{wire.id}/metadata"
    assert wire.json("PATCH", path, {"a": "1", "b": "2"})[1]["metadata"] == {"a": "1", "b": "2"}
    assert wire.json("PATCH", path, {"a": None})[1]["metadata"] == {"b": "2"}
    assert wire.json("PATCH", path, {"a": 1})[0] == 422
    for bad in ("with space", "a/b", "-x", "x-", "2026-01-01T00:00:00+00:00", "é", "x" * 64):
        status, answer = wire.json("PATCH", path, {"a": bad})
        assert (status, answer["code"]) == (400, "SANDBOX::INVALID_METADATA_LABEL")
    for key in ("opensandbox.io/x", "x" * 64, "", "a/b/c", "UPPER/x"):
        assert wire.json("PATCH", path, {key: "v"})[0] == 400
    assert wire.json("PATCH", path, {"": "v"})[0] == 400
    assert wire.json("PATCH", path, {"example.com/k": "x" * 63})[0] == 200
    other = Wire(wire.server, metadata={"b": "3"})
    found = wire.json("GET", "/v1/sandboxes?metadata=b%3D2")[1]
    assert [item["id"] for item in found["items"]] == [wire.id]
    assert found["pagination"]["totalItems"] == 1
    assert len(wire.json("GET", "/v1/sandboxes")[1]["items"]) == 2
    assert other.status == 202


@pytest.mark.parametrize(
    ("timeout", "status"), [(59, 422), (90.0, 202), (90.5, 422), ("60", 422), (86401, 400), (None, 202)]
)
def test_life_times(opensandbox_server: OpenSandboxServer, timeout: Any, status: int) -> None:
    assert Wire(opensandbox_server, timeout=timeout).status == status


def test_deleting(wire: Wire) -> None:
    path = f"/v1/sandboxes/{wire.id}"
    assert wire.raw("DELETE", path)[0] == 204
    for method, where in (("DELETE", path), ("GET", path), ("GET", f"{wire.proxy}/ping")):
        status, answer = wire.json(method, where)
        assert (status, answer["code"]) == (404, "DOCKER::SANDBOX_NOT_FOUND")


def test_direct_mode_and_policy(opensandbox_server: OpenSandboxServer) -> None:
    rules = [{"action": "allow", "target": "https://A.example.:443"}]
    wire = Wire(opensandbox_server, networkPolicy={"defaultAction": "deny", "egress": rules})
    for proxied in ("true", "false"):
        where = f"/v1/sandboxes/{wire.id}/endpoints/"
        endpoint = wire.json("GET", f"{where}44772?use_server_proxy={proxied}")[1]
        assert set(endpoint) == {"endpoint"}
        host, slash, path = endpoint["endpoint"].partition("/")
        assert wire.raw("GET", f"{slash}{path}/ping", headers={}, host=host)[0] == 200
        sidecar = wire.json("GET", f"{where}18080?use_server_proxy={proxied}")[1]
        host, slash, path = sidecar["endpoint"].partition("/")
        assert wire.raw("GET", f"{slash}{path}/policy", headers={}, host=host)[0] == 401
        status, policy = wire.json("GET", f"{slash}{path}/policy", headers=sidecar["headers"], host=host)
        assert status == 200
        assert policy["enforcementMode"] == "dns+nft"
        assert policy["policy"] == {"defaultAction": "deny", "egress": rules}
    opensandbox_server.set(egress_mode="none")
    assert wire.raw("GET", f"/v1/sandboxes/{wire.id}/proxy/18080/policy")[0] == 502


def test_the_ends_of_a_sandbox(wire: Wire) -> None:
    direct = wire.json("GET", f"/v1/sandboxes/{wire.id}/endpoints/44772?use_server_proxy=false")[1][
        "endpoint"
    ]
    wire.server.act(wire.id, "kill-execd")
    assert wire.raw("GET", f"{wire.proxy}/ping")[0] == 502
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        wire.raw("GET", "/proxy/44772/ping", host=direct.partition("/")[0])
    wire.server.act(wire.id, "stop")
    status, answer = wire.json("GET", f"{wire.proxy}/ping")
    assert (status, answer["code"]) == (500, "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE")
    wire.server.act(wire.id, "remove")
    assert wire.raw("GET", f"{wire.proxy}/ping")[0] == 404


@pytest.mark.parametrize("proxied", ["true", "false"])
def test_an_agent_that_dies_under_a_command(wire: Wire, proxied: str) -> None:
    where = f"/v1/sandboxes/{wire.id}/endpoints/44772?use_server_proxy={proxied}"
    host, slash, path = wire.json("GET", where)[1]["endpoint"].partition("/")
    wire.server.faults.add("command", "cut", after_bytes=1, act="kill-execd")
    run = ("POST", f"{slash}{path}/command", {"command": "sleep 100"})
    if proxied == "true":
        # The server hides it: a whole answer without a last event.
        assert b"execution_complete" not in wire.raw(*run, host=host)[2]
    else:
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            wire.raw(*run, host=host)
