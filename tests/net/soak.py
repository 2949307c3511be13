# SPDX-License-Identifier: Apache-2.0
"""Many calls of every kind against a server in another process, and what is held afterwards.

``soak.py CALLS`` makes that many calls from four threads at once, checks each answer, and prints as JSON how
much the process held after a tenth of them and at the end. Exit code 1 when more is held at the end, with the
reason on standard error. Under AddressSanitizer and valgrind, too: ``.ci/soak``.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sandbox_native import _sandbox_native as native
from sandbox_native.http import Client, TransportError
from sandbox_native.multipart import FileSlice, Part

SERVER = Path(__file__).with_name("soak_server.py")
THREADS = 4
CALLS_PER_CLIENT = 200
LARGE = 200_000  # bytes; as the server's
DIGEST = hashlib.sha256(b"x" * LARGE).hexdigest().encode()

#: How much more may be held at the end: what differs between two moments of the same state.
ALLOWED = {"native bytes": 2000, "descriptors": 8, "threads": 0, "python blocks": 3000, "resident": 8 << 20}


class Caller:
    """The calls of one thread."""

    def __init__(self, url: str, folder: Path, number: int) -> None:
        self.url = url
        self.source = os.open(folder / "source", os.O_RDONLY)
        self.copy = os.open(folder / f"copy{number}", os.O_CREAT | os.O_RDWR)
        self.cancelled = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.client = Client()
        self.made: Counter[str] = Counter()
        self.calls: tuple[Callable[[float], None], ...] = (
            self.get,
            self.post,
            self.error_status,
            self.events,
            self.events_left_early,
            self.upload_bytes,
            self.upload_file,
            self.download_to_descriptor,
            self.download_to_write,
            self.download_a_range,
            self.cut,
            self.late,
            self.cancel,
            self.over_the_cap,
            self.raising_sink,
            self.raising_callback,
        )

    def close(self) -> None:
        self.client.close()
        for fd in (self.source, self.copy, self.cancelled):
            os.close(fd)

    def run(self, calls: int) -> None:
        for i in range(calls):
            if i % CALLS_PER_CLIENT == CALLS_PER_CLIENT - 1:
                self.client.close()
                self.client = Client(headers={"X-Key": "k" * 30})
            call = self.calls[i % len(self.calls)]
            call(time.monotonic() + 300)
            self.made[call.__name__] += 1

    def get(self, deadline: float) -> None:
        answer = self.client.request("GET", self.url + "/json", deadline=deadline)
        assert answer.json() == {"a": [1, 2, 3]} and answer.headers["content-type"] == "application/json"

    def post(self, deadline: float) -> None:
        answer = self.client.request("POST", self.url + "/echo", deadline=deadline, body=[b"one", b"two"])
        assert answer.body == hashlib.sha256(b"onetwo").hexdigest().encode()

    def error_status(self, deadline: float) -> None:
        answer = self.client.request("POST", self.url + "/error", deadline=deadline, body=b"x")
        assert answer.status == 500 and answer.body

    def events(self, deadline: float) -> None:
        seen = 0

        def take(batch: list[tuple[bytes, bytes, int]]) -> bool:
            nonlocal seen
            seen += len(batch)
            return False

        answer = self.client.events("POST", self.url + "/events", take, deadline=deadline, body=b"{}")
        assert (answer.done, seen) == (False, 300)

    def events_left_early(self, deadline: float) -> None:
        def take(batch: list[tuple[bytes, bytes, int]]) -> bool:
            return any(data == b"end" for _, data, _ in batch)

        url = self.url + "/events"
        answer = self.client.events("POST", url, take, deadline=deadline, max_event=100)
        assert answer.done

    def upload_bytes(self, deadline: float) -> None:
        parts = [Part("metadata", b"{}", content_type="application/json"), Part("f", b"y" * 5000, "upload")]
        assert self.client.upload("POST", self.url + "/echo", parts, deadline=deadline).status == 200

    def upload_file(self, deadline: float) -> None:
        body = [FileSlice(self.source, 0, LARGE)]
        answer = self.client.request("PUT", self.url + "/echo", deadline=deadline, body=body)
        assert answer.body == DIGEST

    def download_to_descriptor(self, deadline: float) -> None:
        os.lseek(self.copy, 0, os.SEEK_SET)
        answer = self.client.download(self.url + "/large", self.copy, deadline=deadline, size=LARGE)
        assert answer.taken == LARGE

    def download_to_write(self, deadline: float) -> None:
        digest = hashlib.sha256()
        self.client.download(self.url + "/large", digest.update, deadline=deadline)
        assert digest.hexdigest().encode() == DIGEST

    def download_a_range(self, deadline: float) -> None:
        answer = self.client.download(
            self.url + "/large", lambda data: None, deadline=deadline, first=100, last=70_000
        )
        assert (answer.taken, answer.total) == (69_901, LARGE)

    def _fails(self, call: Callable[[], object], *kinds: str) -> None:
        try:
            call()
        except TransportError as e:
            assert e.kind in kinds, e
        else:
            raise AssertionError(f"no error of {kinds}")

    def cut(self, deadline: float) -> None:
        for call in (
            lambda: self.client.request("GET", self.url + "/cut", deadline=deadline),
            lambda: self.client.download(self.url + "/cut", lambda data: None, deadline=deadline),
        ):
            self._fails(call, "receive", "length")

    def late(self, deadline: float) -> None:
        self._fails(
            lambda: self.client.request("GET", self.url + "/json", deadline=time.monotonic()), "deadline"
        )

    def cancel(self, deadline: float) -> None:
        self._fails(
            lambda: self.client.request(
                "GET", self.url + "/json", deadline=deadline, cancel_fd=self.cancelled
            ),
            "cancelled",
        )

    def over_the_cap(self, deadline: float) -> None:
        self._fails(
            lambda: self.client.request("GET", self.url + "/large", deadline=deadline, max_body=99),
            "too_large",
        )

    def raising_sink(self, deadline: float) -> None:
        with contextlib.suppress(KeyError):
            self.client.download(self.url + "/large", {}.__getitem__, deadline=deadline)  # type: ignore[arg-type]
            raise AssertionError("the sink's error was lost")

    def raising_callback(self, deadline: float) -> None:
        with contextlib.suppress(KeyError):
            self.client.events("GET", self.url + "/events", lambda e: {}[1], deadline=deadline)
            raise AssertionError("the callback's error was lost")


def turn(url: str, folder: Path, calls: int) -> Counter[str]:
    """Make the calls from several threads; what one of them raises is raised."""
    callers = [Caller(url, folder, i) for i in range(THREADS)]
    errors: list[BaseException] = []

    def run(caller: Caller) -> None:
        try:
            caller.run(calls // THREADS)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=[caller]) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for caller in callers:
        caller.close()
    if errors:
        raise errors[0]
    return sum((caller.made for caller in callers), Counter())


def resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def held() -> dict[str, int]:
    # A thread that was joined may still be on its way out.
    for _ in range(400):
        if len(os.listdir("/proc/self/task")) == 1:
            break
        time.sleep(0.05)
    gc.collect()
    return {
        "native bytes": native.allocated_bytes(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "python blocks": sys.getallocatedblocks(),
        "resident": resident(),
    }


def main(calls: int) -> int:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "PYTHONMALLOC")
    }
    server = subprocess.Popen(
        [sys.executable, SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert server.stdout is not None and server.stdin is not None
    url = server.stdout.readline().strip()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source").write_bytes(b"x" * LARGE)
        begin = time.perf_counter()
        turn(url, folder, calls // 10)
        before = held()
        made = turn(url, folder, calls - calls // 10)
        after = held()
        elapsed = time.perf_counter() - begin
    server.stdin.close()  # ends it
    requests = int(server.stdout.read())
    server.wait(60)
    shown = {
        "requests": requests,
        "calls": made,
        "seconds": round(elapsed, 1),
        "before": before,
        "after": after,
    }
    print(json.dumps(shown, indent=1))
    # Under a checker the allocator of neither Python nor the C library is the usual one.
    checked = "LD_PRELOAD" in os.environ or "PYTHONMALLOC" in os.environ
    grown = [
        f"{what} grew from {before[what]} to {after[what]}"
        for what, allowed in ALLOWED.items()
        if after[what] - before[what] > allowed and not (what == "resident" and checked)
    ]
    for line in grown:
        print(line, file=sys.stderr)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
