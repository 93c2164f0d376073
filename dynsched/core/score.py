"""Readings -> the extender's scores: whole numbers 0..10, higher is better.

Everything is first brought to *points* of load: 0 is idle, 100 is full. A profile's rules make one
load a node, and a method makes scores of the loads of the candidates. docs/extender.md has the
formulas. A node's load is a whole number of *tenths of a point*: 5,000 whole numbers are compared
and looked up four times as fast as 5,000 floats.

A node on which one of the profile's rules fires scores 0 while there is a candidate on which none
does. Of those the best then scores 10, whatever its load, and none less than 5: an alert is held
through a gap in the data, and a burst of pods onto the cool nodes must not make a hot one look
good, which is empty by now and which the scheduler's own plugins like for that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count, islice
from typing import Final, Literal

import numpy as np

from dynsched.core.alerts import AlertTable
from dynsched.core.columns import OK, Floats, filled, rule_loads
from dynsched.core.decision import NodeViews
from dynsched.core.expected import ExpectedLoad, Unseen
from dynsched.core.pods import PodChange, PodUse
from dynsched.core.rules import Rule, RuleSet
from dynsched.core.sections import ExtenderRules, Profile

BEST: Final = 10
"""``extenderv1.MaxExtenderPriority``. A score beyond it would outweigh every plugin."""

NEUTRAL: Final = BEST // 2
"""Where no candidate's load is known."""

MIN_COOL: Final = 5
"""What a node on which nothing fires scores at least, beside one on which something does."""

SPREAD: Final = 10.0
"""Points. ``relative``: loads that differ by less count as if they were so far apart, so that one
point does not become 10 against 0. ``least``: what is added to both sides of the proportion."""

TENTHS: Final = 10
"""Of a point, in a point."""

FEW_BEST: Final = 16
"""Where no more candidates than these share the best score, the least loaded is put before them, so
that it is known which node a pod gets: the next pods are asked about before the watch tells. Among
more, the scheduler's own choice spreads them.
"""

MAX_CANDIDATES_ASSUMED: Final = 1000
"""Among more candidates than these it is not done either: an answer for each pod would cost more
than it gains. A scheduler asks about a tenth of 5,000 nodes, unless percentageOfNodesToScore is
set.
"""

FIRING: Final = 10_000
"""Tenths. Added to the load of a node on which a rule fires, to tell the two kinds apart. A load is
below it: what a rule measures is at most ``loads.MAX_LOAD``, and pods add at most ``_MAX_ADDED``.
"""

_FULL: Final = 100 * TENTHS
_MAX_ADDED: Final = 2500
"""Tenths."""
_MAX_KEPT: Final = 20_000

Method = Literal["linear", "relative", "least"]


@dataclass(frozen=True, slots=True)
class WeightedProfile:
    """A profile, made ready: its rules with their weights (their sum is 1), and its method."""

    rules: tuple[tuple[Rule, float], ...]
    method: Method


def weighted_profile(rule_set: RuleSet, scheduler: str) -> WeightedProfile:
    """How to score pods of this schedulerName: by its profile, else `default`, else all rules
    with equal weights and `linear`.
    """
    profiles = rule_set.extender.profiles
    profile = profiles.get(scheduler) or profiles.get("default") or _every_rule(rule_set)
    total = sum(profile.score.values())
    return WeightedProfile(
        tuple(
            (rule_set.by_name[name], weight / total)
            for name, weight in profile.score.items()
            if weight
        ),
        profile.method,
    )


def profile_name(extender: ExtenderRules, scheduler: str) -> str:
    """The key under which a schedulerName's answers are the same."""
    return scheduler if scheduler in extender.profiles else "default"


class FreshPods:
    """What changed on one node since its loads were worked out. Mutable."""

    def __init__(self, weighed: WeightedProfile) -> None:
        self._parts = [(rule, weight, Unseen()) for rule, weight in weighed.rules]

    def count(
        self, change: PodChange, uses: Mapping[str, PodUse], allocatable: Mapping[str, float]
    ) -> None:
        """Count one pod more or less. ``uses`` by rule."""
        for rule, _, unseen in self._parts:
            use = uses.get(rule.name)
            points = None if use is None else use.points(change.pod, allocatable)
            if change.is_recent:
                unseen.bound(change.pod, points, change.sign)
            else:
                unseen.ended(points, -change.sign)

    def add_to(self, load: int, allocatable: Mapping[str, float]) -> int:
        """The load in tenths, with what changed; it stays on its side of FIRING."""
        added = 0.0
        for rule, weight, unseen in self._parts:
            bound, ended = unseen.parts(allocatable, rule.resource)
            added += weight * (bound - ended)
        return load + max(-plain(load), round(min(TENTHS * added, _MAX_ADDED)))


