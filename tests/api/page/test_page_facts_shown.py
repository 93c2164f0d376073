"""What the page shows beside the Snapshot: placements, requests, and pods."""

from snapshots import NOON, Scene, example
from web_support import check, get

from dynsched.api.page.facts import LOOKED_AT
from dynsched.engine.load.recent import BoundOnNode, JustBound
from dynsched.engine.model import Node
from dynsched.engine.pod_values import AboveRequest


async def test_the_page_is_looked_at_while_its_data_is_asked_for(client, snapshots, clock) -> None:
    snapshots.publish(example())
    await get(client, "/nodes")
    assert not snapshots.facts.is_looked_at
    for path in ("/page/data", "/page/node?node=worker-1"):  # the latter by `dynsched why` alone
        await get(client, path)
        clock.now += LOOKED_AT - 1
        assert snapshots.facts.is_looked_at
        clock.now += 2
        assert not snapshots.facts.is_looked_at


async def test_before_the_first_tick_it_is_looked_at_too(client, snapshots) -> None:
    await get(client, "/page/data", 503)
    assert snapshots.facts.is_looked_at
    assert snapshots.facts.hottest(9) == []


async def test_what_is_requested_is_in_the_unit_of_each_rule(client, snapshots) -> None:
    rules = [
        {"name": "cpu", "expr": "x", "resource": "cpu", "threshold": 80},
        {"name": "share", "expr": "x", "resource": "cpu", "threshold": 0.8},
        {"name": "free", "expr": "x", "resource": "memory", "op": "<", "threshold": 10},
        {"name": "disk", "expr": "x", "threshold": 80},
    ]
    scene = Scene({"rules": rules}, [Node("a"), Node("b")])
    values = {"a": 0.5, "b": 0.5}
    snapshots.facts.requested = {"cpu": {"a": 75}, "memory": {"a": 50}}
    snapshots.publish(scene.tick(NOON, cpu=values, share=values, free=values, disk=values))
    for node, requested in (("a", {"cpu": 75.0, "share": 0.75}), ("b", {}), ("c", {})):
        check(await get(client, f"/page/node?node={node}"), requested=requested)


ORDER_WITHOUT = {"pools": {}, "why": "hot"}


async def test_the_pods_of_a_node_are_told_and_what_is_not_known_is_null(client, snapshots) -> None:
    snapshots.publish(example())
    unknown = {"bound": None, "above": None, "past": None}
    machine = (await get(client, "/page/node?node=worker-2"))["machine"]
    assert machine == {**dict.fromkeys(("zone", "type", "cpu", "memory")), "order": ORDER_WITHOUT}
    check(await get(client, "/page/node?node=worker-1"), **unknown)
    await get(client, "/page/node", 400)
    pod = JustBound("shop/web-1", 0.5, 2.0**20, 3.1)
    snapshots.facts.bound = lambda node: BoundOnNode(7, [pod]) if node == "a" else None
    snapshots.facts.above = {"a": [AboveRequest("shop/web-2", "cpu", 1.5)], "b": []}
    bound = {"pod": "shop/web-1", "cpu": 0.5, "memory": 2.0**20, "age": 3.1}
    above = [{"pod": "shop/web-2", "resource": "cpu", "above": 1.5}]
    check(await get(client, "/page/node?node=a"), bound={"total": 7, "pods": [bound]}, above=above)
    check(await get(client, "/page/node?node=b"), **unknown | {"above": []})
    check(await get(client, "/page/node?node=c"), **unknown)


async def test_a_longer_past_is_asked_for_in_the_background_and_kept(client, snapshots) -> None:
    facts = snapshots.facts
    snapshots.publish(example())
    for query in ("worker-1", "worker-1&hours=6", "nobody&hours=6"):
        check(await get(client, f"/page/node?node={query}"), past=None)
    assert facts.wanted == {("worker-1", 6)}
    facts.wanted.clear()
    points = {"node-cpu": [(NOON, 40.0)]}
    for until, wanted in ((NOON + 121, set()), (NOON + 119, {("worker-1", 6)})):
        facts.pasts = {("worker-1", 6): (until, points)}
        check(
            await get(client, "/page/node?node=worker-1&hours=6"), past={"node-cpu": [[NOON, 40]]}
        )
        assert facts.wanted == wanted
    assert "hours=6" in (await get(client, "/page/node?node=worker-1&hours=7", 400))["error"]
