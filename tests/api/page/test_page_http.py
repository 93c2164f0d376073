"""The page's paths, asked over a real socket. What the columns say of nodes is compared with its
plain form in `test_answers_from_columns`.
"""

import asyncio
import gzip
import json
import re

import msgspec
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from expected_scene import expected_example
from plain_answers import plain_page
from programs import ROOT
from snapshots import EXAMPLE_RULES, NOON, Scene, example, many
from store_support import make_store
from web_support import ask, check, get

from dynsched.api.app import MAX_NODES, make_app
from dynsched.api.page.data import page_data
from dynsched.api.page.facts import OPEN
from dynsched.engine.model import Node

STATIC = ROOT / "dynsched/api/page/static"


@pytest_asyncio.fixture
async def packed(snapshots):
    """A client that leaves what it gets as it is."""
    async with TestClient(TestServer(make_app(snapshots)), auto_decompress=False) as found:
        yield found


@pytest.fixture
def made(monkeypatch):
    """What was encoded for the page."""
    found = []

    async def counted(*args):
        found.append(args)
        return await page_data(*args)

    monkeypatch.setattr("dynsched.api.page.data.page_data", counted)
    return found


@pytest.mark.parametrize("make", [example, expected_example])
@pytest.mark.parametrize("dry_run", [False, True])
async def test_the_page_gets_what_the_nodes_are(client, snapshots, make, dry_run) -> None:
    snapshot = make(dry_run=dry_run)
    snapshots.publish(snapshot)
    shown = await get(client, "/page/data")
    plain = json.loads(msgspec.json.encode(plain_page(snapshot)))
    check(shown, dry_run=dry_run, **plain)


async def test_placements_are_counted_where_pods_are_watched(client, snapshots) -> None:
    snapshots.publish(example())
    assert (await get(client, "/page/data"))["placements"] is None
    snapshots.publish(example(), placed=["worker-2", "worker-1", "worker-1"])
    placements = (await get(client, "/page/data"))["placements"]
    assert (placements["hot"], placements["marked"], placements["clean"]) == ([1], [0], [2])


async def test_an_etag_that_was_seen_gets_no_body_until_a_tick(client, snapshots, clock) -> None:
    """The age grows while the bytes stay."""
    answer = await get(client, "/page/data", 503)
    assert answer == {"error": "no tick has finished yet; try again soon"}
    snapshots.publish(example())
    first, _ = await ask(client, "/page/data")
    clock.now += 42
    seen = {"If-None-Match": first["ETag"]}
    headers, body = await ask(client, "/page/data", 304, **seen)
    assert (first["Age"], headers["Age"], body) == ("0", "42", b"")
    snapshots.publish(example())
    headers, body = await ask(client, "/page/data", **seen)
    assert headers["ETag"] != first["ETag"]
    assert body
    other = make_store(clock)  # of another process
    other.publish(example())
    async with TestClient(TestServer(make_app(other))) as second:
        assert (await ask(second, "/page/data"))[0]["ETag"] != first["ETag"]


async def test_links_lead_to_where_people_reach_prometheus(client, snapshots) -> None:
    ours, theirs = "http://prometheus:9090", "https://example.com/prometheus"
    for graphs in (ours, theirs):
        snapshots.graphs = graphs
        snapshots.publish(example())
        shown = await get(client, "/page/data")
        assert (shown["source"], shown["graphs"]) == (ours, graphs)


