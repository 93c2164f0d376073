"""The page's paths, requested over a real socket."""

import gzip
import re
from dataclasses import replace

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from programs import ROOT
from scenes import EXAMPLE_RULES, NOON, Scene, example, many
from web_support import ask, check, get

from dynsched.core.nodes import Node
from dynsched.core.wording import REASONS
from dynsched.features.order.ranks import compute_order
from dynsched.features.order.status import OrderStatus
from dynsched.web.app import make_app

STATIC = ROOT / "dynsched/web/page/static"


@pytest_asyncio.fixture
async def packed(ticks):
    """A client that does not decompress responses."""
    async with TestClient(TestServer(make_app(ticks)), auto_decompress=False) as found:
        yield found


def publish_ordered(ticks) -> None:
    """Publish `example` and its order."""
    ticks.publish(example())
    ticks.show_order(OrderStatus(compute_order(ticks.tick.evaluation, ticks.tick.pods)))


async def test_the_page_gets_the_nodes_as_columns(client, ticks) -> None:
    publish_ordered(ticks)
    shown = await get(client, "/page/data")
    check(shown, dry_run=False, capped=[""], max_marked="2", pools=[""], unseen_since=None)
    since = {"2": NOON + 60, "3": NOON + 60, "4": NOON + 60, "5": NOON + 90}
    assert shown["nodes"] == {
        "name": ["control-plane-1", *(f"worker-{number}" for number in range(1, 8))],
        "pool": [""] * 8,
        "flags": [2, 0, 1, 1, 4, 0, 0, 0],
        "state": "cchkhhpc",
        "since": since,
        "notes": {
            "0": ["ineligible", ["control_plane", "node-role.kubernetes.io/control-plane"]],
            "4": ["conflict", ["conflict", "label status=maintenance"]],
            "5": ["withheld", ["max_marked", "2"]],
        },
    }
    cpu, memory = shown["columns"]
    assert cpu == {
        "value": [31.5, 31.5, 91.25, 66.0, 90.0, 83.5, 81.0, 31.5],
        "state": "iifhffpi",
        "quality": "ooooooom",
        "since": since | {"6": NOON + 120},
        "known": {"7": NOON + 86},
    }
    check(memory, value=[42.0] * 8, state="i" * 8, quality="o" * 8)
    of_cpu, _ = shown["rules"]
    check(of_cpu, last_error=None, blind=None, samples=8, unmatched_samples=1)
    check(of_cpu["states"], pending=1, firing=4)
    order = {"lists": 1, "loads": [31.5, 31.5, None, 66.0, 81.0], "weights": [100, 100, 100, 35, 1]}
    order["equal_below"] = 40.0
    check(shown["order"], **order)


async def test_a_rule_without_values_has_the_code_of_the_reason(client, ticks) -> None:
    for answer, blind in (({}, ["no_series"]), ({"x": 1.0}, ["no_node", "'x'"]), ("refused", None)):
        scene = Scene(EXAMPLE_RULES, [Node("a")])
        ticks.publish(scene.tick(NOON, node_cpu=answer, node_mem_usage={"a": 1.0}))
        rule, _ = (await get(client, "/page/data"))["rules"]
        assert (rule["blind"] and rule["blind"][:2]) == blind
        assert rule["last_error"] == (answer if answer == "refused" else None)


async def test_values_of_a_shadow_rule_do_not_hide_that_nothing_is_known(client, ticks) -> None:
    rules = [{"name": name, "expr": "x", "threshold": 80} for name in ("cpu", "other")]
    scene = Scene({"rules": [rules[0], {**rules[1], "shadow": True}]}, [Node("a")])
    ticks.publish(scene.tick(NOON, cpu={"a": 10.0}, other={"a": 10.0}))
    check(await get(client, "/page/data"), unseen_since=None)
    ticks.publish(scene.tick(NOON + 10, cpu={}, other={"a": 10.0}))
    shown = await get(client, "/page/data")
    check(shown, unseen_since=NOON)
    assert [change["kind"] for change in shown["changes"]] == ["blind"]


async def test_placements_are_counted_if_pods_are_watched(client, ticks) -> None:
    ticks.publish(example())
    assert (await get(client, "/page/data"))["placements"] is None
    ticks.publish(example(), placed=["worker-2", "worker-1", "worker-1"])
    check((await get(client, "/page/data"))["placements"], hot=[1], marked=[0], clean=[2])


