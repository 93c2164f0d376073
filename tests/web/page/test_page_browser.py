"""The page in a real Chromium. Expected texts come from the page's own table of texts."""

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
from scenes import EXAMPLE_RULES, NOON, Scene
from store_support import make_store

from dynsched.core.guard import WriteFailure
from dynsched.core.nodes import Node
from dynsched.core.tick import Leadership, RulesStatus, WriteResult
from dynsched.features.order.ranks import compute_order
from dynsched.features.order.status import OrderStatus
from dynsched.web.app import make_app

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.thorough]

CPU, MEMORY = EXAMPLE_RULES["rules"]
RULES = {
    "guard": {"pool_label": "pool", "max_marked": "50%"},
    "order": {"score": {"node-cpu": 1}},
    "rules": [{**CPU, "for": "0s", "keep_firing_for": "1m", "resource": "cpu"}, MEMORY],
}
WIDTHS = (375, 768, 820, 1024, 1280, 1920)
POOLS = {"web-1": "web", "web-2": "web", "web-3": "web", "batch-1": "batch", "batch-2": "batch"}
REFUSED = "connection refused"


class World:
    """A small cluster, the values that its queries return, and the URL of its page."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ticks = make_store(lambda: self.now, graphs="https://example.com/prometheus")
        self.scene = Scene(
            RULES, [Node(name, labels={"pool": pool}) for name, pool in POOLS.items()]
        )
        self.order = OrderStatus()
        self.ticks.show_order(self.order)
        self.at = NOON
        self.cpu = dict.fromkeys(POOLS, 20.0) | {"web-2": 60.0, "batch-1": 45.0}
        self.url = ""

    def tick(self, *, error=None, memory=None, placed=None, capped=None, **changes) -> None:
        """Publish one tick.

        ``error``: why all queries fail; ``memory``: why the memory rule's query fails; ``placed``:
        nodes that pods were bound to; ``capped``: pools; ``changes``: fields of the Tick.
        """
        self.at += 30
        of_memory = memory or error or dict.fromkeys(self.cpu, 40.0)
        tick = self.scene.tick(self.at, node_cpu=error or self.cpu, node_mem_usage=of_memory)
        if capped:
            decision = replace(tick.evaluation.decision, capped=frozenset(capped))
            changes["evaluation"] = replace(tick.evaluation, decision=decision)
        self.order.order = compute_order(tick.evaluation, tick.pods)
        self.ticks.publish(replace(tick, **changes), placed=placed)


@contextlib.asynccontextmanager
async def served(world: World, prefix: str = "", **options: Any) -> AsyncIterator[TestServer]:
    app = make_app(world.ticks, **options)
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
    """A tab that shows ``rows`` nodes; it must end without errors or warnings."""
    async with tab(browser, f"{world.url}{query}", **options) as found:
        await shows(found, rows)
        yield found
        assert found.complaints == []


async def shows(found: Tab, rows: int) -> None:
    await found.until("document.querySelectorAll('#nodes tbody tr').length === given", rows)


async def detail(found: Tab, node: str = "") -> str:
    """The text of the open detail dialog; ``node``: click this node first."""
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
    """Publish a tick and wait until the page shows it; ``heat``: a node that is hot from now on."""
    if heat:
        world.cpu[heat] = 95.0
    world.tick(**how)
    await seen(world, shown)


async def seen(world: World, shown: Tab) -> None:
    await shown.look_again()
    at = f"{world.ticks.tick.taken_at}".removesuffix(".0")
    await shown.until("document.documentElement.dataset.at === given", at)


async def texts(shown: Tab, selector: str) -> list[str]:
    return await shown.page.locator(selector).all_inner_texts()


async def words(shown: Tab, *keys: Any) -> list[str]:
    """The page's texts in its language; each key is a string, or a list of a key and its values."""
    wanted = [[key] if isinstance(key, str) else list(key) for key in keys]
    ask = "(wanted) => import('./page/i18n.js').then(({ t }) => wanted.map((each) => t(...each)))"
    return await shown.page.evaluate(ask, wanted)


async def says(shown: Tab, *keys: Any, where: str = "#sentence") -> bool:
    """Whether the element shows the texts of all these keys."""
    found = await shown.page.inner_text(where)
    return all(text in found for text in await words(shown, *keys))


async def is_bad(found: Tab, key: str) -> None:
    """Wait until the sentence is bad and contains the beginning of this key's text."""
    (text,) = await words(found, [key, "|", "|"])
    begin = text.split("|")[0]
    await found.until("document.querySelector('#sentence.bad')?.textContent.includes(given)", begin)


