# SPDX-License-Identifier: Apache-2.0
"""Plain HTTP to one sandbox of the OpenSandbox test server, with no client of anybody between."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote

from servers.opensandbox.handle import OpenSandboxServer

CREATE = {"image": {"uri": "python:3.12-slim"}, "timeout": 60, "entrypoint": ["tail", "-f", "/dev/null"]}


class Wire:
    """Plain requests to one sandbox, through the server or directly."""

    def __init__(self, server: OpenSandboxServer, **create: Any) -> None:
        self.server = server
        self.status, self.answer = self.json("POST", "/v1/sandboxes", {**CREATE, **create})
        self.id = (self.answer or {}).get("id", "")
        self.proxy = f"/v1/sandboxes/{self.id}/proxy/44772"

    def raw(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, host: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(host or self.server.domain, timeout=60)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body)
            key = {"OPEN-SANDBOX-API-KEY": self.server.api_key} if headers is None else headers
            connection.request(method, path, data, key)
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        status, _, data = self.raw(method, path, body, **options)
        return status, json.loads(data) if data else None

    def events(self, command: str, timeout: int = 0, **fields: Any) -> list[dict[str, Any]]:
        body = {"command": command, "timeout": timeout, **fields}
        status, headers, data = self.raw("POST", f"{self.proxy}/command", body)
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert data.endswith(b"\n\n")
        return [json.loads(frame) for frame in data.split(b"\n\n")[:-1]]

    def download(self, path: str, wanted: str | None = None) -> tuple[int, dict[str, str], bytes]:
        headers = {} if wanted is None else {"Range": wanted}
        return self.raw("GET", f"{self.proxy}/files/download?path={quote(path)}", headers=headers)


def texts(events: list[dict[str, Any]], kind: str) -> list[str]:
    return [event["text"] for event in events if event["type"] == kind]
