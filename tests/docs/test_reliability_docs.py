"""docs/reliability.md: every row names tests, and they are there."""

from __future__ import annotations

import ast
import re
from functools import cache

from programs import ROOT

PAGE = (ROOT / "docs/reliability.md").read_text()
NAMED = re.compile(r"`(\w+\.py)::(\w+)`")
TABLE = re.compile(r"^\|(.+)\|\n\|[ |-]+\|\n((?:\|.+\|\n)+)", re.MULTILINE)


@cache
def named_in(file: str) -> frozenset[str]:
    (path,) = (ROOT / "tests").rglob(file)  # pytest wants the names of test modules to be unique
    tree = ast.parse(path.read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, functions) and node.name.startswith("test_")
    )


def rows() -> list[str]:
    """The rows of all tables that have a column of tests."""
    tables = TABLE.findall(PAGE)
    return [row for head, body in tables if "Test" in head for row in body.splitlines()]


def test_every_named_test_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert named
    assert [(file, name) for file, name in named if name not in named_in(file)] == []


def test_every_row_names_a_test() -> None:
    assert len(rows()) > 60
    for row in rows():
        last = row.rstrip("|").rpartition("|")[2]
        assert last.strip(), row
        assert NAMED.sub("", last).strip(" ,") == "", row


def test_every_test_of_faults_is_in_the_table() -> None:
    named = set(NAMED.findall(PAGE))
    for path in (ROOT / "tests" / "faults").glob("test_faults_*.py"):
        missing = named_in(path.name) - {name for file, name in named if file == path.name}
        assert missing == set(), path.name


def test_every_reason_of_an_event_is_explained() -> None:
    keys = (ROOT / "dynsched/core/keys.py").read_text()
    reasons = re.findall(r'^REASON_\w+: Final = "(\w+)"', keys, re.MULTILINE)
    assert reasons == re.findall(r"^\| `(\w+)`(?: \(Warning\))? \| the ", PAGE, re.MULTILINE)
