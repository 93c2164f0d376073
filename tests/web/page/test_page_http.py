"""The page's paths, asked over a real socket."""

import asyncio
import gzip
import json
import re

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from early_scene import early_example
from programs import ROOT
from prometheus_client import CollectorRegistry
from snapshots import EXAMPLE_RULES, NOON, Scene, example, many

from dynsched.core.model import Node
from dynsched.web.api import make_app
from dynsched.web.metrics import Metrics
from dynsched.web.page import columns
from dynsched.web.page.http import MAX_NODES
from dynsched.web.snapshots import SnapshotStore

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
STATIC = ROOT / "dynsched/web/page/static"


@pytest_asyncio.fixture
async def client(snapshots):
    async with TestClient(TestServer(make_app(snapshots)), auto_decompress=False) as client:
        yield client


async def get(client, path, status=200, **headers):
    async with client.get(path, headers=headers) as response:
        body = await response.read()
        assert response.status == status, body
        return response.headers, body


async def data(client):
    _, body = await get(client, "/page/data", **{"Accept-Encoding": "identity"})
    return json.loads(body)


# What a node is


async def test_the_columns_say_of_each_node_what_nodes_says(client, snapshots) -> None:
    snapshots.publish(example())
    shown = await data(client)
    _, body = await get(client, "/nodes")
    nodes = json.loads(body)["nodes"]
    assert shown["nodes"]["name"] == [node["name"] for node in nodes]
    flags = shown["nodes"]["flags"]
    for key, bit in (
        ("marked", columns.MARKED),
        ("pressured", columns.PRESSURED),
        ("early", columns.EARLY),
        ("conflict", columns.CONFLICT),
        ("withheld", columns.WITHHELD),
        ("ineligible", columns.INELIGIBLE),
        ("due", columns.DUE),
    ):
        assert [bool(of & bit) for of in flags] == [bool(node[key]) for node in nodes], key
    letters = {"inactive": "i", "pending": "p", "firing": "f"}
    for at, column in enumerate(shown["columns"]):
        rules = [node["rules"][at] for node in nodes]
        assert column["value"] == pytest.approx([rule["value"] for rule in rules], rel=0.002)
        assert column["quality"] == "".join(rule["quality"][0] for rule in rules)
        assert column["state"] == "".join(
            "h" if rule["keep_firing_since"] else letters[rule["state"]] for rule in rules
        )


async def test_a_node_without_a_current_value_is_unknown(client, snapshots) -> None:
    snapshots.publish(example())
    shown = (await data(client))["nodes"]
    unknown = [
        name
        for name, flags in zip(shown["name"], shown["flags"], strict=True)
        if flags & columns.UNKNOWN
    ]
    assert unknown == ["worker-7"]


async def test_why_a_hot_node_has_no_mark_is_said(client, snapshots) -> None:
    snapshots.publish(example())
    nodes = (await data(client))["nodes"]
    notes = {nodes["name"][at]: (kind, text) for at, kind, text in nodes["notes"]}
    assert notes["worker-4"] == ("conflict", "label status=maintenance was set by somebody else")
    assert notes["worker-5"] == ("withheld", "not marked: guard.max_marked is 2")
    assert notes["control-plane-1"][0] == "ineligible"


async def test_in_a_dry_run_it_says_that_nothing_is_written(client, snapshots) -> None:
    snapshots.publish(example(dry_run=True))
    shown = await data(client)
    assert shown["dry_run"] is True
    assert "dry_run" in {kind for _, kind, _ in shown["nodes"]["notes"]}


async def test_the_pools_are_those_of_the_pool_label(client, snapshots) -> None:
    rules = {**EXAMPLE_RULES, "guard": {"pool_label": "pool"}}
    nodes = [Node(name, labels={"pool": name[0]}) for name in ("a1", "a2", "b1")]
    scene = Scene(rules, [*nodes, Node("none")])
    snapshots.publish(scene.tick(NOON, node_cpu={}, node_mem_usage={}))
    shown = await data(client)
    named = [shown["pools"][at] for at in shown["nodes"]["pool"]]
    assert named == ["a", "a", "b", ""]


async def test_a_rule_that_does_not_select_a_node_has_no_value_there(client, snapshots) -> None:
    cpu, memory = EXAMPLE_RULES["rules"]
    rules = {"rules": [{**cpu, "selector": "gpu=true"}, memory]}
    scene = Scene(rules, [Node("a"), Node("b", labels={"gpu": "true"})])
    snapshots.publish(scene.tick(NOON, node_cpu={"b": 50.0}, node_mem_usage={"a": 1.0, "b": 2.0}))
    cpu, memory = (await data(client))["columns"]
    assert (cpu["value"], cpu["state"], cpu["quality"]) == ([None, 50.0], "-i", "-o")
    assert memory["value"] == [1.0, 2.0]


