# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opensandbox_box import hasty, opened  # noqa: F401 (fixtures)
from sandbox_native.http import Client
from scripted import Script, Server
from servers.islo.fixtures import box, islo, islo_process, pauses  # noqa: F401 (fixtures)
from servers.opensandbox.fixtures import opensandbox_process, opensandbox_server  # noqa: F401 (fixtures)
from suite.run import pytest_terminal_summary  # noqa: F401 (a hook)
from toxiproxy import toxiproxy  # noqa: F401 (a fixture)

# Far enough for any step of a test, and well below the suite's own guard: a test that would only end by its
# deadline has failed to be prompt, and says so by the kind of its error.
FAR = 100.0


def soon(seconds: float = FAR) -> float:
    return time.monotonic() + seconds


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(script: Script, context: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(script, context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


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


@pytest.fixture
def cancel() -> Iterator[CancelFd]:
    token = CancelFd()
    yield token
    os.close(token.fd)


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


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


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
