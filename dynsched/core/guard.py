"""Which of the nodes to be marked may be, and how many marks may go in one tick."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dynsched.core import keys
from dynsched.core.model import Node, Verdict
from dynsched.core.rule_fields import Limit
from dynsched.core.sections import GuardRules, NodeRules

INCUMBENT_BONUS: Final = 0.1
"""A marked node counts as this share of its threshold hotter than it is, so that two nodes of
about the same load do not swap the last place under the cap at every tick."""


EARLY_INCUMBENT_BONUS: Final = 0.04
"""The same for early marks, as a share of full: four points."""


_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which nodes shall carry the mark after this tick; and why others, contrary to their
    verdict, are not marked yet or still marked. ``capped``: the pools (label value, or ``""``)
    in which ``max_marked`` binds.
    """

    marked: frozenset[str]
    withheld: Mapping[str, str]
    capped: frozenset[str]


def count_of(limit: Limit, total: int) -> int:
    """How many of ``total`` nodes a limit allows; a share is rounded down."""
    # The epsilon keeps 0.29 * 100 from being 28.
    return int(total * limit.amount + 1e-9) if limit.is_share else min(int(limit.amount), total)


def is_eligible(node: Node, rules: NodeRules) -> bool:
    """Whether a node may be marked at all."""
    return why_ineligible(node, rules) is None


def why_ineligible(node: Node, rules: NodeRules) -> str | None:
    """What on a node keeps it from being marked at all, in one line; None when nothing does."""
    if node.labels.get(keys.IGNORE_LABEL) == "true":
        return f"it has the label {keys.IGNORE_LABEL}=true"
    if not rules.include_control_plane:
        for label in keys.CONTROL_PLANE_LABELS:
            if label in node.labels:
                return f"it is a control-plane node (label {label})"
    unmet = rules.selector.unmet(node.labels)
    return None if unmet is None else f"nodes.selector wants {unmet}"


def is_cordoned(node: Node) -> bool:
    """Whether no pod is placed there: a drained node would pull the mean down."""
    return any(taint.get("key") == _UNSCHEDULABLE for taint in node.taints)


def select(
    eligible: Iterable[Node],
    verdicts: Mapping[str, Verdict],
    marked: Collection[str],
    guard: GuardRules,
    outgoing: Iterable[Node] = (),
    *,
    released: int = 0,
    sizes: Mapping[str, int] | None = None,
) -> Selection:
    """Apply ``max_releases`` over all, then ``max_marked`` in every pool, hottest first.

    ``eligible``: of the nodes that may be marked (no conflict stands on them), those that carry the
    mark or should by their verdict, at least; ``sizes``: how many may be in each pool, when that is
    more than there are in ``eligible``.
    ``marked``: the names that carry the mark now; ``released`` others did when this tick began.
    ``outgoing``: the nodes that carry it and are not eligible (any more). Each mark counts under
    the cap, those too that are to go: a place is free when its mark is seen to be gone, for a write
    may fail, and the writes of a tick are made in no order. What the cap is a share of, are the
    eligible nodes alone.
    """
    pools: dict[str, list[str]] = defaultdict(list)
    for node in eligible:
        pools[pool_of(node, guard)].append(node.name)
    taken = Counter(pool_of(node, guard) for node in outgoing)
    incumbents = frozenset(marked)
    total = {pool: len(names) for pool, names in pools.items()} if sizes is None else sizes
    caps = {pool: count_of(guard.max_marked, total[pool]) for pool in pools}
    wanting = {
        pool: [name for name in names if verdicts[name].wants_mark] for pool, names in pools.items()
    }
    granted = {
        pool: _hottest(names, verdicts, incumbents, caps[pool]) for pool, names in wanting.items()
    }
    present = [name for names in pools.values() for name in names if name in incumbents]
    allowed = max(0, max(1, count_of(guard.max_releases, len(present) + released)) - released)
    kept = _kept(granted, present, verdicts, allowed)
    result: set[str] = set()
    withheld: dict[str, str] = {}
    for pool, names in pools.items():
        here = [name for name in names if name in incumbents]
        staying = [name for name in here if name in granted[pool] or name in kept]
        free = max(0, caps[pool] - len(here) - taken[pool])
        arriving = [name for name in granted[pool] if name not in incumbents]
        result.update(staying, arriving[:free])
        withheld |= {
            name: f"release delayed: guard.max_releases is {guard.max_releases}"
            for name in staying
            if not verdicts[name].wants_mark
        }
        withheld |= {
            name: f"not marked: guard.max_marked is {guard.max_marked}"
            for name in wanting[pool]
            if name not in result
        }
    capped = frozenset(
        pool
        for pool, names in wanting.items()
        if sum(verdicts[name].pressured for name in names) > caps[pool]
    )
    return Selection(frozenset(result), withheld, capped)


def pool_of(node: Node, guard: GuardRules) -> str:
    """The pool of a node: the value of ``guard.pool_label``; "" where that is not set."""
    return node.labels.get(guard.pool_label, "") if guard.pool_label else ""


def _hottest(
    names: Iterable[str],
    verdicts: Mapping[str, Verdict],
    incumbents: Collection[str],
    cap: int,
) -> dict[str, None]:
    """Of those that want the mark, the ones that fit under the cap: the hot ones first, of each
    kind the hottest first (a dict: ordered, and a set).
    """

    def rank(name: str) -> tuple[bool, float, bool, str]:
        verdict = verdicts[name]
        bonus = INCUMBENT_BONUS if verdict.pressured else EARLY_INCUMBENT_BONUS
        is_new = name not in incumbents
        return (not verdict.pressured, -verdict.severity - (0 if is_new else bonus), is_new, name)

    return dict.fromkeys(sorted(names, key=rank)[:cap])


def _kept(
    granted: Mapping[str, Mapping[str, None]],
    present: Iterable[str],
    verdicts: Mapping[str, Verdict],
    allowed: int,
) -> frozenset[str]:
    """Of the marked nodes that are ``present``, those that should be released but must wait for a
    later tick: ``allowed`` may go.
    """
    leaving = [name for name in present if not any(name in chosen for chosen in granted.values())]
    # The coolest go first; those that should be marked but are over the cap go last.
    leaving.sort(key=lambda name: (verdicts[name].wants_mark, verdicts[name].severity, name))
    return frozenset(leaving[allowed:])
