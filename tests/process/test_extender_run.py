"""The extender of a real `dynsched run`, called like a scheduler calls it, and pod metrics."""

import json
import re
from typing import Any

import aiohttp
import pytest
from operator_support import Operator, until
from pods_support import PODS, create, pod, reached
from scheduling_support import dynsched

pytestmark = pytest.mark.slow

RULES = {
    "rules": [{"name": "cpu", "expr": "cpu", "threshold": 80, "resource": "cpu"}],
    "extender": {"reject": ["cpu"], "profiles": {"default": {"score": {"cpu": 1}}}},
}


async def post(operator: Operator, path: str, body: Any) -> Any:
    url = f"http://{operator.address}{path}"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        assert answer.status == 200, await answer.text()
        return json.loads(await answer.text())


async def test_its_responses_follow_the_measured_load_and_recently_bound_pods(
    cluster, prometheus, tmp_path
) -> None:
    await cluster.create_nodes(*"abc")
    prometheus.set(cpu={"a": 10, "b": 40, "c": 95})
    async with dynsched(
        cluster, prometheus, tmp_path, RULES, "--bind", "--no-leader-elect"
    ) as operator:

        async def scores() -> dict[str, int]:
            found = await post(operator, "/prioritize", {"NodeNames": ["a", "b", "c"]})
            return {entry["Host"]: entry["Score"] for entry in found}

        await reached(scores, {"a": 10, "b": 7, "c": 0})
        found = await post(operator, "/scheduler/filter", {"NodeNames": ["a", "b", "c"]})
        assert found["NodeNames"] == ["a", "b"]
        assert found["FailedAndUnresolvableNodes"] == {"c": "node load high: cpu > 80"}

        binding = {"PodName": "none", "PodNamespace": "default", "PodUID": "u", "Node": "a"}
        assert (await post(operator, "/bind", binding))["Error"]
        uid = (await create(cluster, pod("placed")))["metadata"]["uid"]
        placed = {**binding, "PodName": "placed", "PodUID": uid}
        assert await post(operator, "/bind", placed) == {"Error": ""}
        assert (await cluster.get(f"{PODS}/placed")).ok["spec"]["nodeName"] == "a"

        for number in range(3):
            await create(cluster, pod(f"burst-{number}", "a", cpu="100m"))

        async def counted() -> bool:
            return (await scores())["b"] > 7

        await until(counted, "the bound pods are counted")

        await create(cluster, pod("on-hot", "c"))

        async def placed_pods() -> dict[str, float]:
            text = (await operator.get("/metrics"))[1]
            found = re.findall(
                r'^dynsched_pods_placed_total{node_state="(\w+)"} (\S+)', text, re.MULTILINE
            )
            return {state: float(count) for state, count in found}

        async def all_counted() -> bool:
            return sum((await placed_pods()).values()) == 5

        await until(all_counted, "each pod is counted once")
        assert (await placed_pods())["hot"] >= 1
        assert await operator.stop() == 0, operator.log
