"""`dynsched run` with a kubeconfig whose credentials come from an exec plugin."""

from typing import Any

import pytest
from api_support import ExecPlugin
from cluster import SimCluster
from operator_support import until
from replica_support import leads, replica, rules, some_ticks, until_status

from dynsched_sim.examples import make_node

pytestmark = pytest.mark.slow

LASTS = 6.0
RULES = {**rules(), "order": {"score": {"load": 1}}, "extender": {}}


async def test_the_plugin_runs_once_at_the_start_and_once_per_renewal(prometheus, tmp_path) -> None:
    async with SimCluster(tmp_path, token="first-secret") as sim:
        await sim.create_node(make_node("a", 0))
        prometheus.set(load={"a": 10, "b": 10})
        plugin = ExecPlugin(tmp_path, sim, lasts=LASTS)
        of_plugin: dict[str, Any] = {"kubeconfig": plugin.kubeconfig, "content": RULES}
        async with replica(sim, prometheus, tmp_path, "--bind", **of_plugin) as operator:
            await operator.until_ready()
            await until(lambda: len(plugin.runs) > 1, "the first token has expired")
            first, second = plugin.runs
            assert second - first > LASTS - 1

            sim.server.token = sim.token = plugin.token = "second-secret"
            assert sim.server.drop_watches("cut") > 0
            await sim.create_node(make_node("b", 1))
            await until_status(operator, lambda found: found["nodes"]["eligible"] == 2)
            await until(lambda: leads(operator), "the Lease is renewed")
            await some_ticks(operator)
            assert len(plugin.runs) == 3
            assert await operator.stop() == 0, operator.log
