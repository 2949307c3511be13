# SPDX-License-Identifier: Apache-2.0
"""A local nginx that serves one folder, for measuring downloads."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("nginx-light", "curl")
INSTALL = Path(__file__).parents[2] / ".ci" / "system-packages"

CONFIGURATION = """
daemon off;
pid {home}/pid;
error_log {home}/error.log;
worker_processes 1;
events {{ worker_connections 256; }}
http {{
    access_log off;
    sendfile on;
    tcp_nodelay on;
    keepalive_requests 100000;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    server {{ listen 127.0.0.1:{port}; location / {{ root {folder}; }} }}
}}
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve ``folder`` and give the URL of it.

    :raises subprocess.CalledProcessError: nginx or curl is missing and cannot be installed here.
    """
    subprocess.run([str(INSTALL), *PACKAGES], check=True)
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        raise FileNotFoundError("nginx")
    with tempfile.TemporaryDirectory() as home:
        port = _free_port()
        configuration = Path(home, "nginx.conf")
        configuration.write_text(CONFIGURATION.format(home=home, port=port, folder=folder))
        # As root its worker would be another user, who cannot read the folder.
        user = ["-g", "user root;"] if Path(home).owner() == "root" else []
        process = subprocess.Popen([program, "-p", home, "-c", str(configuration), *user])
        try:
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()
            process.wait()
