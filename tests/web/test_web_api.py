"""The HTTP API over a real socket: the responses that `test_http_docs` does not compare."""

import asyncio
import json
import logging
import math
import re
from dataclasses import replace

import pytest
from programs import ROOT
from scenes import (
    EXAMPLE_RULES,
    NOON,
    Scene,
    example,
    expected_example,
    expected_scene,
    known_pods,
    many,
)
from web_support import JSON, check, get

from dynsched.core.guard import WriteFailure
from dynsched.core.health import why_unsuccessful
from dynsched.core.load.expected import NO_PODS, KnownPods
from dynsched.core.load.pods import BoundPod, PodRequestTotals, RecentPod
from dynsched.core.nodes import Node
from dynsched.core.samples import Matched, QueryResult, Unmatched
from dynsched.core.tick import Leadership, WriteResult
from dynsched.features.order.ranks import compute_order
from dynsched.features.order.status import OrderStatus, why_unknown
from dynsched.web.app import ENDPOINTS


async def nodes_of(client) -> dict:
    return {node["name"]: node for node in (await get(client, "/nodes"))["nodes"]}


ROW = re.compile(r"^\| [^|]+ \| (.+?) \| \[(\w+)\]\(\S+\) \|$", re.MULTILINE)


async def test_every_failing_status_is_in_the_docs_with_its_alert(client, ticks, clock) -> None:
    """The table of docs/http.md has each state, with an alert that exists."""
    docs = (ROOT / "docs/http.md").read_text()
    table = docs[docs.index("<!-- status -->") :].partition("\n\n")[0]
    rows = ROW.findall(table)
    alerts = (ROOT / "manifests/components/monitoring/prometheusrule.yaml").read_text()
    assert all(f"- alert: {alert}\n" in alerts for _, alert in rows)
    found = []

    async def see() -> None:
        found.append(await get(client, "/status", 503))

    ticks.rules_error = lambda: "rules.yaml:3: no"
    await see()
    ticks.rules_error = lambda: None
    await see()
    ticks.publish(example())
    clock.now += 600
    await see()
    scene = Scene(EXAMPLE_RULES, [Node("a"), Node("b"), Node("c")])
    known, unknown = {"a": 1.0}, {"strange": 1.0}
    failed = {rule.name: QueryResult(error="500") for rule in scene.rule_set.rules}
    tick = scene.tick(NOON, node_cpu="500", node_mem_usage="500")
    ticks.publish(replace(tick, error=why_unsuccessful(scene.rule_set, failed, (), 0)))
    await see()
    ticks.publish(scene.tick(NOON, node_cpu=unknown, node_mem_usage=unknown))
    await see()
    answered = dict.fromkeys(failed, QueryResult())
    failures = [WriteFailure("a", "500"), WriteFailure("b", "500")]
    error = why_unsuccessful(scene.rule_set, answered, failures, 3)
    good = scene.tick(NOON, node_cpu=known, node_mem_usage=known)
    ticks.publish(replace(good, error=error))
    await see()
    ticks.publish(replace(good, error="the API server's own words"))
    await see()
    ticks.publish(good)
    ticks.show_order(OrderStatus(error="403"))
    await see()
    assert len(found) == len(rows)
    for text, (words, _) in zip(found, rows, strict=True):
        assert text.startswith(words.strip("`"))


