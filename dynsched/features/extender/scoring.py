"""The state that the extender answers from: the loads of nodes, their scores 0..10 (higher is
better), and the nodes that are refused because of their load.

A profile combines its rules into one load per node, and a method turns the candidates' loads into
scores. docs/extender.md has the formulas.

A candidate on which a rule of the profile fires is hot. If there are cool candidates too, hot ones
score 0. The best of the cool ones then scores 10, whatever its load, and none of them less than 5.
Otherwise a burst of pods onto the cool nodes could make a hot one look good.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import Final

from dynsched.core.evaluate import Evaluation
from dynsched.core.load.expected import BELOW_MEAN, KnownPods
from dynsched.core.load.pods import Allocatable, PodChange, PodUse
from dynsched.core.nodes import Node
from dynsched.features.placing import (
    FIRING,
    FULL,
    TENTHS,
    WeightedProfile,
    placing_loads,
    weighted_profile,
)
from dynsched.rules.sections import Method
from dynsched.util.formatting import format_threshold

BEST: Final = 10
"""``extenderv1.MaxExtenderPriority``. A score beyond it would outweigh every plugin."""
NEUTRAL: Final = BEST // 2
"""The score of each candidate if no candidate's load is known."""
MIN_COOL: Final = 5
"""The minimum score of cool candidates if there are hot ones too."""
SPREAD: Final = 10.0
"""Percent. With ``relative``, the range of loads that scores are scaled to is at least this wide,
so that a difference of one percent does not become 10 against 0."""
FEW_BEST: Final = 16
"""If at most this many candidates share the best score, the least loaded one is put first, so that
dynsched knows which node the pod gets. It has to know, because the scheduler asks about the next
pods before the watch reports this one. Among more candidates, the scheduler's own choice spreads
pods."""
MAX_CANDIDATES_ASSUMED: Final = 1000
"""If there are more candidates in all, none of the best is put first either. A scheduler asks about
a tenth of 5,000 nodes, unless percentageOfNodesToScore is set."""
UNKNOWN: Final = 2 * FIRING + 1
"""Stands for an unknown load in a list of loads. Every known load is less."""
_MAX_ADDED: Final = 2500
"""Tenths: the most that pods bound since the evaluation add to a node."""
_NOTHING_KNOWN: Final = PodUse()

Scores = dict[int, int]
"""The score of each distinct load of the candidates."""


def scores_by_load(loads: Sequence[int], method: Method) -> Scores:
    """The score of each distinct load. UNKNOWN gets the median score of the other candidates."""
    distinct = set(loads)
    known = sorted(distinct - {UNKNOWN})
    if not known:
        return {UNKNOWN: NEUTRAL}
    first_hot = bisect_left(known, FIRING)
    cool, hot = known[:first_hot], [load - FIRING for load in known[first_hot:]]
    ends = [each for some in (cool, hot) if some for each in (some[0], some[-1])]
    is_linear, least = method == "linear", 0
    spread = FULL if is_linear else max(max(ends) - min(ends), SPREAD * TENTHS)
    best = 0 if is_linear else min(ends)
    if cool and hot:
        best, least = cool[0], MIN_COOL
    # A load scores one less for each tenth of the spread that it is above the best load, rounded.
    steps = [best + (step + 0.5) * spread / BEST for step in range(BEST - least)]
    scores = {load: BEST - bisect_left(steps, load) for load in cool}
    scores |= {load + FIRING: 0 if cool else BEST - bisect_left(steps, load) for load in hot}
    if UNKNOWN in distinct:
        scores[UNKNOWN] = median_low([scores[load] for load in loads if load != UNKNOWN])
    return scores


def break_ties(scores: Scores, loads: Sequence[int]) -> int | None:
    """If few candidates share the best score, put the least loaded one point before the others.

    Changes ``scores`` (from `scores_by_load`). Returns the index in ``loads`` of the node that the
    pod gets; None if that is open, because another node is as good, or if its load is unknown.
    """
    if not 0 < len(loads) <= MAX_CANDIDATES_ASSUMED:
        return None
    most = max(scores[load] for load in loads)
    best = [index for index, load in enumerate(loads) if scores[load] == most]
    first = min(best, key=loads.__getitem__)
    others = {loads[index] for index in best if index != first}
    if len(best) > FEW_BEST or loads[first] in {UNKNOWN, *others}:
        return None
    if most > 0:
        scores.update(dict.fromkeys(others, most - 1))
    elif others:
        scores[loads[first]] = 1
    return first


