# SPDX-License-Identifier: Apache-2.0
"""Commands that take all they can get in a local sandbox."""

from __future__ import annotations

import pytest

from local_tools import eventually, sandbox
from sandbox_native.backends import _local_cgroup as cgroup
from sandbox_native.backends.local import LocalSandboxBackend

GROUPED = LocalSandboxBackend().enforcement()["memory_mb"] == "control group"

BOMBS = [
    "b() { b | b & }; b; sleep 300",
    "while :; do sleep 300 & done",
    "while :; do setsid sleep 300 & done",
    'b() { setsid bash -c "$(declare -f b); b & b & sleep 300" & }; export -f b; b; b; sleep 300',
    'python3 -c "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"',
    'python3 -c "import os\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass"',
    "python3 -c 'import threading as t,time\nwhile 1: t.Thread(target=time.sleep,args=(9,)).start()';sleep 9",
]


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("processes", [64, 500])
def test_a_fork_bomb_is_held_and_ends_with_its_timeout(bomb: str, processes: int) -> None:
    with sandbox(max_processes=processes) as box:
        box.sh("sleep 54321 >/dev/null 2>&1 &")
        result = box.run(bomb, timeout=2, max_output_bytes=1000)
        assert result.timed_out
        if not result.sandbox_terminated:
            assert box.sh("echo on") == "on\n"
            # Killed, all of them; on a busy machine hundreds take a moment to be gone.
            assert eventually(lambda: [line for line in box.processes() if "54321" not in line] == [])


def test_a_bomb_left_in_the_background_ends_with_the_sandbox() -> None:
    with sandbox(max_processes=100) as box:
        box.run("(while :; do sleep 271828 & done) >/dev/null 2>&1 &", timeout=10)
        from local_tools import host_processes

        assert host_processes("271828")
    assert host_processes("271828") == []


def test_a_full_sandbox_says_why_a_command_cannot_start() -> None:
    with sandbox(max_processes=20) as box:
        box.run("for i in $(seq 100); do sleep 300 >/dev/null 2>&1 & done 2>/dev/null; sleep 300", timeout=2)
        box.run("for i in $(seq 15); do sleep 300 >/dev/null 2>&1 & done")
        assert box.sh("echo on; exit 0") == "on\n"


@pytest.mark.parametrize(
    ("where", "option"),
    [
        ("/workspace", "workspace_bytes"),
        ("/tmp", "tmp_bytes"),
        ("/dev/shm", "shm_bytes"),
        ("/var/tmp", "tmp_bytes"),
    ],
)
def test_a_file_system_that_is_full_says_so_and_no_more(where: str, option: str) -> None:
    with sandbox(**{option: 8 << 20}) as box:
        result = box.run(f"head -c 100M /dev/zero > {where}/big; stat -c %s {where}/big")
        assert "No space left" in result.stderr
        assert int(result.stdout) == 8 << 20
        box.sh(f"rm {where}/big; echo x > {where}/small")


@pytest.mark.parametrize("where", ["/", "/dev", "/etc", "/run", "/var", "/proc", "/usr"])
def test_there_is_no_other_place_to_fill(where: str) -> None:
    with sandbox() as box:
        assert box.run(f"head -c 1M /dev/zero > {where}/big").exit_code != 0


@pytest.mark.skipif(not GROUPED, reason="no memory control group can be made here; the next test covers that")
def test_memory_is_limited_for_the_sandbox_as_a_whole() -> None:
    with sandbox(memory_mb=64, workspace_bytes=16 << 20, tmp_bytes=16 << 20, shm_bytes=16 << 20) as box:
        box.sh("sleep 54321 >/dev/null 2>&1 &")
        hog = 'python3 -c "x = bytearray(60 << 20); import time; time.sleep(3); print(len(x))"'
        assert box.sh(hog) == f"{60 << 20}\n"
        together = box.run(f"{hog} & {hog} & {hog} & wait")
        assert together.stdout.count(str(60 << 20)) < 3
        assert box.run("python3 -c 'bytearray(1 << 30)'").exit_code == 137
        # What was too much is gone; the sandbox stands, and its full file systems do not count against it.
        assert not together.sandbox_terminated
        box.run("for f in /tmp/f /workspace/f /dev/shm/f; do head -c 20M /dev/zero > $f; done")
        assert box.sh("echo on") == "on\n"


def test_memory_is_limited_for_each_process() -> None:
    with sandbox(memory_mb=256) as box:
        result = box.run("python3 -c 'bytearray(3 << 30)'")
        assert result.exit_code != 0
        assert box.sh("echo on") == "on\n"
        if not GROUPED:
            assert "MemoryError" in result.stderr


@pytest.fixture
def ungrouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where no control group can be made, whoever runs this."""
    monkeypatch.setattr(cgroup, "places", list)


# A file in memory that grows; what stopped it is printed, and its size.
UNNAMED = """
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fd = os.memfd_create("x")
try:
    {grow}
except OSError as e:
    print(os.strerror(e.errno))
