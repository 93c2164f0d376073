"""The HTTP API, asked over a real socket."""

import asyncio
import json
import logging
import math
from dataclasses import replace

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from early_scene import early_example, early_scene, known_pods
from msgspec.structs import replace as changed
from snapshots import EXAMPLE_RULES, NOON, OtherViews, Scene, example, many

import dynsched.web.snapshots
from dynsched import __version__
from dynsched.core.model import Node, Quality, Unmatched, WriteFailure
from dynsched.core.rule_fields import Limit
from dynsched.core.sections import BindBurst
from dynsched.web.api import ENDPOINTS, make_app
from dynsched.web.transport import quiet

JSON = {"Accept": "application/json"}


@pytest_asyncio.fixture
async def client(snapshots):
    async with TestClient(TestServer(make_app(snapshots))) as client:
        yield client


async def get(client, path, status=200, **headers):
    async with client.get(path, headers=headers) as response:
        text = await response.text()
        assert response.status == status, text
        assert response.headers["Cache-Control"] == "no-store"
        return json.loads(text) if response.content_type == "application/json" else text


# /status


async def test_status_is_ok_while_ticks_succeed(client, snapshots) -> None:
    snapshots.publish(example())
    assert await get(client, "/status") == "ok"


async def test_status_tells_why_it_is_not_ok(client, snapshots, clock) -> None:
    assert await get(client, "/status", 503) == "no tick has finished yet"
    snapshots.publish(replace(example(), error="no rule could be queried: connection refused"))
    assert await get(client, "/status", 503) == "no rule could be queried: connection refused"
    snapshots.publish(example())
    clock.now += 600
    assert await get(client, "/status", 503) == "the last tick finished 10m ago"


async def test_status_as_json(client, snapshots) -> None:
    snapshots.publish(example())
    status = await get(client, "/status", **JSON)
    assert status == {
        "ok": True,
        "error": None,
        "version": __version__,
        "source": "http://prometheus:9090",
        "interval_seconds": 10.0,
        "leader": None,
        "leading": True,
        "rules_error": None,
        "dry_run": False,
        "tick": {"number": 5, "at": "2026-11-20T12:02:00Z", "duration_seconds": 0.25},
        "nodes": {"total": 8, "eligible": 7, "marked": 2, "pressured": 4, "early": 0},
        "pods": {
            "watched": False,
            "error": None,
            "running": None,
            "recent": 0,
            "workloads_of_known_use": {},
            "scrape_interval_seconds": {},
        },
        "rules": [
            {"rule": "node-cpu", "health": "ok", "last_error": None, "blind": None},
            {"rule": "node-mem-usage", "health": "ok", "last_error": None, "blind": None},
        ],
        "conflicts": {
            "count": 1,
            "first": [
                {
                    "node": "worker-4",
                    "conflict": "label status=maintenance was set by somebody else",
                }
            ],
        },
        "disputes": {"count": 0, "first": []},
        "unmatched_samples": {
            "count": 1,
            "first": [
                {
                    "rule": "node-cpu",
                    "value": "10.0.9.9:9100",
                    "reason": "no node has this name or address",
                }
            ],
        },
        "capped_pools": [""],
        "patch_failures": {"count": 0, "first": []},
        "delayed_writes": 0,
    }


async def test_status_as_json_has_the_same_keys_before_the_first_tick(client, snapshots) -> None:
    before = await get(client, "/status", 503, **JSON)
    assert before["ok"] is False
    assert before["error"] == "no tick has finished yet"
    assert before["tick"] is before["nodes"] is before["rules"] is None
    snapshots.publish(example())
    assert list(await get(client, "/status", **JSON)) == list(before)


async def test_status_names_the_leader_when_there_is_one(client, snapshots) -> None:
    snapshots.leader = lambda: "dynsched-0"
    assert (await get(client, "/status", 503, **JSON))["leader"] == "dynsched-0"


async def test_status_counts_early_marks_and_says_what_is_known_of_pods(client, snapshots) -> None:
    snapshots.publish(early_example())
    status = await get(client, "/status", **JSON)
    assert status["nodes"] == {"total": 4, "eligible": 4, "marked": 2, "pressured": 1, "early": 1}
    assert status["pods"] == {
        "watched": True,
        "error": None,
        "running": 100,
        "recent": 2,
        "workloads_of_known_use": {"cpu": 2},
        "scrape_interval_seconds": {"node-cpu": 30.0},
    }


