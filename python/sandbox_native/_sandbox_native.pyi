# SPDX-License-Identifier: Apache-2.0
"""Types of the C extension. Grouped as the files of csrc/py are."""

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
