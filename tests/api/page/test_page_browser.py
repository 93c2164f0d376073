"""The page in a real Chromium."""

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from browser import Tab, chromium, tab
from expected_scene import expected_example
from programs import ROOT
from reader_support import bearer
from snapshots import EXAMPLE_RULES, NOON, Scene, example
from store_support import make_store
from web_support import Kubernetes

from dynsched.api import auth
from dynsched.api.app import make_app
from dynsched.api.auth import require_token
from dynsched.api.nodes import node_detail
from dynsched.api.order_status import OrderStatus
from dynsched.api.responses import PROBES
from dynsched.engine.health import why_unhealthy
from dynsched.engine.load.recent import BoundOnNode, JustBound
from dynsched.engine.model import Node, WriteFailure
from dynsched.engine.pod_values import AboveRequest
from dynsched.engine.wording import UNKNOWN
from dynsched.rules.file import parse_rules
from dynsched.util.errors import ClusterError

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]

CPU, MEMORY = EXAMPLE_RULES["rules"]
RULES = {
    "guard": {"pool_label": "pool", "max_marked": "50%"},
    "order": {"score": {"node-cpu": 1}},
    "rules": [{**CPU, "for": "0s", "keep_firing_for": "1m", "resource": "cpu"}, MEMORY],
}
WIDTHS = (375, 768, 820, 1024, 1280, 1920)
NONE = "\u2013"
POOLS = {"web-1": "web", "web-2": "web", "web-3": "web", "batch-1": "batch", "batch-2": "batch"}


class World:
    """A small cluster, what it answers, and the address of its page."""

    def __init__(self) -> None:
        self.now = 0.0
        self.snapshots = make_store(lambda: self.now, graphs="https://example.com/prometheus")
        self.scene = Scene(
            RULES, [Node(name, labels={"pool": pool}) for name, pool in POOLS.items()]
        )
        self.at = NOON
        self.cpu = dict.fromkeys(POOLS, 20.0) | {"web-2": 60.0, "batch-1": 45.0}
        self.url = ""

    def tick(self, *, error=None, placed=None, **changes) -> None:
        """One tick; ``placed``: nodes to which pods were bound; ``changes`` of the Snapshot."""
        self.at += 30
        memory = dict.fromkeys(self.cpu, 40.0)
        cpu, memory = (error or self.cpu), (error or memory)
        snapshot = self.scene.tick(self.at, node_cpu=cpu, node_mem_usage=memory)
        self.snapshots.publish(replace(snapshot, **changes), placed=placed)

    def learn(self, pod: str = "shop/api-0") -> None:
        """All that can be known of pods, and is not in a Snapshot."""
        facts = self.snapshots.facts
        facts.requested = {"cpu": dict.fromkeys(self.cpu, 50)}
        facts.bound = lambda _: BoundOnNode(21, [JustBound(pod, 0.5, 2.0**30, 12.0)])
        facts.above = {name: [AboveRequest(pod, "memory", 3e9)] for name in self.cpu}


@contextlib.asynccontextmanager
async def served(world: World, prefix: str = "", **options: Any) -> AsyncIterator[TestServer]:
    app = make_app(world.snapshots, **options)
    if prefix:
        outer = web.Application()
        outer.add_subapp(prefix, app)
        app = outer
    async with TestServer(app) as server:
        world.url = str(server.make_url(f"{prefix}/"))
        yield server


@contextlib.asynccontextmanager
async def opened(
    browser: Any, world: World, rows: int = 5, query: str = "", **options: Any
) -> AsyncIterator[Tab]:
    """A tab that shows so many nodes, and has nothing to complain of at the end."""
    async with tab(browser, f"{world.url}{query}", **options) as found:
        await shows(found, rows)
        yield found
        assert found.complaints == []


async def shows(found: Tab, rows: int) -> None:
    await found.until("document.querySelectorAll('#nodes tbody tr').length === given", rows)


async def is_bad(found: Tab, text: str) -> None:
    """Wait until the sentence says so."""
    await found.until("document.querySelector('#sentence.bad')?.textContent.includes(given)", text)


async def detail(found: Tab, node: str = "") -> str:
    """The text of a node's detail, once it is open; of ``node`` after a click."""
    if node:
        await found.page.click(f"tr[data-node={node}] a")
    await found.until("document.querySelector('dialog').open")
    return await found.page.inner_text("dialog")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser():
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def world():
    made = World()
    made.tick()
    async with served(made):
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def shown(browser, world) -> AsyncIterator[Tab]:
    async with opened(browser, world) as found:
        yield found


async def tick(world: World, shown: Tab, heat: str = "", **how) -> None:
    """A tick, and the page shows it; ``heat``: a node that is hot from now on."""
    if heat:
        world.cpu[heat] = 95.0
    world.tick(**how)
    await shown.look_again()
    await shown.until("document.documentElement.dataset.tick === given", str(world.scene.ticks))


async def texts(shown: Tab, selector: str) -> list[str]:
    return await shown.page.locator(selector).all_inner_texts()


