# SPDX-License-Identifier: Apache-2.0
"""read_file, write_file and list_directory over run_command alone, in real shells."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from guests import BARE, guest, tools
from sandbox_native import command_files
from sandbox_native.contract import (
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxTerminalError,
)
from shell_backend import ShellBackend

HOSTILE = [
    "plain.txt",
    "with space",
    "trailing blank ",
    " leading blank",
    "quo'te",
    'dou"ble',
    "semi;colon",
    "$HOME",
    "`id`",
    "$(id)",
    "back\\slash\\n",
    "new\nline",
    "ends with newline\n",
    "\ttab\r",
    "*",
    "[a-z]",
    "a?c",
    "#hash",
    "%41%s%n",
    "-rf",
    "--help",
    "-",
    "~",
    "!",
    "(",
    ")",
    "=",
    "]",
    "-a",
    "{a,b}",
    "é中😀",
    ".hidden",
    "..double",
    "...",
    "sandbox-native:end 0 0 ",
    "x" * 255,
]


def read(box: ShellBackend, path: object, max_bytes: int = 1 << 20) -> bytes:
    return box.read_file("box", str(path), max_bytes=max_bytes)


def write(box: ShellBackend, path: object, content: bytes) -> None:
    box.write_file("box", str(path), content)


def entries(box: ShellBackend, path: object = ".") -> dict[str, bool]:
    listed = box.list_directory("box", str(path))
    assert len(dict(listed)) == len(listed)
    return dict(listed)


# ---- any guest -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_exact_in_every_operation(box: ShellBackend, name: str) -> None:
    decoy = box.root / "decoy"
    decoy.write_bytes(b"other")
    write(box, name, b"payload")
    assert (box.root / name).read_bytes() == b"payload"
    assert read(box, box.root / name) == b"payload"
    assert entries(box) == {name: False, "decoy": False}
    assert decoy.read_bytes() == b"other"


def test_a_name_of_a_directory_is_exact(box: ShellBackend) -> None:
    for name in ("-rf", "-", "a b", "$HOME", "*", "new\nline", "ends with newline\n", "~", "é😀"):
        write(box, f"{name}/deep/file", b"x")
        assert (box.root / name / "deep" / "file").read_bytes() == b"x"
        assert entries(box, name) == {"deep": True}
        assert read(box, box.root / name / "deep" / "file") == b"x"
        assert entries(box)[name] is True


@pytest.mark.parametrize("size", [0, 1, 2, 3, 57, 1000, 47 * 1024, 48 * 1024 + 1, 200_000])
def test_provider_fault_36_any_content_of_any_size_comes_back(box: ShellBackend, size: int) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    write(box, "file", content)
    assert (box.root / "file").read_bytes() == content
    assert read(box, "file") == content
    assert read(box, "file", max_bytes=max(size, 1)) == content
    assert os.listdir(box.root) == ["file"]


def test_no_command_is_longer_than_an_argument_can_be(box: ShellBackend) -> None:
    write(box, "/".join(["d'" * 100] * 15), os.urandom(300_000))
    longest = max(len(command.encode()) for command in box.commands)
    # One more encoding by a backend must still fit (Linux: 128 KiB for one argument).
    assert longest * 4 / 3 < 128 * 1024


@pytest.mark.parametrize("cap", [1, 100, 65_536, 400_000])
def test_a_file_over_the_cap_is_refused_with_its_size(box: ShellBackend, cap: int) -> None:
    (box.root / "big").write_bytes(b"x" * 500_000)
    with pytest.raises(SandboxFileTooLargeError) as error:
        read(box, "big", max_bytes=cap)
    assert error.value.path == "big"
    assert error.value.max_bytes == cap
    # Where the guest has no stat, as much as is known.
    assert error.value.size_bytes in (500_000, cap + 1)
    assert read(box, "big", max_bytes=500_000) == b"x" * 500_000


def test_an_endless_file_is_bounded_in_the_guest(box: ShellBackend) -> None:
    with pytest.raises(SandboxFileTooLargeError) as error:
        read(box, "/dev/zero", max_bytes=1024)
    assert error.value.size_bytes == 1025


def test_a_file_whose_size_reads_zero_is_read(box: ShellBackend) -> None:
    assert read(box, "/proc/version") == Path("/proc/version").read_bytes()
    with pytest.raises(SandboxFileTooLargeError):
        read(box, "/proc/version", max_bytes=5)


def test_missing_is_not_empty(box: ShellBackend) -> None:
    (box.root / "dangling").symlink_to("nowhere")
    (box.root / "loop").symlink_to("loop")
    (box.root / "file").write_bytes(b"")
    for path in ("nope", "nope/deeper", "dangling", "loop", "file/below"):
        with pytest.raises(SandboxError, match="does not exist") as error:
            read(box, path)
        assert not isinstance(error.value, SandboxTerminalError)
        with pytest.raises(SandboxError):
            box.list_directory("box", path)
    assert read(box, "file") == b""


def test_a_directory_is_no_file(box: ShellBackend) -> None:
    (box.root / "sub").mkdir()
    (box.root / "sub" / "inner").write_text("x")
    (box.root / "link").symlink_to("sub")
    for path in ("sub", "link", "sub/", ".", "/"):
        with pytest.raises(SandboxError, match="is a directory"):
            read(box, path)
        # Links are followed with readlink, which POSIX did not have.
        if path == "link" and box.env and not (Path(box.env["PATH"]) / "readlink").exists():
            continue
        with pytest.raises(SandboxError, match="is a directory"):
            write(box, path, b"x")
    assert entries(box, "link") == {"inner": False}


def test_what_has_no_content_is_refused_at_once(box: ShellBackend) -> None:
    os.mkfifo(box.root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(box.root / "socket"))
        for path in ("fifo", "socket"):
            with pytest.raises(SandboxError, match="not a regular file"):
                read(box, path)
            with pytest.raises(SandboxError, match="not a regular file"):
                write(box, path, b"x")


def test_a_listing_tells_directories_and_follows_links(box: ShellBackend) -> None:
    (box.root / "sub").mkdir()
    (box.root / "file").write_text("x")
    (box.root / "to sub").symlink_to("sub")
    (box.root / "to file").symlink_to("file")
    (box.root / "dangling").symlink_to("nowhere")
    os.mkfifo(box.root / "fifo")
    assert entries(box) == {
        "sub": True,
        "file": False,
        "to sub": True,
        "to file": False,
        "dangling": False,
        "fifo": False,
    }
    assert entries(box, "sub") == {}
    with pytest.raises(SandboxError, match="is not a directory"):
        box.list_directory("box", "file")


def test_names_that_are_not_utf8_are_shown_replaced(box: ShellBackend) -> None:
    os.close(os.open(os.fsencode(box.root) + b"/a\xffb", os.O_CREAT))
    assert entries(box) == {"a\ufffdb": False}


def test_a_listing_heeds_the_kernels_meaning_of_dotdot(box: ShellBackend) -> None:
    (box.root / "a" / "b").mkdir(parents=True)
    (box.root / "link").symlink_to("a/b")
    assert entries(box, "link/..") == {"b": True}
    write(box, "link/../new", b"x")
    assert (box.root / "a" / "new").read_bytes() == b"x"


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 5000])
def test_what_is_no_path_never_reaches_the_sandbox(plain: ShellBackend, path: str) -> None:
    for call in (
        lambda: plain.read_file("box", path, max_bytes=10),
        lambda: plain.write_file("box", path, b"x"),
        lambda: plain.list_directory("box", path),
    ):
        with pytest.raises(SandboxError, match="path") as error:
            call()
        assert not isinstance(error.value, SandboxTerminalError)
    assert plain.commands == []


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
def test_a_cap_must_be_a_number_of_bytes(plain: ShellBackend, bad: Any) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        plain.read_file("box", "x", max_bytes=bad)


def test_reading_is_one_command_however_large_the_cap(plain: ShellBackend) -> None:
    (plain.root / "file").write_bytes(b"content")
    assert read(plain, "file", max_bytes=10**30) == b"content"
    assert len(plain.commands) == 1


# ---- writing as `>` does -------------------------------------------------------------------------------


def test_a_new_file_heeds_the_umask(box: ShellBackend) -> None:
    before = os.umask(0o027)
    try:
        write(box, "new/deep/file", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((box.root / "new/deep/file").stat().st_mode) == 0o640
    assert stat.S_IMODE((box.root / "new").stat().st_mode) == 0o750


# Only root writes to a file without write permission, as `>` does.
@pytest.mark.parametrize("mode", [0o600, 0o755, 0o664, *([0o444] if os.geteuid() == 0 else [])])
@pytest.mark.parametrize("size", [10, 150_000])
def test_an_existing_file_keeps_its_mode(box: ShellBackend, mode: int, size: int) -> None:
    target = box.root / "file"
    target.write_bytes(b"old")
    target.chmod(mode)
    write(box, "file", b"n" * size)
    assert target.read_bytes() == b"n" * size
    assert stat.S_IMODE(target.stat().st_mode) == mode


def test_existing_directories_keep_their_mode(box: ShellBackend) -> None:
    (box.root / "shared").mkdir()
    (box.root / "shared").chmod(0o1777)
    write(box, "shared/new/file", b"x")
    assert stat.S_IMODE((box.root / "shared").stat().st_mode) == 0o1777


def test_a_partial_file_is_nobody_elses_to_read(plain: ShellBackend) -> None:
    seen: list[int] = []

    def look(command: str, result: SandboxExecResult) -> SandboxExecResult:
        seen.extend(stat.S_IMODE(p.stat().st_mode) for p in plain.root.glob(".*partial"))
        return result

    (plain.root / "secret").write_bytes(b"old")
    (plain.root / "secret").chmod(0o600)
    plain.tamper = look
    write(plain, "secret", b"n" * 200_000)
    assert set(seen) == {0o600}


@pytest.mark.parametrize("guest_name", ["dash", "bash", "busybox"])
@pytest.mark.parametrize("link", ["to", "./to", "sub/../to", "absolute", "chain", "newline\n"])
def test_a_link_is_written_through(tmp_path: Path, guest_name: str, link: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    box = ShellBackend(work, **guest(guest_name, tmp_path / "tools"))
    (work / "sub").mkdir()
    target = work / "sub" / "target\n"
    target.write_bytes(b"old")
    for name, leads_to in {
        "to": "sub/target\n",
        "absolute": target,
        "chain": "to",
        "newline\n": "to",
    }.items():
        (work / name).symlink_to(leads_to)
    write(box, link, b"new")
    assert target.read_bytes() == b"new"
    assert (work / link).is_symlink()
    assert sorted(os.listdir(work / "sub")) == ["target\n"]


def test_a_dangling_link_makes_what_it_leads_to(plain: ShellBackend) -> None:
    (plain.root / "link").symlink_to("made/here")
    write(plain, "link", b"x")
    assert (plain.root / "made" / "here").read_bytes() == b"x"
    assert (plain.root / "link").is_symlink()


def test_links_that_lead_nowhere_fit_to_write(plain: ShellBackend) -> None:
    (plain.root / "loop").symlink_to("loop")
    with pytest.raises(SandboxError, match="too many symbolic links"):
        write(plain, "loop", b"x")
    (plain.root / "into").symlink_to("missing/")
    with pytest.raises(SandboxError, match="is a directory"):
        write(plain, "into", b"x")
    assert sorted(os.listdir(plain.root)) == ["into", "loop"]


def test_other_names_of_a_file_see_the_new_content(box: ShellBackend) -> None:
    (box.root / "one").write_bytes(b"old content that is longer")
    os.link(box.root / "one", box.root / "two")
    write(box, "one", b"new")
    assert (box.root / "two").read_bytes() == b"new"
    assert sorted(os.listdir(box.root)) == ["one", "two"]


def test_a_device_is_written_to_and_stays_one(box: ShellBackend) -> None:
    write(box, "/dev/null", b"x" * 100_000)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert not list(Path("/dev").glob(".sandbox-native*"))


def test_a_file_in_the_way_of_a_directory(box: ShellBackend) -> None:
    (box.root / "file").write_bytes(b"kept")
    with pytest.raises(SandboxError, match="Could not write 'file/below': mkdir"):
        write(box, "file/below", b"x")
    assert (box.root / "file").read_bytes() == b"kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="changes to another user, which takes root")
class TestAsAnotherUser:
    @pytest.fixture
    def nobody(self, tmp_path: Path) -> ShellBackend:
        work = tmp_path / "work"
        work.mkdir()
        work.chmod(0o755)
        for parent in [tmp_path, *tmp_path.parents]:
            if parent.stat().st_mode & 0o001 == 0:
                parent.chmod(parent.stat().st_mode | 0o001)
        return ShellBackend(work, user=65534)

    def test_permission_denied_is_said(self, nobody: ShellBackend) -> None:
        (nobody.root / "secret").write_bytes(b"x")
        (nobody.root / "secret").chmod(0o600)
        (nobody.root / "closed").mkdir(mode=0o700)
        with pytest.raises(SandboxError, match="permission denied"):
            read(nobody, "secret")
        with pytest.raises(SandboxError, match="permission denied"):
            write(nobody, "secret", b"y")
        with pytest.raises(SandboxError, match="permission denied"):
            nobody.list_directory("box", "closed")
        with pytest.raises(SandboxError, match="ermission denied"):
            write(nobody, "closed/new", b"y")
        with pytest.raises(SandboxError, match="ermission denied"):
            write(nobody, "new", b"y")
        assert (nobody.root / "secret").read_bytes() == b"x"
        assert sorted(os.listdir(nobody.root)) == ["closed", "secret"]

    def test_a_writable_file_in_a_closed_directory_is_written_in_place(self, nobody: ShellBackend) -> None:
        target = nobody.root / "open"
        target.write_bytes(b"x")
        target.chmod(0o666)
        write(nobody, "open", b"y" * 100_000)
        assert target.read_bytes() == b"y" * 100_000
        assert target.stat().st_uid == 0

    def test_a_file_of_someone_else_keeps_its_owner(self, nobody: ShellBackend) -> None:
        nobody.root.chmod(0o777)
        target = nobody.root / "theirs"
        target.write_bytes(b"x")
        target.chmod(0o666)
        write(nobody, "theirs", b"y")
        assert (target.read_bytes(), target.stat().st_uid) == (b"y", 0)
        assert os.listdir(nobody.root) == ["theirs"]

    def test_root_keeps_the_owner_too(self, plain: ShellBackend) -> None:
        target = plain.root / "theirs"
        target.write_bytes(b"x")
        os.chown(target, 65534, 65534)
        target.chmod(0o4640)
        write(plain, "theirs", b"y" * 100_000)
        info = target.stat()
        assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (65534, 65534, 0o4640)


# ---- faults --------------------------------------------------------------------------------------------


def replaced(**changes: Any) -> Any:
    def tamper(command: str, result: SandboxExecResult) -> SandboxExecResult:
        return SandboxExecResult(**{**vars(result), **changes})

    return tamper


OPERATIONS = {
    "read": lambda box: box.read_file("box", "file", max_bytes=1 << 20),
    "write": lambda box: box.write_file("box", "file", b"new"),
    "list": lambda box: box.list_directory("box", "."),
}


@pytest.mark.parametrize("operation", OPERATIONS)
class TestFaults:
    @pytest.fixture(autouse=True)
    def _file(self, plain: ShellBackend) -> None:
        (plain.root / "file").write_bytes(b"content" * 1000)

    def test_the_end_of_the_sandbox_is_terminal(self, plain: ShellBackend, operation: str) -> None:
        plain.tamper = replaced(sandbox_terminated=True)
        with pytest.raises(SandboxTerminalError, match="ended"):
            OPERATIONS[operation](plain)

    def test_a_timeout_is_said_and_not_read_as_an_exit(self, plain: ShellBackend, operation: str) -> None:
        plain.tamper = replaced(timed_out=True, exit_code=0, applied_timeout=7.0)
        with pytest.raises(SandboxError, match="longer than 7 s") as error:
            OPERATIONS[operation](plain)
        assert not isinstance(error.value, SandboxTerminalError)

    def test_an_unknown_failure_carries_what_the_guest_said(
        self, plain: ShellBackend, operation: str
    ) -> None:
        plain.tamper = replaced(exit_code=1, stderr="  x" * 10_000 + "disk on fire\n")
        with pytest.raises(SandboxError, match="disk on fire") as error:
            OPERATIONS[operation](plain)
        assert len(str(error.value)) < 1000

    def test_a_silent_failure_carries_its_status(self, plain: ShellBackend, operation: str) -> None:
        plain.tamper = replaced(exit_code=137, stderr="")
        with pytest.raises(SandboxError, match="status 137"):
            OPERATIONS[operation](plain)

    def test_an_exception_of_the_backend_comes_out(self, plain: ShellBackend, operation: str) -> None:
        class Broken(Exception):
            pass

        def fail(command: str, result: SandboxExecResult) -> SandboxExecResult:
            raise Broken

        plain.tamper = fail
        with pytest.raises(Broken):
            OPERATIONS[operation](plain)


@pytest.mark.parametrize("operation", ["read", "list"])
def test_an_answer_cut_anywhere_is_an_error_that_says_so(plain: ShellBackend, operation: str) -> None:
    for name in ("file", "another", "third"):
        (plain.root / name).write_bytes(b"content" * 5)
    whole = OPERATIONS[operation](plain)
    text = plain.run_command("box", plain.commands[-1], timeout=1, max_output_bytes=1 << 20).stdout
    # All cuts at the end but those after the frame, and all at the front that go into it.
    for cut in [*(text[:n] for n in range(len(text) - 1)), *(text[n:] for n in range(3, len(text)))]:
        plain.tamper = replaced(stdout=cut)
        with pytest.raises(SandboxError, match="cut on its way"):
            OPERATIONS[operation](plain)
    plain.tamper = replaced(stdout_truncated=True)
    with pytest.raises(SandboxError):
        OPERATIONS[operation](plain)
    plain.tamper = None
    assert OPERATIONS[operation](plain) == whole


@pytest.mark.parametrize("operation", ["read", "list"])
def test_notices_around_the_answer_do_no_harm(plain: ShellBackend, operation: str) -> None:
    (plain.root / "file").write_bytes(bytes(range(256)))
    whole = OPERATIONS[operation](plain)

    def noisy(command: str, result: SandboxExecResult) -> SandboxExecResult:
        text = f"Starting daemon...\n{result.stdout}\nupdate available\n".replace("\n", "\r\n")
        return SandboxExecResult(**{**vars(result), "stdout": text, "stderr": "warning: slow"})

    plain.tamper = noisy
    assert OPERATIONS[operation](plain) == whole


@pytest.mark.parametrize("part", [0, 1, 2, 3])
@pytest.mark.parametrize("how", ["status", "timeout", "raise", "drop"])
def test_a_write_that_fails_midway_leaves_the_target_and_no_partial_file(
    plain: ShellBackend, part: int, how: str
) -> None:
    (plain.root / "file").write_bytes(b"old")

    def tamper(command: str, result: SandboxExecResult) -> SandboxExecResult:
        if len(plain.commands) - 1 != part:
            return result
        if how == "raise":
            raise SandboxError("the connection was reset")
        if how == "timeout":
            return SandboxExecResult(-1, "", "", timed_out=True)
        return SandboxExecResult(1, "", "no space")

    run_command = ShellBackend.run_command

    def before(self: ShellBackend, sandbox: str, command: str, **limits: Any) -> SandboxExecResult:
        # The failing command does not run: its effect must not be what leaves the target alone.
        if len(self.commands) == part:
            self.commands.append(command)
            if how == "drop":
                return SandboxExecResult(0, "", "")
            return tamper(command, SandboxExecResult(0, "", ""))
        return run_command(self, sandbox, command, **limits)

    plain.run_command = before.__get__(plain)  # type: ignore[method-assign]
    size = 3 * command_files.WRITE_PART_BYTES + 1
    if how == "drop" and part == 3:
        # Nothing can tell a backend that swallows the last command and calls it done.
        write(plain, "file", b"n" * size)
        assert (plain.root / "file").read_bytes() == b"old"
        return
    with pytest.raises(SandboxError):
        write(plain, "file", b"n" * size)
    assert (plain.root / "file").read_bytes() == b"old"
    assert os.listdir(plain.root) == ["file"]


def test_a_full_disk_leaves_the_target_as_it_was(plain: ShellBackend) -> None:
    # A limit on file size acts like a disk that is full, for the writer.
    plain.shell = ("sh", "-c", 'ulimit -f 100; trap "" XFSZ; eval "$1"', "sh")
    (plain.root / "file").write_bytes(b"old")
    with pytest.raises(SandboxError, match="File too large"):
        write(plain, "file", b"n" * 150_000)
    assert (plain.root / "file").read_bytes() == b"old"
    assert os.listdir(plain.root) == ["file"]


def test_a_full_disk_leaves_a_file_written_in_place_as_it_was(plain: ShellBackend) -> None:
    (plain.root / "one").write_bytes(b"old" * 100)
    os.link(plain.root / "one", plain.root / "two")
    failing_cat = 'cat() { if [ "$1" = "$p" ]; then head -c 50 "$p"; return 1; fi; command cat "$@"; }\n'
    plain.shell = ("sh", "-c", failing_cat + 'eval "$0"')
    with pytest.raises(SandboxError, match="Could not write"):
        write(plain, "one", b"n" * 1000)
    assert (plain.root / "two").read_bytes() == b"old" * 100
    assert sorted(os.listdir(plain.root)) == ["one", "two"]


def test_a_listing_that_is_too_long_says_what_to_do(
    plain: ShellBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2000):
        (plain.root / f"{n:0200}").touch()
    monkeypatch.setattr(command_files, "LISTING_MAX_BYTES", 1000)
    with pytest.raises(SandboxError, match=r"more than 1000 bytes.*command"):
        plain.list_directory("box", ".")


@pytest.mark.parametrize(
    ("missing", "operation", "said"),
    [
        ({"od"}, "read", "no base64 or od"),
        ({"od"}, "list", "no base64 or od"),
        ({"head"}, "read", "head"),
        ({"wc"}, "write", "wc"),
        ({"mkdir"}, "write", "mkdir"),
    ],
)
def test_a_missing_tool_is_named(tmp_path: Path, missing: set[str], operation: str, said: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_bytes(b"x")
    path = tools(tmp_path / "tools", *(set(BARE) - missing))
    box = ShellBackend(tmp_path / "work", shell=("/bin/sh", "-c"), env={"PATH": path})
    with pytest.raises(SandboxError, match=said):
        OPERATIONS[operation](box)
    assert (tmp_path / "work" / "file").read_bytes() == b"x"


def test_a_link_needs_readlink_to_be_written_through(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    box = ShellBackend(tmp_path / "work", **guest("bare", tmp_path / "tools"))
    (box.root / "target").write_bytes(b"old")
    (box.root / "link").symlink_to("target")
    with pytest.raises(SandboxError, match="no readlink"):
        write(box, "link", b"new")
    assert (box.root / "target").read_bytes() == b"old"
    assert (box.root / "link").is_symlink()
