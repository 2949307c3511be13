# SPDX-License-Identifier: Apache-2.0
"""``python -m servers.islo``, or this folder by its path: prints two URLs and serves until it is ended."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from servers.http1 import Server, listen
from servers.islo.routes import Routes, Settings


def main() -> None:
    default = Settings()
    parser = argparse.ArgumentParser(prog="islo", description="A test server with Islo's API.")
    parser.add_argument("--control-port", type=int, default=0, help="port on 127.0.0.1; 0: any that is free")
    parser.add_argument("--compute-port", type=int, default=0, help="the same of the compute plane")
    parser.add_argument("--api-key", default=default.api_key, help="default: %(default)s")
    parser.add_argument("--token-life", type=float, default=default.token_life, metavar="SECONDS")
    parser.add_argument(
        "--enforce-timeout", action="store_true", help="kill a command after its timeout_secs"
    )
    parser.add_argument("--announce", action="store_true", help="downloads have a Content-Length")
    parser.add_argument("--parent", type=int, help="end when this is no longer the parent process")
    options = parser.parse_args()
    settings = Settings(options.api_key, options.token_life, options.enforce_timeout, options.announce)
    routes = Routes(settings)
    control = Server(listen(options.control_port), routes.control).start()
    compute = Server(listen(options.compute_port), routes.compute).start()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    print(f"http://127.0.0.1:{control.port} http://127.0.0.1:{compute.port}", flush=True)
    while not ended.wait(1.0):
        if options.parent is not None and os.getppid() != options.parent:
            break
    control.close()
    compute.close()
    routes.close()


if __name__ == "__main__":
    main()
