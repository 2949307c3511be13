# SPDX-License-Identifier: Apache-2.0
"""Islo: the script around a command, run for real by the shells of sandboxes; what is made of its streams."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_native.backends._islo_commands import (
    COLLECTOR,
    LARGEST_BUDGET,
    STREAM_CAP,
    WRAPPER,
    bounded,
    budget_of,
)

MARK = "airflow-sandbox:0123456789abcdef"
SHELLS = [shell for shell in (["dash"], ["bash"], ["busybox", "sh"]) if shutil.which(shell[0])]
Wrapped = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(params=SHELLS, ids=" ".join)
def wrapped(request: pytest.FixtureRequest, tmp_path: Path) -> Wrapped:
    """Starts a command in the wrapper, by a shell that is also the ``sh`` of its PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sh").write_text(f'#!/bin/sh\nexec {" ".join(request.param)} "$@"\n')
    (programs / "sh").chmod(0o755)

    def start(command: str, cap: int = 1000, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["sh", "-c", WRAPPER, MARK, command, str(cap + 1)],
            executable=str(programs / "sh"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(tmp_path), **env},
            start_new_session=True,
        )

    return start


def test_there_is_a_shell_that_is_not_bash() -> None:
    assert ["dash"] in SHELLS or ["busybox", "sh"] in SHELLS


@pytest.mark.parity("A Wrap#1")
def test_streams_and_status_come_back_apart(wrapped: Wrapped) -> None:
    process = wrapped("echo out; echo err >&2; exit 3")
    assert process.communicate(timeout=60) == (b"out\n", b"err\n")
    assert process.returncode == 3


@pytest.mark.parity("A Wrap#2")
def test_the_environment_is_not_changed(wrapped: Wrapped, tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("export PATH=/nowhere\n")
    process = wrapped("command -v sh; echo $VALUE; exec cat", VALUE="a b", HOME=str(tmp_path))
    assert process.communicate(timeout=60)[0] == f"{tmp_path}/bin/sh\na b\n".encode()


@pytest.mark.parity("A Wrap#3", "A Wrap#4")
@pytest.mark.parametrize("how", ["{} &", "nohup {} >/dev/null 2>&1 &", "setsid {} &"])
def test_a_background_process_does_not_hold_the_call(wrapped: Wrapped, tmp_path: Path, how: str) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = wrapped(f"{how.format(f'cat {fifo}')} echo started")
    # It still waits for the fifo when the script and the pipes have ended.
    assert process.communicate(timeout=100) == (b"started\n", b"")
    assert process.returncode == 0
    with fifo.open("wb") as end:
        end.write(b"go\n")


@pytest.mark.parity("A Wrap#5")
def test_modes_of_what_a_command_makes(wrapped: Wrapped, tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        wrapped(f"cd {tmp_path}; umask; : >file; mkdir folder").communicate(timeout=60)
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o755


@pytest.mark.parity("A Wrap#6")
def test_the_captured_output_is_private_and_gone_afterwards(wrapped: Wrapped, tmp_path: Path) -> None:
    process = wrapped('cd "$TMPDIR"; stat -c "%a %n" airflow-sandbox-*')
    out, err = process.communicate(timeout=60)
    assert re.fullmatch(rb"700 airflow-sandbox-\d+-0123456789abcdef\n", out), err
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_no_place_for_the_output_is_said(wrapped: Wrapped) -> None:
    process = wrapped("echo never", TMPDIR="/nowhere")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (70, b"")
    assert b"/nowhere/airflow-sandbox-" in err


@pytest.mark.parity("A Wrap#7")
def test_output_over_the_cap(wrapped: Wrapped) -> None:
    process = wrapped("seq -f line%g 1000; seq -f error%g 1000 >&2", cap=25)
    out, err = process.communicate(timeout=60)
    assert out == b"ne997\nline998\nline999\nline1000\n"[-26:]
    assert err == b"\nerror998\nerror999\nerror1000\n"[-26:]
    assert bounded(out.decode(), 25, MARK) == ("line999\nline1000\n", True)
    assert bounded(err.decode(), 25, MARK) == ("error999\nerror1000\n", True)


@pytest.mark.parity("A Wrap#8")
def test_a_terminated_group(wrapped: Wrapped, tmp_path: Path) -> None:
    process = wrapped(f"echo lost; : >{tmp_path}/ready; sleep 60")
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert out == b""
    assert b"No such file" not in err and b"nonexistent" not in err
    assert not list(tmp_path.glob("airflow-sandbox-*"))


def test_output_is_bounded_while_something_writes_on(wrapped: Wrapped) -> None:
    process = wrapped("yes & echo $!")
    out, _ = process.communicate(timeout=100)
    assert len(out) <= 1001
    os.killpg(process.pid, signal.SIGKILL)


def test_what_a_running_command_has_printed(wrapped: Wrapped, tmp_path: Path) -> None:
    process = wrapped(f"seq 1000; echo err >&2; : >{tmp_path}/ready; sleep 600")
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    for mark, out, err in (
        (MARK, b"8\n999\n1000\n", b"err\n" + MARK.encode()),
        ("airflow-sandbox:0123456789abcdee", b"", b""),
    ):
        done = subprocess.run(
            ["sh", "-c", COLLECTOR, mark, "11"],
            env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)},
            capture_output=True,
            timeout=100,
        )
        assert (done.stdout, done.stderr) == (out, err)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("command", ["-x", "--", "+e", "", "#", "exit"])
