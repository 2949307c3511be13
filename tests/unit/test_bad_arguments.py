# SPDX-License-Identifier: Apache-2.0
"""A wrong argument is refused where it is given, by an error that names it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from doubles import MemoryBackend
from sandbox_native import SandboxSpec, SandboxTerminalError, SandboxToolset, backend, registry

TO = "file:///results/a"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "backend must be a SandboxBackend"),
        ("local", "backend must be a SandboxBackend, got 'local'"),
        (MemoryBackend, r"call it, as MemoryBackend\(\)"),
        (object(), r"has no create\(\)"),
    ],
)
def test_what_is_no_backend(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SandboxToolset(given)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"spec": {"env": {"KEY": "hunter2"}}}, "spec must be a SandboxSpec, not dict"),
        ({"tool_prefix": 3}, "tool_prefix must be a Python identifier.*got 3"),
        ({"tool_prefix": b"x"}, "tool_prefix must be a Python identifier"),
        ({"exports": "out.csv"}, "exports must be a mapping"),
        ({"exports": [("out.csv", TO)]}, "exports must be a mapping"),
        ({"exports": {3: TO}}, "exports must have strings as its keys, got 3"),
        ({"exports": {"a\0b": TO}}, "no file can have this path"),
        ({"exports": {"a": {"dest": TO}}}, "has no option 'dest'"),
        ({"exports": {"a": {}}}, "neither may be empty"),
        ({"exports": {"a": TO}, "checksum": "no"}, "checksum must be True or False, got 'no'"),
        ({"exports": {"a": TO}, "export_attached": "no"}, "export_attached must be True or False"),
        ({"exports": {"a": TO}, "export_conn_id": 3}, "export_conn_id must be the name of a connection"),
        ({"exports": {"a": TO}, "export_conn_id": "aws"}, "export_conn_id is a connection of Airflow"),
        ({"inputs": ["data.csv"]}, "inputs must be a mapping"),
        ({"inputs": {3: TO}}, "inputs must have strings as its keys, got 3"),
        ({"inputs": {"a": {"text": "half a pair: \ud83d"}}}, "character 13 is half of a surrogate pair"),
        ({"inputs": {"a": TO}, "input_conn_id": 3}, "input_conn_id must be the name of a connection"),
        ({"inputs": {"a": TO}, "input_conn_id": "aws"}, "input_conn_id is a connection of Airflow"),
        ({"secrets": "hunter2"}, "secrets has to be several strings"),
        ({"secrets": 3}, "secrets has to be several strings"),
        ({"secrets": ["one", b"hunter2"]}, r"secrets\[1\] must be a string, got a bytes"),
    ],
)
def test_arguments_of_the_toolset(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        SandboxToolset(MemoryBackend(), **options)
    assert "hunter2" not in str(caught.value)


SPECS = [
    # None counts as false, which would open the network.
    ({"block_network": None}, "SandboxSpec.block_network must be True or False, got None"),
    ({"block_network": 0}, "SandboxSpec.block_network must be True or False, got 0"),
    ({"block_network": "no"}, "SandboxSpec.block_network must be True or False, got 'no'"),
    ({"env": ["KEY=hunter2"]}, "SandboxSpec.env must map names to values, which list does not"),
    ({"env": "KEY=hunter2"}, "SandboxSpec.env must map names to values, which str does not"),
    ({"allow_egress_to": "example.com"}, "SandboxSpec.allow_egress_to must be a list of strings"),
    ({"allow_egress_to": [3]}, "SandboxSpec.allow_egress_to must be a list of strings, got 3 in it"),
    ({"allow_egress_to_cidrs": "10.0.0.0/8"}, "SandboxSpec.allow_egress_to_cidrs must be a list"),
    ({"owner": 3}, "SandboxSpec.owner must be a string, got 3"),
]


@pytest.mark.parametrize(("fields", "says"), SPECS)
def test_a_spec_of_the_toolset(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        SandboxToolset(MemoryBackend(), spec=SandboxSpec(**fields))
    assert "hunter2" not in str(caught.value)


VARIABLES = [
    ({"env": {"KEY": b"hunter2"}}, "SandboxSpec.env must map text to text, not 'KEY' to bytes"),
    ({"env": {"KEY": None}}, "SandboxSpec.env must map text to text, not 'KEY' to NoneType"),
    ({"env": {3: "hunter2"}}, "SandboxSpec.env must map text to text, not 3 to str"),
    ({"env": {"": "hunter2"}}, "SandboxSpec.env has the invalid name ''"),
    ({"env": {"KEY=": "hunter2"}}, "SandboxSpec.env has the invalid name 'KEY='"),
    ({"env": {"KEY": "hunter2\0"}}, r"SandboxSpec.env\['KEY'\] contains a NUL character"),
    ({"env": {"KEY": "hunter2\ud83d"}}, r"SandboxSpec.env\['KEY'\] is not valid text"),
]


@pytest.mark.parametrize("name", registry.names())
@pytest.mark.parametrize(("fields", "says"), [*SPECS, *VARIABLES])
def test_a_spec_of_a_backend(
    fields: dict[str, Any], says: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing to work with: whoever looks for a service, a program or a key first says something else.
    for variable in ("ISLO_API_KEY", "OPEN_SANDBOX_DOMAIN", "OPEN_SANDBOX_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    made = getattr(registry.backend_class(name), "from_environment", registry.backend_class(name))()
    with pytest.raises(SandboxTerminalError, match=says) as caught:
        made.create(spec=SandboxSpec(**fields))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SandboxTerminalError, match="spec must be a SandboxSpec, not dict"):
        made.create(spec={"block_network": True})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "option", "value", "says"),
    [
        ("local", "read_only_paths", None, "read_only_paths must be a sequence of paths, got None"),
        ("local", "read_only_paths", "/opt", "read_only_paths must be a sequence of paths, got '/opt'"),
        ("local", "read_only_paths", [3], "read_only_paths must be absolute paths, got 3"),
        ("local", "read_only_paths", ["opt"], "read_only_paths must be absolute paths, got 'opt'"),
        ("local", "memory_mb", "2g", "memory_mb must be a whole number of at least 16, got '2g'"),
        ("local", "max_processes", 501, "max_processes must be a whole number from 1 to 500, got 501"),
        ("local", "cpu_seconds", 1.5, "cpu_seconds must be a whole number"),
        ("local", "max_file_bytes", True, "max_file_bytes must be a whole number"),
        ("sbx", "image", 3, "image must be a string, got 3"),
        ("sbx", "memory", 2, "memory must be a string, got 2"),
        ("sbx", "sbx_path", ["sbx"], "sbx_path must be a string"),
        ("sbx", "cpus", 1.5, "cpus must be a whole number, got 1.5"),
        ("sbx", "cpus", "2", "cpus must be a positive finite number, got '2'"),
        ("islo", "image", 3, "image must be a string, got 3"),
        ("islo", "image", "", "image must not be empty"),
        ("islo", "vcpus", 1.5, "vcpus must be a whole number, got 1.5"),
        ("islo", "memory_mb", "2048", "memory_mb must be a positive finite number"),
        ("islo", "auto_resume", True, "auto_resume must be one of"),
        ("opensandbox", "image", None, "image must not be empty"),
        ("opensandbox", "image", 3, "image must be a string, got 3"),
        ("opensandbox", "cpu", 2, "cpu must be a string, got 2"),
        ("opensandbox", "memory", ["2Gi"], "memory must be a string"),
        ("opensandbox", "use_server_proxy", "no", "use_server_proxy must be True or False, got 'no'"),
        ("opensandbox", "opensandbox_conn_id", 3, "opensandbox_conn_id must be the name of a connection"),
    ],
)
def test_arguments_of_a_backend(name: str, option: str, value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        backend(name, **{option: value})
