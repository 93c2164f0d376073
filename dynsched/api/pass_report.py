"""Snapshot -> the JSON of `dynsched plan -o json`, from which its tables are made as well. Pure."""

from __future__ import annotations

import msgspec

from dynsched.api.nodes import encode_each
from dynsched.api.status import rules_answer
from dynsched.engine.health import crowding, why_incomplete
from dynsched.engine.snapshot import Snapshot
from dynsched.rules.lint import doubts, obsolete
from dynsched.util.formatting import format_time


def pass_report(snapshot: Snapshot) -> bytes:
    """All that one pass found, on one line of JSON: what would be written, every rule as in
    `/rules`, every node as in `/nodes`, and every sample that found no node.
    """
    errors = why_incomplete(snapshot)
    views = snapshot.nodes.of(sorted(snapshot.nodes))
    return msgspec.json.encode(
        {
            "ok": not errors,
            "errors": errors,
            "warnings": _warnings(snapshot),
            "mark": str(snapshot.rule_set.mark),
            "taken_at": format_time(snapshot.taken_at),
            "patches": snapshot.planned,
            "rules": rules_answer(snapshot)["rules"],
            "nodes": encode_each(snapshot, views),
            "unmatched_samples": [
                {"rule": found.rule, "value": found.value, "reason": found.reason}
                for found in snapshot.unmatched
            ],
        }
    )


def _warnings(snapshot: Snapshot) -> list[str]:
    """Rules that answer, and still will hardly do what was meant; one line for each cause."""
    return [
        *map(str, obsolete(snapshot.rule_set)),
        *(f"rule {doubt.rule}: {doubt.message}" for doubt in doubts(snapshot.rule_set)),
        *(
            f"rule {name} has more than one series for a node: {reason}"
            for name, reason in crowding(snapshot).items()
            if reason is not None
        ),
    ]
