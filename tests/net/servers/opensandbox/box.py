# SPDX-License-Identifier: Apache-2.0
"""A sandbox of the test server: a bubblewrap sandbox in memory with the agent inside.

The agent listens on a socket of the machine that it inherits, so the sandbox itself has no network.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from servers.http1 import listen

_SERVERS = Path(__file__).resolve().parents[1]
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The death signal of a parent follows the thread that started the child; this one stays.
_starter = ThreadPoolExecutor(1, thread_name_prefix="starter")


class Box:
    """Starts at once; ``port`` is where its agent answers.

    :param image: one whose name holds ``nonroot`` runs as uid 1000, where /tmp belongs to somebody else.
    :param linger: seconds a command's stream stays open after its last event.
    """

    def __init__(self, hostname: str, image: str, env: dict[str, str], linger: float) -> None:
        listener = listen()
        self.port: int = listener.getsockname()[1]
        arguments = _arguments(hostname, "nonroot" in image, env, listener.fileno(), linger)

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                pass_fds=(listener.fileno(),),
                env={"PATH": os.environ.get("PATH", _PATH)},
                start_new_session=True,
            )

        try:
            self._process = _starter.submit(start).result()
        finally:
            listener.close()

    def wait(self) -> None:
        self._process.wait()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill everything inside."""
        # As a group: the inner process follows the outer one only once that has told it to go on.
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """Nothing inside answers any more."""
        for process in self._processes():
            os.kill(process, signal.SIGSTOP)

    def thaw(self) -> None:
        for process in self._processes():
            os.kill(process, signal.SIGCONT)

    def _processes(self) -> list[int]:
        """All below bubblewrap's outer process."""
        found = [self._process.pid]
        for process in found:
            path = f"/proc/{process}/task/{process}/children"
            with contextlib.suppress(OSError):
                found += [int(word) for word in Path(path).read_text().split()]
        return found[1:]


def _arguments(
    hostname: str, nonroot: bool, env: dict[str, str], descriptor: int, linger: float
) -> list[str]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise RuntimeError("the test server needs bubblewrap (bwrap)")
    uid, home = ("1000", "/home/app") if nonroot else ("0", "/root")
    arguments = [bwrap, "--die-with-parent", "--as-pid-1", "--hostname", hostname]
    arguments += ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    arguments += ["--uid", uid, "--gid", uid, "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    for folder in ("/etc", "/opt", "/var", "/workspace", "/home", "/mnt", "/run", "/var/tmp", home):
        arguments += ["--dir", folder]
    arguments += ["--perms", "0555" if nonroot else "0755", "--dir", "/srv"]
    arguments += ["--perms", "1777", "--dir", "/tmp", "--proc", "/proc", "--dev", "/dev"]
    for file in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/passwd", "/etc/group"):
        arguments += ["--ro-bind-try", file, file]
    arguments += ["--ro-bind", str(_SERVERS), "/opt/opensandbox/servers", "--clearenv"]
    python = Path(os.path.realpath(sys.executable))
    library = ""
    if not python.is_relative_to("/usr"):
        prefix = Path(sys.base_prefix)
        arguments += ["--ro-bind", str(prefix), "/opt/opensandbox/python"]
        python = Path("/opt/opensandbox/python") / python.relative_to(os.path.realpath(prefix))
        library = "/opt/opensandbox/python/lib"
    for name, value in {"PATH": _PATH, "HOME": home, "LANG": "C.UTF-8", **env}.items():
        arguments += ["--setenv", name, value]
    if library:
        arguments += ["--setenv", "LD_LIBRARY_PATH", library]
    foreign = "/:/tmp:/srv:/home:/workspace" if nonroot else ""
    code = (
        "import sys; sys.path.insert(0, '/opt/opensandbox'); sys.argv[0:1] = []; "
        "from servers.opensandbox.execd.__main__ import main; main(*sys.argv)"
    )
    arguments += ["--chdir", home if nonroot else "/"]
    return [
        *arguments,
        "--",
        str(python),
        "-E",
        "-s",
        "-S",
        "-B",
        "-c",
        code,
        str(descriptor),
        str(linger),
        foreign,
    ]
