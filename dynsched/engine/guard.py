"""What ``guard`` of the rules allows: which of the nodes to be marked may be, how many marks may go
in one tick, and how many writes a minute.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dynsched.engine.model import Action, Node, NodePatch, Verdict, WriteFailure
from dynsched.rules import keys
from dynsched.rules.fields import Limit
from dynsched.rules.rule_set import GuardRules, NodeRules

INCUMBENT_BONUS: Final = 0.1
"""A marked node counts as this share of its threshold hotter than it is, so that two nodes of
about the same load do not swap the last place under the cap at every tick."""
EARLY_INCUMBENT_BONUS: Final = 0.04
"""The same for early marks, as a share of full: four points."""
BURST: Final = 10.0
"""Seconds: so much of ``max_writes_per_minute`` may be used at once; in the first pass, all."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
"""Seconds until a write that was refused is tried again: twice as long after each refusal."""
UNMARKED: Final = "not marked: mark is none"
LEFT: Final = (
    "an older mark stays: mark is none, so dynsched writes no node; `dynsched prune` removes it"
)
_HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")


class Kind(NamedTuple):
    """What nodes have in common that can take the same pods: early marks are decided among them."""

    pool: str
    taints: frozenset[tuple[str, str, str]]
    """Key, value and effect of those that keep pods off; a cordoned node has one too."""


@dataclass(frozen=True, slots=True)
class Selection:
    marked: frozenset[str]
    withheld: Mapping[str, str]
    """Why others, contrary to their verdict, are not marked yet or still marked."""
    capped: frozenset[str]
    """The pools in which ``max_marked`` binds."""


def count_of(limit: Limit, total: int) -> int:
    """How many of ``total`` nodes a limit allows; a share is rounded down."""
    # The epsilon keeps 0.29 * 100 from being 28.
    return int(total * limit.amount + 1e-9) if limit.is_share else min(int(limit.amount), total)


def is_eligible(node: Node, rules: NodeRules) -> bool:
    return why_ineligible(node, rules) is None


def why_ineligible(node: Node, rules: NodeRules) -> str | None:
    if node.labels.get(keys.IGNORE_LABEL) == "true":
        return f"it has the label {keys.IGNORE_LABEL}=true"
    if not rules.include_control_plane:
        for label in keys.CONTROL_PLANE_LABELS:
            if label in node.labels:
                return f"it is a control-plane node (label {label})"
    unmet = rules.selector.unmet(node.labels)
    return None if unmet is None else f"nodes.selector wants {unmet}"


def select(
    eligible: Iterable[Node],
    verdicts: Mapping[str, Verdict],
    marked: Collection[str],
    guard: GuardRules,
    outgoing: Iterable[Node] = (),
    *,
    released: int = 0,
    sizes: Mapping[Kind, int] | None = None,
) -> Selection:
    """Apply ``max_releases`` over all, then ``max_marked`` in every pool, hottest first. Among the
    nodes of one kind ``max_marked`` is the limit of early marks, and one node stays without.

    ``eligible``: the nodes that may be marked, and carry the mark or should by their verdict; more
    of them do no harm. ``sizes``: how many of each kind may be marked in all; None: as many as are
    ``eligible``. ``marked``: the names that carry the mark now; ``released``: how many were
    released in this tick before. ``outgoing``:
    the nodes that carry it and are not eligible (any more). Marks that are to go count under the
    cap until they are seen to be gone: a write may fail, and they are made in no order. The cap is
    a share of the eligible nodes alone.
    """
    kinds = {node.name: kind_of(node, guard) for node in eligible}
    pools: dict[str, list[str]] = defaultdict(list)
    for name, kind in kinds.items():
        pools[kind.pool].append(name)
    taken = Counter(pool_of(node, guard) for node in outgoing)
    incumbents = frozenset(marked)
    sizes = Counter(kinds.values()) if sizes is None else sizes
    total: Counter[str] = Counter()
    for kind, size in sizes.items():
        total[kind.pool] += size
    caps = {pool: count_of(guard.max_marked, total[pool]) for pool in pools}
    limits = {kind: early_limit(guard.max_marked, size) for kind, size in sizes.items()}
    wants_mark = {name: verdicts[name].hot or verdicts[name].early for name in kinds}
    wanting = {pool: [n for n in names if wants_mark[n]] for pool, names in pools.items()}

    def fitting(ranked: Iterable[str], free: int, used: Counter[Kind]) -> Iterator[str]:
        """As many as are ``free`` in their pool, and early ones only below the limit of their kind,
        of which ``used`` are marked.
        """
        for name in ranked:
            kind = kinds[name]
            if free > 0 and (verdicts[name].hot or used[kind] < limits[kind]):
                free -= 1
                used[kind] += 1
                yield name

    granted = {
        pool: dict.fromkeys(fitting(_ranked(names, verdicts, incumbents), caps[pool], Counter()))
        for pool, names in wanting.items()
    }
    present = [name for names in pools.values() for name in names if name in incumbents]
    allowed = max(0, max(1, count_of(guard.max_releases, len(present) + released)) - released)
    leaving = [name for name in present if not any(name in chosen for chosen in granted.values())]
    # The coolest go first; those that should be marked but are over the cap go last.
    leaving.sort(key=lambda name: (wants_mark[name], verdicts[name].severity, name))
    kept = frozenset(leaving[allowed:])
    result: set[str] = set()
    withheld: dict[str, str] = {}
    for pool, names in pools.items():
        here = [name for name in names if name in incumbents]
        staying = [name for name in here if name in granted[pool] or name in kept]
        free = caps[pool] - len(here) - taken[pool]
        used = Counter(kinds[name] for name in here)
        arriving = [name for name in granted[pool] if name not in incumbents]
        result.update(staying, fitting(arriving, free, used))
        withheld |= {
            name: f"release delayed: guard.max_releases is {guard.max_releases}"
            for name in staying
            if not wants_mark[name]
        }
        withheld |= {
            name: f"not marked: guard.max_marked is {guard.max_marked}"
            for name in wanting[pool]
            if name not in result
        }
    capped = frozenset(
        pool
        for pool, names in wanting.items()
        if sum(verdicts[name].hot for name in names) > caps[pool]
    )
    return Selection(frozenset(result), withheld, capped)


