"""What ``dynsched check`` is given: rules files, standard input, ConfigMaps with rules in them."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from dynsched.rules.document import YamlError, find, locate, read_documents
from dynsched.rules.file import MAX_BYTES, Remark, path_of_expr, placed, read_rules, unreadable
from dynsched.rules.rule_set import RuleSet
from dynsched.util.files import read_stream

STANDARD_INPUT: Final = Path("-")

_USUAL_NAMES: Final = frozenset({"rules.yaml", "rules.yml", "rule.yaml", "rule.yml"})
_RULES_KEY: Final = re.compile(r"""^\s*\{?\s*["']?(?:rules|Rulename)["']?\s*:""", re.MULTILINE)
_LINE_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""As YAML breaks lines."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One rules file, or one key of a ConfigMap. Each error and warning is a line that begins with
    the file and, where known, line and column. ``place_in_expr`` makes such a line of a message
    about the expression of the rule at an index.
    """

    name: str
    rule_set: RuleSet | None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    place_in_expr: Callable[[int, str], str] = lambda _, message: message


def check(path: Path, remedy: str) -> tuple[Checked, ...]:
    """Check a file, or standard input for ``-``; of Kubernetes objects the rules in ConfigMaps.
    ``remedy``: what to do where there is no such file.
    """
    is_stdin = path == STANDARD_INPUT
    name = "standard input" if is_stdin else str(path)
    try:
        if is_stdin and sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed")  # noqa: TRY301 (as one that cannot be read)
        raw = read_stream(sys.stdin.fileno() if is_stdin else path, MAX_BYTES)
    except OSError as error:
        return (Checked(name, None, unreadable(name, error, remedy).lines),)
    objects = _objects(raw)
    if objects is None:
        return (_checked(name, raw, partial(placed, name)),)
    found = tuple(_in_config_maps(name, raw.decode(), objects))
    problem = f"{name}: there are Kubernetes objects in it, but no ConfigMap with rules"
    return found or (Checked(name, None, (problem,)),)


def _objects(raw: bytes) -> list[yaml.Node] | None:
    """The Kubernetes objects in a text, those of a List included; None where there are none."""
    try:
        documents = read_documents(raw.decode())
    except (UnicodeDecodeError, YamlError):
        return None  # the error is reported when the text is parsed as a rules file
    objects: list[yaml.Node] = []
    for document in documents:
        items = find(document.root, "items")
        if isinstance(items, yaml.SequenceNode) and _text(document.root, "kind").endswith("List"):
            objects += items.value
        elif document.root is not None:
            objects.append(document.root)
    return objects if any(_text(root, "kind") for root in objects) else None


def _in_config_maps(file: str, text: str, objects: Iterable[yaml.Node]) -> Iterable[Checked]:
    for root in objects:
        data = find(root, "data")
        if _text(root, "kind") != "ConfigMap" or not isinstance(data, yaml.MappingNode):
            continue
        names = (_text(root, "metadata", key) for key in ("namespace", "name"))
        full_name = "/".join(filter(None, names))
        for key, value in data.value:
            if isinstance(value, yaml.ScalarNode) and (
                key.value in _USUAL_NAMES or _RULES_KEY.search(value.value)
            ):
                name = f"{file}: ConfigMap {full_name or 'without a name'}, {key.value}"
                place = partial(_place_in_object, file, key, value, text)
                yield _checked(name, value.value.encode(), place)


def _place_in_object(
    file: str, key: yaml.Node, value: yaml.ScalarNode, text: str, remark: Remark
) -> str:
    """By the line in the file; where that cannot be told (a text in quotes may be folded), by that
    of ``key``, and the line in the text.
    """
    start = key.start_mark.line + 1, key.start_mark.column + 1
    if remark.line is None or remark.column is None:
        return placed(file, Remark(*start, remark.message))
    if value.style == "|":
        line, column = _place_in_block(text, value, remark.line, remark.column)
        return placed(file, Remark(line, column, remark.message))
    where = f"line {remark.line}, column {remark.column} of {key.value}"
    return placed(file, Remark(*start, f"{where}: {remark.message}"))


def _place_in_block(text: str, node: yaml.ScalarNode, line: int, column: int) -> tuple[int, int]:
    """Where in ``text`` a line and column (from 1) of ``node``'s value are, a block after ``|``."""
    written = text[node.start_mark.index : node.end_mark.index]
    rows = zip(_LINE_BREAK.split(written)[1:], _LINE_BREAK.split(node.value), strict=False)
    indent = next((len(row) - len(inner) for row, inner in rows if inner), 0)
    return node.start_mark.line + 1 + line, column + indent


def _checked(name: str, raw: bytes, place: Callable[[Remark], str]) -> Checked:
    reading = read_rules(raw)
    return Checked(
        name,
        reading.rule_set,
        tuple(place(remark) for remark in reading.errors),
        tuple(
            place(replace(remark, message=f"warning: {remark.message}"))
            for remark in reading.warnings
        ),
        partial(_place_in_expr, raw, place),
    )


def _place_in_expr(raw: bytes, place: Callable[[Remark], str], index: int, message: str) -> str:
    document = read_documents(raw.decode())[0]
    return place(Remark(*locate(document.root, path_of_expr(document.data, index)), message))


def _text(node: yaml.Node | None, *path: str) -> str:
    value = find(node, *path)
    return str(value.value) if isinstance(value, yaml.ScalarNode) else ""
