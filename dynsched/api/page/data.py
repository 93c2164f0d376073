"""Snapshot -> the JSON from which the page is drawn. Pure. Nodes are columns: at 5,000 of them a
third of the bytes of one object each. Times are Unix seconds.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np

from dynsched import __version__
from dynsched.api.order_status import for_the_page
from dynsched.api.page.history import LETTERS, node_states
from dynsched.api.why import notes
from dynsched.engine.columns import OK, QUALITIES, Bools, Floats, Ints
from dynsched.engine.health import is_blind, unmatched_rules
from dynsched.engine.loads import full_at
from dynsched.engine.model import AlertState, RuleHealth
from dynsched.engine.snapshot import NodeViews, Snapshot
from dynsched.engine.wording import coded
from dynsched.rules.rule_set import NO_RULES

MARKED, INELIGIBLE, CONFLICT = 1, 2, 4
"""The bits of a node in the column ``flags``."""

_LETTERS: Final = np.array([ord(quality.value[0]) for quality in QUALITIES], np.uint8)
_INACTIVE, _PENDING, _FIRING, _HELD = b"ipfh"
_NO_ALERT: Final = ord("-")
"""In both columns: the rule's selector does not select the node."""

About = Mapping[str, Any]
"""What is not in a Snapshot: see `SnapshotStore`."""
Encoded = tuple[str, bytes, bytes]
"""The ETag, the JSON, and the same as gzip."""
_LEVEL: Final = 3
"""Of compression."""


def encoded_page(snapshot: Snapshot, about: About, etag: str) -> Encoded:
    plain = page_data(snapshot, about)
    return etag, plain, gzip.compress(plain, _LEVEL)


def page_data(snapshot: Snapshot, about: About) -> bytes:
    nodes, rule_set = snapshot.nodes, snapshot.rule_set
    verdicts, names = nodes.verdicts, sorted(nodes)
    indices = nodes.indices_of(names)
    at = np.array(indices, np.int64)
    pools: dict[str, int] = {}
    noted, blind = notes(snapshot, names), unmatched_rules(snapshot)
    columns = [_column(snapshot, row, at) for row in range(len(rule_set.rules))]
    return msgspec.json.encode(
        {
            "version": __version__,
            **about,
            "taken_at": snapshot.taken_at,
            "leading": snapshot.leading,
            "leader": about["leader"] or snapshot.leader,
            "dry_run": snapshot.dry_run,
            # Without rules the error of the tick says so.
            "rules_error": None if rule_set is NO_RULES else snapshot.rules_error,
            "capped": sorted(snapshot.capped),
            "failures": len(snapshot.failures),
            "disputes": len(snapshot.disputes),
            **_unseen(snapshot),
            "mark": "" if rule_set.mark.is_none else str(rule_set.mark),
            "max_marked": str(rule_set.guard.max_marked),
            "rules": [_rule(health, blind.get(health.rule.name)) for health in snapshot.rules],
            "has_order": rule_set.order is not None,
            "order": snapshot.order and for_the_page(snapshot.order),
            "nodes": {
                "name": names,
                "pool": [pools.setdefault(pool, len(pools)) for pool in nodes.pools_at(indices)],
                "flags": _flags(nodes, names),
                "state": "".join(LETTERS[index] for index in node_states(nodes)[at].tolist()),
                "since": _sparse(~np.isnan(verdicts.since[at]), verdicts.since[at]),
                "notes": [(n, *noted[name]) for n, name in enumerate(names) if name in noted],
            },
            "pools": list(pools),
            "columns": columns,
        },
        enc_hook=coded,
    )


def _rule(health: RuleHealth, blind: str | None) -> dict[str, Any]:
    """``blind``: why none of its samples matches a node."""
    rule = health.rule
    return {
        "name": rule.name,
        "source": rule.source,
        "expr": rule.expr,
        "resource": rule.resource,
        "op": rule.op,
        "threshold": rule.threshold,
        "clear_threshold": rule.clear_threshold,
        "full_at": full_at(rule) if rule.rises else None,
        "shadow": rule.shadow,
        "error": health.error,
        "blind": blind,
        "took": health.duration,
        "samples": health.samples,
        "unmatched": health.unmatched,
        "pending": health.states.get(AlertState.PENDING, 0),
        "firing": health.states.get(AlertState.FIRING, 0),
    }


def _unseen(snapshot: Snapshot) -> dict[str, float | None]:
    """While `is_blind`: since when, and when the first mark ends for that reason: by now, where
    those that are left wait for `guard.max_releases`; None where marks are held.
    """
    nodes = snapshot.nodes
    alerts, limits = nodes.verdicts.alerts, nodes.inventory.limits
    rows = [alerts.rules.index(rule.name) for rule in snapshot.rule_set.asked_rules]
    known_at = alerts.known_at[rows][alerts.exists[rows]]
    if not (is_blind(snapshot) and known_at.size):
        return {"unseen_since": None, "marks_until": None}
    firing = alerts.firing & alerts.exists & ~limits.is_shadow
    ends = np.where(limits.releases_stale, alerts.known_at + limits.stale_after, np.inf)
    of_marked = nodes.indices_of([*nodes.marked])
    last = np.where(firing, ends, -np.inf)[:, of_marked].max(axis=0, initial=-np.inf)
    waits = last > -np.inf
    first = float(last[waits].min()) if waits.any() else math.floor(snapshot.taken_at)
    return {
        "unseen_since": round(float(known_at.max())),
        "marks_until": round(first) if math.isfinite(first) else None,
    }


def _flags(nodes: NodeViews, names: Sequence[str]) -> list[int]:
    sets = ((MARKED, nodes.marked), (INELIGIBLE, nodes.ineligible), (CONFLICT, nodes.conflicts))
    return [sum(bit for bit, some in sets if name in some) for name in names]


def _column(snapshot: Snapshot, row: int, at: Ints) -> dict[str, Any]:
    """One rule (its ``row`` in the table of alerts) on all nodes. ``since`` and ``known`` (when
    there was a value that is no longer current) are sparse: indices of nodes, and their values.
    """
    rule, alerts, cells = snapshot.rule_set.rules[row], snapshot.nodes.verdicts.alerts, (row, at)
    digits = _digits(rule.threshold)
    exists, quality = alerts.exists[cells], alerts.quality[cells]
    firing, held = alerts.firing[cells], ~np.isnan(alerts.keep_firing_since[cells])
    active = exists & (firing | alerts.pending[cells])
    letters = np.select(
        [~exists, ~active, held, firing], [_NO_ALERT, _INACTIVE, _HELD, _FIRING], _PENDING
    )
    qualities = np.where(exists, _LETTERS[quality], _NO_ALERT)
    values = np.where(exists, alerts.compared[cells], np.nan).tolist()
    return {
        "value": list(map(round, values, repeat(digits))),  # msgspec writes NaN as null
        "state": letters.astype(np.uint8).tobytes().decode(),
        "quality": qualities.astype(np.uint8).tobytes().decode(),
        "since": _sparse(active, alerts.since[cells]),
        "known": _sparse(exists & (quality != OK), alerts.known_at[cells]),
    }


def _sparse(which: Bools, times: Floats) -> tuple[list[int], list[int]]:
    found = np.flatnonzero(which)
    return found.tolist(), times[found].astype(np.int64).tolist()


def _digits(threshold: float) -> int:
    """Decimals of values: three more than the threshold needs; negative for large ones (bytes)."""
    if threshold == 0:
        return 2
    return 3 - max(-9, min(300, math.ceil(math.log10(abs(threshold)))))
