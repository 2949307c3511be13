# SPDX-License-Identifier: Apache-2.0
"""Many agents in one process, each running commands over HTTP at once, beside the most the server can do.

The server is the test server of ``tests/net``, in a process of its own, with a sandbox for each agent. Its
limit is found by replaying the very same requests over raw sockets from one thread, which parses nothing but
the end of each command; so what differs is what the client costs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import Row

NET = Path(__file__).parents[1] / "net"
sys.path.insert(0, str(NET))

AGENTS = 64
COMMANDS = 12  # of each agent
RUNS = 3

# Prints commands a second, the threads with every sandbox idle, and those with every agent at work.
OURS = """
import asyncio, json, os, sys, threading, time
from sandbox_native import calls
from sandbox_native.backends.opensandbox import OpenSandboxBackend

handles, commands = json.loads(sys.argv[1]), int(sys.argv[2])
backend = OpenSandboxBackend(None)

def run(handle):
    done = backend.run_command(handle, "echo hi", timeout=60, max_output_bytes=1000)
    assert (done.exit_code, done.stdout) == (0, "hi\\n"), done

async def agent(handle):
    for _ in range(commands):
        await calls.run(run, handle)

async def main():
    await asyncio.gather(*(agent(handle) for handle in handles))

for handle in handles:
    run(handle)
idle = len(os.listdir("/proc/self/task"))
begin, cpu = time.perf_counter(), time.process_time()
asyncio.run(main())
elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
count = commands * len(handles)
print(json.dumps([count / elapsed, idle, cpu / count]))
"""

# Prints commands a second. Each request gets a token of its own, as the client's have, of the same length.
LIMIT = """
import json, os, selectors, socket, sys, time

address, requests, commands = json.loads(sys.argv[1]), json.loads(sys.stdin.read()), int(sys.argv[2])
selector = selectors.DefaultSelector()

def send(sock, state):
    request, token = state["request"]
    sock.sendall(request.replace(token, os.urandom(8).hex().encode()))
    state["seen"] = b""

begin = time.perf_counter()
for head, body, token in requests:
    sock = socket.create_connection(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    state = {"request": (head.encode() + body.encode(), token.encode()), "left": commands}
    selector.register(sock, selectors.EVENT_READ, state)
    send(sock, state)
open_ = len(requests)
while open_:
    for key, _ in selector.select():
        state = key.data
        data = key.fileobj.recv(65536)
        assert data, state["seen"]
        state["seen"] += data
        if state["seen"].endswith(b"0\\r\\n\\r\\n"):
            assert b'"execution_complete"' in state["seen"], state["seen"]
            state["left"] -= 1
            if state["left"]:
                send(key.fileobj, state)
            else:
                selector.unregister(key.fileobj)
                open_ -= 1
print(json.dumps(len(requests) * commands / (time.perf_counter() - begin)))
"""


def program(source: str, *args: str, stdin: str = "") -> object:
    command = [sys.executable, "-c", source, *args]
    return json.loads(
        subprocess.run(command, check=True, input=stdin, stdout=subprocess.PIPE, text=True).stdout
    )


def recorded(requests: list[dict[str, object]]) -> list[tuple[str, str, str]]:
    """The last command of each sandbox as text to send: head, body, and the token in it."""
    found = {}
    for request in requests:
        headers = request["headers"]
        body = request["body"]
        assert isinstance(headers, dict) and isinstance(body, str)
        token = json.loads(body)["command"].partition("t=")[2][:16]
        lines = [
            f"POST {request['target']} HTTP/1.1",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        found[request["sandbox"]] = ("\r\n".join([*lines, "", ""]), body, token)
    return list(found.values())


def rows() -> Iterator[Row]:
    from sandbox_native.backends.opensandbox import OpenSandboxBackend
    from servers.opensandbox.handle import OpenSandboxServer

    with OpenSandboxServer(linger=0.0) as server:
        os.environ.update(OPEN_SANDBOX_DOMAIN=server.domain, OPEN_SANDBOX_API_KEY=server.api_key)
        backend = OpenSandboxBackend(None)
        handles = [backend.create() for _ in range(AGENTS)]
        threads = len(os.listdir("/proc/self/task"))
        for handle in handles:
            backend.run_command(handle, "echo hi", timeout=60, max_output_bytes=1000)
        replayed = json.dumps(recorded(server.requests("command")))
        address = json.dumps(server.domain.split(":"))
        ours: list[list[float]] = []
        limits: list[float] = []
        for _ in range(RUNS):  # in turns, so that both see the same machine
            limits.append(program(LIMIT, address, str(COMMANDS), stdin=replayed))  # type: ignore[arg-type]
            ours.append(program(OURS, json.dumps(handles), str(COMMANDS)))  # type: ignore[arg-type]
        for name in ("OPEN_SANDBOX_DOMAIN", "OPEN_SANDBOX_API_KEY"):
            del os.environ[name]
        rate, limit = max(run[0] for run in ours), max(limits)
        cpu = min(run[2] for run in ours)
        work = f"{AGENTS} agents in one process, commands over HTTP"
        reference = f"{limit:.0f}/s (the server's limit)"
        yield Row(work, "0.8x", f"{rate:.0f}/s", reference, rate / limit, rate >= 0.8 * limit)
        yield Row(f"{work}: CPU of the client for each", "", f"{cpu * 1e6:.0f} us")
        idle = max(threads, *(int(run[1]) for run in ours))
        yield Row(f"threads with {AGENTS} idle sandboxes", "1", str(idle), met=idle == 1)
