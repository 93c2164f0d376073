"""The inputs of ``dynsched check``: rules files, standard input, ConfigMaps with rules in them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from dynsched.rules.document import read_documents
from dynsched.rules.file import MAX_BYTES, unreadable
from dynsched.rules.parse import ParsedRules, read_rules
from dynsched.util.files import read_stream
from dynsched.util.formatting import as_mapping, as_mappings

STANDARD_INPUT: Final = Path("-")

_USUAL_NAMES: Final = frozenset({"rules.yaml", "rules.yml", "rule.yaml", "rule.yml"})
_RULES_KEY: Final = re.compile(r"""^\s*\{?\s*["']?(?:rules|Rulename)["']?\s*:""", re.MULTILINE)


def check(path: Path, remedy: str) -> tuple[ParsedRules, ...]:
    """Check a file, or standard input for ``-``. If it has Kubernetes objects, check the rules in
    its ConfigMaps. ``remedy`` is what to do if the file cannot be read.
    """
    is_stdin = path == STANDARD_INPUT
    name = "standard input" if is_stdin else str(path)
    try:
        raw = read_stream(sys.stdin.fileno() if is_stdin else path, MAX_BYTES)
    except OSError as error:
        return (ParsedRules(name, None, unreadable(name, error, remedy).lines),)
    objects = _objects(raw)
    if not objects:
        return (read_rules(name, raw),)
    problem = f"{name}: there are Kubernetes objects in it, but no ConfigMap with rules"
    return tuple(_in_config_maps(name, objects)) or (ParsedRules(name, None, (problem,)),)


def _objects(raw: bytes) -> list[Mapping[str, Any]]:
    """The Kubernetes objects in a text, including the items of a List."""
    try:
        documents = read_documents(raw.decode())
    except Exception:  # noqa: BLE001 (as in `read_rules`)
        return []  # the error is reported when the text is parsed as a rules file
    objects: list[Mapping[str, Any]] = []
    for document in documents:
        root = as_mapping(document.data)
        is_list = str(root.get("kind")).endswith("List")
        objects += as_mappings(root.get("items")) if is_list else [root]
    return objects if any("kind" in each for each in objects) else []


def _in_config_maps(file: str, objects: Iterable[Mapping[str, Any]]) -> Iterable[ParsedRules]:
    for each in objects:
        if each.get("kind") != "ConfigMap":
            continue
        metadata = as_mapping(each.get("metadata"))
        full_name = "/".join(filter(None, map(metadata.get, ("namespace", "name"))))
        for key, text in as_mapping(each.get("data")).items():
            if isinstance(text, str) and (key in _USUAL_NAMES or _RULES_KEY.search(text)):
                name = f"{file}: ConfigMap {full_name or 'without a name'}, {key}"
                yield read_rules(name, text.encode())