def node_loads(views: NodeViews, weighed: WeightedProfile) -> dict[str, int]:
    """Every node's expected load in tenths (`core.expected`); a node for which no rule has a
    value is omitted. When one rule of several has no value for a node, the median of that rule's
    values is used; a rule that does not apply to the node does not count. FIRING is added for a
    node on which one of the rules fires, even if it has no value.
    """
    alerts = views.evaluation.alerts
    rows = [alerts.rules.index(rule.name) for rule, _ in weighed.rules]
    shape = (len(alerts.roster),)
    total, weights = filled(shape, 0.0), filled(shape, 0.0)
    is_known = np.zeros(shape, np.bool_)
    for row, (rule, weight) in zip(rows, weighed.rules, strict=True):
        loads = _loads(rule, alerts, row, views.expected.get(rule.name))
        has_value = ~np.isnan(loads)
        is_known |= has_value
        if has_value.any():
            loads[~has_value] = np.median(loads[has_value])
            counts = alerts.exists[row]
            total += np.where(counts, weight * loads, 0.0)
            weights += np.where(counts, weight, 0.0)
    firing = (alerts.states.firing & alerts.exists)[rows].any(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        tenths = np.rint(np.where(is_known, TENTHS * total / weights, _FULL))
    tenths += np.where(firing, FIRING, 0)
    places = views.places
    names = compress(views, (is_known | firing)[places].tolist())
    found = tenths[places][(is_known | firing)[places]].astype(np.int64).tolist()
    return dict(zip(names, found, strict=True))


def _loads(rule: Rule, alerts: AlertTable, row: int, expected: ExpectedLoad | None) -> Floats:
    """One rule's load on each node, NaN where it knows nothing."""
    is_good = alerts.exists[row] & (alerts.quality[row] == OK)
    loads = rule_loads(rule, np.where(is_good, alerts.value[row], np.nan))
    for name, more in expected.added.items() if expected is not None else ():
        place = alerts.roster.places[name]
        loads[place] = more.to(loads.item(place))
    return loads


class Scorer:
    """Loads to scores by one method. While the range of the candidates' loads stays the same, what
    was worked out for a load is kept: in a burst, one node's load changes from pod to pod.
    """

    def __init__(self, method: Method) -> None:
        self._method = method
        self._range: tuple[int, ...] = ()
        self._scores: dict[int, int] = {}

    def score(self, loads: Sequence[int | None]) -> dict[int | None, int]:
        """The score of each distinct load among the candidates'; None is a node of unknown load,
        and scores what the candidates' median does.
        """
        distinct = set(loads)
        known = {load for load in distinct if load is not None}
        if not known:
            return {None: NEUTRAL}
        scores = self._score_values(known)
        if len(known) < len(distinct):
            scores[None] = _median(scores, Counter(loads))
        return scores

    def _score_values(self, known: set[int]) -> dict[int | None, int]:
        coolest, hottest = min(known), max(known)
        plains = known if hottest < FIRING else {plain(load) for load in known}
        low, high = min(plains), max(plains)
        mixed = coolest < FIRING <= hottest
        within = (low, high, coolest) if mixed else (low, high)
        if self._range != within or len(self._scores) > _MAX_KEPT:
            self._range, self._scores = within, {}
        kept = self._scores
        missing = known.difference(kept)
        if missing:
            score = _METHODS[self._method](low / TENTHS, high / TENTHS)
            lift = BEST - score(coolest / TENTHS) if mixed else 0.0
            least = MIN_COOL if mixed else 0
            for load in missing:
                value = math.floor(score(plain(load) / TENTHS) + lift + 0.5)
                kept[load] = 0 if mixed and load >= FIRING else max(least, min(BEST, value))
        return {load: kept[load] for load in known}


def break_ties(scores: dict[int | None, int], loads: Sequence[int | None]) -> int | None:
    """Among few that share the best score (of `Scorer.score`), put the least loaded one point
    before the others. The index in ``loads`` of the node that a pod gets by it; None where many
    are as good, or where its load is unknown.
    """
    if len(loads) > MAX_CANDIDATES_ASSUMED:
        return None
    most = max(scores.values())
    is_best = {load for load, score in scores.items() if score == most}.__contains__
    best = list(islice(compress(count(), map(is_best, loads)), FEW_BEST + 1))
    if not 0 < len(best) <= FEW_BEST:
        return None
    known = [(load, index) for index in best if (load := loads[index]) is not None]
    if not known:
        return None
    least, first = min(known)
    others = {load for index in best if (load := loads[index]) != least}
    if most > 0:
        scores.update(dict.fromkeys(others, most - 1))
    elif others:
        scores[least] = 1
    return first


def plain(load: int) -> int:
    """The load without the sign that a rule fires."""
    return load - FIRING if load >= FIRING else load


def _linear(_low: float, _high: float) -> Callable[[float], float]:
    return lambda load: (100 - load) / 10


def _relative(low: float, high: float) -> Callable[[float], float]:
    spread = max(high - low, SPREAD)
    return lambda load: BEST * (low + spread - load) / spread


def _least(low: float, _high: float) -> Callable[[float], float]:
    return lambda load: BEST * (low + SPREAD) / (load + SPREAD)


_METHODS: Final[Mapping[str, Callable[[float, float], Callable[[float], float]]]] = {
    "linear": _linear,
    "relative": _relative,
    "least": _least,
}


def _median(scores: Mapping[int | None, int], counts: Mapping[int | None, int]) -> int:
    """The median score (the lower one of two) of the candidates, from their number per load."""
    by_score: Counter[int] = Counter()
    for load, score in scores.items():
        by_score[score] += counts[load]
    half = (by_score.total() - 1) // 2
    for score in sorted(by_score):
        half -= by_score[score]
        if half < 0:
            return score
    return NEUTRAL


def _every_rule(rule_set: RuleSet) -> Profile:
    scored = (rule for rule in rule_set.rules if rule.traits.scored and not rule.shadow)
    return Profile(score={rule.name: 1.0 for rule in scored})
