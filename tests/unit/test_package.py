# SPDX-License-Identifier: Apache-2.0
"""The package's own face: lazy names, version, registry, and what importing it does not load."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

import sandbox_native
from sandbox_native import contract, registry


def in_fresh_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_loads_nothing_else() -> None:
    loaded = in_fresh_python(
        "import sys; before = set(sys.modules); import sandbox_native; print(*set(sys.modules) - before)"
    )
    assert set(loaded.split()) <= {"sandbox_native", "__future__"}


@pytest.mark.parametrize(
    "module",
    [
        "sandbox_native",
        "sandbox_native.contract",
        "sandbox_native.output",
        "sandbox_native.registry",
        "sandbox_native.backends.local",
    ],
)
def test_nothing_heavy_is_loaded(module: str) -> None:
    heavy = ["airflow", "pydantic_ai", "pydantic", "fsspec", "upath", "http.client"]
    # What passes on cancels of a run knows asyncio, and backends are cancelled.
    heavy += [] if ".backends." in module else ["asyncio"]
    out = in_fresh_python(
        f"import sys, {module}; "
        f"print([m for m in {heavy!r} if m in sys.modules], 'libcurl' in open('/proc/self/maps').read())"
    )
    assert out.split("\n")[0] == "[] False"


def test_public_names_are_what_their_modules_have() -> None:
    for name in set(sandbox_native.__all__) - {"SandboxToolset", "__version__", "backend"}:
        assert getattr(sandbox_native, name) is getattr(contract, name)
    assert sandbox_native.backend is registry.backend
    assert sandbox_native.__version__ == version("sandbox-native")


def test_the_lists_of_names_agree() -> None:
    assert sorted(sandbox_native.__all__) == sorted(
        {*sandbox_native._MODULES, "SandboxToolset", "__version__"}
    )
    assert set(sandbox_native.__all__) <= set(dir(sandbox_native))
    assert set(contract.__all__) <= set(dir(contract))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Sandbax'"):
        sandbox_native.Sandbax  # noqa: B018


@pytest.mark.parametrize("name", ["locl", "", None, ["local"]])
def test_an_unknown_backend_is_refused_with_those_there_are(name: Any) -> None:
    with pytest.raises(ValueError, match=f"no backend .*known are: {', '.join(registry.names())}"):
        registry.backend(name)


@pytest.mark.parametrize("name", registry.names())
def test_each_registered_backend_is_one_and_has_that_name(name: str) -> None:
    cls = registry.backend_class(name)
    assert issubclass(cls, contract.SandboxBackend)
    assert cls.name == name
    assert not cls.__abstractmethods__
    # Dags are parsed on machines that have none of what a backend needs: constructors do nothing.
    assert type(registry.backend(name)) is cls


def test_an_option_that_a_backend_does_not_know_is_an_error() -> None:
    with pytest.raises(TypeError):
        registry.backend("local", colour="blue")


def test_the_toolset_is_the_plain_one_without_airflow() -> None:
    from sandbox_native import toolset

    assert sandbox_native.SandboxToolset is toolset.SandboxToolset


def test_this_process_has_the_own_home_and_says_how_to_get_the_other() -> None:
    assert contract.home == "own"
    with pytest.raises(ImportError, match="Import Airflow first"):
        contract.require_airflow_home()
