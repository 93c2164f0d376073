"""What the extender answers by: scores, whole numbers 0..10 of which higher is better, and which
nodes are refused by load.

A profile's rules make one load a node, and a method makes scores of the loads of the candidates.
docs/extender.md has the formulas. A node's load is a whole number of *tenths of a point*: 5,000
whole numbers are compared and looked up several times as fast as 5,000 floats.

A node on which one of the profile's rules fires scores 0 while there is a candidate on which none
does. Of those the best then scores 10, whatever its load, and none less than 5: a burst of pods
onto the cool nodes must not make a hot one look good, whose alert is held through a gap in the data
and which the scheduler's own plugins like because it is empty by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynsched.engine.load.expected import Unseen
from dynsched.engine.loads import rule_loads
from dynsched.engine.pod_values import PodChange, PodUse
from dynsched.engine.snapshot import NodeViews, Snapshot
from dynsched.rules.rule_set import Rule, RuleSet
from dynsched.rules.sections import Profile
from dynsched.util.formatting import format_threshold, format_value

BEST: Final = 10
"""``extenderv1.MaxExtenderPriority``. A score beyond it would outweigh every plugin."""
NEUTRAL: Final = BEST // 2
"""Where no candidate's load is known."""
MIN_COOL: Final = 5
"""What a node on which nothing fires scores at least, beside one on which something does."""
SPREAD: Final = 10.0
"""Points. ``relative``: loads that differ by less count as if they were so far apart, so that one
point does not become 10 against 0."""
TENTHS: Final = 10
"""Of a point, in a point."""
FEW_BEST: Final = 16
"""Where no more candidates than these share the best score, the least loaded is put before them, so
that it is known which node a pod gets: the next pods are asked about before the watch tells. Among
more, the scheduler's own choice spreads them."""
MAX_CANDIDATES_ASSUMED: Final = 1000
"""Among more candidates it is not done either: an answer for each pod would cost more than it
gains. A scheduler asks about a tenth of 5,000 nodes, unless percentageOfNodesToScore is set."""
FIRING: Final = 10_000
"""Tenths. Added to the load of a node on which a rule fires. A load is below it: what a rule
measures is at most ``MAX_LOAD``, the next pod adds at most ``MAX_POINTS``, and others at most
``_MAX_ADDED``."""
UNKNOWN: Final = 2 * FIRING + 1
"""In an array of loads: nothing is known of this node. Any load is less."""

Loads = NDArray[np.int16]
"""Loads in tenths, one for each candidate."""
Scores = NDArray[np.uint8]
"""The score of each load, by the load, so that ``scores[loads]`` are those of the candidates. Only
for loads that occur; UNKNOWN has one as well."""
FULL: Final = 100 * TENTHS
_MAX_ADDED: Final = 2500
"""Tenths."""
_NOTHING_KNOWN: Final = PodUse()

Method = Literal["linear", "relative", "least"]
"""``least`` was another one, and is the same as ``relative``; `rules.lint` says so."""


@dataclass(frozen=True, slots=True)
class WeightedProfile:
    """``rules`` with their weights, of which the sum is 1."""

    rules: tuple[tuple[Rule, float], ...]
    method: Method


def weighted_profile(rule_set: RuleSet, scheduler: str) -> WeightedProfile:
    """How to score pods of this schedulerName: by its profile, else `default`, else all rules
    with equal weights and `linear`.
    """
    profiles = rule_set.extender.profiles
    profile = profiles.get(scheduler) or profiles.get("default")
    if profile is None:
        scored = (rule for rule in rule_set.rules if not rule.shadow)
        profile = Profile(score={rule.name: 1.0 for rule in scored})
    return weighted(rule_set, profile.score, profile.method)


def weighted(
    rule_set: RuleSet, score: Mapping[str, float], method: Method = "linear"
) -> WeightedProfile:
    """The weights of ``score`` (by rule name) as shares of 1, without rules of weight 0."""
    total = sum(score.values())
    parts = ((rule_set.by_name[name], weight / total) for name, weight in score.items() if weight)
    return WeightedProfile(tuple(parts), method)