async def clock(shown: Tab, at: float) -> str:
    """The time of day as the page writes it."""
    return await shown.page.evaluate(
        "(at) => import('./page/i18n.js').then((m) => m.moment(at))", at
    )


async def test_a_sentence_sums_up_the_state_and_the_worst_nodes_are_listed_first(
    shown, world
) -> None:
    assert (await shown.rows())[:2] == ["web-2", "batch-1"]
    assert await says(shown, ["none_hot", 5], "nearest", ["hot_above", "node-cpu", "60.0", 80])
    assert [title.split(":")[0] for title in await texts(shown, "#grid h3")] == ["batch", "web"]
    assert await texts(shown, "#rules tbody th") == ["node-cpu", "node-mem-usage"]
    link = await shown.page.locator("#rules a").first.get_attribute("href")
    assert link.startswith("https://example.com/prometheus/graph?g0.expr=cpu_busy_percent")
    await tick(world, shown, heat="web-3")
    assert await says(shown, ["n_hot", 1, 5], ["n_marked", 1], ["avoided", 1], "worst")
    world.cpu["batch-1"] = 99.0
    await tick(world, shown, heat="web-1")
    assert await says(shown, ["n_hot", 3, 5], ["n_left", 1, "guard.max_marked is 50%"])
    assert await shown.page.inner_text("#sentence a") == "batch-1"
    assert await shown.page.title() == "(3) dynsched"
    world.cpu["batch-1"] = 20.0
    await tick(world, shown, rules_status=RulesStatus("rules.yaml:3: no"))
    assert await says(shown, ["n_cooling", 1])
    assert await says(shown, ["rules_refused", 2, 2], where="#facts")


async def test_a_node_that_gets_hot_is_counted_and_moves_up_when_the_list_is_sorted_again(
    shown, world
) -> None:
    assert (await shown.rows())[0] != "web-3"
    await shown.page.locator("tr[data-node=web-3] a").focus()
    await tick(world, shown, heat="web-3")
    assert (await shown.rows())[0] != "web-3"
    assert await shown.page.evaluate("document.activeElement.textContent") == "web-3"
    assert await shown.page.locator("#grid i").count() == 1  # the frame around its cell
    await shown.page.click("#sort-again")
    assert (await shown.rows())[0] == "web-3"
    assert not await shown.page.is_visible("#sort-again")
    assert await says(shown, "s_hot", "yes", where="tr[data-node=web-3]")
    await shown.page.click("#chips [data-state=hot]")  # a click on a count filters
    assert await shown.rows() == ["web-3"]
    await shown.page.click("#chips [data-state=hot]")
    assert len(await shown.rows()) == 5


async def test_a_click_opens_the_node_under_the_pointer(shown, world) -> None:
    """Clicks by coordinates, after values changed and a banner appeared or disappeared."""
    mouse = shown.page.mouse
    for look in range(5):
        row = shown.page.locator("#nodes tbody tr").nth(look)
        box = await row.bounding_box()
        await mouse.move(box["x"] + 30, box["y"] + box["height"] / 2)
        looked_at = await row.get_attribute("data-node")
        for at, name in enumerate(world.cpu):
            world.cpu[name] = 20.0 + (37 * at + 29 * look) % 79
        await tick(world, shown, rules_status=RulesStatus("x" * 300 if look % 2 else None))
        await mouse.click(box["x"] + 30, box["y"] + box["height"] / 2)
        await shown.until("document.querySelector('dialog').open")
        assert await shown.page.inner_text("#detail-title") == looked_at
        await shown.page.keyboard.press("Escape")
        await shown.until("!document.querySelector('dialog').open")
        assert await shown.page.evaluate("document.activeElement.textContent") == looked_at


async def test_while_all_queries_fail_the_last_values_stay_and_the_consequences_are_shown(
    shown, world
) -> None:
    await tick(world, shown, error=REFUSED)
    assert await says(shown, "order_ended", "by_default")
    await tick(world, shown, heat="web-3")
    # By script: on a slow machine the page has already sorted itself and hidden the button.
    await shown.page.evaluate("document.getElementById('sort-again').click()")
    for _ in range(2):
        await tick(world, shown, error=REFUSED)
        assert (await shown.rows())[:2] == ["web-3", "web-2"]
    since = await clock(shown, world.at - 64)  # a sample, 4 s before its tick
    assert await says(shown, ["blind_since", since], ["marks_stay", 1], "order_ended")
    assert REFUSED in " ".join(await texts(shown, ".banner.bad"))
    row = await shown.page.inner_text("tr[data-node=web-2]")
    assert "60.0 (" in row
    assert await says(shown, "s_unknown", where="tr[data-node=web-2]")
    assert await shown.page.title() == "(!) dynsched"


