# SPDX-License-Identifier: Apache-2.0
"""The server of ``soak.py``: prints its URL, and how many requests came when its standard input ends."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import sys

LARGE = b"x" * 200_000
EVENTS = b'data: {"type":"stdout","text":"a line of output"}\n\n' * 298 + b"data: end\n\ndata: after\n\n"


def answer(body: bytes, status: str = "200 OK", *more: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more, "", ""]).encode() + body


def reply(target: str, head: str, body: bytes) -> tuple[bytes, bool]:
    """The bytes to send, and whether the connection goes on."""
    if target == "/json":
        return answer(b'{"a": [1, 2, 3]}', "200 OK", "Content-Type: application/json"), True
    if target == "/echo":
        return answer(hashlib.sha256(body).hexdigest().encode()), True
    if target == "/error":
        return answer(b"<html>no</html>" * 50, "500 Broken"), True
    if target == "/events":
        chunks = b"".join(
            b"%x\r\n%s\r\n" % (len(EVENTS[i : i + 4000]), EVENTS[i : i + 4000])
            for i in range(0, len(EVENTS), 4000)
        )
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", True
    if target == "/cut":
        return answer(LARGE)[:50_000], False
    asked = re.search(r"(?mi)^range: bytes=(\d+)-(\d+)\r?$", head)
    if asked is None:
        return answer(LARGE), True
    first, last = int(asked[1]), int(asked[2])
    part = LARGE[first : last + 1]
    return answer(part, "206 Partial", f"Content-Range: bytes {first}-{last}/{len(LARGE)}"), True


requests = 0


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global requests
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            requests += 1
            size = re.search(r"(?mi)^content-length: (\d+)", head)
            body = await reader.readexactly(int(size[1])) if size else b""
            data, more = reply(head.split(" ", 2)[1], head, body)
            writer.write(data)
            await writer.drain()
            if not more:
                break
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=200)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(requests, flush=True)


asyncio.run(main())
