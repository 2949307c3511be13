# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import pty
import tarfile
from pathlib import Path

import pytest

from cli_program import cli, start


def test_files_go_in_and_come_out(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "in:put").write_bytes(content)
    done = cli(
        *("run", "--put", f"{tmp_path}/in:put:data/in", "--export", f"data/in={tmp_path}/new/out"),
        *("--export", f"note=file://{tmp_path}/note", "--", "echo noted > note"),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "new" / "out").read_bytes() == content
    assert (tmp_path / "note").read_bytes() == b"noted\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in:put", "new", "note"]


def test_folders_go_in_and_come_out(tmp_path: Path) -> None:
    files = {"a": b"1", "deep/b c": os.urandom(100_000)}
    for name, data in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    done = cli(
        *("run", "--put", f"{tmp_path}/in/:data/", "--export", f"data/={tmp_path}/out/"),
        *("--export", f"./data/={tmp_path}/out.tar.gz", "--", "true"),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files} == files
    with tarfile.open(tmp_path / "out.tar.gz") as tar:
        assert sorted(tar.getnames()) == sorted(files)
    done = cli("run", "--put", f"{tmp_path}/in:data/", "--", "true")
    assert done.returncode == 125 and b"both end in a slash" in done.stderr


def test_a_failed_command_exports_nothing(tmp_path: Path) -> None:
    done = cli("run", "--export", f"note={tmp_path}/note", "--", "echo noted > note; exit 5")
    assert done.returncode == 5
    assert b"nothing is exported" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_promised_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = cli(
        *("run", "--export", f"there={tmp_path}/there", "--export", f"missing={tmp_path}/missing"),
        *("--", "echo > there"),
    )
    assert done.returncode == 125
    assert b"missing" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_export_draws_a_bar_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ["run", "--export", f"zeros={tmp_path}/zeros"]
    with start(*arguments, "--", "head -c 3000000 /dev/zero > zeros", stderr=theirs) as process:
        os.close(theirs)
        assert process.wait(60) == 0
    drawn = b""
    # Reading a terminal that nobody holds any more is an error.
    with contextlib.suppress(OSError):
        while more := os.read(ours, 65536):
            drawn += more
    os.close(ours)
    assert drawn.startswith(b"\rzeros [")
    assert b"100% 3.0 MB" in drawn
    assert drawn.endswith(b"\r\n")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--export", "a=/tmp"], b"/tmp"),
        (["--export", "a=/tmp/one", "--export", "a=/tmp/two"], b"twice"),
        (["--export", "a=/tmp/one", "--export", "b=file:///tmp/one"], b"both"),
        (["--export", "a=nowhere://x"], b"nowhere"),
    ],
)
def test_a_wrong_destination_is_refused_before_the_command_runs(arguments: list[str], named: bytes) -> None:
    done = cli("run", *arguments, "--", "echo ran")
    assert done.returncode == 125
    assert named in done.stderr
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
