"""A snapshot of a cluster for `dynsched top`: what its nodes use, what their pods request, and the
order in which new pods would prefer the nodes. A note reports what could not be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dynsched.controller.settings import Settings
from dynsched.controller.single_pass import one_pass
from dynsched.core.load.expected import KnownPods
from dynsched.core.load.pods import PodRequestTotals
from dynsched.core.tick import Tick
from dynsched.features.found_prometheus import found_or_named
from dynsched.features.order.ranks import compute_order, host_names, why_not_listed
from dynsched.features.order.status import NodeInOrder, nodes_of
from dynsched.kube.client import KubeClient
from dynsched.kube.credentials import load_credentials
from dynsched.kube.inspection import PodTotals, pod_totals
from dynsched.rules.shipped import shipped_rules
from dynsched.util.errors import ClusterError


@dataclass(frozen=True)
class Overview:
    """``source``: where the values of nodes come from; None if there are none, also in ``tick``.
    ``pods``: None if they could not be listed. ``notes``: what is missing, and why.
    """

    cluster: str
    tick: Tick
    source: str | None
    pods: Mapping[str, PodTotals] | None
    notes: list[str]

    def places(self) -> dict[str, NodeInOrder | str]:
        """By node name: its place in the order that new pods would get, or why it has none. Empty
        if no node is known to be cool.
        """
        requested = {name: PodRequestTotals(*each[:3]) for name, each in (self.pods or {}).items()}
        evaluation, pods = self.tick.evaluation, KnownPods(requested=requested)
        order = compute_order(evaluation, pods)
        if order is None:
            return {}
        hosts = host_names(evaluation.table.nodes.values())
        listed = {place.node: place for place in nodes_of(order, "")}
        return {
            name: listed.get(hosts.get(name, ""))
            or why_not_listed(evaluation, pods, name, hosts)
            or "last"
            for name in evaluation.table.entries
        }


async def look(settings: Settings) -> Overview:
    """Evaluate the rules shipped with dynsched. Raises ClusterError if nodes cannot be listed."""
    credentials = await load_credentials(settings.kubeconfig, settings.context)
    notes: list[str] = []

    async def measure() -> tuple[Tick, str | None]:
        """Use Prometheus if it has values of these nodes, otherwise metrics-server."""
        lines: list[str] = []
        prometheus = await found_or_named(client, settings.prometheus, lines.append)
        if prometheus is None:
            notes.extend(lines)
        else:
            with_prometheus = replace(settings, prometheus=prometheus)
            tick = await one_pass(credentials, with_prometheus, shipped_rules())
            source = lines[0] if lines else f"Prometheus at {prometheus.url}"
            if (why := _why_blind(tick, source)) is None:
                return tick, source
            notes.append(why)
        tick = await one_pass(credentials, settings, shipped_rules(by_metrics_server=True))
        if (why := _why_blind(tick, "metrics-server")) is None:
            return tick, "metrics-server"
        notes.append(why)
        return tick, None

    async def count_pods() -> Mapping[str, PodTotals] | None:
        try:
            return await pod_totals(client)
        except ClusterError as error:
            notes.append(f"Requests, limits and pods are not known: {_in_short(str(error))}")
            return None

    async with KubeClient(credentials) as client:
        (tick, source), pods = await asyncio.gather(measure(), count_pods())
        return Overview(client.config.cluster, tick, source, pods, notes)


def _why_blind(tick: Tick, source: str) -> str | None:
    """Why no rule has a value of any node; None if one has."""
    alerts = (alert for of_node in tick.evaluation.alerts.values() for alert in of_node.values())
    if any(alert.good_value is not None for alert in alerts):
        return None
    blind = f"{source}: no values of these nodes"
    return _in_short(tick.rules[0].error or blind)


def _in_short(error: str) -> str:
    """The error, or only the missing permission if that is the cause."""
    return f"you {error.partition(':')[0]}" if error.startswith("may not ") else error
