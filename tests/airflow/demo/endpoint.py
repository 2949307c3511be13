# SPDX-License-Identifier: Apache-2.0
"""A chat-completions endpoint on loopback whose model is a Python function of the conversation so far.

pydantic-ai talks to it as to any OpenAI-compatible server, through an Airflow connection, so everything
between the operator and the tools is the real thing; only the text of the answers is written beforehand.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Turn:
    """One tool call of the model and the text that came back."""

    tool: str
    args: dict[str, Any]
    result: str


@dataclass(frozen=True)
class Conversation:
    """What the model was sent: the instructions, the user's text, the tools' names, the turns so far."""

    system: str
    prompt: str
    tools: tuple[str, ...]
    turns: tuple[Turn, ...]

    @property
    def last(self) -> str:
        """The newest tool result."""
        return self.turns[-1].result


@dataclass(frozen=True)
class Call:
    """An answer that calls a tool."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)


Script = Callable[[Conversation], Call | str]
"""A model: the next tool call, or the final text."""


def parse(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Conversation:
    """Read the messages of a chat-completions request."""
    texts: dict[str, list[str]] = {"system": [], "user": []}
    calls: dict[str, tuple[str, dict[str, Any]]] = {}
    turns: list[Turn] = []
    for message in messages:
        role = "system" if message["role"] == "developer" else message["role"]
        if role in texts:
            texts[role].append(_text(message["content"]))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            calls[call["id"]] = (function["name"], json.loads(function["arguments"] or "{}"))
        if role == "tool":
            name, args = calls[message["tool_call_id"]]
            turns.append(Turn(name, args, _text(message["content"])))
    return Conversation(
        "\n".join(texts["system"]),
        "\n".join(texts["user"]),
        tuple(tool["function"]["name"] for tool in tools),
        tuple(turns),
    )


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


class ScriptedEndpoint:
    """Serves ``scripts`` (model name to script) on a free loopback port, inside a ``with`` block.

    :param scripts: the models. A request for another one is answered with status 404.
    """

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = dict(scripts)
        self.errors: list[str] = []
        """What went wrong in a script, for the test's report: a script fails the request, not the server."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def connection(self, model: str) -> str:
        """The Airflow connection, as the JSON of an ``AIRFLOW_CONN_...`` variable, that names ``model``."""
        # openai-chat is pydantic-ai's name for the chat-completions protocol.
        return connection(f"openai-chat:{model}", "any-key-will-do", self.url)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body for the body of a request."""
        script = self.scripts.get(request.get("model", ""))
        if script is None:
            return 404, _error(f"there is no model {request.get('model')!r} here")
        if request.get("stream"):
            return 400, _error("this endpoint does not stream")
        try:
            answer = script(parse(request["messages"], request.get("tools") or []))
        except Exception as e:
            self.errors.append(f"{request['model']}: {type(e).__name__}: {e}")
            # A status that clients do not send again on.
            return 400, _error(self.errors[-1])
        return 200, _completion(request, answer)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path != "/v1/chat/completions":
                    status, answer = 404, _error(f"no such path: {self.path}")
                else:
                    status, answer = endpoint.answer(json.loads(body))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def connection(model: str, key: str, url: str | None) -> str:
    """An Airflow connection for ``model`` (``provider:name``) as JSON; ``url`` None: the provider's own."""
    fields: dict[str, Any] = {"conn_type": "pydanticai", "password": key, "extra": {"model": model}}
    return json.dumps(fields | ({"host": url} if url else {}))


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": None, "param": None}}


def _completion(request: dict[str, Any], answer: Call | str) -> dict[str, Any]:
    number = len(request["messages"])
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(answer, Call):
        function = {"name": answer.tool, "arguments": json.dumps(answer.args)}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    else:
        message["content"] = answer
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if isinstance(answer, Call) else "stop",
            }
        ],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
