"""The expressions of what is asked for the page: of kube-state-metrics, of the kubelets (cAdvisor),
and of dynsched's own metrics.

kube-state-metrics may run twice, and then has each series twice: hence ``max by``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dynsched.engine.overload import DAY, DAYS, day_of, name_of
from dynsched.sources.pod_use import OF_POD

USES: Final[Mapping[str, str]] = OF_POD
"""By resource: what each pod uses."""
MAX_PODS: Final = 5
"""Pods of each node, for each resource."""
_LEAST: Final = 300.0
"""Seconds of a day that are worth an average; and between two values that it is taken of."""


def requested(resource: str) -> str:
    """By node: what the pods on it request that have not ended; cores or bytes."""
    return (
        f"sum by (node) ({_requests(resource, 'namespace, pod, uid, container, node')} "
        "unless on (namespace, pod, uid) "
        '(kube_pod_status_phase{phase=~"Succeeded|Failed"} == 1))'
    )


def above(resource: str, nodes: Sequence[str]) -> str:
    """By node, namespace and pod: how much more the pods furthest above their requests use. A pod
    without any request is above it by all that it uses. Where there is none, a sample without
    labels; where pods or their use are not known, nothing.
    """
    on_nodes = f',node=~"{"|".join(name.replace(".", "[.]") for name in nodes)}"'
    of_pod = "namespace, pod, node"
    requests = _requests(resource, f"{of_pod}, container", on_nodes)
    pods = f"max by ({of_pod}) (kube_pod_info{{{on_nodes[1:]}}})"
    least = f"(sum by ({of_pod}) ({requests}) or on ({of_pod}) 0 * {pods})"
    more = f"{USES[resource]} - on (namespace, pod) group_right () {least}"
    known = "count(kube_pod_info) and on () count(container_cpu_usage_seconds_total)"
    return f"topk by (node) ({MAX_PODS}, ({more}) > 0) or on () 0 * ({known})"


def overload(now: float) -> str:
    """By the labels ``day`` and ``namespace``: the share of node-time that was hot, of today and of
    the days before. ``now`` in Unix seconds.
    """
    today = day_of(now)
    parts = []
    for day in range(today - DAYS + 1, today + 1):
        begins = day * DAY
        ends = min(begins + DAY, now)
        if ends - begins < _LEAST:
            continue
        offset = f" offset {now - ends:.0f}s" if now - ends >= 1 else ""
        parts.append(
            f"label_replace(avg_over_time(({_HOT_SHARE})[{ends - begins:.0f}s:{_LEAST:.0f}s]"
            f'{offset}), "day", "{name_of(day)}", "", "")'
        )
    return " or ".join(parts)


_HOT_SHARE: Final = (
    "max by (namespace) (dynsched_pressured_nodes) / on (namespace) "
    "sum by (namespace) (max by (namespace, eligible) (dynsched_nodes))"
)


def _requests(resource: str, labels: str, selector: str = ',node!=""') -> str:
    selected = f'resource="{resource}"{selector}'
    return f"max by ({labels}) ({of_containers(selected)})"


def of_containers(selector: str, over: str = "") -> str:
    """What containers request that run as long as their pod: the main ones and sidecars.

    ``over``: a range of which the last value counts. Other init containers, of which the scheduler
    counts the largest where it is more than all of these, and the pod's overhead are not in it.
    """

    def last(metric: str, selected: str) -> str:
        series = f"{metric}{{{selected}}}{over}"
        return f"last_over_time({series})" if over else series

    main = last("kube_pod_container_resource_requests", selector)
    init = last("kube_pod_init_container_resource_requests", selector)
    sidecars = last("kube_pod_init_container_info", 'restart_policy="Always"')
    return f"({main} or ({init} and on (namespace, pod, uid, container) {sidecars}))"
