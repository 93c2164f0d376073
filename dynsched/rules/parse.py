"""Parses a rules file into its rules, or into all errors with line and column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dynsched.rules.document import NO_DOCUMENT, Document, YamlError, locate, read_documents
from dynsched.rules.fields import MAX_RULES, Expr, Name
from dynsched.rules.lint import lint
from dynsched.rules.removed import without_removed
from dynsched.rules.rule_errors import RuleError, RulesInvalidError, explain, shown
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.rules.sections import (
    ExtenderRules,
    GuardRules,
    MarkRules,
    NodeRules,
    OrderRules,
    Profile,
    RulesModel,
)
from dynsched.util.formatting import as_mapping, one_line

DYNAMIC_SCHEDULER_KEY: Final = "Rulename"
"""The top-level key that identifies a file in the format of dynamicScheduler."""
_MAX_LINE_LENGTH: Final = 600


@dataclass(frozen=True, slots=True)
class ParsedRules:
    """A parsed rules file, or one key of a ConfigMap. ``rule_set`` is None if there are errors.

    Each error or warning is a line that begins with ``name`` and, if known, line and column.
    """

    name: str
    rule_set: RuleSet | None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    document: Document = NO_DOCUMENT

    def of_expr(self, index: int, message: str) -> str:
        """An error line about the expression of the rule at ``index``."""
        place = locate(self.document.root, _path_of_expr(self.document.data, index))
        return _line(self.name, message, *place)


def read_rules(name: str, raw: bytes) -> ParsedRules:
    """Parse a rules file. It never raises, whatever the content is."""
    try:
        documents = read_documents(raw.decode())
        if len(documents) > 1:
            problem = (
                "not YAML: expected a single document in the stream, but found another document"
            )
            return _refused(name, problem, *locate(documents[1].root, ()))
        return _rules_of(name, documents[0] if documents else NO_DOCUMENT)
    except YamlError as error:
        return _refused(name, str(error), error.line, error.column)
    except UnicodeDecodeError as error:
        begin = raw.rfind(b"\n", 0, error.start) + 1
        place = raw.count(b"\n", 0, begin) + 1, len(raw[begin : error.start].decode()) + 1
        return _refused(name, f"not UTF-8 text: {error.reason}", *place)
    except Exception as error:  # noqa: BLE001 (PyYAML may raise any kind: `!!bool maybe`)
        return _refused(name, f"it cannot be read: {type(error).__name__}: {error}")


def _refused(
    name: str, message: str, line: int | None = None, column: int | None = None
) -> ParsedRules:
    return ParsedRules(name, None, (_line(name, message, line, column),))


def _line(name: str, message: str, line: int | None = None, column: int | None = None) -> str:
    """``rules.yaml:14:5: ...``, or without a place ``rules.yaml: ...``."""
    place = "" if line is None else f"{line}:{column}:"
    return f"{name}:{place} {one_line(message, _MAX_LINE_LENGTH)}"


def _rules_of(name: str, document: Document) -> ParsedRules:
    rule_set, errors = None, document.duplicates
    given, removed = without_removed(document.data)
    try:
        rule_set = parse_rules(given)
    except RulesInvalidError as found:
        errors = (*errors, *found.errors)
    if errors or rule_set is None:
        return ParsedRules(name, None, _lines(name, document, errors))
    linted = (
        RuleError(_path_of_expr(document.data, each.index), each.message) for each in lint(rule_set)
    )
    warnings = _lines(name, document, (*removed, *linted), "warning: ")
    return ParsedRules(name, rule_set, (), warnings, document)


def _lines(
    name: str, document: Document, found: Iterable[RuleError], prefix: str = ""
) -> tuple[str, ...]:
    placed = sorted((*locate(document.root, error.path), f"{prefix}{error}") for error in found)
    return tuple(_line(name, text, line, column) for line, column, text in placed)


def _path_of_expr(data: object, index: int) -> tuple[str | int, ...]:
    """The path of the expression of the rule at ``index``, in either file format."""
    if isinstance(data, Mapping) and DYNAMIC_SCHEDULER_KEY in data:
        return (DYNAMIC_SCHEDULER_KEY, list(data[DYNAMIC_SCHEDULER_KEY])[index], "Promsql")
    return ("rules", index, "expr")


class _DynamicSchedulerRule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    promsql: Expr = Field(alias="Promsql")
    threshold: Annotated[float, Field(alias="Threshold", allow_inf_nan=False)]


class _DynamicSchedulerFile(BaseModel):
    """The rules file of dynamicScheduler; keys that it did not read are ignored here too."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rules: Annotated[
        Mapping[Name, _DynamicSchedulerRule],
        Field(alias=DYNAMIC_SCHEDULER_KEY, min_length=1, max_length=MAX_RULES),
    ]


