"""A real kube-scheduler asks: nothing goes onto hot nodes, and no burst onto the coolest one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cluster import NODES, EnvtestCluster
from envtest import Envtest
from fake_prometheus import FakePrometheus
from operator_support import Operator, until, write_rules
from pods_support import PODS, create, pod

from dynsched.sim.nodes import make_node

pytestmark = pytest.mark.slow

NAMES = [f"n{number}" for number in range(10)]
LOADS = {name: 23.0 + number for number, name in enumerate(NAMES[:7])} | dict.fromkeys(
    NAMES[7:], 92.0
)
COUNT = 30


def config(url: str) -> dict[str, Any]:
    """Every score of the scheduler's own off, as with the real-usage scheduler: ours decides."""
    return {
        "extenders": [
            {
                "urlPrefix": url,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 1,
                "enableHTTPS": False,
                "nodeCacheCapable": True,
                "ignorable": True,
                "httpTimeout": "2s",
            }
        ],
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {"score": {"disabled": [{"name": "*"}]}},
            }
        ],
    }


@pytest.mark.parametrize("method", ["linear", "relative", "least"])
async def test_a_burst_of_30_pods(envtest: Envtest, tmp_path: Path, method: str) -> None:
    rules = write_rules(
        tmp_path,
        {
            "mark": {"label": "dynsched.test/unused=true"},
            "rules": [{"name": "mem", "expr": "mem", "threshold": 98, "resource": "memory"}],
            "extender": {"profiles": {"default": {"score": {"mem": 1}, "method": method}}},
        },
    )
    async with EnvtestCluster(envtest, tmp_path) as cluster, FakePrometheus() as prometheus:
        for number, name in enumerate(NAMES):
            await cluster.create_node(make_node(name, number))
        for name in NAMES:  # no kubelet takes the taint of a new node away
            await cluster.patch(f"{NODES}/{name}", {"spec": {"taints": None}})
        prometheus.set(mem=LOADS)
        flags = ["--kubeconfig", str(cluster.kubeconfig), "--prom", prometheus.url]
        flags += ["-r", str(rules), "-s", "1", "--no-leader-elect", "--dry-run"]
        async with Operator(tmp_path, "run", *flags) as operator:
            await operator.until_ready()
            stop = envtest.start_scheduler(config(f"http://{operator.address}"))
            try:
                for number in range(COUNT):
                    await create(cluster, pod(f"p{number}"))

                async def placed() -> Counter[str] | None:
                    items = (await cluster.get(PODS)).ok["items"]
                    nodes = [item["spec"].get("nodeName") for item in items]
                    return Counter(nodes) if all(nodes) else None

                counts = await until(placed, "all pods have a node", seconds=60)
            finally:
                stop()
    assert sum(counts.values()) == COUNT
    assert sum(counts[name] for name in NAMES[7:]) == 0
    assert max(counts.values()) <= 2 * COUNT / 7