async def test_status_says_why_pods_are_not_known(client, snapshots) -> None:
    pods = known_pods(error="cannot list pods: 403", running=None)
    snapshots.publish(early_scene().tick(NOON, node_cpu={}, node_mem={}, pods=pods))
    found = (await get(client, "/status", 503, **JSON))["pods"]
    assert (found["watched"], found["error"]) == (True, "cannot list pods: 403")
    assert found["running"] is None


async def test_long_lists_in_status_are_counted_and_cut(client, snapshots) -> None:
    snapshot = example()
    strangers = tuple(Unmatched("node-cpu", f"10.1.0.{n}", "no node") for n in range(1000))
    health = (replace(snapshot.rules[0], unmatched=1000), snapshot.rules[1])
    failures = tuple(WriteFailure(f"worker-{n}", "500") for n in range(30))
    snapshots.publish(replace(snapshot, unmatched=strangers, rules=health, failures=failures))
    status = await get(client, "/status", **JSON)
    assert status["unmatched_samples"]["count"] == 1000
    assert len(status["unmatched_samples"]["first"]) == 20
    assert status["patch_failures"]["count"] == 30
    assert len(status["patch_failures"]["first"]) == 20
    assert status["patch_failures"]["first"][0] == "worker-0: 500"


# /nodes


async def test_nodes_begins_with_the_first_projects_three_keys(client, snapshots) -> None:
    snapshots.publish(example())
    async with client.get("/nodes") as response:
        text = await response.text()
    assert text.startswith(
        '{"type":"Label status=presure Nodes","num":2,"node_names":["worker-2","worker-3"],'
        '"nodes":[{"name":"control-plane-1",'
    )


async def test_node_names_are_sorted_whatever_the_order_of_the_watch(client, snapshots) -> None:
    names = ["c", "a", "b"]
    scene = Scene({**EXAMPLE_RULES, "guard": {"max_marked": "100%"}}, map(Node, names))
    for seconds in (0, 60):
        hot = dict.fromkeys(names, 99.0)
        snapshots.publish(scene.tick(NOON + seconds, node_cpu=hot, node_mem_usage=hot))
    answer = await get(client, "/nodes")
    assert answer["node_names"] == [node["name"] for node in answer["nodes"]] == ["a", "b", "c"]


async def test_nodes_tells_every_rule_on_every_node(client, snapshots) -> None:
    snapshots.publish(example())
    answer = await get(client, "/nodes")
    nodes = {node["name"]: node for node in answer["nodes"]}
    assert len(nodes) == 8
    assert nodes["worker-3"] == {
        "name": "worker-3",
        "marked": True,
        "pressured": True,
        "eligible": True,
        "since": "2026-11-20T12:01:00Z",
        "rules": [
            {
                "rule": "node-cpu",
                "state": "firing",
                "value": 66.0,
                "threshold": 80.0,
                "clear_threshold": 70.0,
                "sample_age_seconds": 4.0,
                "since": "2026-11-20T12:01:00Z",
                "quality": "ok",
                "op": ">",
                "active_since": "2026-11-20T12:00:00Z",
                "keep_firing_since": "2026-11-20T12:02:00Z",
                "adopted": False,
                "early_of": None,
                "expected": None,
                "shadow": False,
            },
            {
                "rule": "node-mem-usage",
                "state": "inactive",
                "value": 42.0,
                "threshold": 85.0,
                "clear_threshold": 85.0,
                "sample_age_seconds": 4.0,
                "since": "2026-11-20T12:00:00Z",
                "quality": "ok",
                "op": ">",
                "active_since": None,
                "keep_firing_since": None,
                "adopted": False,
                "early_of": None,
                "expected": None,
                "shadow": False,
            },
        ],
        "conflict": None,
        "withheld": None,
        "ineligible": None,
        "carries": ["label status=presure"],
        "due": None,
        "early": False,
    }
    assert nodes["worker-4"]["conflict"] == "label status=maintenance was set by somebody else"
    assert nodes["worker-5"]["withheld"] == "not marked: guard.max_marked is 2"
    assert nodes["worker-6"]["rules"][0]["state"] == "pending"
    assert nodes["worker-7"]["rules"][0]["quality"] == "missing"
    assert nodes["control-plane-1"]["eligible"] is False
    assert nodes["control-plane-1"]["ineligible"] == (
        "it is a control-plane node (label node-role.kubernetes.io/control-plane)"
    )
    assert answer["taken_at"] == "2026-11-20T12:02:00Z"
    assert answer["dry_run"] is False


