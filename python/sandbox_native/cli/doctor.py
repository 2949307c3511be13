# SPDX-License-Identifier: Apache-2.0
"""``sandbox-native doctor``: what works on this machine, what does not, and the command that mends it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = (
    ("pydantic-ai-slim", "for agents", "sandbox-native[pydantic-ai]"),
    ("fsspec", "for exports", "sandbox-native[exports]"),
    ("universal-pathlib", "for exports", "sandbox-native[exports]"),
    ("apache-airflow", "for Dags", "sandbox-native[airflow]"),
    ("apache-airflow-providers-common-ai", "for Dags", "sandbox-native[airflow]"),
)
USUAL_PLACES = "/usr/bin:/bin:/usr/local/bin"
"""Where the local backend looks when the PATH leads nowhere, as in a service."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    state: str
    """``ok``; ``limited``: works, with less; ``absent``: only needed for something else; ``FAULT``."""
    what: str
    detail: str
    mend: str = ""
    """The command that mends it."""


def doctor() -> int:
    """Print the report; 0 if a local sandbox really ran a command, else 1."""
    worked = False
    for finding in findings():
        print(f"{finding.state:<8}{finding.what:<37}{finding.detail}", flush=True)
        if finding.mend:
            print(f"{'':<8}{'':<37}mend it: {finding.mend}")
        worked = worked or (finding.what == TRIAL and finding.state == "ok")
    print()
    print(
        "A local sandbox works here." if worked else "A local sandbox does not work here; see above.",
        flush=True,
    )
    return 0 if worked else 1


TRIAL = "a sandbox runs `true`"


def findings() -> Iterator[Finding]:
    """The checks, cheapest first."""
    yield system()
    yield extension()
    yield guest_program()
    yield bubblewrap()
    yield user_namespaces()
    yield seccomp()
    yield libcurl()
    for package, use, extra in PACKAGES:
        yield installed(package, use, extra)
    yield trial()


def system() -> Finding:
    detail = (
        f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}"
    )
    if sys.platform != "linux":
        return Finding("FAULT", "system", f"{detail}: only Linux is supported")
    return Finding("ok", "system", f"{detail}, user {os.geteuid()}")


def extension() -> Finding:
    try:
        import sandbox_native._sandbox_native as native
    except ImportError as e:
        return Finding("FAULT", "extension", str(e), "pip install --force-reinstall sandbox-native")
    return Finding("ok", "extension", str(native.__file__))


def guest_program() -> Finding:
    program = Path(__file__).resolve().parents[1] / "_guest"
    if not os.access(program, os.R_OK):
        return Finding(
            "FAULT", "guest program", f"{program} is missing", "pip install --force-reinstall sandbox-native"
        )
    with program.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return Finding("FAULT", "guest program", f"{program} is no program")
    return Finding("ok", "guest program", str(program))


def bubblewrap() -> Finding:
    program = shutil.which("bwrap") or shutil.which("bwrap", path=USUAL_PLACES)
    mend = sudo("apt-get install bubblewrap")
    if program is None:
        return Finding("FAULT", "bubblewrap", f"there is no bwrap on the PATH, nor in {USUAL_PLACES}", mend)
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError) as e:
        return Finding("FAULT", "bubblewrap", f"{program}: {e}", mend)
    return Finding("ok", "bubblewrap", f"{said.strip().removeprefix('bubblewrap ')} ({program})")


def user_namespaces() -> Finding:
    what = "user namespaces"
    most = knob("/proc/sys/user/max_user_namespaces")
    if most is not None and int(most) < 2:
        # Two levels: one for the sandbox, one within it that the names of users come from.
        return Finding(
            "FAULT", what, f"max_user_namespaces is {most}", sysctl("user.max_user_namespaces", "10000")
        )
    if knob("/proc/sys/kernel/unprivileged_userns_clone") == "0" and os.geteuid():
        return Finding(
            "FAULT", what, "only root may make them", sysctl("kernel.unprivileged_userns_clone", "1")
        )
    if knob("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid():
        return Finding(
            "limited",
            what,
            "AppArmor allows them only to programs with a profile",
            sysctl("kernel.apparmor_restrict_unprivileged_userns", "0"),
        )
    return Finding("ok", what, "allowed")


def seccomp() -> Finding:
    actions = knob("/proc/sys/kernel/seccomp/actions_avail")
    if actions is None:
        return Finding("FAULT", "seccomp filters", "this kernel has none: CONFIG_SECCOMP_FILTER is off")
    return Finding("ok", "seccomp filters", actions)


def libcurl() -> Finding:
    try:
        ctypes.CDLL("libcurl.so.4")
    except OSError as e:
        return Finding(
            "absent", "libcurl", f"only for hosted backends ({e})", sudo("apt-get install libcurl4")
        )
    return Finding("ok", "libcurl", "libcurl.so.4")


def installed(package: str, use: str, extra: str) -> Finding:
    try:
        return Finding("ok", package, importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return Finding("absent", package, f"only {use}", f"pip install '{extra}'")


def trial() -> Finding:
    """The proof: create a sandbox, run ``true`` in it, destroy it."""
    from sandbox_native import registry
    from sandbox_native.contract import SandboxError, SandboxSpec

    start = time.monotonic()
    try:
        backend = registry.backend("local")
        sandbox = backend.create(spec=SandboxSpec())
        try:
            result = backend.run_command(sandbox, "true", timeout=30, max_output_bytes=4096)
        finally:
            backend.destroy(sandbox)
    except (SandboxError, ImportError, OSError) as e:
        return Finding("FAULT", TRIAL, str(e))
    if result.exit_code or result.timed_out or result.sandbox_terminated:
        return Finding("FAULT", TRIAL, f"{result}")
    return Finding("ok", TRIAL, f"created, run and destroyed in {1000 * (time.monotonic() - start):.0f} ms")


def knob(path: str) -> str | None:
    """The text of a kernel setting, None where this kernel has no such setting."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def sysctl(name: str, value: str) -> str:
    return sudo(f"sysctl -w {name}={value}")


def sudo(command: str) -> str:
    return command if os.geteuid() == 0 else f"sudo {command}"
