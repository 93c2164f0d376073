"""The page's data from the real process: what it asks of Prometheus once somebody looks, and which
pods were just bound.
"""

import itertools
from typing import Any

import aiohttp
import pytest
from operator_support import until
from pods_support import create, pod
from scheduling_support import dynsched

from dynsched.sources import page_queries
from dynsched_sim.examples import make_node

pytestmark = pytest.mark.slow

CORES = 7.91
"""What each node of the simulator has."""
RULES = {
    "rules": [{"name": "cpu", "expr": "cpu", "threshold": 80, "resource": "cpu"}],
    "extender": {},
}


async def test_what_the_page_shows_of_pods_comes_from_prometheus_and_from_the_watch(
    sim, prometheus, tmp_path
) -> None:
    await sim.create_node(make_node("a", 0))
    prometheus.set(**{"cpu": {"a": 10}, page_queries.requested("cpu"): {"a": CORES / 2}})
    async with dynsched(sim, prometheus, tmp_path, RULES, "--no-leader-elect") as operator:

        async def ask(path: str) -> Any:
            url = f"http://{operator.address}/page/{path}"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return await answer.json()

        async def is_requested() -> bool:
            return (await ask("node?node=a"))["requested"] == {"cpu": 50.0}

        await until(is_requested, "what pods request is shown")

        numbers = itertools.count()

        async def is_bound() -> bool:
            # Again and again: the watch of pods tells only of those that are bound from now on.
            await create(sim, pod(f"placed-{next(numbers)}", "a", cpu="250m"))
            found = (await ask("node?node=a"))["bound"]["pods"]
            return any(
                each["pod"].startswith("default/placed-") and each["cpu"] == 0.25 for each in found
            )

        await until(is_bound, "the bound pod is listed")
        assert await operator.stop() == 0, operator.log