async def test_nodes_tells_measured_and_expected_load_apart_with_their_parts(
    client, snapshots
) -> None:
    snapshots.publish(early_example())
    nodes = {node["name"]: node for node in (await get(client, "/nodes"))["nodes"]}
    flags = {name: (each["pressured"], each["early"]) for name, each in nodes.items()}
    assert flags == {
        "worker-1": (False, True),
        "worker-2": (False, False),
        "worker-3": (False, False),
        "worker-4": (True, False),
    }
    cpu, _, early = nodes["worker-1"]["rules"]
    assert cpu["expected"] == {"load": 64.9, "measured": 61.0, "bound": 5.2, "ended": 1.3}
    assert (cpu["early_of"], early["early_of"], early["expected"]) == (None, "node-cpu", None)
    assert early["value"] == pytest.approx(5.675)
    untouched = nodes["worker-2"]["rules"][0]["expected"]
    assert untouched == {"load": 40.0, "measured": 40.0, "bound": 0.0, "ended": 0.0}


async def test_without_a_watch_of_pods_the_expected_load_is_the_measured_one(
    client, snapshots
) -> None:
    cpu = {"worker-1": 61.0, "worker-2": 40.0}
    snapshots.publish(early_scene().tick(NOON, node_cpu=cpu, node_mem=cpu))
    nodes = {node["name"]: node for node in (await get(client, "/nodes"))["nodes"]}
    compared, other, _ = nodes["worker-1"]["rules"]
    assert compared["expected"] == {"load": 61.0, "measured": 61.0, "bound": 0.0, "ended": 0.0}
    assert other["expected"] is None
    assert nodes["worker-3"]["rules"][0]["expected"] is None  # no sample


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("true", ["worker-2", "worker-3"]),
        ("false", ["control-plane-1", "worker-1", "worker-4", "worker-5", "worker-6", "worker-7"]),
    ],
)
async def test_nodes_can_be_narrowed_by_mark(client, snapshots, query, names) -> None:
    snapshots.publish(example())
    answer = await get(client, f"/nodes?marked={query}")
    assert [node["name"] for node in answer["nodes"]] == names
    assert (answer["num"], answer["node_names"]) == (2, ["worker-2", "worker-3"])


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("narrowed", ["", "&marked=true", "&marked=false"])
async def test_pages_of_nodes_are_the_whole_in_pieces(client, snapshots, limit, narrowed) -> None:
    snapshots.publish(example())
    whole = await get(client, f"/nodes?{narrowed[1:]}")
    found, after = [], ""
    while after is not None:
        page = await get(client, f"/nodes?limit={limit}{narrowed}&continue={after}")
        assert len(page["nodes"]) <= limit
        assert (page["num"], page["node_names"]) == (whole["num"], whole["node_names"])
        found += page["nodes"]
        after = page.get("continue")
        assert after in (None, found[-1]["name"])
    assert found == whole["nodes"]
    assert "continue" not in whole


async def test_a_node_that_goes_between_two_pages_does_not_break_the_rest(client, snapshots):
    snapshots.publish(example())
    last = (await get(client, "/nodes?limit=3"))["continue"]
    snapshot = example()
    left = {name: view for name, view in snapshot.nodes.items() if name != last}
    snapshots.publish(replace(snapshot, nodes=OtherViews(snapshot.nodes, left)))
    rest = await get(client, f"/nodes?limit=99&continue={last}")
    assert [node["name"] for node in rest["nodes"]] == sorted(name for name in left if name > last)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("limit=0", "limit=0: write a number from 1 to 500"),
        ("limit=501", "limit=501: write a number from 1 to 500"),
        ("limit=many", "limit=many: write a number from 1 to 500"),
        ("limit=-1", "limit=-1: write a number from 1 to 500"),
        ("continue=worker-1", "continue=: write limit=NUMBER beside it"),
    ],
)
async def test_a_page_that_is_not_understood_is_refused(client, snapshots, query, error) -> None:
    snapshots.publish(example())
    assert await get(client, f"/nodes?{query}", 400) == {"error": error}


