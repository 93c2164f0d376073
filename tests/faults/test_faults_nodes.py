"""Marks that are found, broken, changed by hand or contested by others: each has one outcome, which
`/nodes` shows and which an Event tells once. See docs/reliability.md.
"""

import json

import pytest
from bench import COOL, HOT, bench, rules
from cluster import Cluster

from dynsched.core.samples import Quality
from dynsched_sim.examples import make_node

KEY = "dynsched.io/pressure"
OURS = {"key": KEY, "value": "true", "effect": "PreferNoSchedule"}
BOTH = {"taint": f"{KEY}=true:PreferNoSchedule"}


@pytest.fixture
async def before(cluster: Cluster):
    """Node ``a`` as it was before anybody touched it."""
    raw = make_node("a")
    raw["spec"]["taints"] = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    raw["metadata"]["annotations"]["owner.io/team"] = "blue"
    return described(await cluster.create_node(raw))


def described(raw):
    """What is on a node, but for what the API server counts."""
    metadata = {
        key: value
        for key, value in raw["metadata"].items()
        if key not in {"resourceVersion", "managedFields"}
    }
    return {**raw, "metadata": metadata}


async def on_node(cluster, name="a"):
    """What of ours is on a node: (label, taint, annotation)."""
    node = await cluster.get_node(name)
    taints = [taint for taint in node["spec"].get("taints", ()) if taint["key"] == KEY]
    annotation = node["metadata"].get("annotations", {}).get(KEY)
    label = node["metadata"]["labels"].get("status")
    return label, taints, annotation is not None


WHOLE = ("presure", [OURS], True)


async def by_hand(cluster, *, name="a", label="-", annotation="-", taints=None, manager="somebody"):
    """Change parts of the mark as somebody else would; ``None`` removes, ``-`` leaves it."""
    metadata = {}
    if label != "-":
        metadata["labels"] = {"status": label}
    if annotation != "-":
        metadata["annotations"] = {KEY: annotation}
    patch = {"metadata": metadata}
    if taints is not None:
        others = [
            taint
            for taint in (await cluster.get_node(name))["spec"].get("taints", ())
            if taint["key"] != KEY
        ]
        patch["spec"] = {"taints": others + taints}
    await cluster.patch_node(name, patch, field_manager=manager)


@pytest.mark.parametrize("more", [{}, {"for_": "10m"}, {"name": "renamed"}], ids=str)
async def test_a_restart_takes_its_marks_over(cluster, prometheus, before, tmp_path, more) -> None:
    prometheus.set(load={"a": HOT})
    async with bench(cluster, prometheus, tmp_path, rules(mark=BOTH)) as it:
        await it.tick()
        since = it.node("a").since
    marked = await cluster.get_node("a")

    prometheus.failing = {"load": 503}
    prometheus.clock.ahead += 7 * 60
    async with bench(cluster, prometheus, tmp_path, rules(mark=BOTH, **more)) as it:
        for _ in range(3):
            await it.tick()
        assert await cluster.get_node("a") == marked
        (rule,) = it.node("a").rules
        assert (it.node("a").marked, rule.adopted, rule.quality) == (True, True, Quality.FAILED)
        assert it.node("a").since == rule.since == since  # and not when the process began

        prometheus.failing = {}
        prometheus.set(load={"a": COOL})
        await it.tick()
        assert described(await cluster.get_node("a")) == before
        assert await it.told("a") == {"Pressured": 1, "Relieved": 1}


EVIDENCE = json.dumps({"label": "status=presure", "rules": [{"rule": "load"}]})
HALVES = {
    "label without annotation": {"label": "presure"},
    "label from a person": {"label": "presure", "manager": "kubectl-label"},
    "label with an annotation that is no evidence": {"label": "presure", "annotation": "?"},
    "label without taint": {"label": "presure", "annotation": EVIDENCE},
    "taint without label": {"taints": [OURS]},
    "all but the annotation": {"label": "presure", "taints": [OURS]},
    "annotation alone": {"annotation": EVIDENCE},
}


@pytest.mark.parametrize("load", [HOT, COOL], ids=["hot", "cool"])
@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
async def test_half_a_mark_is_completed_on_a_hot_node_and_removed_from_a_cool_one(  # noqa: PLR0917 - fixtures
    cluster, prometheus, before, tmp_path, half, load
) -> None:
    await by_hand(cluster, **{"manager": "dynsched", **half})
    prometheus.set(load={"a": load})
    async with bench(cluster, prometheus, tmp_path, rules(mark=BOTH)) as it:
        for _ in range(3):
            await it.tick()
        if load == HOT:
            assert await on_node(cluster) == WHOLE
            told = "MarkRepaired" if "label" in half or "taints" in half else "Pressured"
            assert (it.node("a").marked, await it.told("a")) == (True, {told: 1})
            prometheus.set(load={"a": COOL})
            await it.tick()
        else:
            assert (it.node("a").marked, await it.told("a")) == (False, {"Relieved": 1})
        assert described(await cluster.get_node("a")) == before


async def test_a_label_changed_by_hand_is_theirs_from_then_on(
    cluster, prometheus, before, tmp_path
) -> None:
    prometheus.set(load={"a": HOT})
    async with bench(cluster, prometheus, tmp_path, rules(mark=BOTH)) as it:
        await it.tick()
        await by_hand(cluster, label="maintenance")
        for _ in range(3):
            await it.tick()
            assert await on_node(cluster) == ("maintenance", [], False)
        assert it.node("a").conflict == "label status=maintenance was set by somebody else"
        assert not it.node("a").marked
        assert it.status()["conflicts"]["count"] == it.metric("dynsched_conflicts") == 1
        told = await it.told("a")
        assert told == {"Pressured": 1, "MarkConflict": 1, "Relieved": 1}

        await by_hand(cluster, label=None)
        await it.tick()
        assert await on_node(cluster) == WHOLE
        assert it.node("a").conflict is None
