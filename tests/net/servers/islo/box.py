# SPDX-License-Identifier: Apache-2.0
"""A sandbox of the test server: a bubblewrap sandbox in memory with the agent inside.

The agent listens on a socket of the machine that it inherits, so the sandbox itself has no network. It ends,
and everything inside with it, at the end of a pipe whose other side the server has: bubblewrap's own way to
die with its parent does not hold while a sandbox is just being set up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from servers.http1 import listen

_SERVERS = Path(__file__).resolve().parents[1]
_INSIDE = "/opt/islo"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WORKDIR = "/workspace"
# The death signal of a parent follows the thread that started the child; this one stays.
_starter = ThreadPoolExecutor(1, thread_name_prefix="starter")


class Box:
    """Starts at once; ``port`` is where its agent answers."""

    def __init__(self, hostname: str, env: dict[str, str]) -> None:
        listener = listen()
        self.port: int = listener.getsockname()[1]
        lifeline, self._lifeline = os.pipe()
        arguments = _arguments(hostname, env, listener.fileno(), lifeline)

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                pass_fds=(listener.fileno(), lifeline),
                env={"PATH": os.environ.get("PATH", _PATH)},
                start_new_session=True,
            )

        try:
            self._process = _starter.submit(start).result()
        finally:
            listener.close()
            os.close(lifeline)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill everything inside."""
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _arguments(hostname: str, env: dict[str, str], descriptor: int, lifeline: int) -> list[str]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise RuntimeError("the test server needs bubblewrap (bwrap)")
    arguments = [bwrap, "--die-with-parent", "--hostname", hostname, "--uid", "0", "--gid", "0"]
    arguments += ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    arguments += ["--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    for folder in ("/etc", "/opt", "/var", "/home", "/root", "/srv", "/run", "/var/tmp", WORKDIR):
        arguments += ["--dir", folder]
    arguments += ["--perms", "1777", "--dir", "/tmp", "--proc", "/proc", "--dev", "/dev"]
    for file in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/passwd", "/etc/group"):
        arguments += ["--ro-bind-try", file, file]
    arguments += ["--ro-bind", str(_SERVERS), f"{_INSIDE}/servers", "--clearenv"]
    python = Path(os.path.realpath(sys.executable))
    agent: dict[str, str] = {}
    if not python.is_relative_to("/usr"):
        prefix = Path(os.path.realpath(sys.base_prefix))
        arguments += ["--ro-bind", str(prefix), f"{_INSIDE}/python"]
        python = Path(_INSIDE, "python") / python.relative_to(prefix)
        agent["LD_LIBRARY_PATH"] = f"{_INSIDE}/python/lib"
    # PATH is the service's own, whatever was asked for.
    commands = {"HOME": "/root", "LANG": "C.UTF-8", **env, "PATH": _PATH}
    for name, value in {**commands, **agent}.items():
        arguments += ["--setenv", name, value]
    code = (
        f"import sys; sys.path.insert(0, {_INSIDE!r}); "
        "from servers.islo.agent import main; main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])"
    )
    arguments += ["--chdir", WORKDIR, "--", str(python), "-E", "-s", "-S", "-B", "-c", code]
    return [*arguments, str(descriptor), str(lifeline), *agent]