async def test_if_one_rule_fails_only_its_values_are_unknown(shown, world) -> None:
    assert not await shown.page.is_visible("#rules code >> nth=1")
    await tick(world, shown, memory="refused")
    assert await says(shown, ["b_rule_fails", "node-mem-usage", "refused"], where=".banner")
    assert set(await texts(shown, "#nodes tbody .tag")) == set(await words(shown, "s_cool"))
    assert await says(shown, ["hot_above", "node-cpu", "60.0", 80])
    assert await texts(shown, "#rules code:visible") == ["mem_used_percent"]


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
    assert await page.locator("th[aria-sort] button").get_attribute("data-sort") == "node"


async def test_numbers_in_names_are_sorted_as_numbers(browser) -> None:
    """Numbers of equal width are sorted as text, because their digits may be letters (base 36)."""
    names = ["aks-vmss000009", "aks-vmss00000a", "aks-vmss000010", "w-3", "w-27", "w-30", "w-100"]
    world = World()
    pools = {name: f"pool-{9 + at}" for at, name in enumerate(names)}
    world.scene.nodes = {name: Node(name, labels={"pool": pools[name]}) for name in names}
    world.cpu = dict.fromkeys(names, 20.0)
    world.tick()
    async with served(world), opened(browser, world, 7) as found:
        assert await found.rows() == names
        for column in ("node", "pool"):
            await found.page.click(f"[data-sort={column}]")
            assert await found.rows() == names
        assert (await texts(found, "#filter-pool option"))[1:] == [*pools.values()]
        titles = [title.split(":")[0] for title in await texts(found, "#grid h3")]
        assert titles == [*pools.values()]


async def test_it_can_be_used_with_the_keyboard_alone(shown, world) -> None:
    keyboard = shown.page.keyboard
    await keyboard.press("/")
    assert await shown.page.evaluate("document.activeElement.id") == "filter-text"
    await keyboard.press("ArrowDown")
    await keyboard.press("ArrowDown")
    await keyboard.press("Enter")
    await shown.until("document.querySelector('dialog').open")
    assert await shown.page.inner_text("#detail-title") == "batch-1"
    await shown.until("document.activeElement.id === 'detail-title'")
    await keyboard.press("p")
    await shown.until("document.querySelector('#detail-title').textContent === 'web-2'")
    await keyboard.press("n")
    await shown.until("document.querySelector('#detail-title').textContent === 'batch-1'")
    await keyboard.press("Escape")
    await shown.until("!document.querySelector('dialog').open")
    # The browser goes back in its own time, after the dialog is closed.
    await shown.until(f"location.href === '{world.url}'")
    assert await shown.page.evaluate("document.activeElement.textContent") == "batch-1"


async def test_a_nodes_detail_shows_the_reason_the_end_and_the_changes(shown, world) -> None:
    labels = {"topology.kubernetes.io/zone": "eu-1a", "node.kubernetes.io/instance-type": "m5.xl"}
    node = world.scene.nodes["batch-1"]
    size = {"cpu": 4.0, "memory": 2.0**34}
    node = replace(node, labels={**node.labels, **labels}, allocatable=size)
    world.scene.nodes["batch-1"] = node
    await tick(world, shown, heat="web-3")
    await tick(world, shown)
    text = await detail(shown, "web-3")
    clears = ["r_clears_for", "node-cpu", "<= 70", "95", "1m"]
    assert await says(shown, clears, "c_firing", "c_mark", "left_hot", where="dialog")
    assert re.search(r"node-cpu 95.0 > 80 .*3[0-9]s", text)
    assert "kubectl dynsched why web-3" in text
    rules = [row.split("\t") for row in await texts(shown, "dialog tbody tr")]
    assert rules == [["node-cpu", "95.0", "> 80", "70"], ["node-mem-usage", "40.0", "> 85", "85"]]
    assert await shown.page.locator("dialog tbody .bar.hot-2").count() == 1
    assert "node=web-3" in shown.page.url
    await shown.page.go_back()
    await shown.until("!document.querySelector('dialog').open")
    text = await detail(shown, "batch-1")
    assert {"eu-1a", "m5.xl, 4 cores, 16 GiB"} <= set(text.split("\n"))
    assert await says(shown, ["place", 2, 2, 88], where="dialog")
    await shown.page.click("tr[data-node=web-2] a")  # the list next to it stays usable
    await shown.until("document.querySelector('#detail-title').textContent === 'web-2'")


