"""Pods that never start, seen by the real process."""

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from fake_prometheus import FakePrometheus
from operator_support import Operator, until, write_rules
from pods_support import PODS, create, pod, start

from dynsched.sim.examples import make_node

pytestmark = pytest.mark.slow

EARLY = {"above_mean": 0, "clear_above_mean": -8, "mean_at_least": 20}
RULE = {"name": "cpu", "expr": "cpu", "threshold": 80, "resource": "cpu"}
RULES = {"rules": [{**RULE, "lag": "3s", "early": EARLY}]}
CPU = {"n0": 78, "n1": 40, "n2": 40, "n3": 40}


class Shown(NamedTuple):
    """What dynsched says: of all pods and nodes, and of the hot one."""

    running: int | None
    marked: list[str]
    bound: float
    expected: float
    tick: int


async def shown(operator: Operator) -> Shown:
    status = json.loads((await operator.get("/status", "application/json"))[1])
    nodes = await operator.nodes()
    load = nodes["nodes"][0]["rules"][0]["expected"] or {"bound": 0.0, "load": 0.0}
    running, tick = status["pods"]["running"], status["tick"]["number"]
    return Shown(running, nodes["node_names"], load["bound"], load["load"], tick)


async def until_shown(operator: Operator, fits: Callable[[Shown], bool], what: str) -> None:
    async def is_so() -> bool:
        return fits(await shown(operator))

    await until(is_so, what)


async def test_pods_that_never_started_do_not_make_a_hot_node_look_empty(sim, tmp_path) -> None:
    """Whoever may create pods could bind some to the hot node that cannot start, wait until they
    count no longer, and delete them: the node lost its mark, and took all new pods.
    """
    for number, name in enumerate(CPU):
        await sim.create_node(make_node(name, number))
    for number in range(40):
        await create(sim, pod(f"runs-{number}", f"n{number % 4}"))
        await start(sim, f"runs-{number}")
    async with FakePrometheus() as prometheus:
        prometheus.set(cpu=CPU)
        flags = ["--kubeconfig", str(sim.kubeconfig), "--prom", prometheus.url, "-s", "0.2"]
        flags += ["-r", str(write_rules(tmp_path, RULES)), "--no-leader-elect"]
        async with Operator(tmp_path, "run", *flags) as operator:
            await operator.until_ready()
            await until_shown(
                operator,
                lambda seen: (seen.running, seen.marked) == (40, ["n0"]),
                "the pods are counted and the hot node is marked",
            )
            for number in range(30):
                await create(sim, pod(f"stuck-{number}", "n0"))
            await until_shown(operator, lambda seen: seen.bound > 0, "the bound pods count")
            await until_shown(
                operator,
                lambda seen: (seen.running, seen.bound) == (70, 0),
                "the metric would show them by now",
            )
            for number in range(30):
                await sim.delete(f"{PODS}/stuck-{number}", {"gracePeriodSeconds": 0})
            await until_shown(operator, lambda seen: seen.running == 40, "they are gone")
            gone_at = (await shown(operator)).tick
            await until_shown(operator, lambda seen: seen.tick > gone_at + 2, "more ticks")
            seen = await shown(operator)
            assert (seen.marked, seen.expected) == (["n0"], 78)
            assert await operator.stop() == 0, operator.log
