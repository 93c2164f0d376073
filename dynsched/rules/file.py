"""The rules file, in dynsched's format or in dynamicScheduler's: rules, or all errors in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dynsched.rules.document import NO_DOCUMENT, Document, YamlError, locate, read_documents
from dynsched.rules.fields import MAX_RULES, Expr, Name
from dynsched.rules.lint import lint
from dynsched.rules.removed import without_removed
from dynsched.rules.rule_errors import MAX_ERRORS, RuleError, RulesInvalidError, explain, shown
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
from dynsched.util.errors import ExpectedError
from dynsched.util.files import read_file, read_stream
from dynsched.util.formatting import as_mapping, one_line

MAX_BYTES: Final = 256 * 1024
"""The size of a rules file. A hundred rules with long expressions take a tenth of it."""
_MAX_LINE_LENGTH: Final = 600
DYNAMIC_SCHEDULER_KEY: Final = "Rulename"
"""The top-level key by which a file in the format of dynamicScheduler is recognised."""


class RulesFileError(ExpectedError):
    """A rules file that cannot be used: every error, one ``file:line:column: ...`` each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


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


def load_rules(path: Path, flag: str = "--rules") -> RuleSet:
    """From a file or a pipe, which ``flag`` names. RulesFileError with all that is wrong in it."""
    return fixed_rules(path, flag).rule_set


def fixed_rules(path: Path, flag: str = "--rules") -> FixedRules:
    """As `load_rules`, with the warnings."""
    try:
        reading = read_rules(read_stream(path, MAX_BYTES))
    except OSError as error:
        raise unreadable(path, error, f"name the file with {flag}") from None
    return FixedRules(_used(path, reading), warnings=_warnings(path, reading))


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


def unreadable(name: str | Path, error: OSError, remedy: str) -> RulesFileError:
    """The error for a file that the system does not let us read."""
    if isinstance(error, PermissionError):
        remedy = "check its permissions"
    return RulesFileError([f"{name}: {error.strerror or error}; {remedy}"])


@dataclass(frozen=True)
class FixedRules:
    """Rules that do not change, for one pass."""

    rule_set: RuleSet
    error: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def in_force(self) -> RuleSet:
        """As in `RulesFile`."""
        return self.rule_set

    def changed(self) -> bool:
        """Never."""
        return False


class RulesFile:
    """A rules file that is read again and again. ``rule_set`` is the last valid content, and
    ``text`` its text; ``error`` says why the present one is refused, ``warnings`` what is odd in
    it, with its place.

    A first content that is refused raises RulesFileError, unless it ``may_be_refused``: then no
    rules are in force, and ``rule_set`` is None.
    """

    def __init__(self, path: Path, *, may_be_refused: bool = False) -> None:
        self._path = path
        self._last: tuple[bytes, Reading] | None = None
        self.text: str | None = None
        self.error: str | None = None
        self.warnings: tuple[str, ...] = ()
        self.rule_set: RuleSet | None = None
        try:
            self.rule_set, self.text = self._read()
        except RulesFileError as error:
            if not may_be_refused:
                raise
            self.error = str(error)

    @property
    def in_force(self) -> RuleSet:
        """``rule_set``, for what runs only once there is one."""
        assert self.rule_set is not None  # noqa: S101 (see above)
        return self.rule_set

    def changed(self) -> bool:
        """Read it again: is there a new ``rule_set``?"""
        try:
            rule_set, text = self._read()
        except RulesFileError as error:
            self.error = str(error)
            return False
        recovered, self.error = self.error is not None, None
        # The new one also where they compare equal: it matters whether an empty section is present.
        before, self.rule_set = self.rule_set, rule_set
        self.text = text  # last: who finds it in another thread finds its rules too
        return recovered or rule_set != before

    def _read(self) -> tuple[RuleSet, str]:
        try:
            raw = read_file(self._path, MAX_BYTES)
        except OSError as error:
            raise unreadable(self._path, error, "name the file with --rules") from None
        if self._last is None or self._last[0] != raw:
            self._last = raw, read_rules(raw)
        reading = self._last[1]
        rule_set = _used(self._path, reading)
        self.warnings = _warnings(self._path, reading)
        return rule_set, raw.decode()


def _used(path: Path, reading: Reading) -> RuleSet:
    if reading.rule_set is None:
        raise RulesFileError(placed(path, remark) for remark in reading.errors)
    return reading.rule_set


def _warnings(path: Path, reading: Reading) -> tuple[str, ...]:
    return tuple(placed(path, remark) for remark in reading.warnings)


def placed(name: str | Path, remark: Remark) -> str:
    """One line: ``rules.yaml:14:5: ...``, or without a place ``rules.yaml: ...``."""
    return f"{name}:{'' if remark.line is not None else ' '}{remark}"


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
    """From parsed YAML, in either format. RulesInvalidError."""
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
        given, removed = without_removed(data)
        rule_set = RuleSet.model_validate(given, context=removed)
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
    """Errors that concern several fields, in raw data: found even if there are other errors."""
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
            text = "is a shadow rule: it is on trial, and pods are not placed by it"
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
