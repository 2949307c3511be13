# SPDX-License-Identifier: Apache-2.0
"""Types of the C extension. Grouped as the files of csrc/py are."""

from collections.abc import Callable
from typing import Self, final

from typing_extensions import Buffer

# text
def truncate_output(text: str, max_lines: int, max_bytes: int, already_truncated: bool, /) -> str: ...
def render_file_window(
    data: Buffer,
    offset: int | None,
    limit: int | None,
    max_lines: int,
    max_bytes: int,
    long_line_hint: str,
    next_offset_hint: bool,
    /,
) -> str: ...
def keep_head(text: str, max_lines: int, max_bytes: int, /) -> tuple[str, int]: ...
def format_size(num_bytes: int, /) -> str: ...
def allocated_bytes() -> int: ...

# process.c
class CommandOutcome(tuple[str, int, bytes, bytes, int, int, int, bool]):
    ending: str
    value: int
    stdout: bytes
    stderr: bytes
    stdout_dropped: int
    stderr_dropped: int
    stage: int
    killed: bool

def run_process(
    program: str | bytes,
    argv: bytes,
    env: bytes,
    cwd: str | bytes,
    *,
    timeout: float,
    max_output_bytes: int,
    cancel_fd: int = -1,
    stdin_fd: int = -1,
    stdout_fd: int = -1,
    stderr_fd: int = -1,
) -> CommandOutcome: ...
def stream_process(
    program: str | bytes,
    argv: bytes,
    env: bytes,
    cwd: str | bytes,
    to: int | Callable[[bytes], object],
    most: int,
    *,
    timeout: float,
    stall: float,
    max_output_bytes: int,
    cancel_fd: int = -1,
) -> tuple[CommandOutcome, int]: ...

# box.c
BOX_FD_SECCOMP: int
BOX_FD_USERNS: int
BOX_FD_PROGRAM: int
BOX_FD_DATA: int

@final
class Box:
    def run(
        self,
        command: bytes,
        env: bytes,
        cwd: bytes,
        *,
        timeout: float,
        max_output_bytes: int,
        cancel_fd: int = -1,
        stdout_fd: int = -1,
        stderr_fd: int = -1,
    ) -> CommandOutcome: ...
    def open_read(
        self, path: bytes, cwd: bytes, *, timeout: float, cancel_fd: int = -1
    ) -> tuple[int, int]: ...
    def open_write(
        self, path: bytes, cwd: bytes, *, timeout: float, cancel_fd: int = -1
    ) -> tuple[int, int]: ...
    def open_list(self, path: bytes, cwd: bytes, *, timeout: float, cancel_fd: int = -1) -> int: ...
    def is_gone(self, wait_ms: int = 0) -> bool: ...
    def end(self) -> bool: ...

def start_box(
    program_fd: int,
    argv: tuple[bytes, ...],
    data: tuple[bytes, ...],
    groups: tuple[int, ...],
    *,
    two_uids: bool,
    command_uid: int,
    memory_bytes: int,
    file_bytes: int,
    cpu_seconds: int,
    processes: int,
    open_files: int,
    refuse_sysv_ipc: bool,
    timeout: float,
    cancel_fd: int = -1,
) -> Box: ...

# files.c
def read_up_to(fd: int, most: int) -> bytes: ...
def replace_content(fd: int, content: bytes | bytearray | memoryview) -> None: ...
def file_stamp(fd: int, settled: bool) -> tuple[int, int]: ...
def copy_file(source: int, target: int, most: int, *, timeout: float, cancel_fd: int = -1) -> int: ...
def read_listing(fd: int, most: int, *, timeout: float, cancel_fd: int = -1) -> list[tuple[str, bool]]: ...

# http, http_download

# method, url, headers, body pieces (bytes or (descriptor, offset, length)), proxy, deadline (of
# time.monotonic()), stall limit (s), cancel descriptor, idempotent, compressed, caps on head and error body
_Request = tuple[
    str,
    str,
    tuple[tuple[str, str], ...],
    tuple[Buffer | tuple[int, int, int], ...] | None,
    str | None,
    float,
    float | None,
    int,
    bool,
    bool,
    int,
    int,
]
# kind, sent, status, head, error body, error body cut, received, announced or -1, errno or 0, detail
_Outcome = tuple[str, bool, int, bytes, bytes, bool, int, int, int, str]
# whether to send a Range, first byte, last byte or -1, size or -1, cap
_Wanted = tuple[bool, int, int, int, int]

@final
class HttpClient:
    """Requests over libcurl with a pool of connections; used through ``sandbox_native.http``."""

    def __new__(
        cls, ca_file: str | None, ca_dir: str | None, connect_timeout: float, keep_alive: float
    ) -> Self: ...
    def request(self, request: _Request, max_body: int, may_cut: bool, /) -> tuple[_Outcome, bytes, bool]: ...
    def events(
        self,
        request: _Request,
        on_events: Callable[[list[tuple[bytes, bytes, int]]], object],
        max_event: int,
        /,
    ) -> tuple[_Outcome, bool]: ...
    def download_to_fd(self, request: _Request, fd: int, wanted: _Wanted, /) -> tuple[_Outcome, int, int]: ...
    def download_to_write(
        self, request: _Request, write: Callable[[bytes], object], wanted: _Wanted, /
    ) -> tuple[_Outcome, int, int]: ...
    def close(self) -> None: ...
    def after_fork(self) -> None: ...
    def lanes(self) -> tuple[int, int]: ...

# tail_keeper
@final
class TailKeeper:
    def __new__(cls, max_bytes: int) -> TailKeeper: ...
    def feed(self, data: Buffer, /) -> None: ...
    def result(self, /) -> bytes: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def total_lines(self) -> int: ...
    @property
    def dropped_bytes(self) -> int: ...
    @property
    def dropped_lines(self) -> int: ...

# masking
def replace_all(data: Buffer, needles: tuple[bytes, ...], mask: Buffer, /) -> bytes | None: ...

# base64
def b64decode(data: Buffer, /) -> bytes: ...
def b64encode(data: Buffer, /) -> bytes: ...

@final
class Base64Decoder:
    def feed(self, data: Buffer, /) -> bytes: ...
    def finish(self, /) -> None: ...

# slice
def decode_slice(
    text: str | Buffer, begin: int, end: int, compressed: bool, most: int, fd: int, /
) -> bytes | int: ...
