"""Pod tracking: the last use of pods that have ended."""

import asyncio
from types import SimpleNamespace

import pytest
from api_support import api_of
from builders import NOON, rule, rule_set
from pods_support import PODS, create, pod, reached, start
from source_support import Fake, vector

from dynsched.controller.pod_tracking import PodTracking
from dynsched.core.evaluate import evaluate
from dynsched.core.nodes import Node
from dynsched.core.samples import QueryResult, Sample
from dynsched.rules.file import FixedRules
from dynsched_sim.examples import make_node

BURNED = [f"default/burn-{number}" for number in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threshold", "at_last", "takes_off"),
    [(99, 0.0, 0.0), (80, 0.6, 12.0)],
    ids=["idle at last", "on a hot node"],
)
async def test_an_ended_pod_takes_off_what_it_used_last(
    cluster, threshold: float, at_last: float, takes_off: float
) -> None:
    """Three pods burned CPU, then idled. When they ended, taking off their five-minute mean made a
    node at 94 % the coolest. A hot node falls at most to 10 points below the mean load (92).
    """

    def each(use: float) -> QueryResult:
        names = [name.split("/") for name in BURNED]
        return vector(*(({"namespace": space, "pod": name}, use) for space, name in names))

    prometheus = Fake(timestamp=vector(), irate=each(at_last), container=each(0.6))
    rules = rule_set(rule(threshold=threshold, expr="rate(x[10m])", resource="cpu", by="expected"))
    nodes = {name: Node(name, allocatable={"cpu": 8.0}) for name in ("hot", "other")}
    values = {"hot": 94.0, "other": 90.0}
    await cluster.create_node(make_node("hot", 0))
    for name in BURNED:
        await create(cluster, pod(name.split("/")[1], "hot"))
        await start(cluster, name.split("/")[1])
    stop, follows = asyncio.Event(), SimpleNamespace(synced=True, nodes=lambda: nodes)
    async with api_of(cluster.kubeconfig) as api:
        tracking = PodTracking(
            *(api, FixedRules(rules), follows, prometheus),  # type: ignore[arg-type]
        )
        running = asyncio.create_task(tracking.run(stop))
        await reached(lambda: tracking.known().running, 3)
        await reached(lambda: len(tracking.known().use_of_pods.get("cpu", ())), 3)
        for name in BURNED:
            await cluster.delete(f"{PODS}/{name.split('/')[1]}", {"gracePeriodSeconds": 0})
        ended = {"cpu": dict.fromkeys(BURNED, at_last)}
        await reached(lambda: tracking.known().use_of_ended, ended)
        samples = tuple(Sample({"node": name}, value, NOON) for name, value in values.items())
        answers = {"cpu": QueryResult(samples)}
        found = evaluate(rules, answers, nodes, None, NOON, pods=tracking.known())
        stop.set()
        await running
    assert found.expected["cpu"].added["hot"].ended == pytest.approx(takes_off)