async def sentence(shown: Tab) -> str:
    return await shown.page.inner_text("#sentence")


async def test_one_sentence_says_how_it_is_above_nodes_worst_first(shown, world) -> None:
    assert (await shown.rows())[:2] == ["web-2", "batch-1"]
    least = "None of 5 nodes is hot; the hottest: web-2, node-cpu 60.0 (hot above 80)."
    assert await sentence(shown) == least
    assert await texts(shown, "#grid h3") == ["batch: 2 nodes", "web: 3 nodes"]
    facts = await texts(shown, "#facts dd")
    assert facts[0] == "leader"
    assert facts[2] == "2 of 2 ok"
    assert await texts(shown, "#rules tbody th") == ["node-cpu", "node-mem-usage"]
    link = await shown.page.locator("#rules a").first.get_attribute("href")
    assert link.startswith("https://example.com/prometheus/graph?g0.expr=cpu_busy_percent")
    await tick(world, shown, heat="web-3")
    told = "1 of 5 nodes hot; 1 marked: new pods avoid it; worst: web-3, node-cpu 95.0"
    assert told in await sentence(shown)
    world.cpu["batch-1"] = 99.0
    await tick(world, shown, heat="web-1")
    assert await sentence(shown) == (
        "3 of 5 nodes hot; 2 marked, 1 not: guard.max_marked is 50%; worst: batch-1, node-cpu 99.0 "
        "(hot above 80), for 0s."
    )
    assert await texts(shown, "#grid h3") == ["batch: 2 nodes, 1 hot", "web: 3 nodes, 2 hot"]
    assert await shown.page.title() == "(3) dynsched"
    world.cpu["batch-1"] = 20.0
    await tick(world, shown, rules_error="rules.yaml:3: no")
    assert "3 of 5 nodes hot, 1 of them cooling; 2 marked, 1 not" in await sentence(shown)
    assert "file refused" in await shown.page.inner_text("#facts")


async def test_a_node_that_heats_is_counted_and_rises_when_it_is_sorted_again(shown, world) -> None:
    assert (await shown.rows())[0] != "web-3"
    await shown.page.locator("tr[data-node=web-3] a").focus()
    await tick(world, shown, heat="web-3")
    assert (await shown.rows())[0] != "web-3"
    assert await shown.page.evaluate("document.activeElement.textContent") == "web-3"
    assert await shown.page.locator("#grid i").count() == 1  # its cell is pointed at
    assert await shown.page.inner_text("#sort-again") == "1 row moved: sort again"
    await shown.page.click("#sort-again")
    assert (await shown.rows())[0] == "web-3"
    assert not await shown.page.is_visible("#sort-again")
    row = await shown.page.locator("tr[data-node=web-3]").inner_text()
    assert all(word in row for word in ("hot", "marked", "95.0"))
    await shown.page.click("#chips [data-state=hot]")  # a count is a filter
    assert await shown.rows() == ["web-3"]
    await shown.page.click("#chips [data-state=hot]")
    assert len(await shown.rows()) == 5


async def test_a_click_opens_the_node_that_was_looked_at(shown, world) -> None:
    """By coordinates, 0.9 s after looking, while values change and a banner comes and goes."""
    mouse = shown.page.mouse
    for look in range(20):
        row = shown.page.locator("#nodes tbody tr").nth(look % 5)
        box = await row.bounding_box()
        await mouse.move(box["x"] + 30, box["y"] + box["height"] / 2)
        seen = await row.get_attribute("data-node")
        for name in world.cpu:
            world.cpu[name] = 20.0 + hash((name, look)) % 79
        world.tick(rules_error="x" * 300 if look % 2 else None)
        await shown.look_again()
        await shown.page.wait_for_timeout(900)
        await mouse.click(box["x"] + 30, box["y"] + box["height"] / 2)
        await shown.until("document.querySelector('dialog').open")
        assert await shown.page.inner_text("#detail-title") == seen
        await shown.page.keyboard.press("Escape")
        await shown.until("!document.querySelector('dialog').open")
        assert await shown.page.evaluate("document.activeElement.textContent") == seen


async def test_nodes_are_sorted_by_themselves_when_nobody_touches_the_page(browser, world) -> None:
    async with opened(browser, world) as found:
        world.cpu["web-3"] = 95.0
        world.tick()
        await found.until("document.querySelector('tbody tr').dataset.node === 'web-3'")


async def test_while_nothing_is_known_the_last_values_stay_and_what_comes_is_told(
    shown, world
) -> None:
    await tick(world, shown, heat="web-3")
    await shown.page.click("#sort-again")
    for _ in range(2):
        await tick(world, shown, error="connection refused")
        assert (await shown.rows())[:2] == ["web-3", "web-2"]
    told = await sentence(shown)
    moment = "(at) => import('./page/i18n.js').then(({ moment }) => moment(at))"
    last = await shown.page.evaluate(moment, NOON + 56)  # a sample, 4 s before its tick
    assert f"Blind since {last}" in told
    assert "1 mark stays until " in told
    assert "and is then released; the order has ended." in told
    row = await shown.page.locator("tr[data-node=web-2]").inner_text()
    assert "60.0 (" in row
    assert "unknown" in row
    assert await shown.page.title() == "(!) dynsched"
    rules = {**RULES, "rules": [{**rule, "on_stale": "hold"} for rule in RULES["rules"]]}
    world.scene.rule_set = parse_rules(rules)
    await tick(world, shown, error="connection refused")
    assert "1 mark stays (on_stale: hold)" in await sentence(shown)