async def test_status_is_text_or_json_and_everything_waits_for_the_first_tick(
    client, ticks
) -> None:
    ticks.synced, ticks.leader = lambda: False, lambda: "dynsched-0"
    assert await get(client, "/healthz") == "ok"
    await get(client, "/readyz", 503)
    ticks.synced = lambda: True
    await get(client, "/readyz", 503)
    # Not an empty list, which would mean that there are no nodes.
    for path in ("/nodes", "/nodes/worker-1", "/rules"):
        assert "no tick" in (await get(client, path, 503))["error"]
    early = await get(client, "/status", 503, **JSON)
    check(early, ok=False, error="no tick has finished yet", rules_error=None)
    ticks.rules_error = lambda: "rules.yaml:3: no"
    check(await get(client, "/status", 503, **JSON), rules_error="rules.yaml:3: no")
    assert await get(client, "/readyz") == "ok"
    ticks.rules_error = lambda: None
    ticks.publish(replace(example(), error="no rule could be queried"))
    assert await get(client, "/readyz") == "ok"  # only /status reports that Prometheus is down
    ticks.publish(example())
    page = "text/html,application/xhtml+xml,*/*;q=0.8"  # as browsers send it
    assert (await get(client, "/status", Accept=page))["ok"]
    assert await get(client, "/status") == "ok"
    status = await get(client, "/status", **JSON)
    nodes = {"total": 8, "eligible": 7, "marked": 2, "pressured": 4}
    check(status, ok=True, leader="dynsched-0", leading=True, nodes=nodes, capped_pools=[""])
    check(status, pods={"watched": False, "error": None})
    for error in (None, "cannot list pods: 403"):
        pods = known_pods(error=error)
        ticks.publish(expected_scene().tick(NOON, node_cpu={}, node_mem={}, pods=pods))
        found = await get(client, "/status", 503, **JSON)
        check(found, pods={"watched": True, "error": error})


async def test_long_lists_in_status_are_cut_and_have_a_count(client, ticks) -> None:
    tick = example()
    strangers = tuple(Unmatched("node-cpu", f"10.1.0.{n}", "no node") for n in range(1000))
    matched = {**tick.evaluation.matched, "node-cpu": Matched({}, strangers)}
    evaluation = replace(tick.evaluation, matched=matched)
    failures = tuple(WriteFailure(f"worker-{n}", "500") for n in range(30))
    odd = replace(tick, evaluation=evaluation, writes=WriteResult(failures=failures))
    ticks.publish(replace(odd, disputes={"b": "2nd", "a": "1st"}, delayed=3))
    status = await get(client, "/status", **JSON)
    disputes = [{"node": "a", "dispute": "1st"}, {"node": "b", "dispute": "2nd"}]
    check(status, disputes={"count": 2, "first": disputes}, delayed_writes=3)
    for key, count in (("unmatched_samples", 1000), ("patch_failures", 30)):
        assert (status[key]["count"], len(status[key]["first"])) == (count, 20)
    assert status["patch_failures"]["first"][0] == "worker-0: 500"


async def test_status_lists_values_that_cannot_be_a_load(client, ticks) -> None:
    rules = [{**each, "full_at": 100} for each in EXAMPLE_RULES["rules"]]
    scene = Scene({**EXAMPLE_RULES, "rules": rules}, map(Node, "abc"))
    cpu = {"a": -1200.0, "b": 50.0, "c": math.nan}
    ticks.publish(scene.tick(NOON, node_cpu=cpu, node_mem_usage={"b": 808334905.0}))
    first = [
        {"rule": "node-cpu", "node": "a", "value": "-1200"},
        {"rule": "node-cpu", "node": "c", "value": "nan"},
        {"rule": "node-mem-usage", "node": "b", "value": "808334905"},
    ]
    check(await get(client, "/status", **JSON), invalid_samples={"count": 3, "first": first})
    values = {name: node["rules"][0]["value"] for name, node in (await nodes_of(client)).items()}
    assert values == {"a": None, "b": 50.0, "c": None}
    assert 'dynsched_rule_readings{quality="invalid",rule="node-cpu"} 2.0' in (
        await get(client, "/metrics")
    )


def parts(load: float, measured: float, bound: float = 0.0, ended: float = 0.0) -> dict:
    return {"load": load, "measured": measured, "bound": bound, "ended": ended}


