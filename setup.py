# SPDX-License-Identifier: Apache-2.0
"""Build of the extension and of the static guest program; everything declarative is in pyproject.toml.

Environment switches, for development only:

* ``SANDBOX_NATIVE_WERROR=1``: warnings are errors.
* ``SANDBOX_NATIVE_SANITIZE=address,undefined``: build the extension with those sanitizers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes"]
if os.environ.get("SANDBOX_NATIVE_WERROR") == "1":
    WARNINGS.append("-Werror")
HARDENING = ["-fstack-protector-strong", "-fno-strict-aliasing", "-fvisibility=hidden"]
SANITIZE = os.environ.get("SANDBOX_NATIVE_SANITIZE", "")
SANITIZE_FLAGS = [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-g", "-O1"] if SANITIZE else ["-O2"]


def pkg_config(flag: str, *packages: str) -> list[str]:
    """Ask pkg-config for ``flag`` of ``packages``; an error names what to install."""
    try:
        answer = subprocess.run(
            ["pkg-config", flag, *packages], check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as e:
        detail = getattr(e, "stderr", "") or str(e)
        raise SystemExit(
            f"pkg-config cannot find {' and '.join(packages)}: {detail.strip()}\n"
            "On Debian: apt-get install pkg-config libcurl4-openssl-dev zlib1g-dev"
        ) from e
    return answer.split()


def sources(*folders: str) -> list[str]:
    return sorted(str(path) for folder in folders for path in Path("csrc", folder).glob("*.c"))


def headers(*folders: str) -> list[str]:
    return sorted(str(path) for folder in folders for path in Path("csrc", folder).glob("*.h"))


# What the guest program shares with the extension.
GUEST_CORE = ["csrc/core/fdpass.c"]


class BuildWithGuest(build_ext):
    """Also build ``csrc/guest`` into a static program that is shipped beside the extension."""

    def run(self) -> None:
        super().run()
        self._build_guest()

    def get_outputs(self) -> list[str]:
        return [*super().get_outputs(), str(self._guest_path())]

    def _guest_path(self) -> Path:
        if self.inplace or getattr(self, "editable_mode", False):
            return Path("python/sandbox_native/_guest")
        return Path(self.build_lib, "sandbox_native", "_guest")

    def _build_guest(self) -> None:
        guest_sources = sources("guest") + GUEST_CORE
        target = self._guest_path()
        inputs = guest_sources + headers("guest", "core")
        if target.exists() and all(
            target.stat().st_mtime >= Path(name).stat().st_mtime for name in [*inputs, "setup.py"]
        ):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            raise SystemExit("no C compiler: on Debian, apt-get install gcc libc6-dev")
        subprocess.run(
            [
                compiler,
                *WARNINGS,
                *HARDENING,
                "-O2",
                "-static",
                "-s",
                "-D_GNU_SOURCE",
                "-Icsrc",
                "-o",
                str(target),
                *guest_sources,
            ],
            check=True,
        )


extension = Extension(
    "sandbox_native._sandbox_native",
    sources=sources("core", "net", "py"),
    depends=headers("core", "net", "py"),
    include_dirs=["csrc"],
    define_macros=[
        ("Py_LIMITED_API", "0x030B0000"),
        ("PY_SSIZE_T_CLEAN", "1"),
        ("_GNU_SOURCE", "1"),
        ("_FILE_OFFSET_BITS", "64"),
    ],
    py_limited_api=True,
    extra_compile_args=WARNINGS + HARDENING + SANITIZE_FLAGS + pkg_config("--cflags", "libcurl", "zlib"),
    extra_link_args=([f"-fsanitize={SANITIZE}"] if SANITIZE else []),
)

setup(
    ext_modules=[extension],
    cmdclass={"build_ext": BuildWithGuest},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
