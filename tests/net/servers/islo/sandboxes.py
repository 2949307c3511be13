# SPDX-License-Identifier: Apache-2.0
"""The sandboxes of the test server and the commands in them."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import threading
import time
from typing import Any

from servers.http1 import PeerGone, Request, Response, forward
from servers.islo.box import WORKDIR, Box

_exec_numbers = itertools.count(1)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def as_text(data: bytes) -> str:
    """As the service turns output into JSON: U+FFFD for each byte that is no UTF-8."""
    return re.sub("[\udc80-\udcff]", "\ufffd", data.decode("utf-8", "surrogateescape"))


class Exec:
    """One command, which runs at once."""

    def __init__(self, sandbox: Sandbox, body: dict[str, Any], enforce_timeout: bool) -> None:
        self.id = f"exec-{next(_exec_numbers)}"
        self._sandbox = sandbox
        self._body = {**body, "timeout_secs": body.get("timeout_secs") if enforce_timeout else None}
        self._result: dict[str, Any] | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            answer = self._sandbox.ask("POST", "/run", json.dumps(self._body).encode())
            result = json.loads(b"".join(answer.pieces()))
        except (OSError, PeerGone, ValueError):
            result = {"status": "failed", "exit_code": None}
        self._result = result

    def json(self) -> dict[str, Any]:
        result = self._result or {"status": "running", "exit_code": None}
        streams = {name: as_text(base64.b64decode(result.get(name, ""))) for name in ("stdout", "stderr")}
        truncated = bool(result.get("truncated"))
        return {"exec_id": self.id, **result, **streams, "truncated": truncated}


class Sandbox:
    def __init__(self, name: str, number: int, body: dict[str, Any]) -> None:
        self.name = name
        self.status = "running"
        self.deleted_at: str | None = None
        self.lifecycle: dict[str, Any] = body.get("lifecycle") or {}
        self.execs: dict[str, Exec] = {}
        self.created = time.monotonic()
        self.asked = body
        self._number = number
        self._created_at = _now()
        self._box = Box(f"islo-{os.getpid()}-{number}", body.get("env") or {})

    def json(self) -> dict[str, Any]:
        asked = self.asked
        spec = {"vcpus": asked.get("vcpus") or 2, "memory_mb": asked.get("memory_mb") or 4096, "disk_gb": 10}
        return {
            "id": f"sb_{self._number:012x}",
            "name": self.name,
            "status": self.status,
            "image": asked.get("image") or "docker.io/library/debian:stable",
            "created_at": self._created_at,
            "created_by": None,
            "deleted_at": self.deleted_at,
            "workdir": WORKDIR,
            "lifecycle": {key: value for key, value in self.lifecycle.items() if value is not None},
            "spec": spec,
        }

    @property
    def expired(self) -> bool:
        life = self.lifecycle.get("delete_after")
        return life is not None and time.monotonic() > self.created + life

    def resume(self) -> bool:
        """Whether it serves, resumed if it may be."""
        if self.status == "paused" and self.lifecycle.get("auto_resume", "on_activity") == "on_activity":
            self.status = "running"
        return self.status not in ("paused", "stopped", "stopping", "failed", "error")

    def run(self, body: dict[str, Any], enforce_timeout: bool) -> Exec:
        command = Exec(self, body, enforce_timeout)
        self.execs[command.id] = command
        return command

    def ask(self, method: str, target: str, body: bytes = b"") -> Response:
        return forward(self._box.port, Request(method, target, {}, body))

    def act(self, action: str) -> None:
        verb, _, what = action.partition(":")
        if verb == "status":
            self.status = what
        elif verb == "deleted":
            self.deleted_at = _now()
        elif verb == "kill":
            self.end()
        elif verb == "run":
            body = {"command": ["sh", "-c", what], "timeout_secs": 60}
            b"".join(self.ask("POST", "/run", json.dumps(body).encode()).pieces())
        else:
            raise ValueError(f"there is no action {action!r}")

    def end(self) -> None:
        self._box.end()
