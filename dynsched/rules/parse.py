"""Parsed YAML -> RuleSet, in dynsched's format or in dynamicScheduler's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dynsched.rules.fields import MAX_RULES, Expr, Name
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
from dynsched.util.formatting import as_mapping

DYNAMIC_SCHEDULER_KEY: Final = "Rulename"
"""The top-level key by which a file in the format of dynamicScheduler is recognised."""


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
