# SPDX-License-Identifier: Apache-2.0
"""What a local sandbox reaches over the network."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from local_tools import eventually, sandbox
from sandbox_native.contract import SandboxSpec

CONNECT = """python3 -c "
import socket, sys
s = socket.socket({family})
s.settimeout(10)
try:
    s.connect({address})
    print('connected')
except OSError as e:
    print(type(e).__name__, e)
" """


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def attempt(address: object, family: str = "socket.AF_INET") -> str:
    return CONNECT.format(address=repr(address).replace('"', "'"), family=family)


@pytest.mark.parametrize("spec", [None, SandboxSpec()])
def test_a_blocked_network_reaches_nothing(spec: SandboxSpec | None, listener: int) -> None:
    with sandbox(spec) as box:
        for address in (("203.0.113.1", 80), ("8.8.8.8", 53), ("169.254.169.254", 80), ("10.0.0.1", 22)):
            assert "unreachable" in box.sh(attempt(address)), address
        assert "refused" in box.sh(attempt(("127.0.0.1", listener)))
        assert "unreachable" in box.sh(attempt(("2001:db8::1", 80), "socket.AF_INET6"))
        assert "connected" not in box.sh(attempt(("example.org", 80)))
        assert box.sh("ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1").split() == [
            "lo"
        ]
        assert box.run("ls /etc/resolv.conf").exit_code != 0


def test_loopback_works_within_one_sandbox_and_ends_there() -> None:
    with sandbox() as one, sandbox() as two:
        for host, family in (("127.0.0.1", "socket.AF_INET"), ("::1", "socket.AF_INET6")):
            one.sh(f"python3 -m http.server 8000 --bind {host} >/dev/null 2>&1 &")
            connect = attempt((host, 8000), family)
            assert eventually(lambda connect=connect: one.sh(connect) == "connected\n")
            assert "refused" in two.sh(connect)


def test_abstract_sockets_of_the_host_are_out_of_reach() -> None:
    name = "\0sandbox-native-test"
    with socket.socket(socket.AF_UNIX) as server, sandbox() as box:
        server.bind(name)
        server.listen()
        assert "refused" in box.sh(attempt(name, "socket.AF_UNIX"))


def test_an_open_network_is_the_hosts(listener: int) -> None:
    with sandbox(SandboxSpec(block_network=False)) as box:
        assert box.sh(attempt(("127.0.0.1", listener))) == "connected\n"
        with open("/etc/resolv.conf", "rb") as file:
            assert box.read("/etc/resolv.conf") == file.read()
