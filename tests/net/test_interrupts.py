# SPDX-License-Identifier: Apache-2.0
"""Signals, name lookups that hang, and the end of the interpreter, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from net_tools import preload, run_python
from scripted import Peer, Server, answers, chunked

Serve = Callable[..., Server]

START = """
import os, signal, sys, threading, time
from sandbox_native.http import Client, TransportError
url = sys.argv[1]
client = Client()
deadline = time.monotonic() + 100
class Stop(Exception): pass
def handler(signum, frame): raise Stop
signal.signal(signal.SIGALRM, handler)
"""

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WAITS = {
    "request": 'client.request("POST", url, deadline=deadline, body=b"x")',
    "upload": 'client.request("POST", url + "deaf", deadline=deadline, body=b"x" * 50_000_000)',
    "events": 'client.events("GET", url + "stream", lambda e: False, deadline=deadline)',
    "fd": 'client.download(url + "file", os.memfd_create("x"), deadline=deadline)',
    "write": 'client.download(url + "file", lambda data: None, deadline=deadline)',
}


def hanging(peer: Peer) -> None:
    """Starts every kind of answer and never ends it."""
    target = peer.read_head().split(b" ")[1]
    if target == b"/deaf":
        peer.server.hold.wait(100)  # type: ignore[attr-defined]
    elif target == b"/stream":
        peer.send(HEAD + chunked(b"data: x\n\n", end=False))
    elif target == b"/file":
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 1_000_000)
    peer.wait_until_closed()


@pytest.fixture
def hanging_server(serve: Serve) -> Server:
    import threading

    server = serve(hanging)
    server.hold = threading.Event()  # type: ignore[attr-defined]
    yield server  # type: ignore[misc]
    server.hold.set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("wait", WAITS)
def test_a_signal_handler_in_the_main_thread_ends_a_wait(hanging_server: Server, wait: str) -> None:
    done = run_python(
        START
        + f"""
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    {WAITS[wait]}
except Stop:
    print("stopped", client._native().lanes()[0])
""",
        hanging_server.url(),
    )
    assert (done.stdout, done.stderr, done.returncode) == ("stopped 1\n", "", 0)


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c(hanging_server: Server, wait: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START + f"print('ready', flush=True)\n{WAITS[wait]}", hanging_server.url()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=100)
    assert "KeyboardInterrupt" in error and process.returncode == -signal.SIGINT


def test_a_handler_that_returns_changes_nothing(serve: Serve) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.server.step.wait(100)  # type: ignore[attr-defined]
        peer.answer(b"late")

    import threading

    server = serve(script)
    server.step = threading.Event()  # type: ignore[attr-defined]
    threading.Timer(1.5, server.step.set).start()  # type: ignore[attr-defined]
    done = run_python(
        START
        + """
seen = []
signal.signal(signal.SIGALRM, lambda *a: seen.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
body = client.request("GET", url, deadline=deadline).body
signal.setitimer(signal.ITIMER_REAL, 0)
print(body, len(seen) > 3)
""",
        server.url(),
    )
    assert (done.stdout, done.stderr) == ("b'late' True\n", "")


SLOW_DNS = """
#include <netdb.h>
#include <unistd.h>
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
    (void)node; (void)service; (void)hints; (void)res;
    sleep(60);
    return EAI_FAIL;
}
"""


@pytest.mark.parametrize("how", ["deadline", "cancelled", "stop", "connect_timeout"])
def test_a_name_lookup_that_hangs_holds_nothing(tmp_path: Path, how: str) -> None:
    done = run_python(
        START
        + """
how = sys.argv[2]
fd = os.eventfd(0)
if how == "cancelled":
    threading.Timer(0.5, os.eventfd_write, (fd, 1)).start()
elif how == "stop":
    signal.setitimer(signal.ITIMER_REAL, 0.5)
elif how == "connect_timeout":
    client = Client(connect_timeout=0.5)
begun = time.monotonic()
try:
    client.request("POST", "http://slow.example/", body=b"x", cancel_fd=fd,
                   deadline=time.monotonic() + (0.5 if how == "deadline" else 40))
except TransportError as e:
    print(e.kind, e.sent)
except Stop:
    print("stop False")
client.close()
assert time.monotonic() - begun < 30, "waited for the lookup"
sys.stdout.flush()
os._exit(0)
""",
        "http://unused/",
        how,
        LD_PRELOAD=preload(tmp_path, SLOW_DNS),
    )
    assert (done.stdout, done.stderr) == (f"{how} False\n", "")


@pytest.mark.parametrize("tls", [False, True])
def test_a_broken_pipe_does_not_end_the_process(serve: Serve, tls: bool, authority) -> None:  # type: ignore[no-untyped-def]
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.reset()

    server = serve(script, authority.context() if tls else None)
    done = run_python(
        START
        + """
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
for _ in range(20):
    try:
        client.request("POST", url, deadline=deadline, body=b"x" * 5_000_000)
    except TransportError as e:
        assert e.kind in ("send", "receive"), e.kind