async def test_expected_values_are_in_the_unit_of_the_rule(client, snapshots) -> None:
    snapshots.publish(early_example())
    shown = await data(client)
    _, body = await get(client, "/nodes")
    for at, column in enumerate(shown["columns"]):
        rule = shown["rules"][at]
        for index, expected in zip(*column["expected"], strict=True):
            node = json.loads(body)["nodes"][index]
            load = node["rules"][at]["expected"]["load"]
            assert expected == pytest.approx(load * rule["full_at"] / 100, abs=0.2)
    assert any(column["expected"][0] for column in shown["columns"])


async def test_large_and_small_values_keep_three_digits(client, snapshots) -> None:
    rules = [
        {"name": "bytes", "expr": "x", "threshold": 4e9, "op": "<"},
        {"name": "share", "expr": "y", "threshold": 0.8},
    ]
    scene = Scene({"rules": rules}, [Node("a")])
    snapshots.publish(scene.tick(NOON, bytes={"a": 3_987_654_321.0}, share={"a": 0.79712}))
    large, small = (column["value"][0] for column in (await data(client))["columns"])
    assert large == pytest.approx(3.99e9, rel=0.003)
    assert small == pytest.approx(0.797, abs=0.001)


async def test_placements_are_counted_where_pods_are_watched(client, snapshots) -> None:
    snapshots.publish(example())
    assert (await data(client))["placements"] is None
    snapshots.publish(example(), placed=["worker-2", "worker-1", "worker-1"])
    placements = (await data(client))["placements"]
    assert (placements["hot"], placements["marked"], placements["clean"]) == ([1], [0], [2])


# How it is sent


async def test_before_the_first_tick_there_is_no_data(client) -> None:
    _, body = await get(client, "/page/data", 503)
    assert json.loads(body) == {"error": "no tick has finished yet; try again soon"}


async def test_an_etag_that_was_seen_gets_no_body_until_the_next_tick(client, snapshots) -> None:
    snapshots.publish(example())
    headers, _ = await get(client, "/page/data")
    seen = {"If-None-Match": headers["ETag"]}
    _, body = await get(client, "/page/data", 304, **seen)
    assert body == b""
    snapshots.publish(example())
    headers, body = await get(client, "/page/data", **seen)
    assert headers["ETag"] != seen["If-None-Match"]
    assert body


async def test_the_age_grows_while_the_bytes_stay(client, snapshots, clock) -> None:
    snapshots.publish(example())
    first, _ = await get(client, "/page/data")
    clock.now += 42
    headers, _ = await get(client, "/page/data", 304, **{"If-None-Match": first["ETag"]})
    assert (first["Age"], headers["Age"]) == ("0", "42")


async def test_links_lead_to_where_people_reach_prometheus(client, snapshots) -> None:
    snapshots.publish(example())
    shown = await data(client)
    assert (shown["source"], shown["graphs"]) == ("http://prometheus:9090",) * 2
    snapshots.graphs = "https://example.com/prometheus"
    snapshots.publish(example())
    assert (await data(client))["graphs"] == "https://example.com/prometheus"
    assert (await data(client))["source"] == "http://prometheus:9090"


async def test_a_second_process_has_other_etags(client, snapshots, clock) -> None:
    snapshots.publish(example())
    other = SnapshotStore(
        clock=clock,
        interval=10.0,
        source="",
        synced=lambda: True,
        metrics=Metrics(CollectorRegistry()),
    )
    other.publish(example())
    async with TestClient(TestServer(make_app(other))) as second:
        here, _ = await get(client, "/page/data")
        there, _ = await get(second, "/page/data")
    assert here["ETag"] != there["ETag"]


async def test_it_is_compressed_for_those_who_take_it(client, snapshots) -> None:
    snapshots.publish(many(300))
    plain_headers, plain = await get(client, "/page/data", **{"Accept-Encoding": "identity"})
    headers, packed = await get(client, "/page/data", **{"Accept-Encoding": "gzip, br"})
    assert headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain_headers
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain) / 3


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("gzip; q=0.001", True),
        ("gzip;q=0", False),
        ("deflate, gzip ; q=0.000, br", False),
        ("br", False),
    ],
)
async def test_gzip_is_for_those_who_do_not_refuse_it(client, snapshots, accepted, packed) -> None:
    snapshots.publish(example())
    headers, _ = await get(client, "/page/data", **{"Accept-Encoding": accepted})
    assert (headers.get("Content-Encoding") == "gzip") is packed


