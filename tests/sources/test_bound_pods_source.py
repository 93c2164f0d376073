"""The source of `bind-burst`: how many pods each node took."""

from __future__ import annotations

from builders import NOON, named

from dynsched.core.bound import BoundPod, BoundPods
from dynsched.core.rules import BIND_BURST, Rule
from dynsched.sources.bound_pods import BoundPodsSource

RULE = Rule(name=BIND_BURST, source="bound-pods", threshold=2)


async def test_pods_of_a_node_that_was_replaced_do_not_mark_its_successor() -> None:
    """Three pods a moment ago put the new machine under pressure, though it had none of them."""
    nodes = named("a", "b", uid="1")
    bound = BoundPods(60)
    source = BoundPodsSource(bound, lambda: nodes, clock=lambda: 5.0, now=lambda: NOON)

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
