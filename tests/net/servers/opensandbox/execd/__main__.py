# SPDX-License-Identifier: Apache-2.0
"""Serve on the listening socket whose descriptor is the first argument."""

from __future__ import annotations

import socket
import sys

from servers.http1 import Request, Response, Server, error
from servers.opensandbox.execd.commands import Commands
from servers.opensandbox.execd.files import FOREIGN, ROUTES


def main(descriptor: str, linger: str, foreign: str) -> None:
    """``foreign``: directories that belong to another user, with colons between."""
    FOREIGN.update(filter(None, foreign.split(":")))
    commands = Commands(linger=float(linger))

    def handle(request: Request) -> Response:
        path = request.path
        if path == "/ping":
            return Response()
        if (request.method, path) in ROUTES:
            return ROUTES[request.method, path](request)
        if path == "/command" or path.startswith("/command/"):
            return commands.handle(request)
        return error(404, "NOT_FOUND", f"no route {request.method} {path}")

    Server(socket.socket(fileno=int(descriptor)), handle).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
