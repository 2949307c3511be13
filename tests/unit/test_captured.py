# SPDX-License-Identifier: Apache-2.0
"""The scripts around a command, run by the shells that guests have, as execd runs them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sandbox_native import captured
from sandbox_native.contract import SandboxError

SHELLS = {"bash": ["bash"], "dash": ["dash"], "busybox": ["busybox", "sh"]}


class Service:
    """Runs scripts with their output in files that are found by their paths, as execd does."""

    def __init__(self, shell: list[str], folder: Path) -> None:
        for tool in shell[:1]:
            assert shutil.which(tool), f"{tool} is not installed"
        self.shell = shell
        self.folder = folder
        self.count = 0

    def start(self, script: str, **env: str) -> tuple[subprocess.Popen[bytes], str]:
        self.count += 1
        name = f"{self.count:032x}"
        with (
            (self.folder / f"{name}.stdout").open("wb") as out,
            (self.folder / f"{name}.stderr").open("wb") as err,
        ):
            process = subprocess.Popen(
                [*self.shell, "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.folder,
                env={**os.environ, "TMPDIR": str(self.folder), **env},
                process_group=0,
            )
        return process, name

    def lines(self, name: str) -> list[str]:
        return (self.folder / f"{name}.stdout").read_text().splitlines()

    def run(self, script: str, **env: str) -> tuple[int, list[str], str]:
        process, name = self.start(script, **env)
        return process.wait(100), self.lines(name), name

    def command(self, command: str, cap: int = 1000, **env: str) -> captured.Captured:
        token = captured.new_token()
        status, lines, _ = self.run(captured.run_script(command, token, cap), **env)
        frame = captured.parse(lines, token, cap)
        assert frame is not None, lines
        assert frame.exit_status == status
        return frame


@pytest.fixture(params=SHELLS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Service:
    return Service(SHELLS[request.param], tmp_path)


def test_streams_and_status(service: Service) -> None:
    frame = service.command("printf 'a\\r\\0b\\377'; echo err >&2; exit 3")
    assert (frame.stdout.text, frame.stderr.text, frame.exit_status) == ("a\r\0b\ufffd", "err\n", 3)
    assert (frame.stdout.size, frame.stdout.truncated, frame.left) == (5, False, 0)


@pytest.mark.parametrize(
    ("cap", "text"), [(6, "éé\n"), (5, "éé\n"), (4, "é\n"), (3, "é\n"), (2, "\n"), (1, "\n"), (7, "ééé\n")]
)
def test_a_cut_leaves_no_half_character(service: Service, cap: int, text: str) -> None:
    frame = service.command("printf 'x\\nééé\\n'", cap)
    assert (frame.stdout.text, frame.stdout.size, frame.stdout.truncated) == (text, 9, True)


@pytest.mark.parametrize("service", ["bash", "dash"], indirect=True)  # busybox brings its own
def test_without_base64(service: Service, tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("sh", "bash", "mkdir", "rm", "wc", "tail", "od", "head", "tr"):
        (folder / name).symlink_to(str(shutil.which(name)))
    shell = shutil.which(service.shell[0])
    service.shell = [str(shell), *service.shell[1:]]
    frame = service.command("printf 'a\\0\\377b'; head -c 300 /dev/zero >&2", 100, PATH=str(folder))
    assert frame.stdout.text == "a\0\ufffdb"
    assert (frame.stderr.text, frame.stderr.size) == ("\0" * 100, 300)


def test_nothing_of_it_is_seen_or_left(service: Service) -> None:
    frame = service.command("ls -A $TMPDIR; rm -rf $TMPDIR/*; exit 4")
    assert captured.is_private(frame.stdout.text.strip())
    name = f"{service.count:032x}"
    assert {path.name for path in service.folder.iterdir()} == {f"{name}.stdout", f"{name}.stderr"}
    token = captured.new_token()
    leftovers = [f"{name}.stdout", f"{name}.stderr"]
    service.run(captured.run_script("true", token, 10, leftovers=leftovers))
    assert not (service.folder / f"{name}.stdout").exists()


def stop(
    service: Service, token: str, *, began: bool = True, kept: str | None = None
) -> captured.Captured | None:
    _, lines, _ = service.run(captured.stop_script(token, 1000, began=began, kept=kept))
    frame = captured.parse(lines, token, 1000)
    assert frame is not None or [captured.ABSENT, token] in [line.split() for line in lines], lines
    return frame


def running(marks: list[str]) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found += [mark for mark in marks if mark.encode() in words]
    return found


def test_stopping_ends_the_tree_and_keeps_what_was_printed(service: Service) -> None:
    marks = [f"98{os.getpid() % 1000}{number}" for number in range(5)]
    a, b, c, d, e = marks
    command = (
        f"echo begun; sleep {a} & setsid sleep {b} & (setsid sleep {c} >/dev/null 2>&1 </dev/null &); "
        f"(env -i setsid sleep {d} >/dev/null 2>&1 &); sleep {e}"
    )
    token = captured.new_token()
    process, _ = service.start(captured.run_script(command, token, 1000))
    until = time.monotonic() + 60
    while sorted(running(marks)) != sorted(marks):
        assert time.monotonic() < until, running(marks)
        time.sleep(0.05)
    frame = stop(service, token)
    assert frame is not None
    assert (frame.stdout.text, frame.exit_status, frame.left) == ("begun\n", None, 0)
    assert process.wait(60) != 0
    assert running(marks) == []
    assert not list(service.folder.glob(".sandbox-native*"))


def test_a_stop_that_comes_first_keeps_it_from_beginning(service: Service) -> None:
    token = captured.new_token()
    for _ in range(2):
        assert stop(service, token, began=False) is None
    status, lines, _ = service.run(captured.run_script("echo began", token, 1000))
    assert status == captured.REFUSED_STATUS
    assert [captured.REFUSED, token] in [line.split() for line in lines]


def test_a_stop_that_comes_last_finds_the_frame(service: Service) -> None:
    token = captured.new_token()
    status, lines, name = service.run(captured.run_script("echo whole; exit 5", token, 1000))
    frame = stop(service, token, kept=f"{name}.stdout")
    assert (status, frame) == (5, captured.parse(lines, token, 1000))
    assert frame is not None
    assert (frame.stdout.text, frame.exit_status) == ("whole\n", 5)
    assert stop(service, captured.new_token()) is None


@pytest.mark.parametrize("files", [("p", "s"), ("s",), ("p",), ()])
def test_a_stop_in_the_midst_of_the_scripts_cleaning_up_finds_the_frame(
    service: Service, files: tuple[str, ...]
) -> None:
    """`rm -rf` takes one file after another: what was printed may be gone while the status is still there."""
    token = captured.new_token()
    _, _, name = service.run(captured.run_script("echo whole; exit 5", token, 1000))
    left = service.folder / f".sandbox-native-{token}"
    left.mkdir()
    for file in files:
        (left / file).write_text({"p": "4194304\n", "s": "5\n"}[file])
    frame = stop(service, token, kept=f"{name}.stdout")
    assert frame is not None
    assert (frame.stdout.text, frame.exit_status, frame.left) == ("whole\n", 5, 0)
    assert not left.exists()


@pytest.mark.parametrize("service", ["bash", "dash"], indirect=True)  # busybox brings its own
@pytest.mark.parametrize("times", [1, 2])
def test_a_stop_meets_a_directory_that_is_just_being_removed(
    service: Service, tmp_path: Path, times: int
) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "mkdir").write_text(
        f"""#!/bin/sh