async def test_changes_are_one_list_of_marks_rules_leaders_and_gaps(shown, world) -> None:
    assert await texts(shown, "#changes li") == []
    world.cpu["batch-1"] = 95.0
    await tick(world, shown, heat="web-3", leadership=Leadership(leader="a"))
    leads = Leadership(leader="b")
    await tick(world, shown, leadership=leads, rules_status=RulesStatus(reloaded=True))
    for error in (REFUSED, None):
        status = RulesStatus(error, refused=bool(error))
        await tick(world, shown, error=error, rules_status=status, leadership=leads)
    changes = [text.split("\n")[1:] for text in await texts(shown, "#changes li")]
    kinds = ["c_sees", "c_blind", "c_refused", "c_leader", "c_rules", "c_mark"]
    assert [text for text, *_ in changes[:6]] == await words(shown, *kinds)
    assert [rest for _, *rest in changes[:5]] == [[], [], [REFUSED], ["b"], []]
    assert changes[5][1:3] == ["batch-1", "web-3"]
    await shown.page.click("#changes a >> text=web-3")
    assert "web-3" in await detail(shown)


async def test_a_hanging_loop_and_its_consequences_are_shown(shown, world) -> None:
    await tick(world, shown, heat="web-3")
    world.now += 3600
    await shown.look_again()
    await is_bad(shown, "no_tick")
    assert await says(shown, ["marks_as_they_are", 1], "order_ended")


async def test_the_language_is_chosen_and_remembered(shown, world) -> None:
    await shown.page.select_option("#language", "zh-CN")
    await shown.until("document.documentElement.lang === 'zh-CN'")
    await shown.page.goto(world.url)
    await shown.until("document.documentElement.lang === 'zh-CN'")
    assert await texts(shown, "#table-title") == await words(shown, "worst_first")


async def test_placements_are_shown_once_pods_were_placed(shown, world) -> None:
    await tick(world, shown, placed=[])
    assert not await shown.page.is_visible("#placements")
    await tick(world, shown, heat="web-3")
    others = ["web-1", "web-2", "batch-1"]
    for hot, other, share, of_all, verdict, ratio in (
        (4, 36, "10.0%", (4, 40), "helps_unsure", "0.50"),
        (3, 57, "7.0%", (7, 100), "helps", "0.35"),
        (93, 7, "50.0%", (100, 200), "helps_not", "2.50"),
    ):
        await tick(world, shown, placed=["web-3"] * hot + (others * other)[:other])
        help_text = ["help", share, *of_all, "20.0%"]
        assert await says(shown, help_text, [verdict, ratio], where="#help")
    kinds = [int(text.split()[0]) for text in (await texts(shown, "#placements li"))[:3]]
    assert kinds == [100, 0, 100]


async def test_the_order_is_one_strip_of_all_nodes_by_load(shown, world) -> None:
    await tick(world, shown, heat="web-3")
    ends = await words(shown, ["at_rank", 20, 100], ["at_rank", 60, 50])
    assert await texts(shown, "#order .axis span") == ends
    area = await shown.page.get_attribute("#order .weights", "d")
    assert area.count("L") == 4
    assert await says(shown, ["order_ranked", 4], ["order_hot", 1], where="#order-counts")
    world.order.error = "403"
    await tick(world, shown, error=REFUSED)
    assert not await shown.page.is_visible("#order-box")
    assert await says(shown, ["b_order", "403"], where="#banners")