def load_refusals(evaluation: Evaluation, now: float) -> dict[str, str]:
    """The nodes that `/filter` and `/preempt` refuse, with the reason.

    A node is refused if a rule of ``extender.reject`` fires on it, and had a good value within the
    rule's ``stale_after``. The second condition holds for ``on_stale: hold`` too: it keeps a soft
    mark, and must not close a node forever. The reason omits the value, because the scheduler's
    event counts nodes with equal reasons (``3 node load high: memory > 85``).
    """
    rule_set, refused = evaluation.rule_set, dict[str, str]()
    for rule in map(rule_set.by_name.__getitem__, rule_set.extender.reject):
        why = f"node load high: {rule.name} {rule.op} {format_threshold(rule.threshold)}"
        for name, alerts in evaluation.alerts.items():
            alert = alerts.get(rule.name)
            if alert is not None and alert.firing and alert.known_at >= now - rule.stale_after:
                refused.setdefault(name, why)
    return refused


def missing_label(key: str) -> str:
    """The reason in the scheduler's event."""
    return f"node does not carry the label {key}"


class ProfileLoads:
    """The nodes' loads for one profile, each at least the profile's line, kept up to date as pods
    are bound and end. Pods that end cannot take a node far below the mean of all nodes, because
    their use is partly a guess.
    """

    def __init__(self, evaluation: Evaluation, profile: WeightedProfile) -> None:
        self.method = profile.method
        self._profile = profile
        self._uses = {name: expected.use for name, expected in evaluation.expected.items()}
        _, mean, self._line, self._evaluated = placing_loads(evaluation, profile)
        self._least = max(0, round(mean - TENTHS * BELOW_MEAN))
        self._fresh: dict[str, float] = {}
        self._loads = {name: max(load, self._line) for name, load in self._evaluated.items()}

    def of(self, names: Iterable[str]) -> list[int]:
        """The load of each of these nodes, or UNKNOWN."""
        find = self._loads.get
        return [find(name, UNKNOWN) for name in names]

    def add(self, changes: Iterable[PodChange], nodes: Mapping[str, Node]) -> None:
        """Add these pods to the loads of their nodes. An unknown load stays unknown."""
        for change in changes:
            name = change.pod.node
            if name not in self._evaluated:
                continue
            allocatable = nodes[name].allocatable if name in nodes else {}
            self._fresh[name] = self._fresh.get(name, 0.0) + self._load_of(change, allocatable)
            added = round(min(TENTHS * self._fresh[name], _MAX_ADDED))
            load = self._evaluated[name]
            # Limited, so that a node stays on its side of FIRING.
            room = max(0, load % FIRING - self._least)
            self._loads[name] = max(load + max(-room, added), self._line)

    def _load_of(self, change: PodChange, allocatable: Allocatable) -> float:
        """The load in percent that a change adds; negative if it is one pod less."""
        load = 0.0
        for rule, weight in self._profile.rules:
            use = self._uses.get(rule.name, _NOTHING_KNOWN)
            margin = use.margin(change.pod) if change.is_recent else 0.0
            of_rule = use.load(change.pod, allocatable, ended=not change.is_recent)
            load += weight * of_rule * (1 + margin)
        return change.sign * load


class Scoring:
    """One evaluation, prepared for the scheduler's requests outside of the event loop."""

    def __init__(self, evaluation: Evaluation, pods: KnownPods, now: float) -> None:
        rule_set = evaluation.rule_set
        self.stale_after = rule_set.stale_after
        self.pod_changes = pods.sequence
        self.refused = load_refusals(evaluation, now)
        self._profiles = {
            name: ProfileLoads(evaluation, weighted_profile(rule_set, name))
            for name in {"default", *rule_set.extender.profiles}
        }

    def profile(self, scheduler: str) -> ProfileLoads:
        """The loads for pods of this schedulerName."""
        return self._profiles.get(scheduler, self._profiles["default"])

    def add(self, changes: Sequence[PodChange], nodes: Mapping[str, Node]) -> None:
        """Count pods that were bound or ended since the evaluation."""
        for profile in self._profiles.values():
            profile.add(changes, nodes)
