# SPDX-License-Identifier: Apache-2.0
"""Kinds of guests that the default file operations meet, made of this machine's tools by PATH alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

# What POSIX itself has: no base64, stat, dd or readlink.
BARE = ("sh", "head", "tail", "od", "wc", "mkdir", "mv", "rm", "cat", "chmod")
NAMES = ("dash", "bash", "busybox", "bare")


def tools(folder: Path, *names: str) -> str:
    """A folder with links to these tools and no others, for PATH."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found, f"{name} is not installed"
        (folder / name).symlink_to(found)
    return str(folder)


def guest(name: str, folder: Path) -> dict[str, Any]:
    """Arguments of ``ShellBackend`` for one kind of guest; ``folder`` must not be there yet."""
    if name == "bash":
        return {"shell": ("bash", "-c")}
    if name == "bare":
        return {"shell": ("/bin/sh", "-c"), "env": {"PATH": tools(folder, *BARE)}}
    if name == "busybox":
        busybox = shutil.which("busybox")
        assert busybox, "busybox is not installed"
        folder.mkdir()
        subprocess.run([busybox, "--install", "-s", str(folder)], check=True, timeout=60)
        return {"shell": (f"{folder}/sh", "-c"), "env": {"PATH": str(folder)}}
    assert name == "dash"
    return {"shell": ("dash", "-c")}
