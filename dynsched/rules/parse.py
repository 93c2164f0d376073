"""From the parsed content of a rules file to rules, or to all its errors. It may be in dynsched's
format, or in dynamicScheduler's.

The file itself is read by ``dynsched.rules.file``, which turns an error's path into line:column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dynsched.rules.fields import MAX_RULES, Expr, Name
from dynsched.rules.rule_errors import RuleError, RulesInvalidError, explain, shown
from dynsched.rules.rule_set import (
    EarlyMark,
    ExtenderRules,
    FileRule,
    GuardRules,
    MarkRules,
    NodeRules,
    Profile,
    RuleSet,
)

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

    def as_rule_set(self) -> RuleSet:
        return RuleSet(
            rules=tuple(
                FileRule(name=name, expr=rule.promsql, threshold=rule.threshold)
                for name, rule in self.rules.items()
            )
        )


def parse_rules(data: object) -> RuleSet:
    """A RuleSet from the parsed YAML of a rules file, in either format.

    Raises RulesInvalidError with all errors at once (if there are very many, with the first ones).
    """
    if not isinstance(data, Mapping):
        raise RulesInvalidError((RuleError((), "a rules file is a mapping with the key `rules`"),))
    try:
        if DYNAMIC_SCHEDULER_KEY in data:
            return _DynamicSchedulerFile.model_validate(data).as_rule_set()
        rule_set = RuleSet.model_validate(data)
    except ValidationError as error:
        raise RulesInvalidError(chain(explain(error, _KNOWN_KEYS), _cross_checks(data))) from None
    if crossed := tuple(_cross_checks(data)):
        raise RulesInvalidError(crossed)
    return rule_set


_SECTIONS: Final = (MarkRules, NodeRules, GuardRules, ExtenderRules, Profile)
_KNOWN_KEYS: Final = frozenset(
    field.alias or name
    for model in (RuleSet, *_SECTIONS, FileRule, EarlyMark)
    for name, field in model.model_fields.items()
)


def _cross_checks(data: Mapping[Any, Any]) -> Iterable[RuleError]:
    """Errors that concern several fields. They are looked for in the raw data, so that they are
    found even if there are other errors.
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
    extender = data.get("extender")
    if isinstance(extender, Mapping):
        for path, name in _rule_references(extender):
            if isinstance(name, str) and name not in names:
                yield RuleError(("extender", *path), f"{shown(name)} is not the name of a rule")
            elif name in shadows:
                text = (
                    f"{shown(name)} is a shadow rule: it is on trial, and pods are not placed by it"
                )
                yield RuleError(("extender", *path), text)


def _rule_references(
    extender: Mapping[Any, Any],
) -> Iterable[tuple[tuple[str | int, ...], object]]:
    reject = extender.get("reject")
    for index, name in enumerate(reject if isinstance(reject, list) else ()):
        yield ("reject", index), name
    profiles = extender.get("profiles")
    for profile, body in profiles.items() if isinstance(profiles, Mapping) else ():
        score = body.get("score") if isinstance(body, Mapping) else None
        for name in score if isinstance(score, Mapping) else ():
            yield ("profiles", profile, "score", name), name