async def test_banners_say_what_must_not_be_overlooked(shown, world) -> None:
    assert await texts(shown, ".banner") == []
    await tick(world, shown, error=REFUSED)
    assert await says(shown, ["b_blind", REFUSED], where=".banner.bad")
    await tick(world, shown, writes=WriteResult(failures=(WriteFailure("web-1", "403"),)))
    assert await says(shown, ["b_failures", 1], "see_status", where=".banner")
    status = await shown.page.context.new_page()
    await status.goto(f"{world.url}{await shown.page.get_attribute('.banner a', 'href')}")
    assert '"patch_failures"' in await status.inner_text("body")
    error = "rules.yaml:3: no"
    await tick(
        world, shown, rules_status=RulesStatus(error), leadership=Leadership(False, None, True)
    )
    assert await says(shown, "b_dry_run", ["b_rules_error", error], where="#banners")
    await tick(world, shown, leadership=Leadership(False, "pod-2"), capped=["web"])
    banners = ["b_following", "pod-2"], ["b_capped_pools", "50%", "web"]
    assert await says(shown, *banners, where="#banners")
    await tick(world, shown)
    assert await texts(shown, ".banner") == []
    world.at += 30
    odd = world.scene.tick(world.at, node_cpu=world.cpu, node_mem_usage={"web-1": 1.0})
    world.ticks.publish(replace(odd, error="a defect"))
    await seen(world, shown)
    assert await says(shown, ["b_error", "a defect"], where=".banner.bad")


async def test_before_the_first_tick_it_waits_and_recovers_when_dynsched_does(browser) -> None:
    world = World()
    async with served(world) as server, tab(browser, world.url) as found:
        await is_bad(found, "waiting")
        world.ticks.rules_error = lambda: "rules.yaml:3: no"
        await found.look_again()
        await is_bad(found, "no_rules")
        world.ticks.rules_error = lambda: None
        world.tick()
        await found.look_again()
        await shows(found, 5)
        port = server.port
        await server.close()
        await found.look_again()
        await is_bad(found, "no_answer")
        assert len(await found.rows()) == 5
        async with TestServer(make_app(world.ticks), port=port):
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
      for (const [other, otherWords] of boxes) {
        const wide = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const high = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (wide > 1 && high > 4) found.push(["overlap", words, otherWords]);
      }
      boxes.push([box, words]);
    }
    const isCut = parent.scrollWidth > parent.clientWidth + 1;
    if (isCut && getComputedStyle(parent).overflowX !== "visible") found.push(["cut", words]);
  }
  for (const box of document.querySelectorAll(`${root} .scroll`))
    if (box.scrollWidth > box.clientWidth) found.push(["too wide", box.textContent.slice(0, 40)]);
  return found;
}"""


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
async def test_no_text_is_cut_or_overlaps_at_any_width(browser, world, locale) -> None:
    """The nodes have cloud providers' names; one has a conflict, and one has no value."""
    labels = {
        CLOUD[1]: {"pool": "a", "status": "maintenance"},
        CLOUD[3]: {"pool": "a", "node-role.kubernetes.io/control-plane": ""},
        LONG: {"pool": "a-pool-of-long-name" * 3},
    }
    nodes = [Node(name, labels=labels.get(name, {"pool": "a"})) for name in (*CLOUD, LONG)]
    world.scene = Scene({**RULES, "rules": [RULES["rules"][0], MEMORY]}, nodes)
    world.cpu = {name: 40.0 + 2 * at for at, name in enumerate(CLOUD[:-1])}
    world.cpu |= {CLOUD[1]: 95.0, LONG: 99.0}
    for _ in range(4):
        world.tick(placed=[LONG, CLOUD[2]], rules_status=RulesStatus("x" * 300))
    async with opened(browser, world, 16, locale=locale) as found:
        for part in ("body", "dialog"):
            if part == "dialog":
                await found.page.locator("#nodes tbody a").first.click()
                await found.until("document.querySelector('dialog tbody')")
            for width in WIDTHS:
                await found.page.set_viewport_size({"width": width, "height": 900})
                assert await found.page.evaluate(MISPLACED, part) == [], (part, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(browser, world, scheme) -> None:
    world.cpu |= {"web-3": 95.0, "batch-1": 75.0}
    del world.cpu["batch-2"]
    world.tick()
    world.tick(
        leadership=Leadership(dry_run=True),
        rules_status=RulesStatus("rules.yaml:3: no"),
        capped=["web"],
    )
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    # The page's Content-Security-Policy is bypassed for axe's own script only.
    async with opened(browser, world, color_scheme=scheme, bypass_csp=True) as found:
        await found.page.evaluate(axe)
        for step in [*WIDTHS, *WIDTHS]:
            if step == WIDTHS[0] and found.page.viewport_size["width"] == WIDTHS[-1]:
                await detail(found, "web-3")
            await found.page.set_viewport_size({"width": step, "height": 900})
            violations = await found.page.evaluate("async () => (await axe.run()).violations")
            hits = [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations]
            assert hits == [], step


async def test_a_long_list_shows_the_worst_nodes_and_the_rest_on_request(browser) -> None:
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