async def test_a_mark_that_waits_for_the_pace_of_releases_is_told_as_such(shown, world) -> None:
    guard = {**RULES["guard"], "max_releases": 1}
    world.scene.rule_set = parse_rules({**RULES, "guard": guard, "stale_after": "10s"})
    world.cpu["batch-1"] = 95.0
    await tick(world, shown, heat="web-3")
    await tick(world, shown, error="connection refused")
    assert "; 1 mark is being released; " in await sentence(shown)


async def test_without_marks_a_page_that_knows_nothing_says_how_pods_are_placed(
    shown, world
) -> None:
    by_default = ": new pods are placed as by default."
    await tick(world, shown, error="connection refused")
    assert (await sentence(shown)).endswith(f"; the order has ended{by_default}")
    world.scene.rule_set = parse_rules({**RULES, "order": None})
    await tick(world, shown, error="connection refused")
    assert (await sentence(shown)).endswith(f"; no node is marked{by_default}")


async def test_of_a_rule_that_fails_only_its_values_are_unknown(shown, world) -> None:
    world.at += 30
    failing = world.scene.tick(world.at, node_cpu=world.cpu, node_mem_usage="refused")
    world.snapshots.publish(failing)
    await shown.look_again()
    await shown.until("document.querySelector('.banner')?.textContent.includes('refused')")
    assert set(await texts(shown, "#nodes tbody .tag")) == {"cool"}
    assert await texts(shown, "#grid h3") == ["batch: 2 nodes", "web: 3 nodes"]
    assert "the hottest: web-2, node-cpu 60.0" in await sentence(shown)


async def test_of_a_rule_by_the_expected_load_both_values_are_shown(shown, world) -> None:
    world.snapshots.publish(replace(expected_example(), tick=7))
    await shown.look_again()
    await shown.until("document.documentElement.dataset.tick === given", "7")
    assert await shown.page.get_attribute("#sentence", "class") == "hot"
    assert "2 of 4 nodes" in await sentence(shown)
    await detail(shown, "worker-1")
    assert "61 measured, 64.9 expected" in await shown.page.inner_text("dialog")


SPY = """() => {
  window.written = [];
  window.cells = 0;
  new MutationObserver((changes) => changes.forEach(({ target }) => {
    const element = target.nodeType === Node.TEXT_NODE ? target.parentElement : target;
    window.written.push(element?.closest("tr")?.dataset.node ?? "");
  })).observe(document.querySelector("#nodes tbody"), {
    attributes: true, characterData: true, childList: true, subtree: true,
  });
  const { fillRect } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillRect = function (...place) {
    window.cells += 1;
    fillRect.apply(this, place);
  };
}"""


async def test_an_update_writes_only_what_differs(shown, world) -> None:
    await tick(world, shown)
    await shown.page.reload()
    # Else the answer with the past of two ticks may come in between, and writes each row.
    await shown.until("document.querySelectorAll('#nodes .w3 svg').length === 5")
    await shown.page.evaluate(SPY)
    await tick(world, shown)
    assert await shown.page.evaluate("[window.written, window.cells]") == [[], 0]
    world.cpu["batch-1"] = 46.0  # neither another place nor another colour
    await tick(world, shown)
    assert set(await shown.page.evaluate("window.written")) == {"batch-1"}
    assert await shown.page.evaluate("window.cells") == 1  # of the value that stands in it
    await tick(world, shown, heat="web-3")
    assert await shown.page.evaluate("window.cells") == 3  # the edge of its mark too


async def test_each_strip_of_states_goes_where_its_node_goes(shown, world) -> None:
    await tick(world, shown, heat="web-1")
    await tick(world, shown)
    await shown.page.reload()
    await shown.until("document.querySelectorAll('#nodes .w3 svg').length === 5")
    strips = """() => Object.fromEntries([...document.querySelectorAll("#nodes tbody tr")].map(
      (row) => [row.dataset.node, row.querySelector(".w3 svg").ariaLabel]))"""
    before = await shown.page.evaluate(strips)
    assert before == dict.fromkeys(POOLS, "was cool") | {"web-1": "was cool, hot, marked"}
    order = await shown.rows()
    world.cpu["batch-1"] = 79.0
    await tick(world, shown)
    await shown.page.click("#sort-again")
    assert await shown.rows() != order
    assert await shown.page.evaluate(strips) == before


