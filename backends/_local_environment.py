# SPDX-License-Identifier: Apache-2.0
"""The environment of the commands in a local sandbox: what it always has, and what a spec adds."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_native.backends._local_layout import WORKSPACE
from sandbox_native.contract import SandboxTerminalError

# The kernel's limit for one string of the environment (MAX_ARG_STRLEN: 32 pages of 4 KiB) less its final NUL.
_LONGEST_STRING = 32 * 4096 - 1

_LARGEST_BLOCK = 1 << 20

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": WORKSPACE,
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "SHELL": "/bin/sh",
    # Rather than LANG: one file to load for every shell instead of twelve, with the same effect.
    "LC_CTYPE": "C.UTF-8",
}


def block(given: Mapping[str, str]) -> bytes:
    """All variables as the guest program takes them: ``NAME=value``, each with a NUL at its end.

    :param given: the ``env`` of a spec that was checked; goes before what a sandbox always has.
    :raises SandboxTerminalError: a variable is too long, or all of them are; the text does not show values.
    """
    lines = [
        f"{name}={value}".encode("utf-8", "surrogateescape")
        for name, value in {**_ENVIRONMENT, **given}.items()
    ]
    for line in lines:
        if len(line) > _LONGEST_STRING:
            name = line.partition(b"=")[0].decode("utf-8", "replace")
            raise SandboxTerminalError(
                f"SandboxSpec.env[{name!r}] is too long: with its name it may have {_LONGEST_STRING} bytes."
            )
    joined = b"".join(line + b"\0" for line in lines)
    if len(joined) > _LARGEST_BLOCK:
        raise SandboxTerminalError("SandboxSpec.env is larger than 1 MiB.")
    return joined