async def test_nodes_has_measured_and_expected_load_apart(client, ticks) -> None:
    ticks.publish(expected_example())
    nodes = await nodes_of(client)
    assert [name for name, node in nodes.items() if node["pressured"]] == ["worker-1", "worker-4"]
    cpu, memory = nodes["worker-1"]["rules"]
    check(cpu, by="expected", value=61.0, expected=parts(64.9, 61.0, 5.2, 1.3))
    assert cpu["expected_value"] == pytest.approx(64.9)
    check(memory, by="measured", expected_value=None)
    assert nodes["worker-2"]["rules"][0]["expected"] == parts(44.0, 44.0)
    # Without a pod watch the expected value is the measured one.
    loads = {"worker-1": 61.0, "worker-2": 40.0}
    ticks.publish(expected_scene().tick(NOON, node_cpu=loads, node_mem=loads))
    nodes = await nodes_of(client)
    check(nodes["worker-1"]["rules"][0], expected_value=61.0, expected=None)


async def test_a_mark_by_taint_alone_is_named_as_a_taint(client, ticks) -> None:
    mark = {"label": None, "taint": "dynsched.io/pressure=true:PreferNoSchedule"}
    scene = Scene({**EXAMPLE_RULES, "mark": mark}, [Node("a")])
    ticks.publish(scene.tick(NOON, node_cpu={}, node_mem_usage={}))
    answer = await get(client, "/nodes")
    check(answer, type=f"Taint {mark['taint']} Nodes", counts=f"taint {mark['taint']}")
    check(answer, num=0, node_names=[])


async def test_without_marks_hot_nodes_are_counted_and_nothing_is_due(client, ticks) -> None:
    record = {"dynsched.io/pressure": '{"label": "status=presure"}'}
    old = Node("b", labels={"status": "presure"}, annotations=record)
    scene = Scene({**EXAMPLE_RULES, "mark": "none"}, [Node("a"), old])
    cpu = {"a": 90.0, "b": 10.0}
    for at in (NOON - 60, NOON):
        tick = scene.tick(at, node_cpu=cpu, node_mem_usage=cpu)
        assert tick.planned == ()
    ticks.publish(tick)
    answer = await get(client, "/nodes")
    check(answer, type="Hot Nodes", counts="hot", num=1, node_names=["a"])
    assert [(each["pressured"], each["due"]) for each in answer["nodes"]] == [
        (True, None),
        (False, None),
    ]
    check(await get(client, "/rules"), mark={"label": None, "taint": None})
    shown = await get(client, "/page/data")
    assert (shown["mark"], [why for _, why in shown["nodes"]["notes"].values()]) == (
        "",
        [["mark_none"], ["left"]],
    )
    metrics = await (await client.get("/metrics")).text()
    assert 'dynsched_node_hot_unmarked{node="a",reason="withheld"} 1' in metrics  # no alert


async def test_a_client_that_disconnects_does_not_cancel_the_response_of_others(ticks) -> None:
    ticks.publish(many(300))
    impatient = asyncio.create_task(ticks.encoded_nodes(ticks.tick))
    patient = asyncio.create_task(ticks.encoded_nodes(ticks.tick))
    await asyncio.sleep(0)
    impatient.cancel()
    assert len(json.loads(await patient)["nodes"]) == 300


async def test_one_node_is_as_in_nodes_with_what_would_clear_it(client, ticks) -> None:
    ticks.publish(example())
    firing = []
    for name, node in (await nodes_of(client)).items():
        answer = await get(client, f"/nodes/{name}")
        check(answer, **node)
        firing += [name] if answer["clears"] else []
    assert firing == ["worker-2", "worker-3", "worker-4", "worker-5"]
    cpu, memory = (await get(client, "/nodes/worker-3"))["rules"]
    check(cpu, active_since="2026-11-20T12:00:00Z", keep_firing_since="2026-11-20T12:02:00Z")
    check(memory, active_since=None, keep_firing_since=None)