def test_a_command_is_never_an_option(wrapped: Wrapped, command: str) -> None:
    process = wrapped(command)
    out, _ = process.communicate(timeout=60)
    assert out == b""
    assert process.returncode == (127 if command in ("-x", "--", "+e") else 0)


def test_a_command_reads_nothing_of_the_callers(wrapped: Wrapped) -> None:
    assert wrapped("cat; echo end").communicate(timeout=60)[0] == b"end\n"


@pytest.mark.parametrize("size", [33, 34, 99, 100, 101, 300, 301])
def test_bytes_that_are_no_text_never_look_cut(wrapped: Wrapped, size: int) -> None:
    # As the service turns them into text: three bytes each.
    out, _ = wrapped(f"head -c {size} /dev/zero | tr '\\0' '\\377'", cap=100).communicate(timeout=60)
    text = out.decode("utf-8", "replace")
    got, cut = bounded(text, 100, MARK)
    assert cut == (size > 100)
    assert set(got) == {"\ufffd"}
    assert len(got) == (size if size <= 100 else 33)


@pytest.mark.parametrize("size", [0, 1, 33, 34, 99, 100])
def test_text_that_is_whole_is_unchanged(wrapped: Wrapped, size: int) -> None:
    out, _ = wrapped(f"head -c {size} /dev/zero | tr '\\0' x", cap=100).communicate(timeout=60)
    assert bounded(out.decode(), 100, MARK) == ("x" * size, False)


@pytest.mark.parity("A Run#10", "A Run#11", "A Run#12", "A Run#13", "A Run#14", "A Run#15")
@pytest.mark.parametrize(
    ("came", "budget", "kept", "cut"),
    [
        ("", 1, "", False),
        ("exactly8", 8, "exactly8", False),
        ("line1\nline2\nline3\n", 8, "line3\n", True),
        ("e1\ne2\ne3\n", 8, "e2\ne3\n", True),
        ("line988\nline989\n", 12, "line989\n", True),
        ("abcdefghij", 8, "cdefghij", True),
        ("x" * 20 + "\n", 8, "xxxxxxx\n", True),
        ("z" * 20 + "\nok\n", 8, "zzzz\nok\n", True),
        ("ééé", 6, "ééé", False),
        ("ééé", 4, "éé", True),
        ("ééé", 3, "é", True),  # never U+FFFD by our own cut
        ("€€", 5, "€", True),
        ("€€", 2, "", True),
        ("a😀😀", 7, "😀", True),
        ("\ufffd\ufffda", 4, "\ufffda", True),
    ],
)
def test_the_bounds_of_a_stream(came: str, budget: int, kept: str, cut: bool) -> None:
    assert bounded(came, budget, MARK) == (kept, cut)
    # The service's flag says nothing of the one stream.
    assert bounded(came, budget, MARK, service_cut=True) == (kept, cut)


@pytest.mark.parametrize("text", ["a", "é", "€", "😀", "a€", "😀é"])
@pytest.mark.parametrize("budget", range(1, 40))
def test_a_cut_in_the_guest_makes_no_replacement_either(text: str, budget: int) -> None:
    whole = (text * 40).encode()
    sent = re.sub("[\udc80-\udcff]", "\ufffd", whole[-(budget + 1) :].decode("utf-8", "surrogateescape"))
    got, cut = bounded(sent, budget, MARK)
    assert cut
    assert "\ufffd" not in got
    assert (text * 40).endswith(got)
    assert budget - 4 < len(got.encode()) <= budget


def test_a_mark_is_not_believed_where_it_cannot_be_true() -> None:
    # Written on while it was read.
    assert bounded("x" * 200 + MARK, 100, MARK) == ("x" * 100, True)
    assert bounded("x" * 100 + MARK, 100, MARK) == ("x" * 100, False)
    # The service took the front for the mark at the end.
    text = "x" * (STREAM_CAP - len(MARK)) + MARK
    assert bounded(text, LARGEST_BUDGET, MARK, service_cut=True) == (text[: -len(MARK)], True)
    assert bounded(text, LARGEST_BUDGET, MARK) == (text[: -len(MARK)], False)


@pytest.mark.parametrize(("wanted", "budget"), [(1, 1), (0.5, 1), (10.9, 10), (1 << 40, LARGEST_BUDGET)])
def test_the_budget(wanted: float, budget: int) -> None:
    assert budget_of(wanted) == budget  # type: ignore[arg-type]