async def test_a_flag_that_is_neither_true_nor_false_is_refused(client, snapshots) -> None:
    snapshots.publish(example())
    answer = await get(client, "/nodes?marked=yes", 400)
    assert answer == {"error": "marked=yes: write marked=true or marked=false"}


async def test_a_mark_by_taint_alone_is_named_as_a_taint(client, snapshots) -> None:
    mark = {"label": None, "taint": "dynsched.io/pressure=true:PreferNoSchedule"}
    scene = Scene({**EXAMPLE_RULES, "mark": mark}, [Node("a")])
    snapshots.publish(scene.tick(NOON, node_cpu={}, node_mem_usage={}))
    answer = await get(client, "/nodes")
    assert answer["type"] == "Taint dynsched.io/pressure=true:PreferNoSchedule Nodes"
    assert (answer["num"], answer["node_names"]) == (0, [])


async def test_nothing_known_is_not_an_empty_list(client) -> None:
    for path in ("/nodes", "/nodes/worker-1", "/rules"):
        answer = await get(client, path, 503)
        assert answer == {"error": "no tick has finished yet; try again soon"}


async def test_values_that_are_no_numbers_are_null(client, snapshots) -> None:
    snapshot = example()
    view = snapshot.nodes["worker-1"]
    odd = (
        changed(view.alerts[0], value=math.nan, quality=Quality.INVALID),
        changed(view.alerts[1], value=-math.inf),
    )
    nodes = OtherViews(snapshot.nodes, {"worker-1": changed(view, alerts=odd)})
    snapshots.publish(replace(snapshot, nodes=nodes, duration=math.inf))
    rules = (await get(client, "/nodes"))["nodes"][0]["rules"]
    assert [rule["value"] for rule in rules] == [None, None]
    assert [rule["value"] for rule in (await get(client, "/nodes/worker-1"))["rules"]] == [
        None,
        None,
    ]
    assert (await get(client, "/status", **JSON))["tick"]["duration_seconds"] is None


async def test_nodes_is_encoded_once_a_snapshot_for_all_who_ask(
    client, snapshots, monkeypatch
) -> None:
    batches = []
    encode = dynsched.web.snapshots.encode_each
    monkeypatch.setattr(
        dynsched.web.snapshots, "encode_each", lambda *args: batches.append(1) or encode(*args)
    )
    snapshots.publish(many(250))
    answers = await asyncio.gather(*(get(client, "/nodes") for _ in range(5)))
    assert len(answers[0]["nodes"]) == 250
    assert len(batches) == 5
    snapshots.publish(many(150))
    assert len((await get(client, "/nodes"))["nodes"]) == 150
    assert len(batches) == 8


async def test_one_who_hangs_up_does_not_take_the_answer_from_the_others(snapshots) -> None:
    snapshots.publish(many(300))
    impatient = asyncio.create_task(snapshots.encoded_nodes(marked=None))
    patient = asyncio.create_task(snapshots.encoded_nodes(marked=None))
    await asyncio.sleep(0)
    impatient.cancel()
    assert len(json.loads(b"".join(await patient))["nodes"]) == 300


async def test_head_has_the_length_of_a_long_answer_and_nothing_of_it(client, snapshots) -> None:
    snapshots.publish(many(300))
    async with client.get("/nodes") as response:
        whole = await response.read()
        assert len(json.loads(whole)["nodes"]) == 300
        etag = response.headers["ETag"]
    async with client.head("/nodes") as response:
        assert (response.status, await response.read()) == (200, b"")
        assert response.headers["Content-Length"] == str(len(whole))
        assert response.headers["ETag"] == etag
    async with client.head("/nodes", headers={"If-None-Match": etag}) as response:
        assert response.status == 304


# /nodes/NAME


async def test_one_node_is_the_same_as_in_nodes_and_tells_what_would_clear_it(
    client, snapshots
) -> None:
    snapshots.publish(example())
    listed = {node["name"]: node for node in (await get(client, "/nodes"))["nodes"]}
    for name, node in listed.items():
        answer = await get(client, f"/nodes/{name}")
        assert list(answer)[: len(node)] == list(node)
        assert {key: answer[key] for key in node} == node
    answer = await get(client, "/nodes/worker-2")
    assert answer["clears"] == [
        "node-cpu must fall to 70 or below (is 91.25), then stay there for 2m"
    ]
    assert answer["mark"] == "label status=presure"
    assert (await get(client, "/nodes/worker-1"))["clears"] == []