client.close()
print("alive", signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.sigpending())
""",
        server.url(),
        SSL_CERT_FILE=str(authority.ca),
    )
    assert (done.stdout, done.stderr, done.returncode) == ("alive set() set()\n", "", 0)


# ---- the end of the interpreter, at each stage ----


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "os._exit(0)", "client.close()", "del client"])
@pytest.mark.parametrize("stage", ["made", "used", "drained", "failed"])
def test_exit(serve: Serve, stage: str, end: str) -> None:
    def script(peer: Peer) -> None:
        while True:
            if peer.read_request().target == "/stream":
                peer.send(HEAD + chunked(b"data: x\n\n", end=False))
            else:
                peer.answer()

    steps = {
        "made": "",
        "used": 'client.request("GET", url, deadline=deadline)',
        "drained": 'client.events("GET", url + "stream", lambda e: True, deadline=deadline)',
        "failed": """
try: client.request("GET", "http://127.0.0.1:1/", deadline=deadline)
except TransportError: pass""",
    }
    done = run_python(f"{START}\n{steps[stage]}\n{end}", serve(script).url())
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize("wait", WAITS)
def test_exit_with_a_daemon_thread_in_a_wait(hanging_server: Server, wait: str) -> None:
    done = run_python(
        START
        + f"""
def work():
    {WAITS[wait]}
threading.Thread(target=work, daemon=True).start()
time.sleep(1)
print("end", flush=True)
""",
        hanging_server.url(),
    )
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


@pytest.mark.parametrize("wait", ["write", "fd", "events"])
def test_exit_with_a_daemon_thread_in_a_transfer_that_goes_on(serve: Serve, wait: str) -> None:
    """Python ends a daemon thread where it wants the GIL back; what else works for the call may not mind."""

    def script(peer: Peer) -> None:
        if peer.read_request().target == "/stream":
            peer.send(HEAD)
            for _ in range(1_000):
                peer.send(chunked(b"data: x\n\n", end=False))
                time.sleep(0.01)
        else:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
            for _ in range(1_000):
                peer.send(b"x" * 20_000)
                time.sleep(0.01)

    done = run_python(
        START
        + f"""
class Slow:
    def __del__(self, sleep=time.sleep, write=os.write):
        write(1, b"late\\n")
        sleep(2)
def work(depth=100):
    if depth:  # what a thread leaves deep down its stack is dropped when it ends
        return max([depth - 1], key=work)
    {WAITS[wait]}
threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
import types
sys.modules["late"] = types.ModuleType("late")
sys.modules["late"].slow = Slow()  # goes when nothing but daemon threads is left
""",
        serve(script).url(),
    )
    assert (done.stdout, done.stderr, done.returncode) == ("late\n", "", 0)


# ---- the library ----


def test_importing_and_making_a_client_loads_no_libcurl(serve: Serve) -> None:
    done = run_python(
        START
        + """
def mapped(): return "libcurl" in open("/proc/self/maps").read()
print(mapped(), client._native() is not None, mapped())
print(client.request("GET", url, deadline=deadline).status, mapped())
""",
        serve(answers()).url(),
    )
    assert (done.stdout, done.stderr) == ("False True False\n200 True\n", "")


NO_LIBCURL = """
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *name, int flags)
{
    static void *(*real)(const char *, int);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    return name != NULL && strstr(name, "libcurl") != NULL ? NULL : real(name, flags);
}
"""


def test_a_missing_libcurl_is_named(tmp_path: Path) -> None:
    done = run_python(
        START
        + """
for _ in range(2):
    try: client.request("GET", "http://127.0.0.1:1/", deadline=deadline)
    except TransportError as e: print(e.kind, e.sent, "libcurl4" in str(e))
""",
        "http://unused/",
        LD_PRELOAD=preload(tmp_path, NO_LIBCURL),
    )
    assert (done.stdout, done.stderr) == ("library False True\n" * 2, "")


def test_no_descriptor_is_inherited(serve: Serve) -> None:
    done = run_python(
        START
        + """
client.request("GET", url, deadline=deadline)
sockets = [int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")
           and os.readlink(f"/proc/self/fd/{n}").startswith("socket:")]
import fcntl
inet = []
for fd in sockets:
    import socket
    s = socket.socket(fileno=os.dup(fd))
    if s.family == socket.AF_INET: inet.append(fcntl.fcntl(fd, fcntl.F_GETFD))
    s.close()
print(inet)
""",
        serve(answers()).url(),
    )
    assert (done.stdout, done.stderr) == ("[1]\n", "")


def test_the_environment_of_these_tests_is_clean() -> None:
    assert not [name for name in os.environ if name.lower().endswith("_proxy")]
