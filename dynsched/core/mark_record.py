"""The record of a mark: the annotation ``dynsched.io/pressure``, compact JSON.

It shows people why the node is marked, and tells dynsched what to remove from the node later.
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
    """A rule that was firing when the mark was written; ``since`` in Unix seconds, if recorded."""

    rule: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class MarkRecord:
    """The parsed annotation of a mark; ``since`` is in Unix seconds."""

    label: LabelMark | None
    taint: TaintMark | None
    fired: tuple[FiredRule, ...]
    since: float | None = None

    @property
    def mark(self) -> Mark:
        """The label and taint that were put on the node."""
        return Mark(self.label, self.taint)

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rules that were firing when the mark was written."""
        return tuple(each.rule for each in self.fired)

    def since_of(self, rule: str) -> float | None:
        """When a rule began to fire. For a rule that is not recorded, the record's ``since``."""
        return next((each.since for each in self.fired if each.rule == rule), self.since)


def read_record(node: Node) -> MarkRecord | None:
    """The record on a node, or None if there is none. Unreadable parts count as not recorded."""
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
    """Names of the rules in an annotation's text; empty if the text is not ours."""
    return _parse_record(text).rules


def _parse_fired(entry: Mapping[str, Any]) -> FiredRule | None:
    rule = entry.get("rule")
    return FiredRule(rule, parse_time(entry.get("since"))) if isinstance(rule, str) else None


def _parsed(parse: Callable[[str], _T], text: Any) -> _T | None:
    # Parsed like a configured mark, so that a forged annotation cannot make us remove a label or
    # taint that we would never write.
    try:
        return parse(text)
    except (TypeError, AttributeError, ValueError):
        return None


def write_record(mark: Mark, pressure: NodePressure) -> str:
    """The annotation text that `read_record` parses."""
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
