"""A rule with other numbers as YAML to paste into a rules file."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import yaml

from dynsched.rules.rule_set import FileRule
from dynsched.util.durations import format_duration


def as_yaml(rule: FileRule, threshold: float, clear_threshold: float, hold: float) -> str:
    """One entry of ``rules``; what the rule does not set is not there."""
    early = rule.early and {
        name: _number(number) for name, number in rule.early.model_dump().items()
    }
    told: dict[str, Any] = {
        "name": rule.name,
        "expr": rule.expr,
        "resource": rule.resource,
        "op": rule.op,
        "threshold": _number(threshold),
        "clear_threshold": _number(clear_threshold),
        "for": format_duration(hold),
        "keep_firing_for": _duration(rule.keep_firing_for),
        "node_label": rule.node_label,
        "full_at": rule.full_at and _number(rule.full_at),
        "stale_after": _duration(rule.stale_after),
        "on_stale": rule.on_stale,
        "lag": _duration(rule.lag),
        "early": early,
        "selector": str(rule.selector) or None,
        "shadow": rule.shadow or None,
    }
    told = {name: value for name, value in told.items() if value is not None}
    text = yaml.safe_dump([told], sort_keys=False, allow_unicode=True, width=1000)
    return indent(text, "  ")


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _duration(seconds: float | None) -> str | None:
    return format_duration(seconds) if seconds else None
