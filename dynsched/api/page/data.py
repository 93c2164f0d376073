"""Snapshot -> the JSON from which the page is drawn. Pure. Nodes are columns: at 5,000 of them a
third of the bytes of one object each. Times are Unix seconds.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np

from dynsched import __version__
from dynsched.api.status import rules_answer
from dynsched.api.why import reasons
from dynsched.engine.columns import OK, QUALITIES, Bools, Floats, Ints
from dynsched.engine.health import is_blind, unmatched_rules
from dynsched.engine.snapshot import NodeViews, Snapshot

MARKED, HOT, INELIGIBLE, CONFLICT, UNKNOWN = (1 << bit for bit in range(5))
"""The bits of a node in the column ``flags``. UNKNOWN: a rule has no current value for it."""

_LETTERS: Final = np.array([ord(quality.value[0]) for quality in QUALITIES], np.uint8)
_INACTIVE, _PENDING, _FIRING, _HELD = b"ipfh"
_NO_ALERT: Final = ord("-")
"""In both columns: the rule's selector does not select the node."""

About = Mapping[str, Any]
"""What is not in a Snapshot: see `SnapshotStore`."""
Encoded = tuple[str, bytes, bytes]
"""The ETag, the JSON, and the same as gzip."""
_AT_ONCE: Final = 250
"""Nodes in one go: about two milliseconds in which no other request is answered, and ten where a
patch is due on each."""

_PIECE: Final = 32 << 10
"""Bytes that are compressed in one go: about a millisecond in which nothing else is answered."""
_LEVEL: Final = 3
_GZIP: Final = 31
"""zlib's number for gzip's format, with the largest window."""


async def encoded_page(snapshot: Snapshot, about: About, etag: str) -> Encoded:
    plain = await page_data(snapshot, about)
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    pieces = []
    for start in range(0, len(plain), _PIECE):
        pieces.append(packer.compress(plain[start : start + _PIECE]))
        await asyncio.sleep(0)
    return etag, plain, b"".join((*pieces, packer.flush()))


async def page_data(snapshot: Snapshot, about: About, at_once: int = _AT_ONCE) -> bytes:
    nodes, rule_set = snapshot.nodes, snapshot.rule_set
    verdicts = nodes.verdicts
    names = sorted(nodes)
    indices: list[int] = []
    pools: dict[str, int] = {}
    pool: list[int] = []
    seen: list[int] = []
    notes: list[tuple[int, str, str]] = []
    for first in range(0, len(names), at_once):
        some = names[first : first + at_once]
        places = nodes.indices_of(some)
        indices += places
        pool += [pools.setdefault(each, len(pools)) for each in nodes.pools_at(places)]
        whys = reasons(snapshot, some)
        notes += [(at, *whys[name]) for at, name in enumerate(some, first) if name in whys]
        seen += _flags(nodes, some)
        await asyncio.sleep(0)
    at = np.array(indices, np.int64)
    flags = np.array(seen, np.int64) + HOT * verdicts.hot[at]
    asked = {rule.name for rule in rule_set.asked_rules}
    columns = []
    for row, rule in enumerate(rule_set.rules):
        column, unknown = _column(snapshot, row, at)
        columns.append(column)
        if rule.name in asked:
            flags |= UNKNOWN * unknown
        await asyncio.sleep(0)
    rules, order = rules_answer(snapshot), None
    if snapshot.order is not None:
        from dynsched.api.order_status import for_the_page

        order = for_the_page(snapshot.order)
    return msgspec.json.encode(
        {
            "version": __version__,
            **about,
            "taken_at": snapshot.taken_at,
            "tick": snapshot.tick,
            "duration": snapshot.duration,
            "leading": snapshot.leading,
            "leader": about["leader"] or snapshot.leader,
            "dry_run": snapshot.dry_run,
            "rules_error": snapshot.rules_error,
            "capped": sorted(snapshot.capped),
            "failures": len(snapshot.failures),
            "disputes": len(snapshot.disputes),
            "blind": {name: why for name, why in unmatched_rules(snapshot).items() if why},
            **_unseen(snapshot),
            "mark": "" if rule_set.mark.is_none else str(rule_set.mark),
            "guard": rules["guard"],
            "rules": rules["rules"],
            "has_order": rule_set.order is not None,
            "order": order,
            "pools": list(pools),
            "nodes": {
                "name": names,
                "pool": pool,
                "flags": flags.tolist(),
                "since": _sparse(~np.isnan(verdicts.since[at]), verdicts.since[at]),
                "notes": notes,
            },
            "columns": columns,
        }
    )


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
    flags = np.zeros(len(names), np.int64)
    sets = {MARKED: nodes.marked, INELIGIBLE: nodes.ineligible, CONFLICT: nodes.conflicts}
    for bit, some in sets.items():
        flags += bit * np.fromiter(map(some.__contains__, names), np.bool_, len(names))
    return flags.tolist()


def _column(snapshot: Snapshot, row: int, at: Ints) -> tuple[dict[str, Any], Bools]:
    """One rule (its ``row`` in the table of alerts) on all nodes, and which of them have no current
    value. ``since`` and ``known`` (when there was a value that is no longer current) are sparse:
    indices of nodes, and their values.
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
    column = {
        "value": list(map(round, values, repeat(digits))),  # msgspec writes NaN as null
        "state": letters.astype(np.uint8).tobytes().decode(),
        "quality": qualities.astype(np.uint8).tobytes().decode(),
        "since": _sparse(active, alerts.since[cells]),
        "known": _sparse(exists & (quality != OK), alerts.known_at[cells]),
    }
    return column, np.asarray(exists & (quality != OK), np.bool_)


def _sparse(which: Bools, times: Floats) -> tuple[list[int], list[int]]:
    found = np.flatnonzero(which)
    return found.tolist(), times[found].astype(np.int64).tolist()


def _digits(threshold: float) -> int:
    """Decimals of values: three more than the threshold needs; negative for large ones (bytes)."""
    if threshold == 0:
        return 2
    return 3 - max(-9, min(300, math.ceil(math.log10(abs(threshold)))))