class FreshPods:
    """Since the loads were worked out, on one node. Mutable."""

    def __init__(self, weighed: WeightedProfile) -> None:
        self._parts = [(rule, weight, Unseen()) for rule, weight in weighed.rules]

    def count(
        self, change: PodChange, uses: Mapping[str, PodUse], allocatable: Mapping[str, float]
    ) -> None:
        """Count one pod more or less. ``uses`` by rule."""
        for rule, _, unseen in self._parts:
            use = uses.get(rule.name, _NOTHING_KNOWN)
            points = use.points(change.pod, allocatable, ended=not change.is_recent)
            if not change.is_recent:
                unseen.ended(points, -change.sign)
                continue
            if points is not None:
                points += points * use.margin(change.pod)
            unseen.bound(change.pod, points, change.sign)

    def add_to(self, load: int, allocatable: Mapping[str, float], least: int = 0) -> int:
        """The load in tenths, with what changed; it stays on its side of FIRING. Pods that ended
        take it down to ``least`` at most.
        """
        added = 0.0
        for rule, weight, unseen in self._parts:
            bound, ended = unseen.parts(allocatable, rule.resource)
            added += weight * (bound - ended)
        room = max(0, without_firing(load) - least)
        return load + max(-room, round(min(TENTHS * added, _MAX_ADDED)))


