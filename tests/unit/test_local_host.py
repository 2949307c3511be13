# SPDX-License-Identifier: Apache-2.0
"""What the local backend makes of the machine it is on: knobs, user ids, control groups."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from local_tools import AS_ROOT, sandbox
from sandbox_native.backends import _local_cgroup as cgroup
from sandbox_native.backends import _local_host as host
from sandbox_native.backends import local
from sandbox_native.backends.local import LocalSandboxBackend
from sandbox_native.contract import SandboxTerminalError

# -- errors that name the knob --------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "knob"),
    [
        (
            "bwrap: Creating new namespace failed: nesting depth or "
            "/proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
            "user.max_user_namespaces",
        ),
        ("bwrap: unshare user ns: No space left on device", "user.max_user_namespaces"),
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow "
            "non-privileged user namespaces. See <https://deb.li/bubblewrap>",
            "kernel.unprivileged_userns_clone",
        ),
        (
            "sandbox-native: could not make a user namespace: Operation not permitted",
            "unprivileged_userns_clone",
        ),
        (
            "sandbox-native: could not make a user namespace: No space left on device",
            "user.max_user_namespaces",
        ),
        ("bwrap: setting up uid map: Permission denied", "apparmor_restrict_unprivileged_userns"),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            "apparmor_restrict_unprivileged_userns",
        ),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("bwrap: Can't read /proc/sys/kernel/overflowuid: No such file or directory", "no /proc"),
        ("bwrap: Failed to make / slave: Operation not permitted", "seccomp=unconfined"),
        ("bwrap: Can't find source path /x: No such file or directory", "path is missing"),
        ("sandbox-native: could not write /proc/12/uid_map: Operation not permitted", "CAP_SETUID"),
        (
            "bwrap: Unable to set up system call filtering as requested: Invalid argument",
            "CONFIG_SECCOMP_FILTER",
        ),
        ("bwrap: execvp /proc/self/fd/7: No such file or directory", "incomplete"),
        ("something nobody foresaw", "something nobody foresaw"),
        ("", "without a word"),
    ],
)
def test_a_failed_start_names_the_knob_and_what_was_said(printed: str, knob: str) -> None:
    text = host.explain(printed)
    assert knob in text and printed in text


def test_a_machine_without_bubblewrap_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *args, **kwargs: None)
    with pytest.raises(SandboxTerminalError, match="apt-get install bubblewrap"):
        LocalSandboxBackend().create()


def test_a_machine_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(SandboxTerminalError, match="riscv64"):
        LocalSandboxBackend().create()


def failing_bwrap(folder: Path, text: str) -> Path:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n")
    path.chmod(0o755)
    folder.chmod(0o755)
    return path


def test_what_bubblewrap_prints_reaches_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = failing_bwrap(tmp_path, "bwrap: unshare user ns: No space left on device")
    for folder in tmp_path.parents[:2]:
        folder.chmod(folder.stat().st_mode | 0o011)
    with sandbox():
        pass  # what the first sandbox of a process makes for good is there now
    monkeypatch.setattr(host, "find_bwrap", lambda: str(path))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SandboxTerminalError, match=r"user\.max_user_namespaces"):
        LocalSandboxBackend().create()
    assert len(os.listdir("/proc/self/fd")) == before
    checks = {name: (works, detail) for name, works, detail, _ in local.diagnose()}
    assert checks["sandbox"][0] is False and "user.max_user_namespaces" in checks["sandbox"][1]


def test_a_start_that_never_gets_ready_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bwrap"
    path.write_text("#!/bin/sh\nexec sleep 300\n")
    path.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    monkeypatch.setattr(host, "find_bwrap", lambda: str(path))
    monkeypatch.setattr(local, "_START_TIMEOUT", 0.5)
    with pytest.raises(SandboxTerminalError, match="within"):
        LocalSandboxBackend().create()


def test_the_diagnosis_of_a_working_machine() -> None:
    checks = local.diagnose()
    assert {name for name, *_ in checks} == {
        "bubblewrap",
        "user ids",
        "sandbox",
        "limit memory_mb",
        "limit max_processes",
    }
    assert all(works for name, works, *_ in checks if not name.startswith("limit"))
    assert all(fix for _, works, _, fix in checks if not works)


# -- user ids -------------------------------------------------------------------------------


def maps(monkeypatch: pytest.MonkeyPatch, *ranges: tuple[int, int]) -> None:
    monkeypatch.setattr(host, "_mapped", lambda kind: iter(ranges))


def test_with_all_ids_a_sandbox_gets_high_ones_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    maps(monkeypatch, (0, 0xFFFFFFFF))
    bases = {host.choose_base() for _ in range(50)}
    assert len(bases) > 40
    assert all(0x70000000 <= base < 0x7FFF0000 for base in bases)


def test_with_the_ids_of_a_container_it_gets_some_of_those(monkeypatch: pytest.MonkeyPatch) -> None:
    maps(monkeypatch, (0, 65536))
    for _ in range(50):
        base = host.choose_base()
        assert base >= 2000 and base + host.IDS <= 61184


def test_a_hole_in_the_ids_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    maps(monkeypatch, (0, 1000), (30000, 33000))
    for _ in range(20):
        assert 30000 <= host.choose_base() <= 31000


@pytest.mark.parametrize("ranges", [((0, 1),), ((0, 1000),), ((0, 1), (100000, 101000))])
def test_too_few_ids_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, ranges: tuple[tuple[int, int], ...]
) -> None:
    maps(monkeypatch, *ranges)
    with pytest.raises(SandboxTerminalError, match="/proc/self/uid_map"):
        host.choose_base()


# -- the guest program ----------------------------------------------------------------------


def test_a_guest_program_for_its_owner_alone_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "_guest"
    private.write_bytes(Path(host.program_path()).read_bytes())
    private.chmod(0o700)
    monkeypatch.setattr(host, "program_path", lambda: str(private))
    with sandbox() as box:
        assert box.sh("echo on") == "on\n"


def test_a_missing_guest_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "program_path", lambda: "/no/such/_guest")
    with pytest.raises(SandboxTerminalError, match="_guest"):
        LocalSandboxBackend().create()


# -- control groups -------------------------------------------------------------------------


def tree(root: Path, mounts: str, own: str) -> str:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    (root / "proc/self/cgroup").write_text(own)
    return str(root / "proc")


def group(path: Path, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def test_version_1_groups_go_below_the_workers_own(tmp_path: Path) -> None:
    memory, pids = tmp_path / "memory", tmp_path / "pids"
    group(memory / "job/7")
    group(pids / "job")
    proc = tree(
        tmp_path,
        f"30 1 0:26 / {memory} rw - cgroup cgroup rw,memory\n"
        f"31 1 0:27 /outer {pids} rw - cgroup cgroup rw,pids\n"
        f"32 1 0:28 / {tmp_path} rw - cgroup cgroup rw,cpu,cpuacct\n",
        "4:memory:/job/7\n3:pids:/outer/job\n2:cpu,cpuacct:/\n",
    )
    found = {(place.directory, place.memory, place.pids, place.version) for place in cgroup.places(proc)}
    assert found == {(f"{memory}/job/7", True, False, 1), (f"{pids}/job", False, True, 1)}


def unified(tmp_path: Path, enabled: str, own: str = "/slice/worker.scope") -> str:
    mount = tmp_path / "cgroup"
    group(mount / "slice", cgroup__subtree_control=enabled, cgroup__procs="")
    group(mount / "slice/worker.scope", cgroup__subtree_control="", cgroup__procs="")
    return tree(tmp_path, f"30 1 0:26 / {mount} rw - cgroup2 cgroup2 rw,nsdelegate\n", f"0::{own}\n")


@pytest.mark.parametrize(
    ("enabled", "memory", "pids"),
    [("cpu memory pids\n", True, True), ("memory\n", True, False), ("pids\n", False, True)],
)
def test_version_2_groups_go_beside_the_workers_own(
    tmp_path: Path, enabled: str, memory: bool, pids: bool
) -> None:
    (place,) = cgroup.places(unified(tmp_path, enabled))
    assert place == cgroup._Place(str(tmp_path / "cgroup/slice"), memory, pids, 2)


@pytest.mark.parametrize(("enabled", "own"), [("cpu io\n", "/slice/worker.scope"), ("memory pids\n", "/")])
def test_version_2_without_controllers_or_a_parent_is_no_place(
    tmp_path: Path, enabled: str, own: str
) -> None:
    assert cgroup.places(unified(tmp_path, enabled, own)) == []


def test_a_group_that_takes_no_limit_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = cgroup._Place(str(tmp_path / "missing"), True, True, 2)
    monkeypatch.setattr(cgroup, "places", lambda: [place])
    groups = cgroup.make("airflow-sandbox-0123456789ab", memory_bytes=1 << 30, processes=10)
    assert (groups.directories, groups.has_memory) == ([], False)


@pytest.mark.parametrize("version", [1, 2])
def test_limits_are_written_where_the_version_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(cgroup, "places", lambda: [cgroup._Place(str(tmp_path), True, True, version)])
    groups = cgroup.make("airflow-sandbox-0123456789ab", memory_bytes=12345, processes=100)
    (directory,) = groups.directories
    assert stat.S_ISDIR(os.stat(directory).st_mode) and directory.endswith(f".{os.getpid()}")
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    assert (Path(directory) / name).read_text() == "12345"
    assert (Path(directory) / "pids.max").read_text() == "164"


def test_groups_of_workers_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "airflow-sandbox-0123456789ab.4194305"
    mine = tmp_path / f"airflow-sandbox-0123456789ac.{os.getpid()}"
    other = tmp_path / "somebody.else.4194305"
    for folder in (gone, mine, other):
        folder.mkdir()
    monkeypatch.setattr(cgroup, "places", lambda: [cgroup._Place(str(tmp_path), False, True, 2)])
    cgroup.make("airflow-sandbox-0123456789ad", memory_bytes=1, processes=1)
    assert (gone.exists(), mine.exists(), other.exists()) == (False, True, True)


@pytest.mark.skipif(not (AS_ROOT and cgroup.places()), reason="this user may not make control groups here")
def test_a_sandboxs_groups_hold_it_and_go_with_it() -> None:
    with sandbox(max_processes=30) as box:
        directories = box.backend._standing[box.handle].groups.directories
        assert directories
        for directory in directories:
            assert len((Path(directory) / "cgroup.procs").read_text().split()) >= 2
    assert not any(os.path.exists(directory) for directory in directories)


def test_enforcement_says_how_for_every_limit() -> None:
    how = LocalSandboxBackend().enforcement()
    options = set(LocalSandboxBackend.__init__.__annotations__) - {"read_only_paths", "return"}
    assert set(how) == options
    if not cgroup.places():
        assert how["memory_mb"] == "each process"
