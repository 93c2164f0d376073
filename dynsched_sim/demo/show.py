"""What the demo shows about both clusters: a sentence in the terminal, and a page."""

from __future__ import annotations

from importlib import resources

from aiohttp import web

from dynsched_sim.demo.cluster import OrderedCluster
from dynsched_sim.load import HOT, LIFE, DemoLoad


def summary(cluster: OrderedCluster) -> str:
    return f"After {cluster.load.now:.0f}s, 20 times as fast as life: {figures(cluster.load)}"


def figures(load: DemoLoad) -> str:
    """Compare both clusters, with the confidence interval once it is meaningful."""
    if load.now < LIFE:
        return f"Too early to say which cluster does better: figures come after {LIFE:.0f}s."
    return (
        f"New pods that were placed on a node over {HOT:g} % CPU: {load.ordered.placed_on_hot} of "
        f"{load.placed} with dynsched, {load.alone.placed_on_hot} without. {_time_over(load)}"
    )


def _time_over(load: DemoLoad) -> str:
    """Compare the time above HOT, or say that it is too early: at first the difference often points
    the wrong way.
    """
    saved = load.saved()
    if saved is None or saved[0] <= 0 <= saved[1]:
        return (
            f"Too early to say how long nodes were over {HOT:g} % in each cluster: the difference "
            "may still be chance."
        )
    ordered, alone = (100 * load.hot(each) for each in (load.ordered, load.alone))
    least, most = sorted(abs(100 * end) for end in saved)
    word = "less" if saved[0] > 0 else "more"
    return (
        f"In the first {load.measured:.0f}s, nodes were over {HOT:g} % for {ordered:.1f} % of the "
        f"time with dynsched, {alone:.1f} % without: {least:.1f} to {most:.1f} points {word} "
        "(90 % sure)."
    )


def page(cluster: OrderedCluster, dynsched: str) -> web.Application:
    """A page with both clusters side by side. ``dynsched``: URL of the operator's own page."""
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")

    async def html(_: web.Request) -> web.Response:
        return web.Response(text=text.replace("DYNSCHED", dynsched), content_type="text/html")

    async def now(_: web.Request) -> web.Response:
        load = cluster.load
        return web.json_response(
            {
                "seconds": load.now,
                "nodes": cluster.nodes,
                "cpu": {"alone": load.alone.cpu, "ordered": load.ordered.cpu},
                "marked": cluster.marked,
                "figures": figures(load),
            }
        )

    app = web.Application()
    app.add_routes([web.get("/", html), web.get("/now", now)])
    return app