async def test_many_viewers_get_the_same_bytes_that_were_made_once(
    client, snapshots, monkeypatch
) -> None:
    made = []

    class Counted(columns.Columns):
        def body(self, about):
            made.append(about)
            return super().body(about)

    monkeypatch.setattr("dynsched.web.page.feed.Columns", Counted)
    snapshots.publish(many(200))
    answers = await asyncio.gather(*(get(client, "/page/data") for _ in range(50)))
    assert len({body for _, body in answers}) == 1
    assert len(made) == 1


# The past


async def test_the_history_is_of_the_nodes_that_were_asked_for(client, snapshots) -> None:
    snapshots.publish(example())
    _, body = await get(client, "/page/history?node=worker-2&node=nobody")
    past = json.loads(body)
    assert past["times"] == [NOON + 120]
    assert past["nodes"] == {
        "worker-2": {"values": {"node-cpu": [91.2], "node-mem-usage": [42.0]}, "marked": [True]}
    }


@pytest.mark.parametrize("query", ["", "?" + "&".join(["node=a"] * (MAX_NODES + 1))])
async def test_a_history_of_none_or_too_many_nodes_is_refused(client, snapshots, query) -> None:
    snapshots.publish(example())
    _, body = await get(client, f"/page/history{query}", 400)
    assert f"1 to {MAX_NODES} nodes" in json.loads(body)["error"]


async def test_the_changes_of_a_node_are_told(client, snapshots) -> None:
    scene = Scene(EXAMPLE_RULES, [Node("a")])
    for at, cpu in ((0, 10.0), (60, 95.0), (120, 95.0)):
        snapshots.publish(scene.tick(NOON + at, node_cpu={"a": cpu}, node_mem_usage={"a": 1.0}))
    _, body = await get(client, "/page/changes?node=a")
    kinds = [(change["kind"], change["at"] - NOON) for change in json.loads(body)]
    assert kinds == [("firing", 120), ("mark", 120), ("pending", 60)]


async def test_each_snapshot_is_remembered_though_the_next_comes_at_once(snapshots) -> None:
    scene = Scene(EXAMPLE_RULES, [Node(f"n{n}") for n in range(250)])
    for at in range(5):
        hot = dict.fromkeys(scene.nodes, 95.0 if at % 2 else 1.0)
        snapshots.publish(scene.tick(NOON + 60 * at, node_cpu={}, node_mem_usage=hot))
    assert len(snapshots.feed.history.times) == 5
    assert [change.kind for change in snapshots.feed.latest(9, "n7") if change.rule] == [
        *("inactive", "pending") * 2,
    ]


# The page


async def test_a_browser_gets_the_page_and_a_program_the_list_as_before(client) -> None:
    headers, body = await get(client, "/", **BROWSER)
    assert headers["Content-Type"].startswith("text/html")
    assert b"page/page.js" in body
    for accept in ("*/*", "application/json", "text/plain"):
        headers, body = await get(client, "/", Accept=accept)
        assert b"<a href='/nodes'>" in body
        assert headers["Vary"] == "Accept"


async def test_the_page_may_load_nothing_from_elsewhere(client) -> None:
    headers, _ = await get(client, "/", **BROWSER)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_its_files_are_asked_about_again_and_not_sent_again(client) -> None:
    headers, body = await get(client, "/page/page.js")
    assert headers["Content-Type"].startswith("text/javascript")
    assert headers["Cache-Control"] == "no-cache"
    assert body == (STATIC / "page.js").read_bytes()
    _, body = await get(client, "/page/page.js", 304, **{"If-None-Match": headers["ETag"]})
    assert body == b""


@pytest.mark.parametrize("path", ["/page/nothing.js", "/page/..%2Fhttp.py", "/page/history.py"])
async def test_no_other_file_can_be_had(client, path) -> None:
    await get(client, path, 404)


def test_every_address_in_the_files_is_relative_and_of_this_server() -> None:
    for file in STATIC.iterdir():
        text = file.read_text()
        for address in re.findall(r"""(?:href|src)=["']([^"'$]+)""", text):
            assert not address.startswith(("/", "http", "//")), (file.name, address)
        assert "style=" not in text.replace("timeStyle", ""), file.name


def test_both_languages_have_the_same_words_with_the_same_places() -> None:
    text = (STATIC / "i18n.js").read_text()
    found = re.findall(r"const (en|zh) = \{\n(.*?)\n\};", text, re.DOTALL)
    words = {
        name: dict(re.findall(r'^  (\w+): "(.*)",$', body, re.MULTILINE)) for name, body in found
    }
    assert words["en"].keys() == words["zh"].keys()
    for key, english in words["en"].items():
        places = [sorted(set(re.findall(r"\{\d\}", each))) for each in (english, words["zh"][key])]
        assert places[0] == places[1], key
