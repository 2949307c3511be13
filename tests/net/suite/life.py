# SPDX-License-Identifier: Apache-2.0
"""The life of a sandbox."""

from __future__ import annotations

from typing import Any

from sandbox_native import calls
from sandbox_native.contract import SandboxExecResult, SandboxSpec
from suite.table import Row, Subject


def _destroy_twice(s: Subject) -> Any:
    with s.fresh() as own:
        return own.kind(own.close), own.kind(own.close)


def _destroy_unknown(s: Subject) -> Any:
    return s.kind(lambda: s.backend.destroy("no-such-sandbox"))


def _after_the_end(s: Subject) -> Any:
    with s.fresh() as own:
        own.close()
        return [
            own.kind(lambda: own.run("true")),
            own.kind(lambda: own.read("/tmp/x")),
            own.kind(lambda: own.write("/tmp/x", b"x")),
            own.kind(lambda: own.list("/tmp")),
            own.kind(lambda: own.export("/tmp/x")),
        ]


def _destroy_in_a_cancelled_call(s: Subject) -> Any:
    def cancelled() -> None:
        call.cancel()
        own.close()

    with s.fresh() as own:
        call = calls.prepare(cancelled)
        call.start()
        failed = own.kind(call.wait)
        return failed, isinstance(own.kind(lambda: own.run("true")), SandboxExecResult)


def _apart(s: Subject) -> Any:
    with s.fresh() as one, s.fresh() as other:
        one.write("/tmp/mine", b"x")
        return other.kind(lambda: other.read("/tmp/mine")), one.read("/tmp/mine")


def _env(s: Subject) -> Any:
    with s.fresh(spec=SandboxSpec(env={"GIVEN": "a 'b' $c\né"}, block_network=False)) as own:
        return own.out('printf %s "$GIVEN"').rstrip("\n")


def _another_process(s: Subject) -> Any:
    assert s.another is not None
    s.made("echo shared >/tmp/shared")
    other = s.another()
    result = other.run_command(s.handle, "cat /tmp/shared", timeout=60, max_output_bytes=100)
    return result.stdout, other.read_file(s.handle, "/tmp/shared", max_bytes=100)


ROWS = tuple(
    Row("life", name, observe, right)
    for name, observe, right in (
        ("destroyed twice", _destroy_twice, (None, None)),
        ("destroyed unknown", _destroy_unknown, None),
        ("destroyed in a call that was cancelled", _destroy_in_a_cancelled_call, (None, False)),
        ("used after its end", _after_the_end, ["terminal"] * 5),
        ("two are apart", _apart, ("recoverable", b"x")),
        ("environment of the spec", _env, "a 'b' $c\né"),
        ("a handle in another process", _another_process, ("shared\n", b"shared\n")),
    )
)