async def test_rules_has_the_loaded_rules_and_their_health(client, ticks) -> None:
    score = {"node-cpu": 2, "node-mem-usage": 1}
    profile = {"score": score, "equal_below": 0, "method": "relative"}
    extender = {"require_label": "a/b", "reject": ["node-cpu"], "profiles": {"mine": profile}}
    scene = Scene({**EXAMPLE_RULES, "extender": extender}, [Node("a"), Node("b")])
    cpu = {"a": 91.0, "b": math.nan, "c": 1.0}
    ticks.publish(scene.tick(NOON, node_cpu=cpu, node_mem_usage="503: no backend"))
    answer = await get(client, "/rules")
    assert answer["extender"] == extender
    assert answer["guard"]["max_marked"] == "2"
    cpu_rule, memory_rule = answer["rules"]
    check(cpu_rule, resource=None, health="ok", samples=3, unmatched_samples=1, by="measured")
    check(cpu_rule, states={"inactive": 1, "pending": 1, "firing": 0}, lag=None)
    check(memory_rule, health="err", last_error="503: no backend", last_success=None)


async def test_rules_without_nodes_or_with_several_series_per_node_are_reported(
    client, ticks
) -> None:
    nodes = [Node(name, addresses=(("InternalIP", f"10.0.0.{n}"),)) for n, name in enumerate("ab")]
    cpu = {"a": 91.0, "10.0.0.0:9100": 12.0, "b": 20.0}
    scene = Scene(EXAMPLE_RULES, nodes)
    ticks.publish(scene.tick(NOON, node_cpu=cpu, node_mem_usage={"x": 1.0}))
    for path in ("/rules", "/status"):
        of_cpu, of_memory = (rule["blind"] for rule in (await get(client, path, **JSON))["rules"])
        assert (of_cpu, of_memory.split(":")[0]) == (None, "'x'")
    found = [rule["several_series"] for rule in (await get(client, "/rules"))["rules"]]
    assert found == [{"nodes": 1, "example": "a", "differ_in": ["instance"]}, None]


POOLS = {"guard": {"pool_label": "pool"}, "order": {"score": {"cpu": 1}, "equal_below": 0}}
FEW = {"cpu": 2.0, "memory": 2.0**30}
SHUT = ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},)


async def test_the_order_lists_nodes_by_rank_and_counts_those_left_out(client, ticks) -> None:
    rules = [{"name": "cpu", "expr": "cpu", "threshold": 80}]
    names = [f"n{number:02}" for number in range(50)]
    nodes = [Node(name, labels={"pool": "web"} if name < "n03" else {}) for name in names]
    nodes += [Node("hot"), Node("shut", taints=SHUT), Node("new"), Node("busy", allocatable=FEW)]
    nodes += [Node("odd", labels={"kubernetes.io/hostname": "", "pool": "odd"})]
    scene = Scene({**POOLS, "rules": rules}, nodes)
    loads = {name: 10.5 + number for number, name in enumerate(names)} | {"hot": 90.0, "shut": 1.0}
    pods = replace(NO_PODS, requested={"busy": PodRequestTotals(1, 2.0)})
    ticks.leader = lambda: "dynsched-1"
    tick = scene.tick(NOON, pods=pods, cpu=loads | {"busy": 1.0})
    ticks.publish(replace(tick, leadership=Leadership(leading=False)))
    check(await get(client, "/order"), counts=None, pools=[])
    order = compute_order(tick.evaluation, pods)
    ticks.show_order(OrderStatus(order))
    answer = await get(client, "/order")
    check(answer, leading=False, leader="dynsched-1", written_at=None, until=None, error=None)
    of_kind = {"hot": 1, "closed": 1, "full": 1, "unnamed": 1}
    assert answer["counts"] == {"ranked": 50, "unknown": 1, **of_kind}
    every, web = answer["pools"]
    assert (every["pool"], web["pool"]) == ("", "web")
    found = every["nodes"]
    assert [each["rank"] for each in found] == list(range(1, 52))
    assert {each["list"] for each in found} == {1, 2, 3}
    assert [each["node"] for each in found if each["load"] is not None] == names
    for each in found:  # its weight is the one in the list that pods get
        levels = order.lists[""][each["list"] - 1]
        assert (each["weight"],) == tuple(lv.weight for lv in levels if each["node"] in lv.nodes)
    first = {"node": "n00", "rank": 1, "equal": False, "list": 1, "weight": 100, "load": 10.5}
    assert (found[0], web["nodes"][0]) == (first, {**first, "equal": True})
    ticks.publish(many(3))
    await get(client, "/order", 404)