@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [("gzip", True), ("br;q=1.0, GZIP;q=0.5", True), ("br", False)],
)
async def test_it_is_compressed_for_who_accepts_it(packed, snapshots, accepted, is_packed) -> None:
    snapshots.publish(many(300))
    for path in ("/page/data", "/page/page.css"):
        plain_headers, plain = await ask(packed, path, **{"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain_headers
        headers, body = await ask(packed, path, **{"Accept-Encoding": accepted})
        assert (headers.get("Content-Encoding") == "gzip") is is_packed
        assert (gzip.decompress(body) if is_packed else body) == plain
        assert not is_packed or len(body) < len(plain) / 3
        assert headers["Vary"] == "Accept-Encoding"


async def test_many_viewers_get_bytes_that_were_made_once(client, snapshots, made) -> None:
    snapshots.publish(many(200))
    answers = await asyncio.gather(*(ask(client, "/page/data") for _ in range(50)))
    assert len({body for _, body in answers}) == 1
    assert len(made) == 1


async def test_while_a_page_is_open_a_snapshot_is_encoded_before_it_is_asked_for(
    client, snapshots, clock, made
) -> None:
    snapshots.publish(many(20))
    await asyncio.sleep(0.1)
    assert not made
    await ask(client, "/page/data")
    clock.now += OPEN - 1
    snapshots.publish(many(20))
    await asyncio.sleep(0.1)
    assert len(made) == 2
    await ask(client, "/page/data")
    assert len(made) == 2
    clock.now += OPEN
    snapshots.publish(many(20))
    await asyncio.sleep(0.1)
    assert len(made) == 2


async def test_the_history_is_of_the_nodes_that_were_asked_for(client, snapshots) -> None:
    snapshots.publish(example())
    past = await get(client, "/page/history?node=worker-2&node=nobody")
    assert past["times"] == [NOON + 120]
    assert past["nodes"] == {
        "worker-2": {"values": {"node-cpu": [91.2], "node-mem-usage": [42.0]}, "states": "H"}
    }
    for query in ("", "?" + "&".join(["node=a"] * (MAX_NODES + 1))):
        told = await get(client, f"/page/history{query}", 400)
        assert f"1 to {MAX_NODES} nodes" in told["error"]


async def test_the_changes_of_a_node_are_told(client, snapshots) -> None:
    scene = Scene(EXAMPLE_RULES, [Node("a")])
    for at, cpu in ((0, 10.0), (60, 95.0), (120, 95.0)):
        snapshots.publish(scene.tick(NOON + at, node_cpu={"a": cpu}, node_mem_usage={"a": 1.0}))
    changes = (await get(client, "/page/node?node=a"))["changes"]
    kinds = [(change["kind"], change["at"] - NOON) for change in changes]
    assert kinds == [("firing", 120), ("mark", 120), ("pending", 60)]


async def test_each_snapshot_is_remembered_though_the_next_comes_at_once(snapshots) -> None:
    scene = Scene(EXAMPLE_RULES, [Node(f"n{n}") for n in range(250)])
    for at in range(5):
        hot = dict.fromkeys(scene.nodes, 95.0 if at % 2 else 1.0)
        snapshots.publish(scene.tick(NOON + 60 * at, node_cpu={}, node_mem_usage=hot))
    assert len(snapshots.history.past([])["times"]) == 5
    kinds = [change.kind for change in snapshots.changes.latest(9, "n7") if change.rule]
    assert kinds == ["inactive", "pending"] * 2


async def test_whoever_asks_for_the_root_gets_the_page(client) -> None:
    headers, body = await ask(client, "/")
    assert headers["Content-Type"].startswith("text/html")
    assert b"page/page.js" in body
    assert "http" not in headers["Content-Security-Policy"]  # nothing from elsewhere is loaded


async def test_its_files_are_asked_about_again_and_not_sent_again(client) -> None:
    headers, body = await ask(client, "/page/page.js")
    assert headers["Content-Type"].startswith("text/javascript")
    assert headers["Cache-Control"] == "no-cache"
    assert body == (STATIC / "page.js").read_bytes()
    _, body = await ask(client, "/page/page.js", 304, **{"If-None-Match": headers["ETag"]})
    assert body == b""
    for path in ("/page/nothing.js", "/page/..%2Fhttp.py", "/page/history.py"):
        await ask(client, path, 404)


def test_every_address_in_the_files_is_relative_and_of_this_server() -> None:
    for file in STATIC.iterdir():
        text = file.read_text()
        for address in re.findall(r"""(?:href|src)=["']([^"'$]+)""", text):
            assert not address.startswith(("/", "http", "//")), (file.name, address)
        assert "style=" not in text.replace("timeStyle", ""), file.name


def test_both_languages_have_the_same_words_with_the_same_places() -> None:
    words = {
        name: dict(re.findall(r'(\w+): "(.*?)",[ \n]', text.split("\n};")[0] + "\n"))
        for name, text in (
            (name, (STATIC / f"{file}.js").read_text())
            for name, file in (("en", "i18n"), ("zh", "zh"))
        )
    }
    assert words["en"].keys() == words["zh"].keys()
    for key, english in words["en"].items():
        places = [sorted(set(re.findall(r"\{\d\}", each))) for each in (english, words["zh"][key])]
        assert places[0] == places[1], key


async def test_a_shadow_rule_that_has_values_does_not_hide_that_nothing_is_known(
    client, snapshots
) -> None:
    """As `/status` says it: a shadow rule marks no node."""
    names = ("cpu", "other")
    rules = [{"name": name, "expr": "x", "threshold": 80} for name in names]
    scene = Scene({"rules": [rules[0], {**rules[1], "shadow": True}]}, [Node("a")])
    snapshots.publish(scene.tick(NOON, cpu={"a": 10.0}, other={"a": 10.0}))
    assert (await get(client, "/page/data"))["unseen_since"] is None
    snapshots.publish(scene.tick(NOON + 10, cpu={}, other={"a": 10.0}))
    shown = await get(client, "/page/data")
    assert shown["unseen_since"] == NOON
    assert [change["kind"] for change in shown["changes"]] == ["blind"]
    assert "no rule says anything usable" in snapshots.why_unhealthy()


async def test_marks_that_wait_for_the_pace_of_releases_are_not_told_as_held(
    client, snapshots
) -> None:
    rules = [{"name": "cpu", "expr": "x", "threshold": 80, "stale_after": "30s"}]
    guard = {"max_marked": "100%", "max_releases": 1}
    scene = Scene({"guard": guard, "rules": rules}, [Node("a"), Node("b"), Node("c")])
    snapshots.publish(scene.tick(NOON, cpu=dict.fromkeys("abc", 90.0)))
    until = []
    for later in (10, 40, 50, 60):
        snapshots.publish(scene.tick(NOON + later, cpu={}))
        shown = await get(client, "/page/data")
        until.append(shown["marks_until"] - NOON)
    assert until[0] == 30
    assert until[1:3] == [40, 50]