async def test_a_node_that_is_not_there(client, snapshots) -> None:
    snapshots.publish(example())
    answer = await get(client, "/nodes/worker-99", 404)
    assert answer == {"error": "no node 'worker-99' in the cluster; /nodes lists them"}


# /rules


async def test_rules_tells_what_is_loaded_and_how_it_fares(client, snapshots) -> None:
    scene = Scene(EXAMPLE_RULES, [Node("a"), Node("b")])
    cpu = {"a": 91.0, "b": math.nan, "c": 1.0}
    snapshots.publish(scene.tick(NOON, node_cpu=cpu, node_mem_usage="503: no backend"))
    answer = await get(client, "/rules")
    assert answer["mark"] == {"label": "status=presure", "taint": None}
    assert answer["nodes"] == {"selector": "", "include_control_plane": False}
    assert answer["guard"] == {
        "max_marked": "2",
        "pool_label": None,
        "max_releases": "25%",
        "max_writes_per_minute": 240,
        "bind_burst": None,
    }
    assert answer["extender"] == {"require_label": None, "reject": [], "profiles": {}}
    cpu_rule, memory_rule = answer["rules"]
    assert cpu_rule == {
        "name": "node-cpu",
        "source": "prometheus",
        "expr": "cpu_busy_percent",
        "resource": None,
        "op": ">",
        "threshold": 80.0,
        "clear_threshold": 70.0,
        "for": "1m",
        "keep_firing_for": "2m",
        "node_label": None,
        "full_at": 100.0,
        "lag": None,
        "early": None,
        "early_of": None,
        "shadow": False,
        "selector": "",
        "stale_after": "5m",
        "on_stale": "release",
        "health": "ok",
        "last_error": None,
        "warnings": [],
        "blind": None,
        "past_error": None,
        "last_success": "2026-11-20T12:00:00Z",
        "query_duration_seconds": 0.02,
        "samples": 3,
        "unmatched_samples": 1,
        "several_series": None,
        "readings": {"ok": 1, "missing": 0, "stale": 0, "invalid": 1, "failed": 0},
        "states": {"inactive": 1, "pending": 1, "firing": 0},
    }
    assert memory_rule["health"] == "err"
    assert memory_rule["last_error"] == "503: no backend"
    assert memory_rule["last_success"] is None
    assert memory_rule["readings"]["failed"] == 2


async def test_rules_tells_the_lag_and_early_and_which_rule_early_stands_for(
    client, snapshots
) -> None:
    snapshots.publish(early_example())
    cpu, memory, early = (await get(client, "/rules"))["rules"]
    assert cpu["lag"] == "1m"
    assert cpu["early"] == {"above_mean": 2.0, "clear_above_mean": -6.0, "mean_at_least": 20.0}
    assert (memory["lag"], memory["early"], memory["early_of"]) == (None, None, None)
    assert (early["name"], early["early_of"]) == ("node-cpu-early", "node-cpu")
    assert (early["source"], early["threshold"]) == ("expected-load", 2.0)


async def test_a_rule_that_answers_and_says_nothing_of_any_node_is_told(client, snapshots) -> None:
    scene = Scene(EXAMPLE_RULES, [Node("a")])
    snapshots.publish(scene.tick(NOON, node_cpu={"x": 1.0}, node_mem_usage={"a": 1.0}))
    blind = ["'x': no node has this name or address", None]
    assert [rule["blind"] for rule in (await get(client, "/rules"))["rules"]] == blind
    assert [rule["blind"] for rule in (await get(client, "/status", **JSON))["rules"]] == blind


async def test_rules_tells_that_a_rule_has_several_series_for_one_node(client, snapshots) -> None:
    nodes = [Node(name, addresses=(("InternalIP", f"10.0.0.{n}"),)) for n, name in enumerate("ab")]
    cpu = {"a": 91.0, "10.0.0.0:9100": 12.0, "b": 20.0}
    scene = Scene(EXAMPLE_RULES, nodes)
    snapshots.publish(scene.tick(NOON, node_cpu=cpu, node_mem_usage={"a": 1.0, "b": 1.0}))
    cpu_rule, memory_rule = (await get(client, "/rules"))["rules"]
    assert cpu_rule["several_series"] == {
        "nodes": 1,
        "example": "a",
        "differ_in": ["instance"],
    }
    assert memory_rule["several_series"] is None


