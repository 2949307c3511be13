# SPDX-License-Identifier: Apache-2.0
"""What a command in a local sandbox sees of the host's files, and what the host does with its paths."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_tools import Sandbox, sandbox
from sandbox_native.contract import SandboxError


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as it:
        yield it


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the host that everybody may read and write."""
    tmp_path.chmod(0o755)
    path = tmp_path / "secret"
    path.write_text(f"host secret {uuid.uuid4()}")
    path.chmod(0o666)
    return path


# -- what there is --------------------------------------------------------------------------


def test_the_root_holds_what_it_should_and_no_more(box: Sandbox) -> None:
    names = {name for name, _ in box.names("/")}
    merged = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}
    assert names - merged == {"dev", "etc", "proc", "run", "tmp", "usr", "var", "workspace"}
    assert {name for name, _ in box.names("/etc")} <= {
        "alternatives",
        "ca-certificates.conf",
        "group",
        "hosts",
        "ld.so.cache",
        "mime.types",
        "nsswitch.conf",
        "passwd",
        "pki",
        "ssl",
    }
    assert box.sh("ls /run /var/tmp/ /tmp; ls /var") == "/run:\n\n/tmp:\n\n/var/tmp/:\ntmp\n"
    assert box.sh("ls /etc/ssl") == "certs\n"
    assert {name for name, _ in box.names("/dev")} == {
        *("core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout"),
        *("tty", "urandom", "zero"),
    }


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/hostname",
        "/etc/machine-id",
        "/root",
        "/home",
        "/boot",
        "/sys",
        "/srv",
        "/opt",
        "/mnt",
    ],
)
def test_the_hosts_own_files_are_not_there(box: Sandbox, path: str) -> None:
    assert box.run(f"ls -d {path}").exit_code != 0
    with pytest.raises(SandboxError, match="does not exist"):
        box.read(path)


def test_a_file_of_the_hosts_tmp_is_not_there(box: Sandbox, secret: Path) -> None:
    for path in (secret, f"/proc/1/root{secret}", f"/proc/self/root{secret}", f"/proc/self/cwd/../{secret}"):
        assert box.run(f"cat {path}").stdout == ""
        with pytest.raises(SandboxError):
            box.read(str(path))


def test_the_users_of_the_host_are_not_known(box: Sandbox) -> None:
    assert box.sh("cut -d: -f1 /etc/passwd /etc/group") == "root\nsandbox\nroot\nsandbox\n"
    assert box.sh("hostname") == "sandbox\n"


# -- what can be written --------------------------------------------------------------------


def test_nothing_but_the_sandboxs_own_memory_can_be_written(box: Sandbox) -> None:
    mounts = [line.split() for line in box.sh("cat /proc/self/mounts").splitlines()]
    for _, where, kind, options, *_ in mounts:
        flags = options.split(",")
        assert "nosuid" in flags, where
        if where in ("/workspace", "/tmp", "/dev/shm", "/dev/pts", "/proc"):
            assert kind in ("tmpfs", "devpts", "proc")
        elif kind != "devtmpfs":  # the single device nodes
            assert "ro" in flags, where
        if kind not in ("devtmpfs", "devpts"):
            assert "nodev" in flags, where


@pytest.mark.parametrize(
    "path", ["/x", "/usr/x", "/usr/bin/x", "/etc/x", "/etc/passwd", "/dev/x", "/run/x", "/var/x", "/bin/x"]
)
def test_the_system_tree_is_read_only(box: Sandbox, path: str) -> None:
    assert box.run(f"echo x > {path}").exit_code != 0
    assert box.run(f"mkdir {path}.d").exit_code != 0
    with pytest.raises(SandboxError):
        box.write(path, b"x")


def test_no_setting_of_the_kernel_can_be_opened_for_writing(box: Sandbox) -> None:
    result = box.python(
        "import os\n"
        "opened = []\n"
        "for top in ('sys', 'fs', 'irq', 'bus', 'acpi', 'scsi', 'driver'):\n"
        "    for folder, _, names in os.walk('/proc/' + top):\n"
        "        opened += [p for n in names for p in [os.path.join(folder, n)] if os.access(p, os.W_OK)]\n"
        "for name in os.listdir('/proc'):\n"
        "    path = '/proc/' + name\n"
        "    if os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.W_OK):\n"
        "        opened.append(path)\n"
        "count = sum(len(names) for _, _, names in os.walk('/proc/sys'))\n"
        "print(count > 100, opened)\n"
    )
    assert result.stdout == "True []\n", result


@pytest.mark.parametrize(
    "setting",
    ["kernel/hostname", "kernel/core_pattern", "kernel/pid_max", "vm/drop_caches", "net/ipv4/ip_forward"],
)
def test_a_setting_of_the_kernel_keeps_its_value(box: Sandbox, setting: str) -> None:
    before = box.run(f"cat /proc/sys/{setting}").stdout
    assert box.run(f"echo 1 > /proc/sys/{setting}").exit_code != 0
    assert box.run(f"cat /proc/sys/{setting}").stdout == before