for d; do :; done
[ -d "$d" ] || exec {shutil.which("mkdir")} "$@"
echo x >>{folder}/met
[ "$(grep -c x {folder}/met)" -ne {times} ] || rm -rf "$d"
exit 1
"""
    )
    (folder / "mkdir").chmod(0o755)
    token = captured.new_token()
    _, _, name = service.run(captured.run_script("echo whole", token, 1000))
    left = service.folder / f".sandbox-native-{token}"
    left.mkdir()
    script = captured.stop_script(token, 1000, began=True, kept=f"{name}.stdout")
    _, lines, _ = service.run(script, PATH=f"{folder}:{os.environ['PATH']}")
    frame = captured.parse(lines, token, 1000)
    assert frame is not None, lines
    assert (frame.stdout.text, frame.exit_status) == ("whole\n", 0)
    assert not left.exists()


def test_a_stop_spares_the_process_that_got_the_number_of_the_script(service: Service) -> None:
    token = captured.new_token()
    other = subprocess.Popen(["sleep", "600"])
    try:
        left = service.folder / f".sandbox-native-{token}"
        left.mkdir()
        (left / "p").write_text(f"{other.pid}\n")
        (left / "s").write_text("5\n")
        (left / "o").write_text("whole\n")
        frame = stop(service, token)
        assert frame is not None
        assert (frame.stdout.text, frame.exit_status) == ("whole\n", 5)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_script_that_was_started_and_comes_late_does_not_run_the_command(service: Service) -> None:
    """The service says that it started the script; the machine has not come to run it."""
    token = captured.new_token()
    process, _ = service.start("kill -STOP $$\n" + captured.run_script("touch $TMPDIR/ran", token, 1000))
    until = time.monotonic() + 60
    while f"({service.shell[0]}) T " not in Path(f"/proc/{process.pid}/stat").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    try:
        assert stop(service, token) is None
        assert not list(service.folder.glob(".sandbox-native*"))
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) != 0
        assert not (service.folder / "ran").exists()
    finally:
        process.kill()


def test_two_stops_at_once_do_not_end_each_other(service: Service) -> None:
    for _ in range(5):
        token = captured.new_token()
        process, _ = service.start(captured.run_script("echo begun; sleep 600", token, 1000))
        output = service.folder / f".sandbox-native-{token}" / "o"
        until = time.monotonic() + 60
        while not (output.exists() and output.read_text()):
            assert time.monotonic() < until
            time.sleep(0.02)
        stops = [service.start(captured.stop_script(token, 1000, began=True)) for _ in range(3)]
        for each, name in stops:
            assert each.wait(100) == 0, service.lines(name)
        frames = [captured.parse(service.lines(name), token, 1000) for _, name in stops]
        assert any(frame is not None and frame.stdout.text == "begun\n" for frame in frames)
        assert all(frame is None or frame.left == 0 for frame in frames)
        assert process.wait(60) != 0
        assert not list(service.folder.glob(".sandbox-native*"))


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_frame_that_is_not_whole_is_none(cut: int) -> None:
    token = "0" * 16
    lines = [
        f"{captured.BEGIN} {token}",
        f"{captured.STREAMS[0]} 1 base64",
        "YQ==",
        "",
        f"{captured.STREAMS[1]} 0 base64",
        "",
        "",
        f"{captured.END} {token} 0 0",
    ]
    whole = captured.parse(["noise", *lines, "noise"], token, 10)
    assert whole is not None
    assert (whole.stdout.text, whole.exit_status) == ("a", 0)
    assert captured.parse(lines[:-cut], token, 10) is None
    assert captured.parse(lines, "1" * 16, 10) is None


@pytest.mark.parametrize("command", ["a\0b", "\ud800", "x" * captured.LONGEST_SCRIPT])
def test_what_no_shell_can_be_given(command: str) -> None:
    with pytest.raises(SandboxError):
        captured.run_script(command, "0" * 16, 10)