async def test_the_order_has_the_error_of_requests_compared_with_use(client, ticks) -> None:
    rules = [{"name": "cpu", "expr": "cpu", "threshold": 80, "resource": "cpu"}]
    scene = Scene({**POOLS, "rules": rules}, [Node("a", allocatable={"cpu": 8.0})])
    for use, found in (({}, {}), ({f"d/p-{number}": 0.5 for number in range(30)}, {"cpu": 0})):
        bound = [RecentPod(BoundPod(name, "a", cpu=2.0, name=name), 60.0, None) for name in use]
        pods = KnownPods(bound, 30, use_of_pods={"cpu": use})
        ticks.publish(scene.tick(NOON, pods=pods, cpu={"a": 50.0}))
        assert (await get(client, "/order"))["error_of_requests"] == found


async def test_an_order_that_cannot_be_written_is_reported(client, ticks) -> None:
    ticks.publish(example())
    ticks.show_order(OrderStatus(error="403"))
    check(await get(client, "/order"), error="403", counts=None, pools=[])
    assert "403" in await get(client, "/status", 503)
    assert (await get(client, "/nodes"))["order_error"] == "403"


async def test_a_failed_query_is_reported_in_nodes_order_and_status(client, ticks) -> None:
    """It is the only rule that ranks nodes, so it is also the reason that there is no order."""
    scene = Scene(EXAMPLE_RULES, [Node("a"), Node("b")])
    tick = scene.tick(NOON, node_cpu="400: unclosed left parenthesis", node_mem_usage={"a": 1.0})
    assert compute_order(tick.evaluation, NO_PODS) is None
    ticks.show_order(OrderStatus(unknown=why_unknown(tick)))
    ticks.publish(tick)
    failed = {"node-cpu": "400: unclosed left parenthesis"}
    found = await get(client, "/nodes")
    check(found, failed_rules=failed)
    check(await get(client, "/nodes/a"), failed_rules=failed)
    for why in (found["order_error"], (await get(client, "/order"))["error"]):
        assert why == "rule node-cpu: 400: unclosed left parenthesis"
    assert await get(client, "/status", 503) == f"the order of the nodes cannot be kept: {why}"
    # The other rule ranks nothing.
    scene.tick(NOON + 10, node_cpu={"a": 1.0, "b": 2.0}, node_mem_usage="400")
    tick = scene.tick(NOON + 20, node_cpu={"a": 1.0, "b": 2.0}, node_mem_usage="400")
    assert why_unknown(tick) is None
    # If all nodes are hot there is no order either, which is no error.
    tick = scene.tick(NOON + 90, node_cpu={"a": 95.0, "b": 95.0}, node_mem_usage={"a": 1.0})
    tick = scene.tick(NOON + 180, node_cpu={"a": 95.0, "b": 95.0}, node_mem_usage={"a": 1.0})
    assert (compute_order(tick.evaluation, NO_PODS), why_unknown(tick)) == (None, None)


async def test_an_unknown_path_gets_the_list_of_paths_and_a_wrong_method_the_allowed_ones(
    client,
) -> None:
    check(await get(client, "/node", 404), endpoints=list(ENDPOINTS))
    async with client.post("/nodes") as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
        assert list(await response.json()) == ["error"]


async def test_a_bug_is_a_500_with_a_traceback_in_the_log(client, ticks, caplog) -> None:
    ticks.tick = replace(example(), rules=None)
    with caplog.at_level(logging.ERROR):
        answer = await get(client, "/page/data", 500)
    assert list(answer) == ["error"]
    assert "Traceback" in caplog.text
    assert await get(client, "/healthz") == "ok"
