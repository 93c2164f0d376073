"""What the demo says of both clusters, in a sentence and on a page."""

from __future__ import annotations

from importlib import resources

from aiohttp import web

from dynsched.core.wording import counted
from dynsched_sim.demo.cluster import OrderedCluster
from dynsched_sim.load import HOT, LIFE, DemoLoad


def summary(cluster: OrderedCluster) -> str:
    marks, releases = counted(cluster.marks, "mark"), counted(cluster.releases, "release")
    return f"After {cluster.load.now:.0f}s: {marks}, {releases}. {figures(cluster.load)}"


def figures(load: DemoLoad) -> str:
    """Both clusters, and how sure it is that they differ."""
    if load.now < LIFE:
        return f"Too early to say which cluster does better: figures come after {LIFE:.0f}s."
    ordered, alone = (100 * load.hot(each) for each in (load.ordered, load.alone))
    pods, pods_alone = map(load.pods_on_hot, (load.ordered, load.alone))
    return (
        f"Nodes over {HOT:g} % CPU: {ordered:.1f} % of their time with dynsched, {alone:.1f} % "
        f"without. Pods on such nodes: {pods:.1f} of {len(load.pods)} with dynsched, "
        f"{pods_alone:.1f} without. {_certainty(load.saved())}"
    )


def _certainty(saved: tuple[float, float] | None) -> str:
    if saved is None or saved[0] <= 0 <= saved[1]:
        return "Too early to say whether that is chance."
    least, most = sorted(abs(100 * end) for end in saved)
    word = "less" if saved[0] > 0 else "more"
    return (
        f"Time over {HOT:g} %: {least:.1f} to {most:.1f} points {word} with dynsched (90 % sure)."
    )


def page(cluster: OrderedCluster, dynsched: str) -> web.Application:
    """Both clusters side by side. ``dynsched``: the address of the operator's own page."""
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
                "marked": [*cluster.marked],
                "figures": figures(load),
            }
        )

    app = web.Application()
    app.add_routes([web.get("/", html), web.get("/now", now)])
    return app
