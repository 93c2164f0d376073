"""Replicas of dynsched, as processes: how to start one, and what each says of itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cluster import Cluster, Write
from fake_prometheus import FakePrometheus
from operator_support import Operator, write_rules

from dynsched.core.lease import LeaseTimes

TIMES = LeaseTimes()
INTERVAL = 0.5
RULES = {
    "guard": {"max_marked": "100%", "max_releases": "100%"},
    "rules": [{"name": "load", "expr": "load", "threshold": 80}],
}
AGENT = re.compile(r"dynsched/\S+ \((\S+)\)")


def replica(cluster: Cluster, prometheus: FakePrometheus, folder: Path, *more: str) -> Operator:
    """One that can be started."""
    flags = ("--kubeconfig", str(cluster.kubeconfig), "--prom", prometheus.url)
    rules = ("-r", str(write_rules(folder, RULES)))
    return Operator(folder, "run", *flags, *rules, "--interval", str(INTERVAL), *more)


def writer(write: Write) -> str:
    """The identity of the process that sent it."""
    found = AGENT.fullmatch(write.user_agent)
    assert found is not None, write.user_agent
    return found[1]


async def status(operator: Operator) -> dict[str, Any]:
    code, text = await operator.get("/status", "application/json")
    found: dict[str, Any] = json.loads(text) if code else {}
    return found


async def leads(operator: Operator) -> bool:
    return bool((await status(operator)).get("leading"))


async def marked(cluster: Cluster) -> set[str]:
    return {node["metadata"]["name"] for node in await cluster.list_nodes("status=presure")}


async def is_marked(cluster: Cluster, *names: str) -> bool:
    return await marked(cluster) == set(names)
