# SPDX-License-Identifier: Apache-2.0
"""Which keys of ``exports`` mean what, and what a pattern matches."""

from __future__ import annotations

import fnmatch
import itertools
import re
from typing import Any

import pytest

from doubles import MemoryBackend, TaggedBackend
from sandbox_native import export_plan
from sandbox_native.export_plan import Kind, depth, matcher, split_pattern
from sandbox_native.toolset import SandboxToolset


@pytest.mark.parametrize(
    ("path", "value", "kind", "into_folder"),
    [
        ("a.csv", "s3://b/k", Kind.FILE, False),
        ("*.csv", "s3://b/k", Kind.FILE, False),
        ("a[1]?.csv", {"to": "s3://b/k", "glob": False}, Kind.FILE, False),
        ("*.csv", "s3://b/k/", Kind.FILE, False),
        ("out/", "s3://b/k.tar.gz", Kind.DIRECTORY, False),
        ("out/", "s3://b/k/", Kind.DIRECTORY, True),
        ("*/", {"to": "s3://b/k/"}, Kind.DIRECTORY, True),
        ("*.csv", {"to": "s3://b/k/", "glob": True}, Kind.GLOB, True),
        ("*.csv", {"to": "s3://b/k.tar.gz", "glob": True}, Kind.GLOB, False),
    ],
)
def test_a_key_is_exact_unless_it_says_otherwise(
    path: str, value: Any, kind: Kind, into_folder: bool
) -> None:
    entry = export_plan.entry(path, value, 100)
    assert (entry.path, entry.kind, entry.into_folder) == (path, kind, into_folder)
    assert (entry.required, entry.on_failure, entry.max_bytes) == (True, False, 100)


@pytest.mark.parametrize(
    ("exports", "named"),
    [
        ({"f": {"glob": False}}, "says not where to"),
        ({"f": {"to": ""}}, "neither may be empty"),
        ({"f": {"to": "s3://b/k", "on_fail": True}}, "no option 'on_fail'"),
        ({"f": {"to": "s3://b/k", "required": "no"}}, "required must be True or False"),
        ({"f": {"to": "s3://b/k", "glob": 1}}, "glob must be True or False"),
        ({"f": {"to": "s3://b/k", "max_bytes": 0}}, "max_bytes"),
        ({"f": {"to": "s3://b/k", "max_bytes": float("inf")}}, "max_bytes"),
        ({"f": {"to": "s3://b/k", "max_files": 2}}, "is one file"),
        ({"d/": {"to": "s3://b/k", "max_files": -1}}, "max_files"),
        ({"f": {"to": "s3://b/k", "glob": True}}, "none of"),
        ({"*/": {"to": "s3://b/k/", "glob": True}}, "slash"),
        ({"a/../*": {"to": "s3://b/k/", "glob": True}}, r"'\.\.'"),
        ({"a/**": {"to": "s3://b/k/", "glob": True}}, "alone between two slashes"),
        ({"a**/b": {"to": "s3://b/k/", "glob": True}}, "alone between two slashes"),
    ],
)
def test_options_that_cannot_be_are_refused_where_they_are_written(exports: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SandboxToolset(MemoryBackend(), exports=exports)


def test_exports_of_an_attached_sandbox_have_to_be_asked_for() -> None:
    backend = TaggedBackend({})
    exports = {"f": "memory://dest/f"}
    with pytest.raises(ValueError, match="exports cannot be combined with attach_to"):
        SandboxToolset(backend, attach_to="sb", owner="me", exports=exports)
    SandboxToolset(backend, attach_to="sb", owner="me", exports=exports, export_attached=True)
    for options in ({"exports": exports}, {"attach_to": "sb", "owner": "me"}):
        with pytest.raises(ValueError, match="export_attached only applies"):
            SandboxToolset(backend, export_attached=True, **options)
    for option in ("export_manifest", "export_conn_id"):
        with pytest.raises(ValueError, match=f"{option} only applies together with exports"):
            SandboxToolset(backend, **{option: "memory://dest/m"})


@pytest.mark.parametrize(
    ("pattern", "start", "parts", "levels"),
    [
        ("*.csv", ".", ["*.csv"], 1),
        ("./*.csv", ".", ["*.csv"], 1),
        ("a/b/*.csv", "a/b", ["*.csv"], 1),
        ("/w//a/[x]/f", "/w/a", ["[x]", "f"], 2),
        ("/*", "/", ["*"], 1),
        ("a/**/b/*.csv", "a", ["**", "b", "*.csv"], None),
        ("a/**/f", "a", ["**", "f"], None),
    ],
)
def test_where_a_pattern_starts(pattern: str, start: str, parts: list[str], levels: int | None) -> None:
    assert split_pattern(pattern) == (start, parts)
    assert depth(parts) == levels


@pytest.mark.parametrize(
    ("parts", "yes", "no"),
    [
        (["*.csv"], ["a.csv", "a\nb.csv", "é.csv"], [".csv", ".a.csv", "d/a.csv", "a.csv\n", "a.csvx"]),
        (["**", "*.csv"], ["a.csv", "d/a.csv", "d/e/a.csv"], [".d/a.csv", "d/.e/a.csv", "d/.a.csv"]),
        (["d*", "f?"], ["d/f1", "dd/fé"], ["d/f", "d/e/f1", "d/f12"]),
        (["[a-c]x"], ["ax", "cx"], ["dx", "-x", "[a-c]x"]),
        (["[!a-c]x"], ["dx"], ["ax", "/x", ".x"]),
        (["[]]", "[^]]"], ["]/a"], ["]/]", "a/a"]),
        (["[z-a]"], [], ["a", "m", "z"]),
        (["[ab"], ["[ab"], ["a", "b"]),
        (["a.b*"], ["a.b", "a.bc"], ["axb"]),
        ([".*"], [".a", "."], ["a"]),
        (["[-a]", "[a\\]"], ["-/\\", "a/a"], ["b/a"]),
    ],
)
def test_what_a_pattern_matches(parts: list[str], yes: list[str], no: list[str]) -> None:
    match = matcher(parts).match
    assert [name for name in yes if not match(name)] == []
    assert [name for name in no if match(name)] == []


def test_patterns_of_one_name_match_as_fnmatch_does() -> None:
    """For names without a dot at the beginning, which fnmatch does not know to be hidden."""
    alphabet = "a]b"
    names = ["".join(n) for size in (1, 2) for n in itertools.product(alphabet + "-![", repeat=size)]
    count = 0
    for size in (2, 3, 4):
        for letters in itertools.product("*?[]!-ab", repeat=size):
            pattern = "".join(letters)
            if not export_plan.has_magic(pattern) or "**" in pattern:
                continue
            ours, theirs = matcher([pattern]).match, re.compile(fnmatch.translate(pattern)).match
            count += 1
            for name in names:
                assert bool(ours(name)) == bool(theirs(name)), (pattern, name)
    assert count > 1000
