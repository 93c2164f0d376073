"""A dry run decides as if it had written: as a real run on the same readings does."""

from collections.abc import Mapping
from typing import Any

import pytest
from builders import NOON, answer, apply, body, node, project, rule, rule_set, soft
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.engine.alerting.alerts import no_alerts
from dynsched.engine.alerting.dry_run import PretendedWrites
from dynsched.engine.decide import decide
from dynsched.engine.model import Node, NodePatch
from dynsched.engine.snapshot import Decision
from dynsched.rules.rule_set import RuleSet

BOTH = {"label": "status=presure", "taint": "dynsched.io/pressure=true:PreferNoSchedule"}
GUARDED = rule_set(
    rule(clear_threshold=60, keep_firing_for="20s", for_="10s"),
    mark=BOTH,
    guard={"max_marked": 2, "max_releases": 1},
)
NAMES = "abcd"


class DryRun:
    """Ticks that write nothing, over nodes that stay as they are unless a test changes them."""

    def __init__(self, rules: RuleSet, *nodes: Node) -> None:
        self.rules = rules
        self.nodes = {each.name: each for each in nodes}
        self.overlay = PretendedWrites()
        self.alerts = no_alerts()
        self.now = NOON

    def tick(self, **values: float) -> Decision:
        self.now += 10
        nodes = self.overlay.nodes(self.nodes)
        results = {each.name: answer(values, self.now) for each in self.rules.rules}
        decision = decide(self.rules, results, nodes, self.alerts, self.now)
        self.alerts = decision.verdicts.alerts
        self.overlay.write(decision.patches)
        return decision

    def told(self, **values: float) -> list[str]:
        return [f"{patch.action} {patch.node}" for patch in self.tick(**values).patches]


@steady(80)
@given(
    st.lists(
        st.lists(st.sampled_from([10.0, 70.0, 81.0, 90.0, 99.0]), min_size=4, max_size=4),
        max_size=12,
    )
)
def test_a_dry_run_tells_what_a_real_run_writes(heats: list[list[float]]) -> None:
    raws = {name: body(name, taints=[soft("theirs")]) for name in NAMES}
    raws["d"] = body("d", labels={"status": "presure"})  # marked before
    dry = DryRun(GUARDED, *map(project, raws.values()))
    alerts = no_alerts()
    for number, heat in enumerate(heats):
        values: Mapping[str, float] = dict(zip(NAMES, heat, strict=True))
        at = NOON + 10 * (number + 1)
        nodes = {name: project(raw) for name, raw in raws.items()}
        wet = decide(GUARDED, {"cpu": answer(values, at)}, nodes, alerts, at)
        alerts = wet.verdicts.alerts
        for patch in wet.patches:
            raws[patch.node] = apply(raws[patch.node], patch)

        rehearsed = dry.tick(**values)

        assert [_told(patch) for patch in rehearsed.patches] == [_told(p) for p in wet.patches]
        assert rehearsed.selection == wet.selection


def _told(patch: NodePatch) -> tuple[Any, ...]:
    """All of a patch but the version that it was decided on."""
    metadata = {key: patch.body["metadata"].get(key) for key in ("labels", "annotations")}
    return patch.node, patch.action, patch.reason, metadata, patch.body.get("spec")


@pytest.fixture
def dry() -> DryRun:
    """With a node that would be marked."""
    running = DryRun(rule_set(mark=BOTH, guard={"max_marked": "100%"}), node("a"), node("b"))
    assert running.told(a=91, b=1) == ["mark a"]
    return running


def test_changes_that_are_none_of_ours_are_seen_and_change_nothing(dry: DryRun) -> None:
    theirs = soft("theirs")
    dry.nodes["a"] = node("a", labels={"team": "x"}, taints=[theirs])
    assert dry.told(a=91, b=1) == []
    imagined = dry.overlay.nodes(dry.nodes)["a"]
    assert imagined.labels == {"team": "x", "status": "presure"}
    assert imagined.taints == (theirs, soft())


def test_a_conflict_that_somebody_makes_meanwhile_is_seen(dry: DryRun) -> None:
    dry.nodes["a"] = node("a", labels={"status": "maintenance"})
    assert dry.tick(a=91, b=1).inventory.conflicts == {
        "a": "label status=maintenance was set by somebody else"
    }


def test_where_another_instance_writes_it_counts_as_written(dry: DryRun) -> None:
    marked = node("a", labels={"status": "presure"}, taints=[soft()])
    dry.nodes["a"] = marked
    assert dry.told(a=91, b=1) == ["repair a"]  # that instance's evidence is not there
    assert dry.told(a=1, b=1) == ["release a"]
    dry.nodes["a"] = node("a")  # it is released there too
    assert dry.told(a=1, b=1) == []
