"""`dynsched order`: what the policy of the order told a pod, and where it went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console

from dynsched.engine.model import Level
from dynsched.kube.inspection import core
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys
from dynsched.tools.inject.installed import LABEL_IT, exemption, order_problems, preferences
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import as_mapping
from dynsched.util.tables import make_table, plain, show

_BY_NAME: Final = [("kubernetes.io/hostname", "In")]
_COOLEST: Final = 100
"""The weight of the first level."""


async def pod_told(api: KubeApi, namespace: str, name: str) -> dict[str, Any]:
    """``level``: the number of the one that has the pod's node; ``why_not``: no order was given.
    Raises ClusterError, and ExpectedError where there is no such pod.
    """
    pod = await core(api, "pods", name, namespace)
    if pod is None:
        raise ExpectedError(f"there is no pod {name} in namespace {namespace}; choose it with -n")
    until = as_mapping(pod["metadata"].get("annotations")).get(keys.ORDER_ANNOTATION)
    levels, node = _levels(pod) if until else [], pod["spec"].get("nodeName")
    return {
        "namespace": namespace,
        "pod": name,
        "until": until,
        "levels": [level._asdict() for level in levels],
        "node": node,
        "level": next((n for n, level in enumerate(levels, 1) if node in level.nodes), None),
        "why_not": None if until else await _why_not(api, pod),
    }


def _levels(pod: Mapping[str, Any]) -> list[Level]:
    """What the policy appended to the preferences of the pod's own."""
    found: list[Level] = []
    for weight, wanted in preferences(pod):
        if [(each.get("key"), each.get("operator")) for each in wanted] == _BY_NAME:
            found = [] if weight == _COOLEST else found
            found.append(Level(weight, tuple(wanted[0].get("values") or ())))
    return found


async def _why_not(api: KubeApi, pod: Mapping[str, Any]) -> str:
    if why := exemption(pod):
        return why
    metadata = pod["metadata"]
    namespace = await core(api, "namespaces", metadata["namespace"])
    asks = as_mapping(namespace["metadata"].get("labels")).get(keys.AVOID_LABEL)
    if asks != "true":
        return f"its namespace does not ask: {LABEL_IT.replace('NAME', metadata['namespace'])}"
    for what, fix in await order_problems(api):
        return f"{what}: {fix}"
    created = metadata.get("creationTimestamp")
    return f"when it was created ({created}) there was none, or its namespace did not ask yet"


def render_told(told: Mapping[str, Any], console: Console) -> None:
    name, node = f"{told['namespace']}/{told['pod']}", told["node"]
    if told["why_not"]:
        show(console, plain(f"{name} did not get the order: {told['why_not']}"))
        return
    went = f"it went to {node}, which is in no level" if node else "it has no node yet"
    if told["level"]:
        went = f"it went to {node}, of level {told['level']}"
    show(console, plain(f"{name} got the order that was in force until {told['until']}; {went}."))
    table = make_table("LEVEL", "WEIGHT", "NODE")
    for number, level in enumerate(told["levels"], 1):
        table.add_row(*map(plain, (str(number), str(level["weight"]), ", ".join(level["nodes"]))))
    show(console, table)
