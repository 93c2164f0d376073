"""The YAML of rules files: read within bounds, and with the place of everything in it.

PyYAML alone would let a small file fill the memory (aliases and merge keys unfold), take a number
of a million digits, or end in an exception of nearly any kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from dynsched.rules.rule_errors import RuleError

MAX_VALUES: Final = 10_000
"""Keys and values of one file, each alias counted as all that it stands for."""
MAX_DEPTH: Final = 50
_MAX_NUMBER_LENGTH: Final = 64
"""Characters. The largest float has 24; a number of thousands takes minutes to convert."""
_WORD: Final = 63
"""Bits; a larger whole number does not fit into a float or into JSON."""

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a YAML text: its nodes (which know their place), its data, and which keys
    are there twice. ``start`` is the line (from 1) on which it begins.
    """

    root: yaml.Node | None = None
    data: object = None
    duplicates: tuple[RuleError, ...] = ()
    start: int = 1


class YamlError(Exception):
    """Text that cannot be read. ``line`` and ``column`` from 1; None where no place is known."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class _TooMuchError(yaml.MarkedYAMLError):
    """YAML, but more of it than a rules file ever has."""


class _Loader(yaml.SafeLoader):
    """Counts while it composes, so that what is too much is never built."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._sizes: dict[yaml.Node, tuple[int, int]] = {}  # unfolded: how many values, how deep
        self._count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        mark: Any = event.start_mark
        self._count += 1
        if self._count > MAX_VALUES:
            raise _too_many(mark)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep(mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if node not in self._sizes:
                problem = f"the alias *{event.anchor} stands for a value that it is a part of"
                raise _TooMuchError(problem=problem, problem_mark=mark)
        elif node is not None:
            self._measure(node)
        return node

    def _measure(self, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode):
            self._sizes[node] = (1, 1)
            if found := _CONTROL.search(node.value):
                problem = f"the character {_named(found[0])} has no place in a rules file"
                raise _TooMuchError(problem=problem, problem_mark=node.start_mark)
            return
        sizes = [self._sizes[child] for child in _children(node)]
        size = 1 + sum(values for values, _ in sizes)
        depth = 1 + max((levels for _, levels in sizes), default=0)
        self._sizes[node] = (size, depth)
        if size > MAX_VALUES:
            raise _too_many(node.start_mark)
        if depth > MAX_DEPTH:
            raise _too_deep(node.start_mark)

    def construct_object(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 (PyYAML's own signature)
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except (LookupError, AttributeError):  # what PyYAML makes of `!!bool maybe`
            problem = "a value does not fit its tag"
        except (ValueError, ArithmeticError, TypeError) as error:  # a date such as 2026-02-30
            problem = f"a value cannot be read: {error}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

    def construct_yaml_int(self, node: Any) -> Any:
        self._require_short(node)
        number = super().construct_yaml_int(node)
        if number.bit_length() > _WORD:
            problem = f"a whole number of more than {_WORD} bits"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return number

    def construct_yaml_float(self, node: Any) -> Any:
        self._require_short(node)
        return super().construct_yaml_float(node)

    def _require_short(self, node: yaml.Node) -> None:
        if len(node.value) > _MAX_NUMBER_LENGTH:
            problem = f"a number of {len(node.value)} characters"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


for _kind in ("int", "float"):
    _Loader.add_constructor(
        f"tag:yaml.org,2002:{_kind}", getattr(_Loader, f"construct_yaml_{_kind}")
    )


def read_documents(text: str) -> tuple[Document, ...]:
    """All documents of a YAML text; none for an empty one. YamlError, and no other, when it cannot
    be read or goes beyond the bounds.
    """
    try:
        loader = _Loader(text)
        try:
            return tuple(_documents(loader))
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1
        problem = f"not YAML: the character {_named(chr(error.character))} may not stand in it"
        raise YamlError(problem, line, column) from None
    except yaml.MarkedYAMLError as error:
        raise _marked(text, error) from None
    except Exception as error:  # noqa: BLE001 (any text may come, and none may do more than this)
        raise YamlError(f"not YAML: {type(error).__name__}: {error}") from None


def _documents(loader: _Loader) -> Iterable[Document]:
    while loader.check_node():
        start = loader.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        root = loader.get_node()
        # Before the data: to make it, merge keys are resolved in the nodes themselves.
        duplicates = tuple(_duplicate_keys(root, (), set()))
        data = loader.construct_document(root)
        yield Document(root, data, duplicates, start)


def _marked(text: str, error: yaml.MarkedYAMLError) -> YamlError:
    mark = error.problem_mark or error.context_mark
    what = ", ".join(part for part in (error.context, error.problem) if part)
    if not isinstance(error, _TooMuchError):
        what = f"not YAML: {what}"
    if mark is None:
        return YamlError(what)
    line = "".join(text.splitlines()[mark.line : mark.line + 1])
    if re.search(r"\bop:\s*>", line):
        what += '; an op with > needs quotes in YAML: ">="'
    return YamlError(what, mark.line + 1, mark.column + 1)


def _too_many(mark: yaml.Mark) -> _TooMuchError:
    problem = f"more than {MAX_VALUES} values, counting what aliases stand for"
    return _TooMuchError(problem=problem, problem_mark=mark)


def _too_deep(mark: yaml.Mark) -> _TooMuchError:
    return _TooMuchError(problem="nested too deeply for a rules file", problem_mark=mark)


def _named(character: str) -> str:
    return f"U+{ord(character):04X}"


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _duplicate_keys(
    node: yaml.Node | None, path: tuple[str | int, ...], seen: set[int]
) -> Iterable[RuleError]:
    """Keys that are there twice: YAML would take the last one and drop the other silently."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicate_keys(item, (*path, index), seen)
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # no key of a mapping; making the data says so
            name = str(key.value)
            if name in keys and name != "<<":
                yield RuleError((*path, name), "this key occurs twice")
            keys.add(name)
            yield from _duplicate_keys(value, (*path, name), seen)


def locate(root: yaml.Node | None, path: tuple[str | int, ...]) -> tuple[int, int]:
    """Line and column (from 1) of a path's key, or of the nearest parent that is there.

    A key's last occurrence counts, as it does for YAML.
    """
    node, mark = root, root.start_mark if root else None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            entries = [pair for pair in node.value if pair[0].value == str(part)]
            key, node = entries[-1] if entries else (None, None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            key = node = node.value[part] if part < len(node.value) else None
        else:
            break
        if key is None:
            break
        mark = key.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def locate_in_scalar(
    root: yaml.Node | None, path: tuple[str | int, ...], text: str, at: tuple[int, int]
) -> tuple[int, int] | None:
    """Line and column (from 1) in ``text``, from which ``root`` was read, of a line and a column in
    the scalar at ``path``; None where it is written in a way (with escapes, folded paragraphs) that
    they cannot be told.
    """
    node = root
    for part in path:
        if isinstance(node, yaml.MappingNode):
            values = [value for key, value in node.value if key.value == str(part)]
            node = values[-1] if values else None
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part] if part < len(node.value) else None
    if not isinstance(node, yaml.ScalarNode):
        return None
    pieces = _pieces(node, text.splitlines())
    glue = "\n" if node.style == "|" else " "
    if not pieces or glue.join(piece for _, _, piece in pieces) != node.value.rstrip("\n"):
        return None
    offset = sum(len(each) + 1 for each in node.value.split("\n")[: at[0] - 1]) + at[1] - 1
    for line, column, piece in pieces:
        if offset <= len(piece):
            return line + 1, column + offset + 1
        offset -= len(piece) + 1
    line, column, piece = pieces[-1]
    return line + 1, column + len(piece) + 1  # it ends too early, after its last line break


def _pieces(node: yaml.ScalarNode, lines: list[str]) -> list[tuple[int, int, str]]:
    """The lines of a scalar as they are written: line, column (both from 0) and text."""
    first, last = node.start_mark, node.end_mark
    is_block = node.style in ("|", ">")
    quote = 1 if node.style in ("'", '"') else 0
    pieces = []
    for number in range(first.line + is_block, min(last.line + 1, len(lines))):
        begins = first.column + quote if number == first.line and not is_block else 0
        ends = last.column - quote if number == last.line else len(lines[number])
        written = lines[number][begins:ends]
        bare = written if first.line == last.line else written.strip()
        if bare:
            pieces.append((number, begins + written.index(bare), bare))
    return pieces
