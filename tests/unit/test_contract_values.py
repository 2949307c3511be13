# SPDX-License-Identifier: Apache-2.0
"""Errors, spec, results and the values that travel in tags."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_native import contract, names, validate
from sandbox_native.contract import (
    AttachableSandboxBackend,
    AttachedSandbox,
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
    decode_network_policy,
    encode_network_policy,
)


@pytest.mark.parametrize(
    "bad", [0, -1, 0.0, -0.5, float("inf"), -float("inf"), float("nan"), True, None, "5"]
)
def test_a_bound_that_is_no_positive_number_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(ValueError, match="patience must be a positive finite number"):
        validate.positive_finite(bad, "patience")


@pytest.mark.parametrize("good", [1, 0.5, 3600, 10**400, 1e-300])
def test_positive_numbers_of_any_size_pass(good: float) -> None:
    validate.positive_finite(good, "patience")


def test_sandbox_names_can_be_found_and_never_repeat() -> None:
    made = {names.new_sandbox_name() for _ in range(1000)}
    assert len(made) == 1000
    assert all(name.startswith("airflow-sandbox-") for name in made)


def test_a_spec_isolates_by_default_and_cannot_be_changed() -> None:
    spec = SandboxSpec()
    assert dataclasses.asdict(spec) == {
        "env": None,
        "block_network": True,
        "allow_egress_to": None,
        "allow_egress_to_cidrs": None,
        "owner": None,
    }
    with pytest.raises(AttributeError):
        spec.block_network = False  # type: ignore[misc]


def test_a_result_is_an_untroubled_one_by_default() -> None:
    result = SandboxExecResult(3, "out", "err")
    flags = dataclasses.asdict(result)
    assert (flags.pop("exit_code"), flags.pop("stdout"), flags.pop("stderr")) == (3, "out", "err")
    assert flags.pop("applied_timeout") is None
    assert set(flags) == {"timed_out", "stdout_truncated", "stderr_truncated", "sandbox_terminated"}
    assert not any(flags.values())


def test_only_terminal_errors_are_terminal() -> None:
    assert issubclass(SandboxTerminalError, SandboxError)
    assert issubclass(SandboxFileTooLargeError, SandboxError)
    assert not issubclass(SandboxFileTooLargeError, SandboxTerminalError)


def test_an_error_about_size_carries_its_numbers() -> None:
    error = SandboxFileTooLargeError("/w/big file", 100, 10)
    assert (error.path, error.size_bytes, error.max_bytes) == ("/w/big file", 100, 10)
    assert "/w/big file" in str(error)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
@pytest.mark.parametrize(
    "value",
    [
        SandboxSpec(env={"A": "b"}, allow_egress_to=["pypi.org"], owner="d/r"),
        SandboxExecResult(1, "o", "e", timed_out=True, applied_timeout=2.5),
        AttachedSandbox(5.0, SandboxSpec(block_network=False), "/work"),
        SandboxError("text"),
        SandboxTerminalError("text"),
        SandboxFileTooLargeError("/w/a", 9, 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_survive_every_copy(value: Any, again: Any) -> None:
    other = again(value)
    assert type(other) is type(value)
    if isinstance(value, Exception):
        assert (str(other), vars(other)) == (str(value), vars(value))
    else:
        assert other == value


def test_pickles_name_the_public_module() -> None:
    # So that they open in a process whose contract has the other home.
    assert b"sandbox_native.contract" in pickle.dumps(SandboxSpec(), protocol=0)


def test_a_dag_run_owns_by_dag_and_run() -> None:
    ti = SimpleNamespace(dag_id="etl", run_id="manual__2026", task_id="t")
    assert contract.dag_run_owner({"ti": ti}) == "etl/manual__2026"


@pytest.mark.parametrize("value", ["sb-1", " ", "none"])
def test_names_are_handles(value: object) -> None:
    assert contract.is_sandbox_handle(value)


@pytest.mark.parametrize("value", [None, "", "None", 3, b"sb-1", ["sb-1"]])
def test_a_missing_handle_is_recognised_in_every_shape(value: object) -> None:
    assert not contract.is_sandbox_handle(value)


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(env={"A": "b"}, owner="d/r"),
        SandboxSpec(block_network=False),
        SandboxSpec(allow_egress_to=("pypi.org", "example.org"), allow_egress_to_cidrs=["203.0.113.0/24"]),
        SandboxSpec(allow_egress_to=[], allow_egress_to_cidrs=()),
    ],
)
def test_a_network_policy_comes_back_without_the_rest_of_the_spec(spec: SandboxSpec) -> None:
    assert decode_network_policy(encode_network_policy(spec)) == SandboxSpec(
        block_network=spec.block_network,
        allow_egress_to=list(spec.allow_egress_to or ()) or None,
        allow_egress_to_cidrs=list(spec.allow_egress_to_cidrs or ()) or None,
    )


def test_equal_policies_are_equal_texts() -> None:
    assert encode_network_policy(SandboxSpec()) == (
        '{"allow_egress_to":[],"allow_egress_to_cidrs":[],"block_network":true}'
    )


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "open",
        "null",
        "[1, 2]",
        '"x"',
        '{"block_network":true}',
        '{"block_network":true,"allow_egress_to":3,"allow_egress_to_cidrs":[]}',
        "[" * 100_000,
    ],
    ids=lambda stamp: stamp[:20],
)
def test_what_is_no_policy_is_refused(stamp: str) -> None:
    with pytest.raises(ValueError, match="is not a network policy stamp"):
        decode_network_policy(stamp)


def test_a_backend_brings_three_methods() -> None:
    assert SandboxBackend.__abstractmethods__ == {"create", "run_command", "destroy"}
    assert AttachableSandboxBackend.__abstractmethods__ == {
        *SandboxBackend.__abstractmethods__,
        "read_tags",
        "write_tags",
    }
    with pytest.raises(TypeError):
        SandboxBackend()  # type: ignore[abstract]


def test_the_spec_is_given_by_keyword() -> None:
    parameter = inspect.signature(SandboxBackend.create).parameters["spec"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert parameter.default is None
