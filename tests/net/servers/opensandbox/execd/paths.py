# SPDX-License-Identifier: Apache-2.0
"""execd's own reading of paths: ``~`` and ``$NAME`` are expanded everywhere."""

from __future__ import annotations

import os
import re

_NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")


def expand(path: str) -> str:
    """
    :raises ValueError: a variable is not set.
    """
    missing = sorted({a or b for a, b in _NAMED.findall(path) if (a or b) not in os.environ})
    if missing:
        raise ValueError(f"path references undefined environment variables: {','.join(missing)}")
    path = _NAMED.sub(lambda match: os.environ[match[1] or match[2]], path)
    # Go's os.Expand swallows the rest: special parameters are looked up (unset), a lone ``$`` stays.
    path = re.sub(r"\$[*#$@!?0-9-]", "", path)
    home = os.environ.get("HOME", "/root")
    if path == "~":
        return home
    if path.startswith(("~/", "~\\")):
        return os.path.normpath(os.path.join(home, path[2:]))
    return path


def absolute(path: str) -> str:
    return clean(os.path.join(os.getcwd(), expand(path)))


def clean(path: str) -> str:
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path
