# SPDX-License-Identifier: Apache-2.0
"""``sandbox-native doctor``: what works on this machine, what does not, and the command that mends it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import sys
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


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    state: str
    """``ok``; ``limited``: works, with less; ``absent``: only needed for something else; ``FAULT``."""
    what: str
    detail: str
    mend: str = ""
    """What mends it, a command where there is one."""


def doctor(backend: str = "local") -> int:
    """Print the report.

    :param backend: a name of the registry.
    :return: 0 if a local sandbox really ran a command; of another backend: if all of its checks are well.
    :raises ValueError: there is no such backend.
    """
    if backend == "local":
        worked = False
        for finding in findings():
            show(finding)
            worked = worked or (finding.what == TRIAL and finding.state == "ok")
        verdict = "A local sandbox"
    else:
        states = [show(finding).state for finding in backend_findings(backend)]
        worked = "FAULT" not in states
        verdict = f"The backend {backend}"
    print()
    print(f"{verdict} works here." if worked else f"{verdict} does not work here; see above.", flush=True)
    return 0 if worked else 1


def show(finding: Finding) -> Finding:
    print(f"{finding.state:<8}{finding.what:<37}{finding.detail}", flush=True)
    if finding.mend:
        print(f"{'':<45}fix: {finding.mend}")
    return finding


TRIAL = "sandbox"
"""The check that counts: a sandbox was created, ran a command, and was destroyed."""


def findings() -> Iterator[Finding]:
    """The checks, cheapest first."""
    yield system()
    yield extension()
    yield guest_program()
    yield user_namespaces()
    yield seccomp()
    yield libcurl()
    yield sbx()
    for package, use, extra in PACKAGES:
        yield installed(package, use, extra)
    yield from backend_checks("local")


def backend_findings(name: str) -> Iterator[Finding]:
    """What a backend other than ``local`` needs, and its own checks."""
    from sandbox_native import registry

    registry.backend_class(name)  # a name that is none comes first
    yield system()
    yield extension()
    yield libcurl()
    yield from backend_checks(name)


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


def sbx() -> Finding:
    path = shutil.which("sbx")
    if path is None:
        return Finding(
            "absent", "sbx", "only for the sbx backend", "see https://docs.docker.com/ai/sandboxes/"
        )
    from sandbox_native.process import run_process

    outcome = run_process([path, "version"], timeout=10, max_output_bytes=4096)
    said = (outcome.stdout or outcome.stderr).decode("utf-8", "replace").strip().splitlines() or [""]
    if outcome.ending != "exit" or outcome.value:
        return Finding(
            "limited", "sbx", f"{path} version failed: {said[-1] or outcome.ending}", "sbx diagnose"
        )
    return Finding("ok", "sbx", f"{path}, {said[0]}")


def installed(package: str, use: str, extra: str) -> Finding:
    try:
        return Finding("ok", package, importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return Finding("absent", package, f"only {use}", f"pip install '{extra}'")


def backend_checks(name: str) -> Iterator[Finding]:
    """What the backend finds about itself, by the function ``diagnose`` of its module."""
    from sandbox_native import registry

    try:
        module = sys.modules[registry.backend_class(name).__module__]
        diagnose = getattr(module, "diagnose", None)
        if diagnose is None:
            yield Finding("FAULT", name, "this backend has no checks")
            return
        checks: list[tuple[str, bool, str, str]] = diagnose()
    except (ImportError, OSError) as e:
        yield Finding("FAULT", TRIAL, str(e))
        return
    for what, works, detail, mend in checks:
        # A limit that holds less widely is still a limit.
        state = "ok" if works else "limited" if what.startswith("limit ") else "FAULT"
        yield Finding(state, what, detail, "" if works else mend)


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
