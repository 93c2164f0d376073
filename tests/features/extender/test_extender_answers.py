"""The extender's answers, without HTTP. Known bugs of earlier extenders have their own tests."""

import json
import logging
import random
from dataclasses import replace
from typing import Any

import pytest
from extender_support import NAMES, RULES, World, ask, ask_whole, raw, whole
from scenes import NOON

from dynsched.core.load.pods import BoundPod
from dynsched.features.extender.wire import WireError
from dynsched.util.errors import ConflictError

UID = "11111111-2222-3333-4444-555555555555"


def test_a_node_with_high_load_is_refused_as_unresolvable_by_preemption() -> None:
    assert World().tick().filter(ask()) == {
        "Nodes": None,
        "NodeNames": ["a", "b", "c"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"d": "node load high: node-mem-usage > 85"},
        "Error": "",
    }


def test_nodes_that_pass_are_returned_byte_for_byte() -> None:
    node = '{"metadata":{"name":"a", "x":[1.50,  null]},"spec":{"é":"\\u2028", "y" : 1e400}}'
    body = f'{{"Nodes":{{"kind":"NodeList","metadata":{{"continue": ""}},"items":[{node}]}}}}'
    answer = World().tick().extender.filter(body.encode())
    assert answer.decode().startswith(f'{{"Nodes":{{"items":[{node}]}},')


def test_nodes_without_data_and_unknown_nodes_pass() -> None:
    world = World().tick(memory="503: no backend")
    assert world.filter(ask([*NAMES, "new"]))["NodeNames"] == [*NAMES, "new"]
    assert World().filter(ask())["NodeNames"] == NAMES  # before the first tick


def test_old_readings_refuse_no_node() -> None:
    """In two earlier extenders, readings from hours ago still counted."""
    world = World().tick()
    world.now += 301
    assert world.filter(ask())["NodeNames"] == NAMES
    assert set(world.scores(ask()).values()) == {5}


LABELLED = {**RULES, "extender": {"require_label": "filter.xy.com"}}
MISSING = "node does not carry the label filter.xy.com"


def test_only_labelled_nodes_pass() -> None:
    """If the request contains whole nodes, their labels count. An unknown node may be retried."""
    world = World(LABELLED).tick()
    found = world.filter(ask([*NAMES, "new"]))
    assert found["NodeNames"] == ["a", "b"]
    assert found["FailedAndUnresolvableNodes"] == {"c": MISSING, "d": MISSING}
    unknown = "node is not known, nor whether it carries the label filter.xy.com"
    assert found["FailedNodes"] == {"new": unknown}
    found = world.filter(ask_whole(whole("a"), whole("new", **{"filter.xy.com": "true"})))
    assert [node["metadata"]["name"] for node in found["Nodes"]["items"]] == ["new"]
    assert found["FailedAndUnresolvableNodes"] == {"a": MISSING}
    world.nodes = {**world.nodes, "a": world.nodes["c"]}  # the label is removed
    assert world.filter(ask())["NodeNames"] == ["b"]
    meta = {name: {"Pods": None} for name in ("b", "c")}
    assert set(world.preempt({"NodeNameToMetaVictims": meta})) == {"b"}


def test_a_filter_before_the_nodes_are_listed_is_an_error_and_not_an_empty_list() -> None:
    world = World(LABELLED)
    world.synced = False
    found = world.filter(ask())
    assert found["Error"]
    assert found["NodeNames"] is None
    assert world.filter(ask_whole(whole("a", **{"filter.xy.com": ""})))["Error"] == ""


CPU_COOL = {"a": 10.0, "b": 10.0, "c": 60.0, "d": 60.0}


def test_scores_depend_on_the_pods_scheduler_name_in_every_form_of_request() -> None:
    world = World().tick()
    by_cpu = {"a": 10, "b": 7, "c": 0, "d": 9}
    for request in (
        ask(),
        {"NodeNames": NAMES},
        {"Pod": {"spec": None}, "NodeNames": NAMES},
        ask_whole(*map(whole, NAMES)),
    ):
        assert world.scores(request) == by_cpu
    by_memory = world.scores(ask(scheduler="mem-real-usage-scheduler"))
    assert by_memory == {"a": 10, "b": 9, "c": 7, "d": 0}


def test_an_unknown_load_is_not_the_best_score_and_does_not_fail_the_request() -> None:
    """One earlier extender scored NaN and unknown nodes best. Another crashed with a nil pointer
    without metrics-server, and a third scored no node at all if one was unknown.
    """
    found = World().tick(cpu={**CPU_COOL, "a": float("nan")}).scores(ask())
    assert found["a"] < found["b"]
    found = World().tick().scores(ask([*NAMES, "new"]))
    assert found["a"] > found["new"] > found["c"]
    for away in (World().tick(cpu="refused", memory="refused"), World()):
        assert set(away.scores(ask()).values()) == {5}
    found = World().tick(cpu={"b": 40.0, "c": 95.0, "d": 20.0}).scores(ask())
    assert found == {"a": 8, "b": 8, "c": 0, "d": 10}
    hot_and_silent = World().tick().tick(NOON + 10, cpu={"b": 40.0, "d": 20.0})
    assert hot_and_silent.scores(ask())["c"] == 0


