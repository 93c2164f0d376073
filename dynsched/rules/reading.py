"""The text of a rules file -> its rules, or all errors in it with their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dynsched.rules.document import NO_DOCUMENT, Document, YamlError, locate, read_documents
from dynsched.rules.lint import lint
from dynsched.rules.parse import DYNAMIC_SCHEDULER_KEY, parse_rules
from dynsched.rules.rule_errors import MAX_ERRORS, RuleError, RulesInvalidError
from dynsched.rules.rule_set import RuleSet
from dynsched.util.formatting import one_line

_MAX_LINE_LENGTH: Final = 600


@dataclass(frozen=True, slots=True)
class Remark:
    """Line and column are from 1, and None where they are not known."""

    line: int | None
    column: int | None
    message: str

    def __str__(self) -> str:
        message = one_line(self.message, _MAX_LINE_LENGTH)
        return message if self.line is None else f"{self.line}:{self.column}: {message}"


@dataclass(frozen=True, slots=True)
class Reading:
    """``rule_set`` is None where there are errors; ``warnings`` are those of lint."""

    rule_set: RuleSet | None
    errors: tuple[Remark, ...] = ()
    warnings: tuple[Remark, ...] = ()
    document: Document = NO_DOCUMENT


NOT_READ: Final = Reading(None)


def read_rules(raw: bytes) -> Reading:
    """Raises nothing, whatever the content is."""
    try:
        documents = read_documents(raw.decode())
        if len(documents) > 1:
            problem = (
                "not YAML: expected a single document in the stream, but found another document"
            )
            return _refused(problem, *locate(documents[1].root, ()))
        return _rules_of(documents[0] if documents else NO_DOCUMENT)
    except YamlError as error:
        return _refused(str(error), error.line, error.column)
    except UnicodeDecodeError as error:
        begin = raw.rfind(b"\n", 0, error.start) + 1
        column = len(raw[begin : error.start].decode()) + 1
        return _refused(f"not UTF-8 text: {error.reason}", raw.count(b"\n", 0, begin) + 1, column)
    except Exception as error:  # noqa: BLE001 (a content that we did not think of is refused)
        kind = type(error).__name__
        return _refused(f"it cannot be read because of a bug in dynsched: {kind}: {error}")


def _refused(message: str, line: int | None = None, column: int | None = None) -> Reading:
    return Reading(None, (Remark(line, column, message),))


def _rules_of(document: Document) -> Reading:
    rule_set, errors = None, document.duplicates
    try:
        rule_set = parse_rules(document.data)
    except RulesInvalidError as found:
        errors = (*errors, *found.errors)
    if errors or rule_set is None:
        last = (Remark(None, None, "and more errors"),) if len(errors) > MAX_ERRORS else ()
        return Reading(None, (*_located(document, errors[:MAX_ERRORS]), *last))
    warned = (
        RuleError(each.path or _path_of_expr(document.data, each.index), each.message)
        for each in lint(rule_set)
    )
    return Reading(rule_set, (), _located(document, warned), document)


def at_expr(document: Document, index: int, message: str) -> Remark:
    """A message about the expression of the rule at ``index``, at its place."""
    return Remark(*locate(document.root, _path_of_expr(document.data, index)), message)


def _path_of_expr(data: object, index: int) -> tuple[str | int, ...]:
    """Where the expression of the rule at ``index`` stands in a document, in either format."""
    if isinstance(data, Mapping) and DYNAMIC_SCHEDULER_KEY in data:
        return (DYNAMIC_SCHEDULER_KEY, list(data[DYNAMIC_SCHEDULER_KEY])[index], "Promsql")
    return ("rules", index, "expr")


def _located(document: Document, found: Iterable[RuleError]) -> tuple[Remark, ...]:
    remarks = sorted((*locate(document.root, error.path), str(error)) for error in found)
    return tuple(Remark(line, column, text) for line, column, text in remarks)