def parse_rules(data: object) -> RuleSet:
    """Validate parsed YAML, in either format. Raises RulesInvalidError."""
    if not isinstance(data, Mapping):
        empty = "it is empty: " if data is None else ""
        wanted = f"{empty}a rules file is a mapping with the key `rules`"
        raise RulesInvalidError((RuleError((), wanted),))
    try:
        if DYNAMIC_SCHEDULER_KEY in data:
            found = _DynamicSchedulerFile.model_validate(data).rules.items()
            rules = (
                Rule(name=name, expr=rule.promsql, threshold=rule.threshold) for name, rule in found
            )
            return RuleSet(rules=tuple(rules))
        rule_set = RuleSet.model_validate(data)
    except ValidationError as error:
        raise RulesInvalidError(chain(explain(error, _KNOWN_KEYS), _cross_checks(data))) from None
    if crossed := tuple(_cross_checks(data)):
        raise RulesInvalidError(crossed)
    return rule_set


_MODELS: Final[Mapping[str, type[RulesModel]]] = {
    "": RuleSet,
    "rules": Rule,
    "mark": MarkRules,
    "nodes": NodeRules,
    "guard": GuardRules,
    "extender": ExtenderRules,
    "extender.profiles": Profile,
    "order": OrderRules,
}
_KNOWN_KEYS: Final = {
    path: [field.alias or key for key, field in model.model_fields.items()]
    for path, model in _MODELS.items()
}


def _cross_checks(data: Mapping[Any, Any]) -> Iterable[RuleError]:
    """Errors that concern several fields. They are found in raw data, so that other errors do not
    hide them.
    """
    rules = data.get("rules")
    names: dict[object, int] = {}
    shadows = set()
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        name = rule.get("name") if isinstance(rule, Mapping) else None
        if not isinstance(name, str):
            continue
        if name in names:
            yield RuleError(
                ("rules", index, "name"),
                f"{shown(name)} is the name of rules[{names[name]}] already",
            )
        names.setdefault(name, index)
        if rule.get("shadow") is True:
            shadows.add(name)
    for path, name in _rule_references(data):
        if not isinstance(name, str):
            continue
        if name not in names:
            yield RuleError(path, f"{shown(name)} is not the name of a rule")
        elif name in shadows:
            text = "is a shadow rule: it is on trial, and is not used to place pods"
            yield RuleError(path, f"{shown(name)} {text}")


def _rule_references(data: Mapping[Any, Any]) -> Iterable[tuple[tuple[str | int, ...], object]]:
    extender = as_mapping(data.get("extender"))
    reject = extender.get("reject")
    for index, name in enumerate(reject if isinstance(reject, list) else ()):
        yield ("extender", "reject", index), name
    for profile, body in as_mapping(extender.get("profiles")).items():
        for name in as_mapping(as_mapping(body).get("score")):
            yield ("extender", "profiles", profile, "score", name), name
    for name in as_mapping(as_mapping(data.get("order")).get("score")):
        yield ("order", "score", name), name