@pytest.mark.parametrize("ticks", [False, True])
def test_idle_pods_that_end_together_do_not_make_a_busy_node_the_best(ticks: bool) -> None:
    """Neither before the next tick nor after it."""
    cpu = {"a": 20.0, "b": 40.0, "c": 78.0, "d": 30.0}
    world = World().tick(cpu=cpu, running=8)
    for number in range(30):
        world.bound.end(BoundPod(str(number), "c"), world.now)
    if ticks:
        world.tick(cpu=cpu, running=8)
    scores = world.scores(ask())
    assert scores["a"] == max(scores.values()) > scores["c"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_just_bound_pod_counts_at_once_and_until_the_metric_shows_it(replaced: bool) -> None:
    """It does not count on a new node that replaced its node."""
    world = World().tick()
    before = world.scores(ask())
    for node, score in (("gone", 10), ("a", 6)):
        assert world.scores(ask()) == before
        world.bound.add(BoundPod(node, node, cpu=4.0), world.now)
        assert world.scores(ask())["a"] == score
    if replaced:
        world.nodes = {**world.nodes, "a": replace(world.nodes["a"], uid="another")}
    world.tick(NOON + 10)
    assert world.scores(ask())["a"] == (10 if replaced else 6)
    world.now += 61
    assert world.tick(NOON + 71).scores(ask())["a"] == 10


def of_pod(uid: str, names: list[str] | None = None) -> dict[str, Any]:
    request = ask(names)
    request["Pod"]["metadata"]["uid"] = uid
    return request


@pytest.mark.parametrize("method", ["linear", "relative"])
def test_a_burst_that_is_faster_than_the_pod_watch_does_not_herd(method: str) -> None:
    """The scheduler asks about all 30 pods before the watch reports the first. An earlier extender
    herded here.
    """
    profile = {"default": {"score": {"node-cpu": 1}, "method": method}}
    for seed in range(20):
        world = World({**RULES, "extender": {"profiles": profile}})
        world.tick(cpu={"a": 23.0, "b": 26.0, "c": 29.0, "d": 95.0})
        chance = random.Random(seed)
        counts = dict.fromkeys(NAMES, 0)
        for number in range(30):
            scores = world.scores(of_pod(f"{seed}-{number}"))
            best = [name for name in NAMES if scores[name] == max(scores.values())]
            counts[chance.choice(best)] += 1
        assert counts["d"] == 0
        assert max(counts.values()) <= 2 * 10


@pytest.mark.parametrize(("uid", "watched"), [("", True), ("u", False)])
def test_without_a_uid_or_a_pod_watch_no_binding_is_assumed(uid, watched) -> None:
    world = World(watched=watched).tick()
    world.scores(of_pod(uid))
    assert not world.counted()


def test_no_binding_is_assumed_on_a_node_of_unknown_load() -> None:
    """Otherwise, without any metric, every pod would count on the first of these nodes."""
    world = World().tick(cpu="connection refused", memory="connection refused")
    world.scores(of_pod("u"))
    world.tick()
    world.scores(of_pod("v", ["x" * 1000]))
    assert not world.counted()


async def test_answers_use_the_newest_evaluation_or_the_previous_one_if_it_fails(
    caplog: Any,
) -> None:
    world = World().tick()
    for seconds in (10, 20):
        loads = dict.fromkeys(NAMES, 21.0 - seconds)
        tick = world.scene.tick(NOON + seconds, node_cpu=loads, node_mem_usage=loads)
        await world.extender.prepare(tick.evaluation, tick.pods, NOON + seconds)
    assert set(world.scores(ask()).values()) == {10}
    with caplog.at_level(logging.ERROR):
        await world.extender.prepare(None, tick.pods, NOON)  # type: ignore[arg-type]
    assert "goes on with its previous scores" in caplog.text
    assert set(world.scores(ask()).values()) == {10}


def test_preemption_is_not_vetoed() -> None:
    """An earlier extender answered with an empty list, so that no candidate was ever left."""
    meta = {name: {"Pods": [{"UID": name}], "NumPDBViolations": 3} for name in ("a", "d", "new")}
    found = World().tick().preempt({"Pod": {}, "NodeNameToMetaVictims": meta})
    assert found == {name: meta[name] for name in ("a", "new")}


BINDING = {"PodName": "p", "PodNamespace": "ns", "PodUID": UID, "Node": "a"}


async def test_bind_passes_on_pod_and_node_with_keys_of_any_case() -> None:
    found: list[dict[str, str]] = []

    async def bind(**args: str) -> None:
        found.append(args)

    lower = {"podName": "p", "podNamespace": "ns", "podUID": UID, "node": "a"}
    for request in (BINDING, lower):
        assert await World(bind=bind).extender.bind(raw(request)) == b'{"Error":""}'
    assert found == [{"pod": "p", "namespace": "ns", "uid": UID, "node": "a"}] * 2


async def test_a_bind_that_fails_answers_with_the_error() -> None:
    async def bind(**_: str) -> None:
        raise ConflictError("cannot bind: it has a node")

    answer = json.loads(await World(bind=bind).extender.bind(raw(BINDING)))
    assert answer == {"Error": "cannot bind: it has a node"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"null", "Expected `object`"),
        ({}, "neither Nodes nor NodeNames"),
        ({"NodeNames": "a"}, "Expected `array | null`, got `str` - at `$.NodeNames`"),
        ({"NodeNames": [1]}, "Expected `str`, got `int` - at `$.NodeNames[0]`"),
        ({"Nodes": []}, "Nodes: Expected `object`"),
        ({"Nodes": {"items": {}}}, "Nodes: Expected `array | null`"),
        ({"Nodes": {"items": [{}]}}, "Nodes"),
        ({"Pod": 5, "NodeNames": []}, "Expected `object | null`"),
        ({"Pod": {"spec": {"schedulerName": 5}}, "NodeNames": []}, "schedulerName"),
        (b"[" * 100_000, "Expected `object`"),
        (b'{"Pod":' * 100_000, "nested too deeply"),
        (b'{"Nodes":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deeply"),
    ],
)
def test_an_invalid_request_is_a_one_line_error(body: Any, message: str) -> None:
    world = World().tick()
    for request in (world.filter, world.scores):
        with pytest.raises(WireError) as caught:
            request(body)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
