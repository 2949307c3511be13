# SPDX-License-Identifier: Apache-2.0
"""The vendor's own emulator of Azure's blob service on loopback: azurite."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from azure.storage.blob import BlobServiceClient

from gateway import free_port
from started import started

ROOT = Path(__file__).parents[2]
ACCOUNT = "exports"


class Azurite:
    """The server and what lies in it."""

    def __init__(self, endpoint: str, key: str) -> None:
        self.connection_string = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};"
            f"BlobEndpoint={endpoint}/{ACCOUNT};"
        )
        self.client = BlobServiceClient.from_connection_string(self.connection_string, retry_total=0)

    def options(self) -> dict[str, Any]:
        """For adlfs."""
        return {"connection_string": self.connection_string}

    def container(self) -> str:
        """Make a container."""
        name = f"container-{secrets.token_hex(4)}"
        self.client.create_container(name)
        return name

    def blobs(self, container: str) -> dict[str, bytes]:
        """All that is there."""
        client = self.client.get_container_client(container)
        return {name: client.download_blob(name).readall() for name in client.list_blob_names()}


def program() -> list[str]:
    """Install the server, once, below ``build``."""
    made = [str(ROOT / ".ci" / "test-server"), "azurite"]
    script = subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return [str(ROOT / ".venv" / "bin" / "node"), script]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Azurite]:
    """Run the server on a folder of its own.

    :raises RuntimeError: it did not start; the text has its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    command = [*program(), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"}
    azurite = Azurite(f"http://127.0.0.1:{port}", key)

    def answers() -> None:
        list(azurite.client.list_containers())

    with started(command, environment, folder / "log", answers):
        yield azurite