async def test_a_known_etag_gets_no_body_until_the_next_tick(client, ticks, clock) -> None:
    """Age grows while the body stays the same."""
    await get(client, "/page/data", 503)
    ticks.publish(example())
    first, _ = await ask(client, "/page/data")
    clock.now += 42
    seen = {"If-None-Match": first["ETag"]}
    headers, body = await ask(client, "/page/data", 304, **seen)
    assert (first["Age"], headers["Age"], body) == ("0", "42", b"")
    ticks.publish(replace(example(), taken_at=NOON + 120.001))
    headers, body = await ask(client, "/page/data", **seen)
    assert headers["ETag"] != first["ETag"]
    assert body


@pytest.mark.parametrize(("accepted", "is_packed"), [("br;q=1.0, GZIP;q=0.5", True), ("br", False)])
async def test_responses_are_compressed_for_clients_that_accept_gzip(
    packed, ticks, accepted, is_packed
) -> None:
    ticks.publish(many(300))
    for path in ("/page/data", "/page/page.css"):
        plain_headers, plain = await ask(packed, path, **{"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain_headers
        headers, body = await ask(packed, path, **{"Accept-Encoding": accepted})
        assert (headers.get("Content-Encoding") == "gzip") is is_packed
        assert (gzip.decompress(body) if is_packed else body) == plain
        assert not is_packed or len(body) < len(plain) / 3
        assert headers["Vary"] == "Accept-Encoding"


async def test_a_nodes_detail_has_codes_for_its_changes_and_for_what_would_clear_it(
    client, ticks
) -> None:
    scene = Scene(EXAMPLE_RULES, [Node("a")])
    for at, cpu in ((0, 10.0), (60, 95.0), (120, 95.0)):
        ticks.publish(scene.tick(NOON + at, node_cpu={"a": cpu}, node_mem_usage={"a": 1.0}))
    found = await get(client, "/page/nodes/a")
    firing, mark, pending = found["changes"]
    check(firing, kind="firing", at=NOON + 120, rule="node-cpu", value=95.0)
    check(mark, kind="mark", at=NOON + 120, why=["fires", "node-cpu", "95", "> 80"])
    check(pending, kind="pending", at=NOON + 60)
    assert found["clears"] == [["clears_for", "node-cpu", "<= 70", "95", "2m"]]


async def test_a_nodes_detail_has_its_machine_and_its_place_in_the_order(client, ticks) -> None:
    await get(client, "/page/nodes/worker-2", 503)
    publish_ordered(ticks)
    machine = dict.fromkeys(("zone", "type", "cpu", "memory"))
    order = {"pools": {}, "why": "hot"}
    check(await get(client, "/page/nodes/worker-2"), **machine, order=order)
    await get(client, "/page/nodes/gone", 404)


async def test_the_root_is_the_page_and_its_files_are_not_sent_again(client) -> None:
    headers, body = await ask(client, "/")
    assert headers["Content-Type"].startswith("text/html")
    assert b"page/page.js" in body
    assert "http" not in headers["Content-Security-Policy"]  # nothing is loaded from other sites
    headers, body = await ask(client, "/page/page.js")
    assert headers["Content-Type"].startswith("text/javascript")
    assert headers["Cache-Control"] == "no-cache"
    assert body == (STATIC / "page.js").read_bytes()
    _, body = await ask(client, "/page/page.js", 304, **{"If-None-Match": headers["ETag"]})
    assert body == b""
    await ask(client, "/page/nothing.js", 404)


def test_every_address_in_the_files_is_relative_and_of_this_server() -> None:
    for file in STATIC.iterdir():
        text = file.read_text()
        for address in re.findall(r"""(?:href|src)=["']([^"'$]+)""", text):
            assert not address.startswith(("/", "http", "//")), (file.name, address)
        assert "style=" not in text.replace("timeStyle", ""), file.name


def test_texts_have_the_same_places_in_both_languages_and_each_reason_has_one() -> None:
    found = re.findall(
        r'^  (\w+): \["(.*)", "(.*)"\],$', (STATIC / "texts.js").read_text(), re.MULTILINE
    )
    texts = {key: languages for key, *languages in found}
    places = {key: [set(re.findall(r"\{\d\}", each)) for each in texts[key]] for key in texts}
    assert {key for key, (english, chinese) in places.items() if english != chinese} == set()
    assert {f"r_{code}" for code in REASONS} == {key for key in texts if key.startswith("r_")}
    for code, sentence in REASONS.items():
        assert places[f"r_{code}"][0] <= set(re.findall(r"\{\d\}", sentence)), code