def node_loads(views: NodeViews, weighed: WeightedProfile) -> dict[str, int]:
    """Every node's expected load in tenths, to place pods by (`NodeViews.expected_loads`); a node
    for which no rule has a value is omitted. When one rule of several has no value for a node, the
    median of that rule's values is used; a rule that does not apply to the node does not count.
    FIRING is added for a node that stays hot (`NodeViews.stays_hot`) by one of the rules, even if
    it has no value.
    """
    alerts = views.verdicts.alerts
    rows = [alerts.rules.index(rule.name) for rule, _ in weighed.rules]
    shape = (len(alerts.roster),)
    total, weights = np.zeros(shape), np.zeros(shape)
    is_known = np.zeros(shape, np.bool_)
    for row, (_, weight) in zip(rows, weighed.rules, strict=True):
        loads = views.expected_loads(row, to_place=True)
        has_value = ~np.isnan(loads)
        is_known |= has_value
        if has_value.any():
            loads[~has_value] = np.median(loads[has_value])
            counts = alerts.exists[row]
            total += np.where(counts, weight * loads, 0.0)
            weights += np.where(counts, weight, 0.0)
    firing = views.stays_hot[rows].any(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        tenths = np.rint(np.where(is_known, TENTHS * total / weights, FULL))
    tenths += np.where(firing, FIRING, 0)
    counts = is_known | firing
    found = tenths[counts].astype(np.int64).tolist()
    return dict(zip(compress(views, counts.tolist()), found, strict=True))


def next_pod_loads(views: NodeViews, weighed: WeightedProfile) -> dict[str, int]:
    """What a pod of mean use adds to each node's load, in tenths (`ExpectedLoad.next_pod`)."""
    rows = views.verdicts.alerts.rules
    points = sum(weight * views.next_pod(rows.index(rule.name)) for rule, weight in weighed.rules)
    return dict(zip(views, np.rint(TENTHS * np.asarray(points)).astype(int).tolist(), strict=True))


def threshold_load(weighed: WeightedProfile) -> int:
    """The load of a node that is at the threshold of each rule, in tenths."""
    points = (weight * rule_loads(rule, rule.threshold).item() for rule, weight in weighed.rules)
    return round(TENTHS * sum(points))


def scores_by_load(loads: Loads, method: Method) -> Scores:
    """The score of each distinct load among the candidates'. UNKNOWN scores what their median
    does.
    """
    occurs = np.zeros(UNKNOWN + 1, np.bool_)
    occurs[loads] = True
    scores = np.zeros(UNKNOWN + 1, np.uint8)
    known = np.flatnonzero(occurs[:UNKNOWN])
    if not len(known):
        scores[UNKNOWN] = NEUTRAL
        return scores
    scores[known] = _score_values(known, method)
    if occurs[UNKNOWN]:
        others = np.sort(scores[loads[loads != UNKNOWN]])
        scores[UNKNOWN] = others[(len(others) - 1) // 2]  # of two, the lower one
    return scores


def _score_values(known: NDArray[np.intp], method: Method) -> Scores:
    """``known``: distinct loads, rising."""
    firing = known >= FIRING
    plains = np.where(firing, known - FIRING, known)
    low, high = plains.min() / TENTHS, plains.max() / TENTHS
    spread = max(high - low, SPREAD)
    points = plains / TENTHS
    scores = (100 - points) / 10 if method == "linear" else BEST * (low + spread - points) / spread
    if not firing[-1] or firing[0]:
        return _rounded(scores, 0)
    return np.where(firing, np.uint8(0), _rounded(scores + (BEST - scores[0]), MIN_COOL))


def _rounded(scores: NDArray[np.float64], least: int) -> Scores:
    return np.clip(np.floor(scores + 0.5), least, BEST).astype(np.uint8)


def break_ties(scores: Scores, loads: Loads) -> int | None:
    """Among few that share the best score (of `scores_by_load`), put the least loaded one point
    before the others. The index in ``loads`` of the node that a pod gets by it; None where many
    are as good, or where its load is unknown.
    """
    if not 0 < len(loads) <= MAX_CANDIDATES_ASSUMED:
        return None
    found = scores[loads]
    most = int(found.max())
    best = np.flatnonzero(found == most)
    if len(best) > FEW_BEST:
        return None
    first = int(best[np.argmin(loads[best])])  # of equal ones the first
    least = int(loads[first])
    if least == UNKNOWN:
        return None
    others = loads[best[loads[best] != least]]
    if most > 0:
        scores[others] = most - 1
    elif len(others):
        scores[least] = 1
    return first


def without_firing(load: int) -> int:
    """The load alone, in tenths of a point, of a number that also says whether an alert fires."""
    return load - FIRING if load >= FIRING else load


class Refusal(NamedTuple):
    """Why a node is refused: with the value, for a few nodes; without it, for the scheduler's
    event, which counts nodes by equal reasons (``3 node load high: node-mem-usage > 85``).
    """

    long: str
    short: str


def load_refusals(snapshot: Snapshot) -> dict[str, Refusal]:
    """The nodes that `/filter` and `/preempt` refuse: a rule of ``extender.reject`` fires, and
    something was known of the node within the rule's ``stale_after`` (also with ``on_stale: hold``:
    that keeps a soft mark, and must not close a node for ever).
    """
    refused: dict[str, Refusal] = {}
    views = snapshot.nodes
    alerts = views.verdicts.alerts
    for row, name in enumerate(alerts.rules):
        rule = snapshot.rule_set.by_name[name]
        if name not in snapshot.rule_set.extender.reject:
            continue
        since = snapshot.taken_at - snapshot.rule_set.stale_after_of(rule)
        firing = alerts.firing[row] & alerts.exists[row] & (alerts.known_at[row] >= since)
        values = alerts.good_values(row, compared=True)
        for index in np.flatnonzero(firing).tolist():
            node = alerts.roster.names[index]
            if node not in refused and node in views:
                refused[node] = _refusal(rule, values.item(index))
    return refused


def missing_label(key: str) -> str:
    """The words for the scheduler's event."""
    return f"node does not carry the label {key}"


def _refusal(rule: Rule, value: float) -> Refusal:
    """``value``: NaN where no good one is known now."""
    limit = f"{rule.op} {format_threshold(rule.threshold)}"
    short = f"node load high: {rule.name} {limit}"
    if rule.breached(value):
        return Refusal(f"node load high: {rule.name} {format_value(value)} {limit}", short)
    # Held by clear_threshold, keep_firing_for, or through a gap in the data.
    return Refusal(f"node load high: {rule.name} was {limit} and is held", short)
