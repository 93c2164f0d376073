"""The record that goes with a mark: the annotation ``dynsched.io/pressure``, compact JSON.

It tells a person why the node is marked, and tells us what was put on the node and has to be taken
back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from dynsched.core.alerts import NodePressure
from dynsched.core.nodes import Node
from dynsched.rules import keys
from dynsched.rules.labels import LabelMark, Mark, TaintMark, parse_label, parse_taint
from dynsched.util.formatting import as_mapping, as_mappings, format_time, parse_time

_T = TypeVar("_T")


class FiredRule(NamedTuple):
    """A rule that fired when the mark was written; ``since`` in Unix seconds, if recorded."""

    rule: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class MarkRecord:
    """The annotation that goes with a mark, as it was read; ``since`` is in Unix seconds."""

    label: LabelMark | None
    taint: TaintMark | None
    fired: tuple[FiredRule, ...]
    since: float | None = None

    @property
    def mark(self) -> Mark:
        """What was put on the node."""
        return Mark(self.label, self.taint)

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules that fired when the mark was written."""
        return tuple(each.rule for each in self.fired)

    def since_of(self, rule: str) -> float | None:
        """Since when a rule fires; for a rule that is not in the record, since the mark was set."""
        return next((each.since for each in self.fired if each.rule == rule), self.since)


def read_record(node: Node) -> MarkRecord | None:
    """None when the node has none. What cannot be read counts as not recorded."""
    text = node.annotations.get(keys.EVIDENCE_ANNOTATION)
    return None if text is None else _parse_record(text)


def _parse_record(text: str) -> MarkRecord:
    try:
        record = as_mapping(json.loads(text, parse_int=float))  # others may write 400 digits
    except (ValueError, RecursionError):
        record = {}
    return MarkRecord(
        _parsed(parse_label, record.get("label")),
        _parsed(parse_taint, record.get("taint")),
        tuple(filter(None, map(_parse_fired, as_mappings(record.get("rules"))))),
        parse_time(record.get("since")),
    )


def fired_rules(text: str) -> tuple[str, ...]:
    """The names of the rules in an annotation's text; none in a text that is not ours."""
    return _parse_record(text).rules


def _parse_fired(entry: Mapping[str, Any]) -> FiredRule | None:
    rule = entry.get("rule")
    return FiredRule(rule, parse_time(entry.get("since"))) if isinstance(rule, str) else None


def _parsed(parse: Callable[[str], _T], text: Any) -> _T | None:
    # By the same rules as a configured mark: a forged annotation cannot make us remove a label or
    # a taint that we would never have written.
    try:
        return parse(text)
    except (TypeError, AttributeError, ValueError):
        return None


def write_record(mark: Mark, pressure: NodePressure) -> str:
    """The text that `read_record` reads."""
    label, taint = mark.texts
    record: dict[str, Any] = {
        "label": label,
        "taint": taint,
        "since": format_time(pressure.since) if pressure.since is not None else None,
        "rules": [
            {
                "rule": alert.rule,
                "value": None if alert.compared is None else round(alert.compared, 2),
                "threshold": rule.threshold,
                "since": format_time(alert.since),
            }
            for rule, alert in pressure.firing
        ],
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)
