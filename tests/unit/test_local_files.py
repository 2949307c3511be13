# SPDX-License-Identifier: Apache-2.0
"""Files of a local sandbox, read, written and listed from the host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from local_tools import Sandbox, sandbox
from sandbox_native import _sandbox_native as native
from sandbox_native.backends import local
from sandbox_native.contract import SandboxError, SandboxFileTooLargeError, SandboxSpec, SandboxTerminalError


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as it:
        yield it


def refused(error: pytest.ExceptionInfo[SandboxError], *parts: str) -> bool:
    """Recoverable, names the path, and says why."""
    return not isinstance(error.value, SandboxTerminalError) and all(
        part in str(error.value) for part in parts
    )


# -- writing and reading back ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "a b",
        "trailing ",
        "-n",
        "--help",
        "it's",
        'quo"te',
        "semi;colon",
        "dollar$HOME",
        "~",
        "~d/x",
        "back\\slash",
        "new\nline",
        "*?[a]",
        "#%&",
        "é€😀",
        "\udcff\udc80",
        "n" * 255,
        "deep/er/and/deeper/file",
        "./dot/../dot/file",
        "double//slash",
        "/workspace/absolute",
        "/tmp/elsewhere",
    ],
)
def test_any_name_is_that_file(box: Sandbox, name: str) -> None:
    content = os.urandom(100)
    box.write(name, content)
    assert box.read(name) == content
    shown = os.path.normpath(name)
    assert (os.path.basename(shown), False) in box.names(os.path.dirname(shown) or ".")


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 300_000, 5_000_000])
def test_content_of_any_size_and_bytes(box: Sandbox, size: int) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    box.write("bytes", content)
    assert box.read("bytes", max_bytes=max(1, size)) == content
    assert box.sh("stat -c %s bytes") == f"{size}\n"


def test_a_shell_and_the_host_mean_the_same_file(box: Sandbox) -> None:
    box.write("a$HOME", b"literal")
    assert box.sh("cat 'a$HOME'") == "literal"
    box.sh("printf from-shell > 'b$HOME'")
    assert box.read("b$HOME") == b"from-shell"


def test_rewriting_keeps_mode_and_links(box: Sandbox) -> None:
    box.sh("umask 0; echo old-and-longer > f; chmod 751 f; ln f hard; ln -s f soft; stat -c %i f > inode")
    box.write("soft", b"new")
    assert (
        box.sh("stat -c '%a %h' f; cat hard; [ $(stat -c %i f) = $(cat inode) ] && readlink soft")
        == "751 2\nnewf\n"
    )


def test_new_files_and_parents_have_the_usual_modes_and_owner(box: Sandbox) -> None:
    box.write("made/by/host", b"")
    assert box.sh("stat -c '%a %U' made made/by made/by/host") == "755 sandbox\n755 sandbox\n644 sandbox\n"


def test_existing_parents_keep_their_mode(box: Sandbox) -> None:
    box.sh("mkdir -p kept; chmod 1777 kept")
    box.write("kept/file", b"")
    assert box.sh("stat -c %a kept /tmp") == "1777\n1777\n"


def test_a_file_over_the_cap_is_not_moved(box: Sandbox) -> None:
    box.write("sized", b"x" * 500)
    assert box.read("sized", max_bytes=500) == b"x" * 500
    with pytest.raises(SandboxFileTooLargeError) as error:
        box.read("sized", max_bytes=499)
    assert (error.value.path, error.value.size_bytes, error.value.max_bytes) == ("sized", 500, 499)


def test_a_file_that_grows_over_the_cap_while_it_is_read_is_not_cut(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Growing:
        def __getattr__(self, name: str) -> Any:
            return getattr(native, name)

        def read_up_to(self, fd: int, most: int) -> bytes:
            box.run("printf more >> growing")
            return native.read_up_to(fd, most)

    box.write("growing", b"x" * 500)
    monkeypatch.setattr(local, "native", Growing())
    with pytest.raises(SandboxFileTooLargeError):
        box.read("growing", max_bytes=500)


@pytest.mark.parametrize("bad", [0, -1, True])
def test_a_cap_below_one_byte_is_refused(box: Sandbox, bad: int) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        box.read("sized", max_bytes=bad)


def test_a_sparse_file_larger_than_memory_is_refused_by_its_size() -> None:
    with sandbox(max_file_bytes=8 << 40) as box:
        box.sh("truncate -s 4T huge")
        with pytest.raises(SandboxFileTooLargeError) as error:
            box.read("huge")
        assert error.value.size_bytes > 1 << 40


# -- what cannot be done --------------------------------------------------------------------

SPECIAL = (
    "mkfifo fifo; ln -s fifo to-fifo; python3 -c 'import socket as s; s.socket(s.AF_UNIX).bind(\"sock\")'"
)


@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize(
    "path", ["fifo", "to-fifo", "sock", "/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx"]
)
def test_what_is_no_regular_file_is_answered_at_once(box: Sandbox, operation: str, path: str) -> None:
    box.run(SPECIAL)
    with pytest.raises(SandboxError) as error:
        box.read(path) if operation == "read" else box.write(path, b"x")
    assert refused(error, repr(path))
    assert "not a regular file" in str(error.value) or path in ("/dev/tty",)


@pytest.mark.parametrize("path", ["/proc/self/status", "/proc/cpuinfo", "/proc/self/cmdline"])
def test_files_of_the_kernel_are_refused_not_cut(box: Sandbox, path: str) -> None:
    with pytest.raises(SandboxError) as error:
        box.read(path)
    assert refused(error, repr(path))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("missing", "does not exist"),
        ("missing/below", "does not exist"),
        ("dangling", "does not exist"),
        ("dir", "is a directory"),
        ("to-dir", "is a directory"),
        (".", "is a directory"),
        ("/", "is a directory"),
        ("dir/", "is a directory"),
        ("secret", "Permission denied"),
        ("closed/file", "Permission denied"),
        ("loop", "symbolic links"),
        ("file/below", "Not a directory"),
        ("n" * 256, "too long"),
        ("d/" * 3000, "too long"),
        ("", "empty"),
        ("a\0b", "NUL"),
        ("\ud800", "not valid text"),
    ],
)
def test_reading_says_why_not(box: Sandbox, path: str, why: str) -> None:
    box.sh(
        "mkdir -p dir closed; touch file secret closed/file; chmod 0 secret closed;"
        "ln -sfn dir to-dir; ln -sfn nowhere dangling; ln -sfn loop loop"
    )
    with pytest.raises(SandboxError) as error:
        box.read(path)
    assert refused(error, why)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("dir", "is a directory"),
        ("to-dir", "is a directory"),
        ("new/", "directory"),
        ("read-only", "Permission denied"),
        ("closed/file", "Permission denied"),
        ("/usr/x", "Read-only"),
        ("/x", "Read-only"),
        ("/usr/new/x", "Read-only"),
        ("/proc/x", ""),
        ("loop", "symbolic links"),
        ("file/below", "Not a directory"),
        ("n" * 256, "too long"),
        ("", "empty"),
    ],
)
def test_writing_says_why_not(box: Sandbox, path: str, why: str) -> None:
    box.sh(
        "mkdir -p dir closed; touch file read-only; chmod 400 read-only; chmod 0 closed;"
        "ln -sfn dir to-dir; ln -sfn loop loop"
    )
    with pytest.raises(SandboxError) as error:
        box.write(path, b"x")
    assert refused(error, repr(path), why)


def test_a_running_program_is_not_overwritten(box: Sandbox) -> None:
    # The shell's child is "bash" until it has become the program.
    box.sh(
        "cp /usr/bin/sleep prog; ./prog 300 >/dev/null 2>&1 & "
        "until grep -qx prog /proc/$!/comm; do sleep 0.01; done"
    )
    with pytest.raises(SandboxError) as error:
        box.write("prog", b"x")
    assert refused(error, "busy")


def test_a_full_file_system_keeps_the_old_content() -> None:
    with sandbox(workspace_bytes=1 << 20) as box:
        box.write("file", b"old")
        with pytest.raises(SandboxError) as error:
            box.write("file", b"x" * (2 << 20))
        assert refused(error, "No space left")
        assert box.read("file") == b"old"


def test_max_file_bytes_holds_for_the_host_too() -> None:
    with sandbox(max_file_bytes=1000) as box:
        box.write("file", b"x" * 1000)
        with pytest.raises(SandboxError, match="1001 bytes"):
            box.write("file", b"x" * 1001)
        assert box.run("head -c 1001 /dev/zero > big").exit_code != 0


# -- listing --------------------------------------------------------------------------------


def test_a_listing_tells_directories_and_links_to_them(box: Sandbox) -> None:
    box.sh(
        "mkdir -p l/d; touch l/f l/.hidden; ln -s d l/to-d; ln -s f l/to-f; ln -s no l/dangling; mkfifo l/p"
    )
    assert box.names("l") == [
        (".hidden", False),
        ("d", True),
        ("dangling", False),
        ("f", False),
        ("p", False),
        ("to-d", True),
        ("to-f", False),
    ]
    assert box.names("l/d") == box.names("l/to-d") == []


def test_odd_names_come_back_whole_and_lead_to_their_file(box: Sandbox) -> None:
    box.python(
        "import os; os.mkdir('odd')\n"
        "for n in (b'new\\nline', b'trail ', b'\\xff\\xfe', b' ', b'-rf', 'é€'.encode(), b'n' * 255):\n"
        "    open(b'odd/' + n, 'wb').write(n)"
    )
    names = box.names("odd")
    assert len(names) == 7
    for name, is_dir in names:
        assert not is_dir
        assert box.read(f"odd/{name}") == os.fsencode(name)


def test_a_large_directory_is_complete(box: Sandbox) -> None:
    box.python("import os; os.mkdir('many'); [open(f'many/{i:060d}', 'w').close() for i in range(20000)]")
    assert box.names("many") == [(f"{i:060d}", False) for i in range(20000)]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("missing", "does not exist"),
        ("file", "Not a directory"),
        ("", "empty"),
        ("shut", "Permission denied"),
    ],
)
def test_listing_says_why_not(box: Sandbox, path: str, why: str) -> None:
    box.sh("touch file; mkdir -p shut; chmod 0 shut")
    with pytest.raises(SandboxError) as error:
        box.names(path)
    assert refused(error, why)


# -- commands and files together ------------------------------------------------------------


def test_files_work_while_the_sandbox_is_full_of_processes(box: Sandbox) -> None:
    with sandbox(max_processes=20) as full:
        full.run("for i in $(seq 50); do sleep 300 & done 2>/dev/null", timeout=5)
        full.write("file", b"x")
        assert full.read("file") == b"x"
        assert full.names(".") == [("file", False)]


def test_a_forgotten_handle_is_terminal(box: Sandbox) -> None:
    with sandbox(SandboxSpec()) as other:
        handle = other.handle
    backend = other.backend
    for call in (
        lambda: backend.read_file(handle, "x", max_bytes=1),
        lambda: backend.write_file(handle, "x", b""),
        lambda: backend.list_directory(handle, "."),
    ):
        with pytest.raises(SandboxTerminalError, match=handle):
            call()


# -- whether a file changed -----------------------------------------------------------------


def test_the_stamp_of_a_file_is_another_after_any_change(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.write("stamped", b"1" * 100)
    assert box.backend.file_stamp(box.handle, "stamped") is None  # changed just now
    monkeypatch.setattr(local, "_CLOCK_TICK", 0.0)
    seen = {box.backend.file_stamp(box.handle, "stamped")}
    for command in (
        "printf 2 | dd of=stamped conv=notrunc status=none",
        "printf 3 | dd of=stamped conv=notrunc status=none; touch -d 2001-01-01 stamped",
        "printf 4 | dd of=stamped conv=notrunc status=none; touch -d 2001-01-01 stamped",
        "cp -p stamped other; mv other stamped",
        "truncate -s 99 stamped",
    ):
        assert box.run(f"sleep 0.02; {command}").exit_code == 0
        stamp = box.backend.file_stamp(box.handle, "stamped")
        assert stamp is not None and stamp not in seen
        assert box.backend.file_stamp(box.handle, "stamped") == stamp
        seen.add(stamp)
    with pytest.raises(SandboxError, match="missing"):
        box.backend.file_stamp(box.handle, "missing")
