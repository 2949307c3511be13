# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import secrets
import signal
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from cli_program import COMMAND, cli, running_with, start, wait_for


@pytest.fixture
def marker() -> str:
    """A number of seconds, some days, that no other process sleeps for."""
    return f"{secrets.randbelow(90_000) + 100_000}.{secrets.randbelow(90_000_000) + 10_000_000}"


def test_output_and_status_are_the_commands() -> None:
    done = cli("run", "--", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_several_words_are_a_program_and_its_arguments() -> None:
    done = cli("run", "--", "printf", "%s|", "a b", "$HOME", "*", "--", "")
    assert (done.returncode, done.stdout) == (0, b"a b|$HOME|*|--||")


def test_output_is_passed_byte_by_byte() -> None:
    done = cli("run", "--", r"printf '\377\000\r\342'; printf 'no newline' >&2")
    assert (done.stdout, done.stderr) == (b"\xff\x00\r\xe2", b"no newline")


def test_much_output_is_passed_whole() -> None:
    done = cli("run", "--", "seq 3000000; echo end >&2")
    assert done.stdout == b"".join(b"%d\n" % n for n in range(1, 3_000_001))
    assert done.stderr == b"end\n"


def test_output_comes_while_the_command_runs(marker: str) -> None:
    with start("run", "--", f"echo first; sleep {marker}") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_whole_tree(number: signal.Signals, status: int, marker: str) -> None:
    with start(
        "run", "--", f"setsid sleep {marker}1 & trap '' INT TERM HUP; echo up; sleep {marker}2"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        wait_for(lambda: running_with(f"sleep\0{marker}1") and running_with(f"sleep\0{marker}2"))
        process.send_signal(number)
        assert process.wait(60) == status
        # Ended before the program, not at some time after it.
        assert not running_with(f"sleep\0{marker}")
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_a_killed_program_leaves_no_process(marker: str) -> None:
    with start("run", "--", f"setsid sleep {marker}1 & echo up; sleep {marker}2") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        wait_for(lambda: running_with(f"sleep\0{marker}1") and running_with(f"sleep\0{marker}2"))
        process.kill()
        process.wait(60)
        wait_for(lambda: not running_with(f"sleep\0{marker}"))


def test_a_reader_that_leaves_ends_the_command(marker: str) -> None:
    with start("run", "--", f"sleep {marker} & yes") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(60) == 141
        assert not running_with(f"sleep\0{marker}")
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_the_time_limit_keeps_what_was_printed(marker: str) -> None:
    done = cli("run", "--timeout", "1.5", "--", f"echo before; setsid sleep {marker}1 & sleep {marker}2")
    assert (done.returncode, done.stdout) == (124, b"before\n")
    assert b"1.5 s" in done.stderr
    assert not running_with(f"sleep\0{marker}")


def test_only_the_given_variables_are_inside() -> None:
    done = cli("run", "--env", "GIVEN=a=b c", "--env", "EMPTY=", "--", "env", OUTSIDE="not for it")
    lines = done.stdout.splitlines()
    assert b"GIVEN=a=b c" in lines
    assert b"EMPTY=" in lines
    assert b"OUTSIDE" not in done.stdout


def test_a_file_goes_in(tmp_path: Path) -> None:
    (tmp_path / "in:put").write_bytes(b"\xff\0content")
    done = cli("run", "--put", f"{tmp_path}/in:put:data/in", "--", "cat data/in")
    assert (done.returncode, done.stdout) == (0, b"\xff\0content")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run"], b"run: error: the command comes after --"),
        (["run", "--"], b"run: error: the command comes after --"),
        (["run", "uname"], b"run: error: the command comes after --"),
        (["run", "--envy", "A=1", "--", "true"], b"run: error: unrecognized arguments: --envy A=1"),
        (["run", "--env", "NOVALUE", "--", "true"], b"NAME=VALUE"),
        (["run", "--put", "file", "--", "true"], b"LOCAL:PATH"),
        (["run", "--export", "file=", "--", "true"], b"PATH=URL"),
        (["run", "--timeout", "0", "--", "true"], b"'0'"),
        (["run", "--timeout", "nan", "--", "true"], b"'nan'"),
        (["doctor", "--", "true"], b"no command"),
        (["doctor", "local"], b"doctor: error: unrecognized arguments: local"),
        (["doctor", "--backend", "nowhere"], b"islo, local, opensandbox, sbx"),
        ([], b"required"),
    ],
)
def test_a_wrong_command_line_is_named(arguments: list[str], named: bytes) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--backend", "nowhere"], b"'nowhere'"),
        (["--put", "/does/not/exist:in"], b"/does/not/exist"),
        (["--put", "/proc:in"], b"not a regular file"),
        (["--env", "A-B=1", "--env", "=x"], b"NAME=VALUE"),
        (["--export", "out=/"], b"--export out cannot go to 'file:///'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_command_runs(arguments: list[str], named: bytes) -> None:
    done = cli("run", *arguments, "--", "echo ran")
    assert done.returncode in (2, 125)
    assert named in done.stderr
    assert b"ran" not in done.stdout
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("closed", "command", "shown"),
    [
        (">&-", "echo out; echo err >&2; exit 3", b"err\n"),
        ("2>&-", "echo out; echo err >&2; exit 3", b"out\n"),
        ("<&- >&- 2>&-", "echo out; exit 3", b""),
    ],
)
def test_a_stream_that_the_caller_closed_is_dropped(closed: str, command: str, shown: bytes) -> None:
    script = f'exec "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, "run", "--", command], capture_output=True, timeout=120
    )
    assert (done.returncode, done.stdout + done.stderr) == (3, shown)


def test_the_version_and_the_help_need_no_extension(tmp_path: Path) -> None:
    # Who has a broken installation is told so by doctor, so what reads the command line must not need it.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; sys.modules['sandbox_native._sandbox_native'] = None"
    )
    for arguments, shown in (
        (["--version"], f"sandbox-native {version('sandbox-native')}".encode()),
        (["run", "--help"], b"islo, local, opensandbox, sbx"),
        (["doctor"], b"FAULT   extension"),
    ):
        done = cli(*arguments, PYTHONPATH=str(tmp_path))
        assert shown in done.stdout, done
        assert b"Traceback" not in done.stderr