async def test_filters_and_order_are_in_the_url_and_survive_a_reload(shown, world) -> None:
    page = shown.page
    await page.fill("#filter-text", "B-")
    assert await shown.rows() == ["web-2", "web-1", "web-3"]
    await page.click("[data-sort=node]")
    await page.click("[data-sort=node]")
    await page.select_option("#filter-pool", "web")
    assert await shown.rows() == ["web-3", "web-2", "web-1"]
    assert dict(parse_qsl(urlsplit(page.url).query)) == {"q": "B-", "pool": "web", "sort": "node"}
    await page.reload()
    await shows(shown, 3)
    assert await shown.rows() == ["web-3", "web-2", "web-1"]
    assert await page.input_value("#filter-text") == "B-"
    await page.click("#filter-clear")
    assert len(await shown.rows()) == 5
    assert await page.locator("th[aria-sort]").inner_text() == "Node"


async def test_numbers_in_names_are_sorted_as_numbers(browser) -> None:
    """And as text where all have as many digits, which may be of more than ten kinds."""
    names = ["aks-vmss000009", "aks-vmss00000a", "aks-vmss000010", "w-3", "w-27", "w-30", "w-100"]
    world = World()
    pools = {name: f"pool-{9 + at}" for at, name in enumerate(names)}
    world.scene.nodes = {name: Node(name, labels={"pool": pools[name]}) for name in names}
    world.cpu = dict.fromkeys(names, 20.0)
    world.tick()
    async with served(world), opened(browser, world, 7) as found:
        assert await found.rows() == names
        await found.page.click("[data-sort=node]")
        assert await found.rows() == names
        await found.page.click("[data-sort=pool]")
        assert await found.rows() == names
        assert await texts(found, "#filter-pool option") == ["all pools", *pools.values()]
        titles = [f"{pool}: 1 node" for pool in pools.values()]
        assert await texts(found, "#grid h3") == titles


async def test_it_can_be_used_by_keys_alone(shown, world) -> None:
    keyboard = shown.page.keyboard
    await keyboard.press("/")
    assert await shown.page.evaluate("document.activeElement.id") == "filter-text"
    await keyboard.press("ArrowDown")
    await keyboard.press("ArrowDown")
    await keyboard.press("Enter")
    await shown.until("document.querySelector('dialog').open")
    assert await shown.page.inner_text("#detail-title") == "batch-1"
    await shown.until("document.activeElement.id === 'detail-title'")
    await keyboard.press("Escape")
    await shown.until("!document.querySelector('dialog').open")
    # The browser goes back in its own time, after the dialog is closed.
    await shown.until(f"location.href === '{world.url}'")
    assert await shown.page.evaluate("document.activeElement.textContent") == "batch-1"


async def test_a_nodes_detail_says_what_would_clear_it_and_what_changed(shown, world) -> None:
    await tick(world, shown, heat="web-3")
    await tick(world, shown)
    told = await detail(shown, "web-3")
    assert "node-cpu must fall to 70 or below (is 95), then stay there for 1m" in told
    assert re.search("Marked 3[0-9]s ago: node-cpu 95.0 > 80 for 3[0-9]s[.]", told)
    assert "firing" in told
    assert "kubectl dynsched why web-3" in told
    assert "not in it: hot" in told
    assert await shown.page.locator("dialog .chart").count() == 2
    assert await shown.page.locator("dialog .chart:has(.was-marked)").count() == 1  # of what fired
    # Where a mark goes on for another rule, only until this one ends; by the values if not known.
    spans = """([values, ends]) => import('./page/chart.js').then(({ spansOf }) => spansOf(
      { name: "a", op: ">", threshold: 80 }, { times: [0, 60, 120], values: { a: values },
      states: 'HHH' }, (at) => ends === null ? undefined : at < ends, [0, 180]))"""
    for values, ends, shaded in ((20, 100, [0, 120]), (90, None, [0, 180]), (20, None, None)):
        found = await shown.page.evaluate(spans, [[values] * 3, ends])
        assert found == ([[True, *shaded]] if shaded else [])
    await shown.page.hover("dialog .chart >> nth=0", position={"x": 570, "y": 40})
    assert "95.0" in await shown.page.text_content("dialog .chart .read >> nth=0")
    assert "node=web-3" in shown.page.url
    await shown.page.go_back()
    await shown.until("!document.querySelector('dialog').open")


async def test_nodes_are_gone_through_by_keys_with_the_place_of_each_in_the_order(
    shown, world
) -> None:
    labels = {"topology.kubernetes.io/zone": "eu-1a", "node.kubernetes.io/instance-type": "m5.xl"}
    size = {"cpu": 4.0, "memory": 2.0**34}
    node = world.scene.nodes["batch-1"]
    node = replace(node, labels={**node.labels, **labels}, allocatable=size)
    world.scene.nodes["batch-1"] = node
    await tick(world, shown)
    assert "60.0 (hot above 80)" in await detail(shown, "web-2")
    await shown.page.keyboard.press("n")
    await shown.until("document.querySelector('#detail-title').textContent === 'batch-1'")
    told = await shown.page.inner_text("dialog .about")
    assert "eu-1a" in told
    assert "m5.xl, 4 cores, 16 GiB" in told
    assert "2 of 2 by load, weight 88 of 100" in told
    await shown.page.click("tr[data-node=web-2] a")  # the list beside it can still be used
    await shown.until("document.querySelector('#detail-title').textContent === 'web-2'")
    assert await shown.page.locator("dialog h3").all_inner_texts() == [
        "Values over time",
        "What changed",
    ]