print(os.fstat(fd).st_size)
"""
GROWTHS = {
    "write": "while True: os.write(fd, bytes(1 << 20))",
    "truncate": "os.ftruncate(fd, 1 << 40)",
    "allocate": "os.posix_fallocate(fd, 0, 1 << 40)",
}


@pytest.mark.usefixtures("ungrouped")
@pytest.mark.parametrize("growth", GROWTHS)
@pytest.mark.parametrize(
    ("largest", "own"),
    [("workspace_bytes", None), ("tmp_bytes", None), ("shm_bytes", None), ("tmp_bytes", 1 << 20)],
)
def test_without_groups_a_file_without_a_name_is_no_larger_than_a_file_system(
    growth: str, largest: str, own: int | None
) -> None:
    sizes = {"workspace_bytes": 1 << 20, "tmp_bytes": 1 << 20, "shm_bytes": 1 << 20, largest: 8 << 20}
    with sandbox(memory_mb=256, max_file_bytes=own, **sizes) as box:
        result = box.python(UNNAMED.format(grow=GROWTHS[growth]))
        error, size = result.stdout.splitlines()
        assert error == "File too large"
        assert int(size) <= (own or (8 << 20) + 4096)


@pytest.mark.usefixtures("ungrouped")
def test_without_groups_the_largest_file_system_still_says_that_it_is_full() -> None:
    with sandbox(workspace_bytes=8 << 20, tmp_bytes=1 << 20, shm_bytes=1 << 20) as box:
        result = box.run("head -c 100M /dev/zero > big; stat -c %s big")
        assert "No space left" in result.stderr
        assert int(result.stdout) == 8 << 20


SYSTEM_V = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, rest in (("shmget", (1 << 20, 0o1600)), ("msgget", (0o1600,)), ("semget", (10, 0o1600))):
    made = getattr(libc, name)(0, *rest)
    print(name, "made" if made >= 0 else os.strerror(ctypes.get_errno()))
"""


@pytest.mark.usefixtures("ungrouped")
def test_without_groups_there_is_no_memory_that_belongs_to_no_process() -> None:
    with sandbox(memory_mb=256) as box:
        lines = box.python(SYSTEM_V).stdout.splitlines()
        assert lines == [f"{name} Function not implemented" for name in ("shmget", "msgget", "semget")]
        # What Python's multiprocessing needs is files in /dev/shm, which have their limit.
        both = "import multiprocessing as m; l = m.Lock(); l.acquire(); print(m.Array('i', 9)[8])"
        assert box.python(both).stdout == "0\n"


@pytest.mark.skipif(
    not GROUPED, reason="no memory control group can be made here; the tests above cover that"
)
def test_with_a_memory_group_nothing_more_is_refused() -> None:
    with sandbox(workspace_bytes=1 << 20, tmp_bytes=1 << 20, shm_bytes=1 << 20) as box:
        assert box.python(SYSTEM_V).stdout.splitlines() == ["shmget made", "msgget made", "semget made"]
        result = box.python(UNNAMED.format(grow="os.ftruncate(fd, 8 << 20)"))
        assert result.stdout == f"{8 << 20}\n"


def test_the_size_of_a_file_is_limited() -> None:
    with sandbox(max_file_bytes=1 << 20) as box:
        result = box.run("head -c 2M /dev/zero > big; echo $?; stat -c %s big")
        assert result.stdout.split() == ["153", str(1 << 20)]  # 128 + SIGXFSZ


def test_the_text_of_a_command_is_no_file_of_its_own() -> None:
    with sandbox(max_file_bytes=1000) as box:
        assert box.sh("true " + "x" * 300_000 + "; echo on") == "on\n"


def test_the_cpu_time_of_a_process_is_limited() -> None:
    with sandbox(cpu_seconds=1) as box:
        result = box.run("while :; do :; done", timeout=60)
        assert (result.timed_out, result.exit_code) == (False, 137)


def test_descriptors_are_limited() -> None:
    with sandbox(max_open_files=32) as box:
        result = box.python("files = [open('/dev/null') for _ in range(40)]")
        assert "Too many open files" in result.stderr


def test_limits_cannot_be_raised() -> None:
    with sandbox(max_open_files=32, max_file_bytes=1 << 20, cpu_seconds=100) as box:
        for limit in ("-n 64", "-f unlimited", "-t unlimited", "-u 5000", "-c 100"):
            assert box.run(f"ulimit {limit}").exit_code != 0, limit


def test_a_flood_of_output_costs_the_worker_its_caps_only() -> None:
    import resource

    with sandbox() as box:
        box.run("head -c 10M /dev/zero", max_output_bytes=100_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = box.run(
            "head -c 1G /dev/zero; head -c 1G /dev/zero >&2; exit 5", timeout=200, max_output_bytes=100_000
        )
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert (result.exit_code, len(result.stdout), len(result.stderr)) == (5, 100_000, 100_000)
        assert grown < 4 * 1024  # KiB
