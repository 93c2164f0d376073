"""Reads the YAML of rules files, with the line and column of every part."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from dynsched.rules.rule_errors import RuleError


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML document: its data, and the YAML nodes, which have the position of each part."""

    root: yaml.Node | None = None
    data: object = None
    duplicates: tuple[RuleError, ...] = ()


NO_DOCUMENT: Final = Document()


class YamlError(Exception):
    """Raised for text that cannot be read. ``line`` and ``column`` start at 1; None if unknown."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class _Loader(yaml.SafeLoader):
    """Reads numbers like YAML 1.2 and kubectl. PyYAML reads them like YAML 1.1, where 0100 is 64,
    1:20 is 80, and 8e1 is text.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Reject anchors and aliases, because a small text could expand into a huge document."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None):
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise YamlError(
                f"anchors and aliases ({sign}{event.anchor}) were removed in 0.3.0; instead: write "
                "the value in each place",
                event.start_mark.line + 1,
                event.start_mark.column + 1,
            )
        return super().compose_node(parent, index)


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node))
    return float(re.sub(r"\.(?=[a-zA-Z])", "", text))  # .inf and .nan


_DECIMAL: Final = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
_NUMBERS: Final = (
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", _int),
    ("float", rf"{_DECIMAL}|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", _float),
)
_TAGS: Final = [f"tag:yaml.org,2002:{name}" for name, *_ in _NUMBERS]
_Loader.yaml_implicit_resolvers = {
    first: [each for each in found if each[0] not in _TAGS]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, (_, _form, _construct) in zip(_TAGS, _NUMBERS, strict=True):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_form})\Z"), list("-+.0123456789"))
    _Loader.add_constructor(_tag, _construct)


def read_documents(text: str) -> tuple[Document, ...]:
    """The documents in a text; none in an empty one.

    Raises YamlError. The constructors of PyYAML may raise other exceptions.
    """
    try:
        return tuple(_documents(_Loader(text)))
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1
        problem = f"not YAML: the character U+{error.character:04X} must not stand in it"
        raise YamlError(problem, line, column) from None
    except yaml.MarkedYAMLError as error:
        raise _marked(text, error) from None
    except RecursionError:
        raise YamlError("nested too deeply for a rules file") from None


def _documents(loader: _Loader) -> Iterable[Document]:
    while loader.check_node():
        root = loader.get_node()
        # Before the data is constructed, which resolves merge keys in the nodes themselves.
        duplicates = tuple(_duplicate_keys(root, ()))
        data = loader.construct_document(root)
        yield Document(root, data, duplicates)


def _marked(text: str, error: yaml.MarkedYAMLError) -> YamlError:
    mark = error.problem_mark or error.context_mark
    what = ", ".join(part for part in (error.context, error.problem) if part)
    what = f"not YAML: {what}"
    if mark is None:
        return YamlError(what)
    line = "".join(text.splitlines()[mark.line : mark.line + 1])
    if re.search(r"\bop:\s*>", line):
        what += '; an op with > needs quotes in YAML: ">="'
    return YamlError(what, mark.line + 1, mark.column + 1)


def _duplicate_keys(node: yaml.Node | None, path: tuple[str | int, ...]) -> Iterable[RuleError]:
    """Keys that occur twice. PyYAML would take the last one and silently drop the other."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicate_keys(item, (*path, index))
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # not a valid key: constructing the data reports it
            name = str(key.value)
            if name in keys:
                yield RuleError((*path, name), "this key occurs twice")
            keys.add(name)
            yield from _duplicate_keys(value, (*path, name))


def locate(root: yaml.Node | None, path: tuple[str | int, ...]) -> tuple[int, int]:
    """Line and column (from 1) of a path's key, or of the nearest parent that exists."""
    if root is None:
        return 1, 1
    mark, node = root.start_mark, root
    for part in path:
        found: list[tuple[yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            # The last occurrence of a key counts, as in PyYAML.
            found = [pair for pair in node.value if pair[0].value == str(part)][-1:]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            found = [(item, item) for item in node.value[part : part + 1]]
        if not found:
            break
        mark, node = found[0][0].start_mark, found[0][1]
    return mark.line + 1, mark.column + 1
