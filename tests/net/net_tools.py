# SPDX-License-Identifier: Apache-2.0
"""What tests of HTTP use: deadlines, a cancel, certificates, programs in interpreters of their own."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

# Far enough for any step of a test, and well below the suite's own guard: a test that would only end by its
# deadline has failed to be prompt, and says so by the kind of its error.
FAR = 100.0


def soon(seconds: float = FAR) -> float:
    return time.monotonic() + seconds


class CancelFd:
    """An eventfd like that of a call's cancel token."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def set(self) -> None:
        os.eventfd_write(self.fd, 1)

    def set_when(self, event: threading.Event) -> threading.Thread:
        def wait() -> None:
            assert event.wait(FAR)
            self.set()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread


class Authority:
    """A certificate authority of this test run, made by the openssl command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-subj", f"/CN=authority of {folder.name}", "-keyout", "ca.key", "-out", "ca.pem"),
        )

    def _openssl(self, *args: str) -> None:
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, capture_output=True)

    def files(self, name: str = "DNS:localhost,IP:127.0.0.1") -> tuple[Path, Path]:
        """A certificate for ``name`` and its key."""
        stem = name.replace(":", "_").replace(",", "_")
        if not (self.folder / f"{stem}.pem").exists():
            (self.folder / f"{stem}.ext").write_text(f"subjectAltName={name}\n")
            self._openssl(
                *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"),
                *("-keyout", f"{stem}.key", "-out", f"{stem}.csr"),
            )
            self._openssl(
                *("x509", "-req", "-in", f"{stem}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2"),
                *("-CAcreateserial", "-extfile", f"{stem}.ext", "-out", f"{stem}.pem"),
            )
        return self.folder / f"{stem}.pem", self.folder / f"{stem}.key"

    def context(self, name: str = "DNS:localhost,IP:127.0.0.1") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.files(name))
        return context

    def hashed_folder(self) -> Path:
        folder = self.folder / "hashed"
        if not folder.exists():
            folder.mkdir()
            (folder / "ca.pem").write_bytes(self.ca.read_bytes())
            self._openssl("rehash", str(folder))
        return folder


def run_python(source: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``source`` in a fresh interpreter of this environment."""
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", source, *args],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def preload(folder: Path, source: str) -> str:
    """Compile ``source`` into a library for LD_PRELOAD."""
    path = folder / "preload.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-x", "c", "-", "-o", str(path), "-ldl"],
        input=source,
        text=True,
        check=True,
    )
    # Under AddressSanitizer its library has to stay the first.
    return " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(path)]))