def test_a_setuid_file_gives_nothing_inside_and_is_not_there_outside(box: Sandbox) -> None:
    box.sh("cp /usr/bin/id own-id; chmod 6755 own-id")
    assert box.sh("./own-id -u; ./own-id -ru") == "1000\n1000\n"


@pytest.mark.parametrize("kind", ["b 8 0", "b 259 0", "c 1 1", "c 10 200"])
def test_no_device_can_be_made(box: Sandbox, kind: str) -> None:
    for folder in ("/workspace", "/tmp", "/dev/shm"):
        assert box.run(f"mknod {folder}/device {kind}").exit_code != 0


def test_a_hard_link_to_the_system_tree_cannot_be_made(box: Sandbox) -> None:
    assert box.run("ln /usr/bin/env link").exit_code != 0


# -- planted paths --------------------------------------------------------------------------


def test_planted_links_lead_to_the_sandboxs_own_files(box: Sandbox, secret: Path) -> None:
    box.sh(f"rm -rf p; mkdir p; cd p; ln -s {secret} file; ln -s {secret.parent} dir; ln -s /etc etc")
    box.sh("ln -s / p/root")
    for path in ("p/file", "p/dir/secret", f"p/root{secret}", f"p/../../../../../..{secret}"):
        with pytest.raises(SandboxError):
            box.read(path)
        with pytest.raises(SandboxError):
            box.backend.export_file(box.handle, path, io.BytesIO(), max_bytes=1000)
    assert b"sandbox:x:1000" in box.read("p/etc/passwd")
    assert b"sandbox:x:1000" in box.read("p/root/etc/passwd")
    for path in ("p/file", "p/dir/new"):
        with pytest.raises(SandboxError):
            box.write(path, b"overwritten")
    assert secret.read_text().startswith("host secret")
    assert os.listdir(secret.parent) == ["secret"]


def test_links_below_proc_lead_nowhere(box: Sandbox) -> None:
    box.sh("rm -rf q; mkdir q; cd q; ln -s /proc/1/mem mem; ln -s /proc/1/root root; ln -s /proc/1/fd/5 fd")
    for path in (
        "q/mem",
        "q/fd",
        "q/root/etc/passwd",
        "/proc/self/mem",
        "/proc/self/fd/0",
        "/proc/thread-self/mem",
    ):
        for operation in (lambda p: box.read(p), lambda p: box.write(p, b"x")):
            with pytest.raises(SandboxError):
                operation(path)


def test_a_path_that_is_swapped_all_the_time_never_leads_out(box: Sandbox, secret: Path) -> None:
    box.sh("rm -rf s; mkdir s; cd s; mkdir real; echo inside > real/secret")
    box.sh(
        f"cd s; (while :; do ln -sfn real swap; ln -sfn {secret.parent} swap; rm -rf swap; mkdir swap;"
        " rmdir swap; done) >/dev/null 2>&1 & echo $! > pid"
    )
    for _ in range(300):
        with contextlib.suppress(SandboxError):
            assert box.read("s/swap/secret") in (b"inside\n", b"written by host", b"")
        with contextlib.suppress(SandboxError):
            box.write("s/swap/secret", b"written by host")
    box.run("kill $(cat pid)")
    assert secret.read_text().startswith("host secret")


def test_a_listing_stays_inside(box: Sandbox, secret: Path) -> None:
    box.sh(f"rm -f way; ln -s {secret.parent} way")
    with pytest.raises(SandboxError, match="does not exist"):
        box.names("way")
    assert "workspace" in {name for name, _ in box.names("../../../..")}


def test_files_that_block_or_never_end_hold_nobody(box: Sandbox) -> None:
    box.run("mkfifo pipe; ln -s /dev/random r; ln -s /dev/tty t; ln -s /dev/ptmx x; ln -s /dev/full f")

    def try_all() -> None:
        for path in ("pipe", "r", "t", "x", "f", "/dev/stdin", "/dev/fd/0", "/dev/core"):
            for operation in (lambda p: box.read(p), lambda p: box.write(p, b"x"), lambda p: box.names(p)):
                with pytest.raises(SandboxError):
                    operation(path)

    thread = threading.Thread(target=try_all)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_read_only_paths_show_no_more_than_asked(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "file").write_text("content")
    (shown / "out").symlink_to(tmp_path / "hidden")
    (tmp_path / "hidden").write_text("hidden")
    with sandbox(read_only_paths=[str(shown)]) as box:
        assert box.read(f"{shown}/file") == b"content"
        with pytest.raises(SandboxError, match="does not exist"):
            box.read(f"{shown}/out")
        with pytest.raises(SandboxError):
            box.write(f"{shown}/file", b"x")
        with pytest.raises(SandboxError):
            box.write(f"{shown}/new", b"x")
    assert (shown / "file").read_text() == "content"