async def test_what_changed_is_one_list_of_marks_rules_leaders_and_gaps(shown, world) -> None:
    assert await texts(shown, "#changes li") == []
    world.cpu["batch-1"] = 95.0
    await tick(world, shown, heat="web-3", leader="a")
    await tick(world, shown, leader="b", reloaded=True)
    for error in ("connection refused", None):
        await tick(world, shown, error=error, refused=bool(error), rules_error=error, leader="b")
    told = [text.split("\n")[1:] for text in await texts(shown, "#changes li")]
    assert told[:5] == [
        ["sees again"],
        ["rules refused", "connection refused"],
        ["blind"],
        ["rules loaded"],
        ["new leader", "b"],
    ]
    assert told[5][:3] == ["marked", "batch-1", "web-3"]
    await shown.page.click("#changes a >> text=web-3")
    assert "web-3" in await detail(shown)


async def test_the_past_before_memory_comes_from_prometheus(shown, world) -> None:
    for _ in range(50):
        world.tick()
    await tick(world, shown)
    await detail(shown, "web-3")
    chosen = "document.querySelector(`dialog [data-key='${given}'][aria-pressed=true]`)"
    for hours in ("0.25", "6"):
        await shown.page.click(f"dialog [data-key='{hours}']")
        await shown.until(chosen, hours)
        path = await shown.page.get_attribute("dialog .chart .curve >> nth=0", "d")
        assert len(re.findall("[ML]44.0 ", path)) <= 1  # what was before is not drawn on the axis
    assert "hours=6" in shown.page.url
    await shown.page.reload()
    await shown.until(chosen, "6")
    facts = world.snapshots.facts
    assert facts.wanted == {("web-3", 6)}
    points = [(NOON - 3600 * ago, 90.0) for ago in (5, 4)]
    past = {"node-cpu": points, "": [(at, 1.0) for at, _ in points]}
    facts.pasts = {("web-3", 6): (world.at + 99, past)}
    await tick(world, shown)
    await shown.until("document.querySelector('dialog .chart .was-marked')")
    assert await shown.page.locator("dialog .chart:has(.was-marked)").count() == 1


async def test_a_time_in_which_nothing_was_known_is_seen(shown, world) -> None:
    await tick(world, shown)
    await tick(world, shown, error="connection refused")
    await shown.page.reload()
    await shown.until("document.querySelectorAll('#nodes .at.unknown').length === 5")


async def test_a_loop_that_hangs_is_told_and_what_it_means(shown, world) -> None:
    await tick(world, shown, heat="web-3")
    world.now += 3600
    await shown.look_again()
    await is_bad(shown, "No tick since")
    assert "1 mark stays as it is; the order has ended." in await sentence(shown)


async def test_theme_and_language_are_chosen_and_remembered(shown, world) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    light = await shown.page.evaluate(back)
    await shown.page.select_option("#theme", "dark")
    assert await shown.page.evaluate(back) != light
    await shown.page.select_option("#language", "zh-CN")
    await shown.until("document.documentElement.lang === 'zh-CN'")
    await shown.page.goto(world.url)
    await shown.until("document.documentElement.lang === 'zh-CN'")
    assert await shown.page.evaluate(back) != light


async def test_where_pods_were_placed_is_shown_where_there_are_any(shown, world) -> None:
    assert not await shown.page.is_visible("#placements")
    await tick(world, shown, placed=[])
    assert not await shown.page.is_visible("#placements")
    await tick(world, shown, heat="web-3")
    others = ["web-1", "web-2", "batch-1"]
    for hot, other, share, ratio in (
        (1, 3, "25.0% of new pods went to hot nodes (1 of 4)", "1.25 times as many, which may be"),
        (3, 33, "10.0% of new pods went to hot nodes (4 of 40)", "0.50 times as many, which may"),
        (3, 57, "7.0% of new pods went to hot nodes (7 of 100)", "0.35 times as many: below 1, it"),
        (93, 7, "50.0% of new pods went to hot nodes (100 of 200)", "2.50 times as many: it does"),
    ):
        await tick(world, shown, placed=["web-3"] * hot + (others * other)[:other])
        told = await shown.page.inner_text("#help")
        assert told.startswith(f"{share}; by chance it would have been 20.0%. That is {ratio}")
    kinds = await texts(shown, "#placements li")
    assert kinds[:3] == ["100 on hot nodes", "0 on marked nodes", "100 on other nodes"]
    axis = await texts(shown, "#placements .axis span")
    minute = "(at) => import('./page/i18n.js').then(({ minute }) => minute(at))"
    ends = [await shown.page.evaluate(minute, NOON + 300 + 60 * at) for at in (-60, -40, -20)]
    assert axis == [*ends, "now"]