def pool_of(node: Node, guard: GuardRules) -> str:
    """The value of ``guard.pool_label``; "" where that is not set."""
    return node.labels.get(guard.pool_label, "") if guard.pool_label else ""


def hard_taints(node: Node) -> frozenset[tuple[str, str, str]]:
    """Key, value and effect of those that keep pods away which do not tolerate them."""
    taints = [taint for taint in node.taints if taint.get("effect") in _HARD_EFFECTS]
    return frozenset((str(t.get("key")), str(t.get("value")), str(t["effect"])) for t in taints)


def kind_of(node: Node, guard: GuardRules) -> Kind:
    return Kind(pool_of(node, guard), hard_taints(node))


def early_limit(limit: Limit, size: int) -> int:
    """How many of ``size`` nodes of a kind may carry early marks: one stays unmarked, so that pods
    have where to go.
    """
    return min(count_of(limit, size), size - 1)


def _ranked(
    names: Iterable[str], verdicts: Mapping[str, Verdict], incumbents: Collection[str]
) -> list[str]:
    """The hot ones first, then the early ones, the hottest first."""

    def rank(name: str) -> tuple[bool, float, bool, str]:
        verdict = verdicts[name]
        bonus = INCUMBENT_BONUS if verdict.hot else EARLY_INCUMBENT_BONUS
        is_new = name not in incumbents
        return (not verdict.hot, -verdict.severity - (0 if is_new else bonus), is_new, name)

    return sorted(names, key=rank)


@dataclass(frozen=True, slots=True)
class Chosen:
    patches: tuple[NodePatch, ...]
    delayed: Mapping[str, str] = field(default_factory=dict)
    """Why others wait."""
    refused: tuple[WriteFailure, ...] = ()
    """What the API server said of those that wait because it refused them."""


class _Pause(NamedTuple):
    """``seconds`` long, until ``end``; ``failure``: why, None where it was not even tried."""

    seconds: float
    end: float
    failure: WriteFailure | None


class Pace:
    """What is left of the bound, and the nodes whose writes were refused. ``now`` is in seconds of
    a clock that never steps.
    """

    def __init__(self) -> None:
        self._left: float | None = None
        self._at = 0.0
        self._pauses: dict[str, _Pause] = {}

    def choose(self, patches: Sequence[NodePatch], per_minute: int, now: float) -> Chosen:
        """Of the ``patches`` that are due. A mark of a hot node never waits for the bound, but
        counts: what is sent beyond it the others make up for. They come in this order: what else
        concerns hot marks, releases of early marks, early marks; of each as they are given.
        """
        due = {patch.node for patch in patches}
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in due}
        pausing = {name: pause for name, pause in self._pauses.items() if now < pause.end}
        ready = [patch for patch in patches if patch.node not in pausing]
        urgent = [patch for patch in ready if _is_urgent(patch)]
        others = [patch for patch in ready if not _is_urgent(patch)]
        burst = max(1.0, per_minute * BURST / 60)
        left = float(per_minute)  # at the start: what a single pass would write
        if self._left is not None:
            left = min(burst, self._left + (now - self._at) * per_minute / 60)
        left -= len(urgent)
        room = max(0, int(left))
        if len(others) > room:
            others.sort(key=lambda patch: (patch.early, patch.action is not Action.RELEASE))
        self._left, self._at = left - len(others[:room]), now
        why = f"not written yet: guard.max_writes_per_minute is {per_minute}"
        return Chosen(
            patches=(*urgent, *others[:room]),
            delayed={patch.node: why for patch in others[room:]},
            refused=tuple(replace(p.failure, again=True) for p in pausing.values() if p.failure),
        )

    def refused(
        self, failures: Iterable[WriteFailure], untried: Iterable[NodePatch], now: float
    ) -> None:
        """Of what was chosen at ``now``, this was refused, and that was not tried for it."""
        found: dict[str, WriteFailure | None] = {patch.node: None for patch in untried}
        found |= {failure.node: failure for failure in failures}
        for name, failure in found.items():
            before = self._pauses.get(name)
            seconds = FIRST_PAUSE if before is None else min(2 * before.seconds, LONGEST_PAUSE)
            self._pauses[name] = _Pause(seconds, now + seconds, failure)


def _is_urgent(patch: NodePatch) -> bool:
    """Whether it puts a mark on, or repairs one, that is not early."""
    return not (patch.early or patch.restates or patch.action is Action.RELEASE)
