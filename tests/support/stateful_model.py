"""What marks and alerts should be: said a second time, and in the simplest way that comes to mind
(alerts by `plain_alerts`).

Time is ``lived``: seconds that really passed, whatever the wall clock was set to meanwhile.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from evaluating import Alerts, Reading, RuleReadings
from msgspec.structs import replace
from plain_alerts import Plain, plainly

from dynsched.engine.model import Alert, AlertState, Node, Quality
from dynsched.engine.snapshot import NodeView
from dynsched.rules.labels import Mark
from dynsched.rules.rule_set import RuleSet
from dynsched.rules.sections import GuardRules

EVIDENCE = "dynsched.io/pressure"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
IGNORE = "dynsched.io/ignore"


class Thing(Protocol):
    """A node as observed, or as stored."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...
    @property
    def owned(self) -> frozenset[str]: ...
    @property
    def taints(self) -> Iterable[Mapping[str, Any]]: ...


def label_text(key: str, value: str) -> str:
    return f"{key}={value}"


def taint_text(taint: Mapping[str, Any]) -> str:
    return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"


@lru_cache(1000)
def _read(text: str) -> Mapping[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def evidence_of(thing: Thing) -> Mapping[str, Any]:
    """What the evidence says; nothing where there is none, or none that can be read."""
    return _read(thing.annotations.get(EVIDENCE, ""))


def texts_on(thing: Thing) -> set[str]:
    """All labels and taints."""
    labels = {label_text(key, value) for key, value in thing.labels.items()}
    return labels | {taint_text(taint) for taint in thing.taints}


@lru_cache
def texts_of(mark: Mark) -> frozenset[str]:
    return frozenset(str(part) for part in (mark.label, mark.taint) if part is not None)


def _meant(thing: Thing, mark: Mark) -> frozenset[str]:
    return _meant_by(thing.annotations.get(EVIDENCE, ""), frozenset(thing.owned), mark)


@lru_cache(10_000)  # each node is asked about many times in a tick
def _meant_by(evidence: str, owned: frozenset[str], mark: Mark) -> frozenset[str]:
    said = _read(evidence)
    label, taint = said.get("label"), said.get("taint")
    proven = isinstance(label, str) and (
        label == "status=presure" or label.partition("=")[0] in owned
    )
    found = (label if proven else None, taint)
    return texts_of(mark) | {text for text in found if isinstance(text, str)}


def marks_on(thing: Thing, mark: Mark) -> frozenset[str]:
    """What of ours stands on it: of the present mark, or of an older one as the evidence tells,
    where the API server's record of who wrote what does not say otherwise.
    """
    return _meant(thing, mark) & texts_on(thing)


def conflict_on(thing: Thing, mark: Mark) -> bool:
    """Whether something of another owner stands where our mark should."""
    meant = _meant(thing, mark)
    places = []
    if mark.label is not None and mark.label.key in thing.labels:
        places.append(label_text(mark.label.key, thing.labels[mark.label.key]))
    if mark.taint is not None:
        places += [
            taint_text(taint)
            for taint in thing.taints
            if (taint["key"], taint["effect"]) == (mark.taint.key, mark.taint.effect)
        ]
    return any(text not in meant for text in places)


def is_eligible(thing: Thing, rule_set: RuleSet) -> bool:
    labels = thing.labels
    if labels.get(IGNORE) == "true":
        return False
    if CONTROL_PLANE in labels and not rule_set.nodes.include_control_plane:
        return False
    return rule_set.nodes.selector.matches(labels)


def pools_of(things: Iterable[Thing], rule_set: RuleSet) -> dict[str, set[str]]:
    """The names of the nodes that may be marked, by pool."""
    pools: dict[str, set[str]] = {}
    for thing in things:
        if is_eligible(thing, rule_set) and not conflict_on(thing, rule_set.mark):
            pools.setdefault(pool_of(thing, rule_set.guard), set()).add(thing.name)
    return pools


def pool_of(thing: Thing, guard: GuardRules) -> str:
    return thing.labels.get(guard.pool_label, "") if guard.pool_label else ""


@dataclass(frozen=True)
class Answered:
    """What a source said of one node: a value, and how old it was."""

    value: float
    age: float = 0.0


class Beliefs:
    """All alerts of one process, in the time that it lived, and how they go on."""

    def __init__(self) -> None:
        self.of: Plain = {}

    def tick(
        self,
        rule_set: RuleSet,
        answers: Mapping[str, Mapping[str, Answered] | None],
        nodes: Mapping[str, Node],
        marked: Collection[str],
        lived: float,
    ) -> None:
        """``answers`` by rule; None: the query failed. ``marked``: what carries our mark."""
        before = {
            rule.name: {
                name: old
                for name, old in self.of.get(rule.name, {}).items()
                if name in nodes and nodes[name].uid == old.uid
            }
            for rule in rule_set.rules
        }
        readings = {
            rule: RuleReadings(failed=True)
            if found is None
            else RuleReadings({name: _reading(name, each, lived) for name, each in found.items()})
            for rule, found in answers.items()
        }
        for name in nodes.keys() & marked:
            for rule in self._taken_over(rule_set, before, nodes[name]):
                before[rule][name] = Alert(
                    *(rule, name, AlertState.FIRING),
                    **dict.fromkeys(("since", "updated_at", "known_at", "active_since"), lived),
                    uid=nodes[name].uid,
                )
        self.of, _ = plainly(rule_set, readings, nodes, before, lived)

    def _taken_over(self, rule_set: RuleSet, before: Plain, node: Node) -> set[str]:
        """The rules that fire on a node that carries our mark: those behind it where no rule
        remembers the node, and all new ones where a rule fired on it that is gone.
        """
        found: set[str] = set()
        if not any(node.name in known for known in before.values()):
            found |= rules_behind(node, rule_set)
        gone = [self.of[rule].get(node.name) for rule in self.of.keys() - before.keys()]
        if any(old and old.firing and old.uid == node.uid for old in gone):
            found |= before.keys() - self.of.keys()
        return found

    def learn(self, alerts: Alerts, offset: float) -> None:
        """Take over what was rebuilt from the past, on a wall clock that is ``offset`` ahead."""

        def as_lived(alert: Alert) -> Alert:
            times = {name: getattr(alert, name) for name in _TIMES}
            return replace(alert, **{k: v and v - offset for k, v in times.items()})

        self.of = {
            rule: {name: as_lived(alert) for name, alert in by_node.items()}
            for rule, by_node in alerts.items()
        }

    def is_hot(self, name: str) -> bool:
        return any(by_node[name].firing for by_node in self.of.values() if name in by_node)

    def uids(self, name: str) -> set[str]:
        """The uids of the nodes of this name of which anything is believed."""
        return {by_node[name].uid for by_node in self.of.values() if name in by_node}

    def differences(self, views: Mapping[str, NodeView]) -> list[str]:
        """Where a snapshot says otherwise."""
        return [
            f"{alert.rule} on {name}: {alert.state}, {alert.quality} is not {believed}"
            for name, view in views.items()
            for alert in view.verdict.alerts
            for believed in [self.of[alert.rule][name]]
            if alert.state is not believed.state
        ]


_TIMES = ("since", "updated_at", "known_at", "active_since", "keep_firing_since")


def _reading(node: str, answered: Answered, lived: float) -> Reading:
    quality = Quality.OK if math.isfinite(answered.value) else Quality.INVALID
    return Reading(node, answered.value, lived - answered.age, quality)


def rules_behind(thing: Thing, rule_set: RuleSet) -> set[str]:
    """The rules that a mark which is found stands for: those of the evidence, or else all."""
    known = {rule.name for rule in rule_set.rules}
    said = evidence_of(thing).get("rules")
    entries = said if isinstance(said, list) else []
    named = {entry.get("rule") for entry in entries if isinstance(entry, dict)}
    return known & named or known