async def test_the_order_is_one_strip_of_all_nodes_by_load(shown, world) -> None:
    await tick(world, shown, heat="web-3")
    assert await texts(shown, "#order .axis span") == ["load 20, weight 100", "load 60, weight 50"]
    area = await shown.page.get_attribute("#order .weights", "d")
    assert area.count("L") == 4
    told = await shown.page.inner_text("#order-counts")
    assert told == (
        "4 nodes are ranked by expected load; left out: 1 hot and not expected to have cooled."
    )
    world.snapshots.order_status = OrderStatus(lambda: None, error="403")
    await tick(world, shown, order=None)
    assert not await shown.page.is_visible("#order-box")
    assert "cannot be written, and ends by itself: 403" in " ".join(await texts(shown, ".banner"))


async def test_what_was_asked_and_came_is_told_of_a_rule_that_fails(shown, world) -> None:
    assert not await shown.page.is_visible("#rules code >> nth=1")
    world.at += 30
    failing = world.scene.tick(world.at, node_cpu=world.cpu, node_mem_usage="refused")
    world.snapshots.publish(failing)
    await shown.look_again()
    await shown.until("document.querySelector('.banner')?.textContent.includes('refused')")
    assert await texts(shown, "#rules code:visible") == ["mem_used_percent"]
    assert "0 samples" in await shown.page.inner_text("#rules")


async def test_a_nodes_detail_lists_pods_just_bound_and_above_their_requests(shown, world) -> None:
    assert "Pods" not in await detail(shown, "web-1")
    await shown.page.keyboard.press("Escape")
    pod = JustBound("shop/web-5d9c7b9d4f-x2x4p", 0.5, 2.0**30, 12.0)
    world.snapshots.facts.bound = lambda _: BoundOnNode(21, [pod])
    world.snapshots.facts.above = {"web-1": [AboveRequest("shop/api-0", "memory", 3 * 2.0**29)]}
    told = await detail(shown, "web-1")
    rows = await texts(shown, "dialog [aria-label^=Pods] tbody tr")
    assert [row.split("\t") for row in rows] == [
        ["shop/api-0", "memory", "1.5 GiB more than it requests"],
        ["shop/web-5d9c7b9d4f-x2x4p", "0.5 cores, 1 GiB", "12s ago"],
    ]
    assert "and 20 more" in told


async def test_banners_say_what_must_not_be_overlooked(shown, world) -> None:
    assert await texts(shown, ".banner") == []
    await tick(world, shown, error="connection refused")
    found = " ".join(await texts(shown, ".banner"))
    assert "cannot see" in found
    assert "connection refused" in found
    await tick(world, shown, failures=(WriteFailure("web-1", "403"),))
    assert await texts(shown, ".banner") == ["1 node could not be written.Which ones: status"]
    status = await shown.page.context.new_page()
    await status.goto(f"{world.url}{await shown.page.get_attribute('.banner a', 'href')}")
    assert '"patch_failures"' in await status.inner_text("body")
    await tick(world, shown, dry_run=True, rules_error="rules.yaml:3: no", leading=False)
    found = " ".join(await texts(shown, ".banner"))
    assert "Dry run" in found
    assert "rules.yaml:3: no" in found
    await tick(world, shown, leading=False, leader="pod-2", capped=frozenset({"web"}))
    found = " ".join(await texts(shown, ".banner"))
    assert "pod-2 leads" in found
    assert "More than guard.max_marked (50%) of the nodes are hot in web" in found
    assert "connection refused" not in found
    error = "no rule could be queried: connection refused"
    world.snapshots.publish(replace(world.snapshots.snapshot, tick=99, error=error))
    await shown.look_again()
    await shown.until("document.querySelector('.banner.bad')?.textContent.includes('last tick')")


async def test_before_the_first_tick_it_waits_and_recovers_when_dynsched_does(browser) -> None:
    world = World()
    async with served(world) as server, tab(browser, world.url) as found:
        await is_bad(found, "first tick")
        world.tick()
        await found.look_again()
        await shows(found, 5)
        port = server.port
        await server.close()
        await found.look_again()
        await is_bad(found, "No answer from dynsched since")
        assert len(await found.rows()) == 5
        async with TestServer(make_app(world.snapshots), port=port):
            await found.look_again()
            await found.until("document.querySelector('#sentence').className === ''")


async def test_it_works_below_a_path_and_a_detail_can_be_linked_to(browser) -> None:
    world = World()
    world.tick()
    prefix = "/api/v1/namespaces/x/services/http:dynsched:9000/proxy"
    async with served(world, prefix):
        async with opened(browser, world) as found:
            await detail(found, "web-1")
        async with opened(browser, world, query="?node=web-1") as found:
            await detail(found)
            assert await found.page.inner_text("#detail-title") == "web-1"


