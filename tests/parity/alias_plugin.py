# SPDX-License-Identifier: Apache-2.0
"""pytest plugin: run tests written for one package against another one.

    PEER_ALIAS_MAP=map.json PYTHONPATH=<folder of this file> python -m pytest -p alias_plugin <tests>

The JSON file maps the module name a test imports to the module that must answer:

    {"airflow.providers.common.ai.sandbox.output": "sandbox_native.output"}

From then on ``import <first>``, ``from <parent> import <leaf>``, ``mock.patch("<first>.x")`` and
``monkeypatch.setattr("<first>.x", ...)`` all reach the *same* module object as ``import <second>``.

* ``<second>`` may be an attribute of an importable module (submodules of an extension module).
* Private names that the test files import at module level and the other module does not have are
  filled with an object that raises AttributeError on use (three get a working stand-in), so that a
  whole file is not lost at collection. PEER_ALIAS_NO_STUBS=1 switches that off.
* PEER_ALIAS_REPORT=1 prints, at the end, which file answered for each name, the names that were
  filled in, and how often each function of the second modules was entered during the tests.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections import Counter

import pytest

_BASE = "airflow.providers.common.ai.sandbox"
# What the copied test files, and upstream's modules that stay in place beside an aliased one, import
# at module level besides public names.
_PRIVATE_IMPORTS = {
    f"{_BASE}.base": [
        "_new_sandbox_name",
        "_validate_positive_finite",
        "_check_export_deadline",
        "_export_deadline",
        "_EXPORT_CHUNK_BYTES",
    ],
    f"{_BASE}.islo": ["_COMMAND_WRAPPER", "_SERVER_STREAM_CAP", "_bound_result_stream"],
    f"{_BASE}.sbx": ["_KILL_AFTER"],
}
# Class attributes read while test_islo is collected (in a parametrize list).
_PRIVATE_CLASS_ATTRS = {
    f"{_BASE}.islo": (
        "IsloSandboxBackend",
        ["_MISSING_PATH_STATUS", "_IS_DIRECTORY_STATUS", "_NOT_REGULAR_FILE_STATUS", "_TOO_LARGE_STATUS"],
    )
}

_map: dict[str, str] = {}
_stubbed: list[str] = []
_calls: Counter[str] = Counter()
_files: dict[str, str] = {}


def _stand_in_validate(value, name):
    if isinstance(value, bool) or value != value or value in (float("inf"), float("-inf")) or value <= 0:
        raise ValueError(f"{name} must be a positive finite number, got {value!r}.")


def _stand_in_name():
    import uuid

    return f"airflow-sandbox-{uuid.uuid4().hex[:12]}"


# Upstream modules left in place beside an aliased ``base`` cannot work without these two, so where
# the other module lacks them they get working stand-ins of ours. The tests of these two names
# (TestValidation, TestSandboxName) then say nothing; they are not in behavioural.txt.
# _EXPORT_CHUNK_BYTES only has to exist for TestDefaultExport's fixture to be able to set it.
_WORKING = {
    "_validate_positive_finite": _stand_in_validate,
    "_new_sandbox_name": _stand_in_name,
    "_EXPORT_CHUNK_BYTES": 4 * 1024 * 1024,
}


class _Absent:
    """Stands for a private name the aliased module does not have."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _raise(self, *_a, **_k):
        raise AttributeError(
            f"{object.__getattribute__(self, '_name')} is not provided by the aliased module"
        )

    __call__ = __str__ = __int__ = __float__ = __index__ = __len__ = __iter__ = _raise
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __lt__ = __gt__ = __le__ = __ge__ = _raise

    def __getattr__(self, item):
        if item.startswith("__"):
            raise AttributeError(item)
        self._raise()

    def __repr__(self) -> str:
        return f"<absent {object.__getattribute__(self, '_name')}>"


def _load(target: str):
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as e:
        # A submodule of an extension module is an attribute, not an importable name.
        parent, _, leaf = target.rpartition(".")
        if not parent or (e.name is not None and e.name not in (target, parent)):
            raise
        owner = _load(parent)
        if not hasattr(owner, leaf):
            raise
        return getattr(owner, leaf)


def _fill_in(fullname: str, module) -> None:
    """Give ``module`` the private names that test files import at module level and it lacks."""
    if os.environ.get("PEER_ALIAS_NO_STUBS") == "1":
        return
    for private in _PRIVATE_IMPORTS.get(fullname, ()):
        if not hasattr(module, private):
            setattr(module, private, _WORKING.get(private) or _Absent(f"{module.__name__}.{private}"))
            _stubbed.append(f"{fullname}.{private}")
    cls_name, attrs = _PRIVATE_CLASS_ATTRS.get(fullname, ("", ()))
    cls = getattr(module, cls_name, None) if cls_name else None
    for attr in attrs if cls is not None else ():
        if not hasattr(cls, attr):
            setattr(cls, attr, _Absent(f"{module.__name__}.{cls_name}.{attr}"))
            _stubbed.append(f"{fullname}.{cls_name}.{attr}")


def _install() -> None:
    path = os.environ.get("PEER_ALIAS_MAP")
    if not path:
        return
    with open(path, encoding="utf-8") as f:
        _map.update(json.load(f))
    # The first package is loaded as it is, then the second modules: one that builds on it gets the real one.
    for fullname in _map:
        importlib.import_module(fullname)
    modules = {fullname: _load(target) for fullname, target in _map.items()}
    for fullname, module in modules.items():
        parent, _, leaf = fullname.rpartition(".")
        importlib.import_module(parent)
        sys.modules[fullname] = module
        setattr(sys.modules[parent], leaf, module)
        _fill_in(fullname, module)
        _files[fullname] = getattr(module, "__file__", None) or repr(module)


def pytest_load_initial_conftests(early_config, parser, args):
    # Never reached before conftest files of the command line are imported.
    _install_once()


_done = False


def _install_once() -> None:
    global _done
    if not _done:
        _done = True
        # Same home for airflow's config and database as tests/conftest.py gives it.
        if "AIRFLOW_HOME" not in os.environ:
            import tempfile

            os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="peer-airflow-")
        os.environ.setdefault("AIRFLOW__CORE__UNIT_TEST_MODE", "True")
        os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        _install()


if os.environ.get("PEER_ALIAS_REPORT") == "1":

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item):
        wanted = {f: n for n, f in _files.items()}

        def profile(frame, event, arg):
            if event == "call" and frame.f_code.co_filename in wanted:
                _calls[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] += 1

        sys.setprofile(profile)
        try:
            return (yield)
        finally:
            sys.setprofile(None)

    def pytest_terminal_summary(terminalreporter):
        if not _map:
            return
        terminalreporter.section("aliases")
        for fullname, target in _map.items():
            terminalreporter.line(f"{fullname} -> {target} [{_files.get(fullname)}]")
        for name in _stubbed:
            terminalreporter.line(f"filled in (absent): {name}")
        for name, n in sorted(_calls.items()):
            terminalreporter.line(f"entered {n:5d}x {name}")


def pytest_configure(config):
    _install_once()
