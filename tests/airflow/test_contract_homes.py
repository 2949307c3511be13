# SPDX-License-Identifier: Apache-2.0
"""The two homes of the contract are one contract. Each home is looked at in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.needs_airflow

# Run in each home; prints all that a user of the contract can see of its shape.
DESCRIBE = r"""
import copy, dataclasses, inspect, json, pickle
from sandbox_native import contract as c

def fields(cls):
    frozen = cls.__dataclass_params__.frozen
    return [[f.name, shown(f.default), f.kw_only, frozen] for f in dataclasses.fields(cls)]

def shown(default):
    return "required" if default in (dataclasses.MISSING, inspect.Parameter.empty) else repr(default)

def signature(function):
    # Names, kinds and defaults; annotations are text and may be spelled differently.
    return [[p.name, p.kind.name, shown(p.default)] for p in inspect.signature(function).parameters.values()]

values = [
    c.SandboxSpec(env={"A": "b"}, allow_egress_to=["x.org"], owner="d/r"),
    c.SandboxExecResult(1, "o", "e", timed_out=True, applied_timeout=2.5),
    c.AttachedSandbox(5.0, c.SandboxSpec(), "/w"),
    c.SandboxError("text"),
    c.SandboxTerminalError("text"),
]
def same(a, b):
    return type(a) is type(b) and (str(a) == str(b) if isinstance(a, Exception) else a == b)
methods = ["create", "run_command", "destroy", "read_file", "write_file", "list_directory", "export_file"]
attachable = [*methods, "attach", "release", "read_tags", "write_tags"]
backends = (c.SandboxBackend, c.AttachableSandboxBackend)
dataclass_types = (c.SandboxSpec, c.SandboxExecResult, c.AttachedSandbox)
def copied(v):
    return copy.deepcopy(v), copy.copy(v), pickle.loads(pickle.dumps(v))
print(json.dumps({
    "home": c.home,
    "modules": sorted({cls.__module__ for cls in (c.SandboxSpec, c.SandboxExecResult, c.SandboxError)}),
    "shape": {
        "fields": {cls.__name__: fields(cls) for cls in dataclass_types},
        "errors": {
            cls.__name__: [k.__name__ for k in cls.__mro__]
            for cls in (c.SandboxError, c.SandboxTerminalError, c.SandboxFileTooLargeError)
        },
        "too_large": [sorted(vars(c.SandboxFileTooLargeError("/p", 2, 1)).items()),
                      signature(c.SandboxFileTooLargeError.__init__)],
        "abstract": [sorted(cls.__abstractmethods__) for cls in backends],
        "signatures": {
            f"{cls.__name__}.{m}": signature(getattr(cls, m))
            for cls, names in zip(backends, (methods, attachable))
            for m in names
        },
        "functions": {
            f.__name__: signature(f)
            for f in (c.dag_run_owner, c.is_sandbox_handle, c.encode_network_policy, c.decode_network_policy)
        },
        "tags": [c.OWNER_TAG, c.HOLDER_TAG, c.EXPIRES_AT_TAG, c.NETWORK_TAG, c.WORKDIR_TAG],
        "policy": c.encode_network_policy(c.SandboxSpec(allow_egress_to=["b", "a"])),
        "copies": [all(same(v, other) for other in copied(v)) for v in values],
        "public": sorted(c.__all__),
    },
}))
"""


def python(code: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def own() -> dict[str, Any]:
    return json.loads(python(DESCRIBE).stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def airflow() -> dict[str, Any]:
    return json.loads(python("import airflow\n" + DESCRIBE).stdout.splitlines()[-1])


def test_each_process_has_the_home_that_its_imports_chose(
    own: dict[str, Any], airflow: dict[str, Any]
) -> None:
    assert own["home"] == "own"
    assert own["modules"] == ["sandbox_native.contract"]
    assert airflow["home"] == "airflow"
    assert airflow["modules"] == ["airflow.providers.common.ai.sandbox.base"]


@pytest.mark.parametrize(
    "part",
    [
        "fields",
        "errors",
        "too_large",
        "abstract",
        "signatures",
        "functions",
        "tags",
        "policy",
        "copies",
        "public",
    ],
)
def test_the_two_homes_agree(own: dict[str, Any], airflow: dict[str, Any], part: str) -> None:
    assert own["shape"][part] == airflow["shape"][part]
    assert own["shape"][part], "nothing was compared"


def test_copies_are_equal_in_both(own: dict[str, Any], airflow: dict[str, Any]) -> None:
    assert all(own["shape"]["copies"]) and all(airflow["shape"]["copies"])


def test_we_have_every_public_name_of_the_provider() -> None:
    code = """
import airflow
from airflow.providers.common.ai.sandbox import base
from sandbox_native import contract
public = {n for n, v in vars(base).items() if not n.startswith("_") and
          (getattr(v, "__module__", None) == base.__name__ or n.endswith("_TAG"))}
assert len(public) > 12, public
print(sorted(public - set(vars(contract))))
"""
    assert python(code).stdout.splitlines()[-1] == "[]"


def test_with_airflow_the_classes_are_the_providers() -> None:
    python("""
import airflow
from airflow.providers.common.ai.sandbox import base
from sandbox_native import contract as c
for name in ("SandboxError", "SandboxTerminalError", "SandboxFileTooLargeError",
             "SandboxSpec", "SandboxExecResult", "AttachedSandbox"):
    assert getattr(c, name) is getattr(base, name), name
assert issubclass(c.SandboxBackend, base.SandboxBackend)
assert issubclass(c.AttachableSandboxBackend, base.AttachableSandboxBackend)
assert issubclass(c.AttachableSandboxBackend, c.SandboxBackend)
assert type(c.decode_network_policy(c.encode_network_policy(c.SandboxSpec()))) is base.SandboxSpec
c.require_airflow_home()
""")


def test_the_toolset_of_the_package_is_the_one_that_fits_the_process() -> None:
    python("""
import airflow
import sandbox_native
import sandbox_native.airflow
assert sandbox_native.SandboxToolset is sandbox_native.airflow.SandboxToolset
""")
    python("""
import sandbox_native, sys
assert sandbox_native.SandboxToolset.__module__ == "sandbox_native.toolset"
assert "airflow" not in sys.modules
""")


def test_a_spec_pickled_without_airflow_opens_as_the_providers() -> None:
    made = python(
        "import pickle; from sandbox_native.contract import SandboxSpec, SandboxFileTooLargeError as L; "
        "print(pickle.dumps([SandboxSpec(owner='o'), L('/p', 2, 1)]).hex())"
    ).stdout.strip()
    python(f"""
import airflow, pickle
from airflow.providers.common.ai.sandbox import base
spec, error = pickle.loads(bytes.fromhex({made!r}))
assert spec == base.SandboxSpec(owner="o"), spec
assert type(error) is base.SandboxFileTooLargeError and error.size_bytes == 2
""")


def test_airflow_imported_too_late_is_told() -> None:
    done = python("""
import sandbox_native.contract as c
import airflow
assert c.home == "own"
try:
    c.require_airflow_home()
except ImportError as e:
    print(e)
""")
    assert "was imported before Airflow" in done.stdout
    assert "Import Airflow first" in done.stdout
