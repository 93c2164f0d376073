"""Marks that are found, broken, changed by hand or contested by others: each has one outcome, which
`/nodes` shows and which an Event tells once. See docs/reliability.md.
"""

import json
import logging

import pytest
from bench import COOL, HOT, bench, rules
from cluster import Cluster

from dynsched.engine.model import Quality
from dynsched.engine.plan import plan_prune
from dynsched.sim.examples import make_node

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
NOTHING = (None, [], False)


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


async def test_a_restart_takes_its_marks_over(cluster, prometheus, before, tmp_path) -> None:
    prometheus.set(load={"a": HOT})
    async with bench(cluster, prometheus, tmp_path, rules(mark=BOTH)) as it:
        await it.tick()
    marked = await cluster.get_node("a")

    prometheus.failing = {"load": 503}
    async with bench(cluster, prometheus, tmp_path) as it:
        for _ in range(3):
            await it.tick()
        assert await cluster.get_node("a") == marked
        (rule,) = it.node("a").rules
        assert (it.node("a").marked, rule.adopted, rule.quality) == (True, True, Quality.FAILED)

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


@pytest.mark.parametrize(
    ("load", "theirs", "conflict"),
    [
        pytest.param(HOT, {"label": "maintenance"}, "label status=maintenance", id="label, hot"),
        pytest.param(COOL, {"label": "maintenance"}, "label status=maintenance", id="label, cool"),
        pytest.param(
            HOT, {"taints": [{**OURS, "value": "theirs"}]}, f"taint {KEY}=theirs", id="taint, hot"
        ),
    ],
)
async def test_somebody_elses_value_is_never_touched(  # noqa: PLR0917 - fixtures
    cluster, prometheus, before, tmp_path, load, theirs, conflict
) -> None:
    await by_hand(cluster, **theirs)
    found = await cluster.get_node("a")
    said = f"{conflict} was set by somebody else"
    prometheus.set(load={"a": load})
    async with bench(cluster, prometheus, tmp_path, rules(mark=BOTH)) as it:
        for _ in range(3):
            await it.tick()
        assert await cluster.get_node("a") == found
        assert it.node("a").conflict == said
        assert it.status()["conflicts"]["first"] == [{"node": "a", "conflict": said}]
        assert await it.told("a") == {"MarkConflict": 1}


MARKS = {
    "label": {},
    "both": BOTH,
    "taint": {"label": None, **BOTH},
    "another label": {"label": "load=high"},
}
FORMS = {
    "label": ({"status": "presure"}, []),
    "both": ({"status": "presure"}, [OURS]),
    "taint": ({}, [OURS]),
    "another label": ({"load": "high"}, []),
}


async def has_form(cluster, form):
    node = await cluster.get_node("a")
    labels = {k: v for k, v in node["metadata"]["labels"].items() if "/" not in k}
    taints = [taint for taint in node["spec"]["taints"] if taint["key"] == KEY]
    assert (labels, taints) == FORMS[form]


async def test_marks_move_with_the_configuration_and_leave_nothing(
    cluster, prometheus, before, tmp_path
) -> None:
    await cluster.create_node(make_node("cool", 1))
    cool = await cluster.get_node("cool")
    prometheus.set(load={"a": HOT, "cool": COOL})
    async with bench(cluster, prometheus, tmp_path, rules(mark=MARKS["label"])) as it:
        await it.tick()
        for form in ("both", "taint", "another label"):
            it.write_rules(rules(mark=MARKS[form]))
            assert (await it.tick()).reloaded
            await has_form(cluster, form)
    # By what the API server lists, not by what we remember.
    async with bench(cluster, prometheus, tmp_path, rules(mark=MARKS["taint"])) as it:
        await it.tick()
        await has_form(cluster, "taint")
        assert await cluster.get_node("cool") == cool
        patches = [write for write in await cluster.writes() if write.manager == "dynsched"]
        assert len(patches) == 5  # each change one patch, the old and the new together

        it.write_rules(rules(mark=MARKS["label"]))
        prometheus.set(load={"a": COOL, "cool": COOL})
        await it.tick()
        assert described(await cluster.get_node("a")) == before


FORGED = {KEY: json.dumps({"label": "team=pay", "taint": None, "rules": []})}
PAY = {"metadata": {"labels": {"team": "pay"}}}


@pytest.mark.parametrize("load", [HOT, COOL], ids=["hot", "cool"])
async def test_forged_evidence_takes_no_label_of_others(  # noqa: PLR0917 - fixtures
    cluster, prometheus, before, tmp_path, caplog, load
) -> None:
    caplog.set_level(logging.INFO, logger="dynsched")
    await cluster.patch_node("a", PAY, field_manager="payroll")
    await cluster.patch_node("a", {"metadata": {"annotations": FORGED}}, field_manager="forger")
    prometheus.set(load={"a": load})
    async with bench(cluster, prometheus, tmp_path, rules()) as it:
        for _ in range(2):
            await it.tick()
        assert (await cluster.get_node("a"))["metadata"]["labels"]["team"] == "pay"
        assert await it.marked() == ("a" if load == HOT else "")
        (line,) = [text for text in caplog.messages if "team=pay" in text]
        assert line.endswith("label team=pay stays: nothing shows that dynsched put it there")
        for patch in plan_prune(it.storage.nodes().values(), it.last.rule_set.mark):
            await it.storage.patch(patch)
        assert (await cluster.get_node("a"))["metadata"]["labels"]["team"] == "pay"
        assert await on_node(cluster) == NOTHING


async def test_a_record_that_was_wiped_leaves_an_older_mark_to_whoever_wiped_it(
    cluster, prometheus, before, tmp_path
) -> None:
    prometheus.set(load={"a": HOT})
    old = rules(mark=MARKS["another label"])
    async with bench(cluster, prometheus, tmp_path, old) as it:
        await it.tick()
        await cluster.patch_node("a", {"metadata": {"labels": {"load": "low"}}})
        await cluster.patch_node("a", {"metadata": {"labels": {"load": "high"}}})
        it.write_rules(rules())
        await it.tick()
        labels = (await cluster.get_node("a"))["metadata"]["labels"]
        assert (labels["load"], labels["status"]) == ("high", "presure")
        # By the older configuration it goes, as any label of its value does.
        for mark in (MARKS["another label"], {}):
            it.write_rules(rules(mark=mark))
            prometheus.set(load={"a": COOL})
            await it.tick()
        assert described(await cluster.get_node("a")) == before
