# SPDX-License-Identifier: Apache-2.0
"""The house rules that no compiler checks.

Dependencies point one way: backends -> python/sandbox_native -> csrc/py -> csrc/net -> csrc/core. The program
that runs inside a sandbox (csrc/guest) stands beside them on csrc/core alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sandbox_native._sandbox_native as native

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "sandbox_native"
# Layer of csrc -> what its files may include by a quoted name.
C_LAYERS = {
    "core": {"core"},
    "net": {"net", "core"},
    "py": {"py", "net", "core"},
    "guest": {"guest", "core"},
}
BANNED = ("strcpy", "strcat", "sprintf", "vsprintf", "strtok", "atoi", "gets", "alloca", "system")
MAX_LINES = 800


def files(pattern: str, *folders: str) -> list[Path]:
    found = sorted(path for folder in folders for path in (ROOT / folder).rglob(pattern) if path.is_file())
    assert found, f"no {pattern} in {folders}"
    return found


def c_files(*layers: str) -> list[Path]:
    return [path for layer in layers for path in files("*.[ch]", f"csrc/{layer}")]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


# ---- C -------------------------------------------------------------------------------------------------


def c_code(path: Path) -> str:
    """The text of a C file without comments, strings and character constants."""
    noise = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
    return noise.sub(lambda match: " " + "\n" * match[0].count("\n"), path.read_text())


def includes(path: Path) -> list[tuple[str, str]]:
    """Each include as the sign that opens it and its name."""
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("layer", C_LAYERS)
def test_c_layers_point_one_way(layer: str) -> None:
    for path in c_files(layer):
        for sign, name in includes(path):
            if sign == '"':
                assert name.split("/")[0] in C_LAYERS[layer], f"{relative(path)} includes {name}"
                assert (ROOT / "csrc" / name).is_file(), f"{relative(path)} includes {name}"


def test_only_the_upper_layers_know_python_and_curl() -> None:
    def users(header: str) -> set[str]:
        return {
            path.parent.name for path in c_files(*C_LAYERS) for _, name in includes(path) if name == header
        }

    assert users("Python.h") == {"py"}
    assert users("curl/curl.h") <= {"net"}


def test_a_c_file_includes_its_own_header_first() -> None:
    for path in c_files(*C_LAYERS):
        if path.suffix == ".c" and path.with_suffix(".h").is_file():
            own = f"{path.parent.name}/{path.stem}.h"
            assert includes(path)[0][1] == own, relative(path)


@pytest.mark.parametrize("folder", ["csrc", "tests/core"])
def test_banned_functions_are_absent(folder: str) -> None:
    call = re.compile(rf"\b({'|'.join(BANNED)})\s*\(")
    for path in files("*.[ch]", folder):
        assert not (match := call.search(c_code(path))), f"{relative(path)} calls {match[1]}"


def test_functions_that_can_fail_announce_it() -> None:
    # Who does not look at a status gets a warning of the compiler.
    declaration = re.compile(r"^(?!static)(?P<before>[\w ]*)enum sn_status sn_\w+\(", re.MULTILINE)
    for path in files("*.h", "csrc"):
        for match in declaration.finditer(c_code(path)):
            assert "SN_WARN_UNUSED" in match["before"], f"{relative(path)}: {match[0]}"


def test_the_stub_names_what_the_extension_exports() -> None:
    stub = ast.parse((ROOT / "python" / PACKAGE / "_sandbox_native.pyi").read_text())
    named: set[str] = set()
    for node in stub.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            named.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            named.add(node.target.id)
    assert named == {name for name in vars(native) if not name.startswith("__")}


# ---- Python --------------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    root, prefix = (
        (ROOT / "backends", f"{PACKAGE}.backends")
        if "backends" in path.parts
        else (
            ROOT / "python" / PACKAGE,
            PACKAGE,
        )
    )
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join([prefix, *(part for part in parts if part != "__init__")])


def modules() -> dict[str, Path]:
    return {module_name(path): path for path in files("*.py", f"python/{PACKAGE}", "backends")}


def imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        yield str(node.module)
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Statements that run when the module is imported."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from at_import(node.orelse)
            continue
        yield node
        for field in ("body", "orelse", "finalbody"):
            yield from at_import(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from at_import(handler.body)


def test_only_the_registry_knows_backends() -> None:
    for name, path in modules().items():
        if name.startswith(f"{PACKAGE}.backends"):
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            for target in imported(node):
                assert not target.startswith(f"{PACKAGE}.backends"), f"{name} imports {target}"
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and name != f"{PACKAGE}.registry"
            ):
                assert f"{PACKAGE}.backends" not in node.value, f"{name} names a backend's module"


def test_only_the_airflow_module_imports_airflow() -> None:
    # Besides it _home does, by name, where Airflow is loaded anyway.
    users = {
        name
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        for target in imported(node)
        if target.split(".")[0] == "airflow"
    }
    assert users == {f"{PACKAGE}.airflow"}


def test_the_contract_is_the_only_door_to_its_homes() -> None:
    users = {
        name
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        for target in imported(node)
        if target.startswith(f"{PACKAGE}._own_contract")
    }
    assert users == {f"{PACKAGE}._home"}


def test_modules_do_not_import_in_circles() -> None:
    known = modules()
    graph = {
        name: {
            target
            for node in at_import(ast.parse(path.read_text()).body)
            for target in imported(node)
            if target in known and target not in (name, PACKAGE)
        }
        for name, path in known.items()
    }
    finished: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join([*way, name])
        if name not in finished:
            for target in sorted(graph[name]):
                visit(target, (*way, name))
            finished.add(name)

    for name in graph:
        visit(name, ())
    assert sum(map(len, graph.values())) > 20, "the imports were not found"


# ---- every file ----------------------------------------------------------------------------------------


def sources() -> list[Path]:
    code = [
        path
        for pattern in ("*.py", "*.pyi", "*.[ch]", "*.sh", "Makefile", "run")
        for folder in ("csrc", "python", "backends", "tests", ".ci")
        for path in (ROOT / folder).rglob(pattern)
        if path.is_file()
    ]
    return sorted([*code, ROOT / "Makefile", ROOT / "setup.py", ROOT / "pyproject.toml"])


def test_every_source_file_names_its_licence() -> None:
    found = sources()
    assert len(found) > 100
    for path in found:
        head = path.read_text().splitlines()[:3]
        assert any("SPDX-License-Identifier: Apache-2.0" in line for line in head), relative(path)


def test_a_file_is_one_concept() -> None:
    for path in sources():
        lines = len(path.read_text().splitlines())
        assert lines <= MAX_LINES, f"{relative(path)} has {lines} lines; is it two?"


def test_nothing_is_imported_from_a_conftest() -> None:
    # Several folders have one, and where they are run together the name is that of only one of them.
    for path in files("*.py", "tests"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.module != "conftest", relative(path)
            elif isinstance(node, ast.Import):
                assert all(alias.name != "conftest" for alias in node.names), relative(path)
