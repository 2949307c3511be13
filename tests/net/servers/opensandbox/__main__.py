# SPDX-License-Identifier: Apache-2.0
"""``python tests/net/servers/opensandbox``: prints the server's URL and serves until it is ended."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from servers.http1 import Server, listen
from servers.opensandbox.routes import Routes
from servers.opensandbox.settings import Settings


def main() -> None:
    default = Settings()
    parser = argparse.ArgumentParser(prog="opensandbox", description="A test server with OpenSandbox's API.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0: any that is free")
    parser.add_argument(
        "--api-key", default=default.api_key, help='"": none is asked for (default: %(default)s)'
    )
    parser.add_argument("--egress-mode", default=default.egress_mode, choices=("dns+nft", "dns", "", "none"))
    parser.add_argument("--max-timeout", type=float, default=default.max_timeout, metavar="SECONDS")
    parser.add_argument(
        "--linger", type=float, default=default.linger, metavar="SECONDS", help="after a command's last event"
    )
    parser.add_argument("--parent", type=int, help="end when this is no longer the parent process")
    options = parser.parse_args()
    settings = Settings(options.api_key, options.egress_mode, options.max_timeout, options.linger)
    routes = Routes(settings)
    server = Server(listen(options.port), routes.handle).start()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    print(f"http://127.0.0.1:{server.port}", flush=True)
    while not ended.wait(1.0):
        if options.parent is not None and os.getppid() != options.parent:
            break
    server.close()
    for sandbox in routes.lifecycle.all():
        routes.lifecycle.forget(sandbox)


if __name__ == "__main__":
    main()