async def test_it_speaks_chinese_to_a_browser_that_does(browser, world) -> None:
    async with opened(browser, world, locale="zh-CN") as found:
        assert await found.page.get_attribute("html", "lang") == "zh-CN"
        worst_first = "\u8282\u70b9\uff08\u6700\u4e25\u91cd\u7684\u5728\u524d\uff09"
        assert await found.page.inner_text("#table-title") == worst_first
        assert "5 个节点均未过热" in await sentence(found)
        texts = [*UNKNOWN.values(), why_unhealthy(None, 0, 1)]
        expected = "a 74 measured, 86 expected with 5 new pods > 80"
        texts += [expected, expected.replace(" with 5 new pods", "")]
        for snapshot in (example(), expected_example()):
            for name in snapshot.nodes:
                said = node_detail(snapshot, name)
                keys = ("conflict", "withheld", "ineligible")
                texts += filter(None, [*said["clears"], *(said[key] for key in keys)])
        told = "(texts) => import('./page/i18n.js').then(({ told }) => texts.map(told))"
        for text, chinese in zip(texts, await found.page.evaluate(told, texts), strict=True):
            assert not re.search("must|needs|below|above|is |was |the ", chinese), (text, chinese)


LONG = "ip-10-0-123-234.a-very-long-name-of-a-region-in-the-cloud.compute.internal.example.com"
CLOUD = [f"aks-nodepool1-12345678-vmss0000{number:02x}" for number in range(15)]
MISPLACED = """(root) => {
  const found = [], boxes = [];
  const seen = document.createTreeWalker(document.querySelector(root), NodeFilter.SHOW_TEXT);
  while (seen.nextNode()) {
    const text = seen.currentNode, parent = text.parentElement, words = text.data.trim();
    const isName = parent.closest("option, .name, .pool-column, .narrow, th small"); // may be cut
    if (!words || !parent.checkVisibility() || isName) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) {
      if (box.left < -0.5 || box.right > innerWidth + 0.5) found.push(["beyond the screen", words]);
      for (const [other, said] of boxes) {
        const wide = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const high = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (wide > 1 && high > 4) found.push(["one on the other", words, said]);
      }
      boxes.push([box, words]);
    }
    const isCut = parent.scrollWidth > parent.clientWidth + 1;
    if (isCut && getComputedStyle(parent).overflowX !== "visible") found.push(["cut", words]);
    const isWhole = !parent.closest("code, h2, h3, .banner, tbody th, #sentence"); // break anywhere
    for (const word of isWhole ? text.data.matchAll(/[A-Za-z]{2,12}/g) : []) {
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => box.top));
      if (lines.size > 1) found.push(["broken", word[0]]);
    }
  }
  for (const box of document.querySelectorAll(`${root} .scroll`))
    if (box.scrollWidth > box.clientWidth) found.push(["too wide", box.textContent.slice(0, 40)]);
  for (const row of document.querySelectorAll(`${root} #nodes tbody tr`))
    if (row.offsetHeight > 60) found.push(["too high", row.textContent]);
  for (const name of document.querySelectorAll(`${root} a.name`))
    if (name.title !== name.textContent || name.ariaLabel !== name.title || name.offsetHeight > 30)
      found.push(["no whole name on a line", name.textContent]);
  return found;
}"""


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
async def test_no_text_is_cut_or_on_another_whatever_the_width(browser, world, locale) -> None:
    """With the names of clouds, a conflict, and a node of which nothing is known."""
    labels = {
        CLOUD[1]: {"pool": "a", "status": "maintenance"},
        CLOUD[3]: {"pool": "a", "node-role.kubernetes.io/control-plane": ""},
        LONG: {"pool": "a-pool-of-long-name" * 3},
    }
    nodes = [Node(name, labels=labels.get(name, {"pool": "a"})) for name in (*CLOUD, LONG)]
    world.scene = Scene({**RULES, "rules": [RULES["rules"][0], MEMORY]}, nodes)
    world.cpu = {name: 40.0 + 2 * at for at, name in enumerate(CLOUD[:-1])}
    world.cpu |= {CLOUD[1]: 95.0, LONG: 99.0}
    world.learn(LONG * 2)
    for _ in range(4):
        world.tick(placed=[LONG, CLOUD[2]], rules_error="x" * 300)
    async with opened(browser, world, 16, locale=locale) as found:
        await found.until("document.querySelectorAll('#nodes .w3 svg').length === 16")
        for part in ("body", "dialog"):
            if part == "dialog":
                await found.page.locator("#nodes tbody a").first.click()
                await found.until("document.querySelector('dialog .chart')")
            for width in WIDTHS:
                await found.page.set_viewport_size({"width": width, "height": 900})
                assert await found.page.evaluate(MISPLACED, part) == [], (part, width)


