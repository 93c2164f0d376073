"""Replicas of dynsched as processes: how to start one, and how to read its status."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster import Cluster
from fake_prometheus import FakePrometheus
from operator_support import Operator, until, write_rules

OPEN: Mapping[str, Any] = {"max_marked": "100%", "max_releases": "100%"}
"""A guard without limits."""
HOT, COOL = 91.0, 12.0


def rules(**rule: Any) -> dict[str, Any]:
    """A rules file with one rule, ``load`` > 80."""
    return {"guard": OPEN, "rules": [{"name": "load", "expr": "load", "threshold": 80, **rule}]}


def replica(
    cluster: Cluster,
    prometheus: FakePrometheus,
    folder: Path,
    *more: str,
    kubeconfig: Path | None = None,
    content: Mapping[str, Any] | None = rules(),
    stderr: int | None = None,
) -> Operator:
    """A replica that is not started yet. ``content`` None: use the rules file that exists."""
    flags = ("--kubeconfig", str(kubeconfig or cluster.kubeconfig), "--prom", prometheus.url)
    file = folder / "rules.yaml" if content is None else write_rules(folder, content)
    flags += ("-r", str(file), "--interval", "0.5")
    return Operator(folder, "run", *flags, *more, stderr=stderr)


async def status(operator: Operator) -> dict[str, Any]:
    code, text = await operator.get("/status", "application/json")
    found: dict[str, Any] = json.loads(text) if code else {}
    return found


async def until_status(operator: Operator, fits: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Wait until the /status of a tick satisfies ``fits``; returns it."""

    async def found() -> dict[str, Any] | None:
        answer = await status(operator)
        return answer if answer.get("tick") and fits(answer) else None

    answer: dict[str, Any] = await until(found, "/status")
    return answer


async def metric(operator: Operator, name: str) -> float | None:
    _, text = await operator.get("/metrics")
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


async def leads(operator: Operator) -> bool:
    return bool((await status(operator)).get("leading"))


async def some_ticks(operator: Operator, number: int = 4) -> None:
    """Wait for ``number`` more ticks."""
    last = (await until_status(operator, bool))["tick"]["number"] + number
    await until_status(operator, lambda found: found["tick"]["number"] >= last)


async def marked(cluster: Cluster) -> list[str]:
    return [node["metadata"]["name"] for node in await cluster.list_nodes("status=presure")]


async def is_marked(cluster: Cluster, *names: str) -> bool:
    return set(await marked(cluster)) == set(names)
