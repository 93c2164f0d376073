"""A dry run makes the same decisions as a real run on the same readings, and sends nothing."""

from dataclasses import replace
from typing import Any

import pytest
from builders import NOON, answer, node, rule, rule_set, soft
from hypothesis import given
from hypothesis import strategies as st
from properties import steady

from dynsched.core.evaluate import Evaluation, evaluate
from dynsched.core.marks import NodePatch, apply_patch
from dynsched.core.nodes import Node
from dynsched.kube.cluster import DryRunCluster, NodeStore
from dynsched.rules.rule_set import RuleSet
from dynsched.util.errors import ConflictError, NotFoundError

BOTH = {"label": "status=presure", "taint": "dynsched.io/pressure=true:PreferNoSchedule"}
GUARDED = rule_set(
    rule(clear_threshold=60, keep_firing_for="20s", for_="10s"),
    mark=BOTH,
    guard={"max_marked": 2, "max_releases": 1},
)
NAMES = "abcd"


class DryRun:
    """Ticks over nodes that only tests change. There is no client."""

    def __init__(self, rules: RuleSet, *nodes: Node) -> None:
        self.rules = rules
        self.store = NodeStore()
        self.cluster = DryRunCluster(None, self.store)  # type: ignore[arg-type]
        self.store.correct({each.name: each for each in nodes}, 0)
        self.last: Evaluation | None = None
        self.now = NOON

    def put(self, changed: Node) -> None:
        """Change a node as somebody else would."""
        known = self.store.find(changed.name)
        assert known is not None
        self.store.offer(replace(changed, resource_version=str(int(known.resource_version) + 1)))

    async def tick(self, **values: float) -> Evaluation:
        self.now += 10
        results = {each.name: answer(values, self.now) for each in self.rules.rules}
        self.last = evaluate(self.rules, results, self.cluster.nodes(), self.last, self.now)
        for patch in self.last.patches:
            await self.cluster.patch(patch)
        return self.last

    async def due(self, **values: float) -> list[str]:
        return [f"{patch.action} {patch.node}" for patch in (await self.tick(**values)).patches]


def _parts(patch: NodePatch) -> tuple[Any, ...]:
    """All of a patch except the resourceVersion."""
    metadata = {key: patch.body["metadata"].get(key) for key in ("labels", "annotations")}
    return patch.node, patch.action, patch.reason, metadata, patch.body.get("spec")


@steady(80)
@given(
    st.lists(
        st.lists(st.sampled_from([10.0, 70.0, 81.0, 90.0, 99.0]), min_size=4, max_size=4),
        max_size=12,
    )
)
async def test_the_patches_of_a_dry_run_are_those_of_a_real_run(heats: list[list[float]]) -> None:
    nodes = {name: node(name, taints=[soft("theirs")]) for name in NAMES}
    nodes["d"] = node("d", labels={"status": "presure"})  # an existing mark
    dry = DryRun(GUARDED, *nodes.values())
    last: Evaluation | None = None
    for number, heat in enumerate(heats):
        values = dict(zip(NAMES, heat, strict=True))
        at = NOON + 10 * (number + 1)
        last = evaluate(GUARDED, {"cpu": answer(values, at)}, nodes, last, at)
        for patch in last.patches:
            nodes[patch.node] = apply_patch(nodes[patch.node], patch)
        rehearsed = await dry.tick(**values)
        assert [_parts(p) for p in rehearsed.patches] == [_parts(p) for p in last.patches]
        assert rehearsed.decision == last.decision


@pytest.fixture
async def dry() -> DryRun:
    """A dry run with a node that would be marked."""
    running = DryRun(rule_set(mark=BOTH, guard={"max_marked": "100%"}), node("a"), node("b"))
    assert await running.due(a=91, b=1) == ["mark a"]
    return running


async def test_unrelated_changes_by_others_are_kept_and_need_no_patch(dry: DryRun) -> None:
    theirs = soft("theirs")
    dry.put(node("a", labels={"team": "x"}, taints=[theirs]))
    assert await dry.due(a=91, b=1) == []
    copy = dry.cluster.nodes()["a"]
    assert copy.labels == {"team": "x", "status": "presure"}
    assert copy.taints == (theirs, soft())


async def test_a_conflicting_label_that_somebody_sets_is_reported(dry: DryRun) -> None:
    dry.put(node("a", labels={"status": "maintenance"}))
    found = await dry.tick(a=91, b=1)
    assert found.table.conflicts == {"a": "label status=maintenance was set by somebody else"}


async def test_the_writes_of_another_instance_take_precedence_over_the_dry_run(
    dry: DryRun,
) -> None:
    dry.put(node("a", labels={"status": "presure"}, taints=[soft()]))
    assert await dry.due(a=91, b=1) == ["repair a"]  # the other instance wrote no record
    assert await dry.due(a=1, b=1) == ["release a"]
    dry.put(node("a"))  # the other instance releases it too
    assert await dry.due(a=1, b=1) == []


async def test_a_patch_of_a_deleted_node_is_not_found(dry: DryRun) -> None:
    (patch,) = (await dry.tick(a=1, b=1)).patches
    dry.store.drop("a", "")
    with pytest.raises(NotFoundError):
        await dry.cluster.patch(patch)
    assert await dry.cluster.read("a") is None


async def test_a_patch_of_a_changed_node_is_a_conflict(dry: DryRun) -> None:
    (patch,) = (await dry.tick(a=1, b=1)).patches
    dry.put(node("a", labels={"team": "x"}))
    with pytest.raises(ConflictError):
        await dry.cluster.patch(patch)
