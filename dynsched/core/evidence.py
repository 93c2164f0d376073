"""What a marked node carries in ``dynsched.io/pressure``: compact JSON, written with the mark.

It says to a person why the node is marked, and to us what was put on it: after a change of the
configuration, or by ``prune``, exactly that is taken back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynsched.core import keys
from dynsched.core.marks import LabelMark, Mark, TaintMark, parse_label, parse_taint
from dynsched.core.model import Node, Verdict
from dynsched.core.rules import RuleSet
from dynsched.core.times import format_time


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the annotation says: the parts of the mark that were put, and the rules that fired."""

    label: LabelMark | None
    taint: TaintMark | None
    rules: tuple[str, ...]


def write_evidence(mark: Mark, verdict: Verdict, rule_set: RuleSet) -> str:
    """The annotation's text for a node that is being marked."""
    thresholds = {rule.name: rule for rule in rule_set.rules}
    fired = [
        {
            "rule": alert.rule,
            "value": None if alert.value is None else round(alert.value, 2),
            "threshold": thresholds[alert.rule].threshold,
            "since": format_time(alert.since),
        }
        for alert in verdict.alerts
        if alert.firing
    ]
    record = {
        "label": str(mark.label) if mark.label else None,
        "taint": str(mark.taint) if mark.taint else None,
        "since": format_time(verdict.since) if verdict.since is not None else None,
        "rules": fired,
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def read_evidence(node: Node) -> Evidence | None:
    """The evidence on a node; None when it has none. What cannot be read counts as not said."""
    text = node.annotations.get(keys.EVIDENCE_ANNOTATION)
    if text is None:
        return None
    record = _record(text)
    return Evidence(_label(record), _taint(record), _rules(record))


def fired_rules(text: str) -> tuple[str, ...]:
    """The rules that the annotation's text names."""
    return _rules(_record(text))


def _record(text: str) -> Mapping[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, Mapping) else {}


def _label(record: Mapping[str, Any]) -> LabelMark | None:
    # Parsed by the same rules as a configured mark: a forged annotation cannot make us
    # remove a label or a taint that we would never have written.
    try:
        return parse_label(record["label"])
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _taint(record: Mapping[str, Any]) -> TaintMark | None:
    try:
        return parse_taint(record["taint"])
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _rules(record: Mapping[str, Any]) -> tuple[str, ...]:
    fired = record.get("rules")
    if not isinstance(fired, list):
        return ()
    names = (entry.get("rule") for entry in fired if isinstance(entry, Mapping))
    return tuple(name for name in names if isinstance(name, str))
