"""The rules as a rule file of Prometheus, so that its own tools can check them (promtool, pint)."""

from __future__ import annotations

from typing import Any

import yaml

from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.util.durations import format_duration
from dynsched.util.formatting import format_threshold


def as_prometheus_rules(rule_set: RuleSet) -> str:
    """YAML with one alert for each rule of source prometheus. ``clear_threshold`` has no
    counterpart there and is left out.
    """
    alerts = [_alert(rule) for rule in rule_set.rules if rule.expr is not None]
    groups = [{"name": "dynsched", "rules": alerts}]
    return yaml.safe_dump({"groups": groups}, sort_keys=False, allow_unicode=True, width=10**6)


def _alert(rule: Rule) -> dict[str, Any]:
    # Each on a line of its own: the expression may end in a comment.
    alert: dict[str, Any] = {
        "alert": rule.name,
        "expr": f"(\n{rule.expr}\n) {rule.op} {format_threshold(rule.threshold)}",
    }
    durations = {"for": rule.hold_duration, "keep_firing_for": rule.keep_firing_for}
    return alert | {key: format_duration(value) for key, value in durations.items() if value}