async def test_five_rules_fit_and_a_name_is_cut_only_where_there_is_no_room(browser) -> None:
    """On a phone there is the value that decides, and the pool."""
    world, pool = World(), "nodepool-general-purpose-eastus2"
    asked = ("node-cpu", "node-mem-usage", "node-disk-io", "psi-cpu-waiting", "memory-available")
    rules = [{"name": name, "expr": name, "threshold": 80} for name in asked]
    labels = [{"pool": pool}, {"pool": "gpu"}]
    names = [f"aks-nodepool{1 + at % 2}-12345678-vmss{at:06}" for at in range(12)]
    nodes = [Node(name, labels=labels[at % 2]) for at, name in enumerate(names)]
    world.scene = Scene({**RULES, "rules": rules}, nodes)
    values = {name: 90.0 - at for at, name in enumerate(names)}
    answers = {name.replace("-", "_"): values for name in asked}
    world.snapshots.publish(world.scene.tick(NOON, **answers))
    async with served(world), opened(browser, world, 12) as found:
        shared = "aks-nodepool1-12345678-vmss0000…"
        assert (await texts(found, "#grid h3"))[1].endswith(f"; all are {shared[:-9]}…")
        cut = """() => [...document.querySelectorAll("#nodes .cut span:first-child")]
          .filter((part) => part.scrollHeight > part.clientHeight).length"""
        for width in WIDTHS:
            await found.page.set_viewport_size({"width": width, "height": 900})
            assert await found.page.evaluate(MISPLACED, "body") == [], width
            if width == WIDTHS[0]:
                row = (await texts(found, "#nodes tbody tr"))[0].replace("\n", "")
                assert pool in row
                assert "90.0 node-cpu" in row
        assert await found.page.evaluate(cut) == 0


async def test_it_works_with_a_token_that_a_proxy_adds(browser, monkeypatch) -> None:
    """And while nobody can be let in, it does not look as if nothing had been measured yet."""
    monkeypatch.setattr(auth, "GRANTED_SECONDS", 0.0)
    world, reviews = World(), Kubernetes()
    files = (ROOT / "dynsched/api/page/static").iterdir()
    reviews.rights |= {("ann", f"/page/{file.name}") for file in files}
    world.tick()
    async with (
        served(world, guards=[require_token(reviews.user_of, reviews.may_get, PROBES)]),
        tab(browser, world.url, extra_http_headers=bearer("anns")) as found,
    ):
        await shows(found, 5)
        assert found.complaints == []
        reviews.away = ClusterError("away")
        await found.look_again()
        await is_bad(found, "No answer")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(browser, world, scheme) -> None:
    world.cpu |= {"web-3": 95.0, "batch-1": 75.0}
    del world.cpu["batch-2"]
    world.tick()
    world.learn()
    world.tick(dry_run=True, rules_error="rules.yaml:3: no", capped=frozenset({"web"}))
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    # Only axe itself is let past the policy.
    async with opened(browser, world, color_scheme=scheme, bypass_csp=True) as found:
        await found.page.evaluate(axe)
        for step in [*WIDTHS, *WIDTHS]:
            if step == WIDTHS[0] and found.page.viewport_size["width"] == WIDTHS[-1]:
                await detail(found, "web-3")
            await found.page.set_viewport_size({"width": step, "height": 900})
            violations = await found.page.evaluate("async () => (await axe.run()).violations")
            told = [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations]
            assert told == [], step


CONTRAST = """(pairs) => {
  const probe = document.body.appendChild(document.createElement("i"));
  const light = (name) => {
    probe.style.color = `var(--${name})`;
    const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).map((part) => part / 255);
    const linear = parts.map((at) => (at <= 0.04045 ? at / 12.92 : ((at + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05;
  };
  return pairs.map(([one, ground]) => {
    const [a, b] = [light(one), light(ground)];
    return Math.max(a, b) / Math.min(a, b);
  });
}"""
STATES = ("hot-0", "hot-1", "hot-2", "held", "pending", "unknown")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_marks_and_bars_stand_out_from_their_ground(browser, world, scheme) -> None:
    grounds = ("back", "panel", "bar-back")
    marks = [("area", "back"), ("text", "area")]  # a curve is drawn on the area
    marks += [(mark, on) for mark in (*STATES, "text", "bar", "link") for on in grounds]
    texts = [(text, on) for text in ("text", "dim", "link") for on in ("back", "panel")]
    texts += [(text, f"{on}-back") for text in ("text", "link") for on in ("bad", "warn", "info")]
    async with opened(browser, world, color_scheme=scheme) as found:
        for pairs, least in ((marks, 3.0), ([*texts, ("bad", "back"), ("bad", "bad-back")], 4.5)):
            measured = await found.page.evaluate(CONTRAST, pairs)
            low = {
                pair: ratio for pair, ratio in zip(pairs, measured, strict=True) if ratio < least
            }
            assert low == {}


async def test_of_many_nodes_the_worst_are_shown_and_more_on_request(browser) -> None:
    world = World()
    world.scene.nodes = {f"n{n:03}": Node(f"n{n:03}") for n in range(120)}
    world.cpu = {name: float(at % 90) for at, name in enumerate(world.scene.nodes)}
    world.tick()
    async with served(world), opened(browser, world, 50) as found:
        assert (await found.rows())[0] == "n089"
        await found.page.click("#more")
        assert len(await found.rows()) == 120
        await found.page.set_viewport_size({"width": 375, "height": 500})
        await found.page.click("#chips [data-state=hot]")  # the list is below the screen
        top = "document.querySelector('#table-title').getBoundingClientRect().top"
        await found.until(f"{top} < 300")
        assert len(await found.rows()) == 9