async def test_rules_tells_what_the_extender_and_bind_burst_go_by(client, snapshots) -> None:
    profile = {"score": {"node-cpu": 2, "node-mem-usage": 1}, "method": "relative"}
    extender = {"require_label": "a/b", "reject": ["node-cpu"], "profiles": {"mine": profile}}
    guard = {"bind_burst": {"pods": 20, "window": "90s"}}
    scene = Scene({**EXAMPLE_RULES, "guard": guard, "extender": extender}, [Node("a")])
    snapshots.publish(scene.tick(NOON, node_cpu={}, node_mem_usage={}, bind_burst={}))
    answer = await get(client, "/rules")
    assert answer["guard"]["bind_burst"] == {"pods": 20, "window": "1m30s"}
    assert answer["extender"] == extender


# the rest


@pytest.mark.parametrize("odd", [10**400, 2**70, 0])
async def test_no_number_is_too_odd_to_be_told(client, snapshots, odd) -> None:
    snapshot = example()
    rule_set = snapshot.rule_set
    guard = rule_set.guard.model_copy(
        update={
            "max_marked": Limit(odd),
            "max_releases": Limit(odd),
            "bind_burst": BindBurst.model_construct(pods=odd, window=1e300),
        }
    )
    rules = [
        replace(
            health,
            rule=health.rule.model_copy(
                update={"threshold": 1e308, "clear_threshold": -5e-324, "full_at": math.inf}
            ),
            duration=math.nan,
            samples=odd and 2**63 - 1,
        )
        for health in snapshot.rules
    ]
    odd_rules = rule_set.model_copy(update={"guard": guard})
    snapshots.publish(replace(snapshot, rule_set=odd_rules, rules=tuple(rules), duration=math.inf))
    assert (await get(client, "/rules"))["guard"]["max_marked"]
    for path in ("/status", "/nodes", "/nodes/worker-2", "/metrics"):
        await get(client, path, **JSON)


async def test_alive_before_ready(client, snapshots) -> None:
    snapshots.synced = lambda: False
    assert await get(client, "/healthz") == "ok"
    assert await get(client, "/readyz", 503) == "the nodes are not listed yet"
    snapshots.synced = lambda: True
    assert await get(client, "/readyz", 503) == "no tick has finished yet"
    snapshots.publish(replace(example(), error="no rule could be queried"))
    assert await get(client, "/readyz") == "ok"  # a Prometheus that is away is /status's business


async def test_the_index_links_what_there_is(client) -> None:
    page = await get(client, "/")
    for path in ENDPOINTS:
        assert path in page


async def test_head_is_answered_as_get_without_a_body(client, snapshots) -> None:
    snapshots.publish(example())
    for path in ENDPOINTS:
        asked = path.replace("{name}", "worker-1")
        for page in ("history", "pods"):
            asked = asked.replace(f"/{page}", f"/{page}?node=worker-1")
        async with client.head(asked) as response:
            assert response.status == 200
            assert int(response.headers["Content-Length"]) > 0
            assert await response.read() == b""


async def test_an_unknown_path_lists_what_there_is(client) -> None:
    answer = await get(client, "/node", 404)
    assert answer == {"error": "there is no /node", "endpoints": list(ENDPOINTS)}


async def test_where_the_extender_is_elsewhere_its_paths_say_so(client) -> None:
    answer = await get(client, "/filter", 404)
    assert answer["error"] == (
        "there is no /filter here; the scheduler extender is on the address of --extender-addr"
    )


async def test_a_wrong_method_is_told_which_is_right(client) -> None:
    async with client.post("/nodes") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"
        assert await response.json() == {"error": "POST is not for /nodes; use GET, HEAD"}


async def test_a_bug_is_one_line_to_the_caller_and_a_traceback_in_the_log(
    client, snapshots, caplog, monkeypatch
) -> None:
    monkeypatch.setattr(quiet, "EACH_SECONDS", 0.0)  # another test may have caused the same line
    snapshots._snapshot = replace(example(), rules=None)
    with caplog.at_level(logging.ERROR):
        answer = await get(client, "/rules", 500)
    assert answer == {"error": "internal error; the log has the details"}
    assert "GET /rules failed" in caplog.text
    assert "Traceback" in caplog.text
    assert await get(client, "/healthz") == "ok"
