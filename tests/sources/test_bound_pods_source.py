"""The source of `bind-burst`: how many pods each node took."""

from __future__ import annotations

from builders import NOON, named

from dynsched.engine.pod_values import BoundPod
from dynsched.engine.recent import RecentPods
from dynsched.rules.rule_set import BIND_BURST, Rule
from dynsched.sources.bound_pods import BoundPodsSource

RULE = Rule(name=BIND_BURST, source="bound-pods", threshold=2)


async def test_pods_of_a_node_that_was_replaced_do_not_mark_its_successor() -> None:
    """Three pods a moment ago put the new machine under pressure, though it had none of them."""
    nodes = named("a", "b", uid="1")
    bound = RecentPods(120)
    source = BoundPodsSource(
        bound, lambda: nodes, window=lambda: 60.0, clock=lambda: 5.0, now=lambda: NOON
    )

    async def counts() -> dict[str, float]:
        samples = (await source.query(RULE)).samples
        assert {sample.timestamp for sample in samples} == {NOON}
        return {sample.labels["node"]: sample.value for sample in samples}

    assert await counts() == {"a": 0, "b": 0}
    for number in range(3):
        bound.add(BoundPod(str(number), "a"), 1.0)
    assert await counts() == {"a": 3, "b": 0}
    nodes = {**nodes, **named("a", uid="2")}
    assert await counts() == {"a": 0, "b": 0}
    bound.add(BoundPod("new", "a"), 4.0)
    assert await counts() == {"a": 1, "b": 0}


async def test_it_counts_by_its_own_window_what_was_bound_and_has_not_ended() -> None:
    """The pods are remembered for longer than that, for the expected load."""
    now = 0.0
    bound = RecentPods(300)
    source = BoundPodsSource(
        bound, lambda: named("a"), window=lambda: 60.0, clock=lambda: now, now=lambda: NOON
    )

    async def count() -> float:
        (sample,) = (await source.query(RULE)).samples
        return sample.value

    for uid in ("first", "second"):
        bound.add(BoundPod(uid, "a"), 0.0)
    bound.add(BoundPod("asked about", "a", assumed=True), 0.0)
    bound.end(BoundPod("of before", "a"), 0.0)
    assert await count() == 2
    now = 59.0
    bound.end(BoundPod("first", "a"), now)
    assert await count() == 1
    now = 60.0
    assert await count() == 0
