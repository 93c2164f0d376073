"""The checks of marks on nodes (N2), and of how many pods react to them or to the order (W1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dynsched.core.guard import count_of
from dynsched.core.marks import mark_state
from dynsched.core.nodes import Node, pool_of, why_ineligible
from dynsched.core.wording import by_reason, counted, listed, some
from dynsched.kube.client import KubeClient
from dynsched.kube.leases import find_holders
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.avoiders import count_pods
from dynsched.tools.doctor.findings import Finding, error, hint, warning
from dynsched.tools.policies import LABEL_IT

ENOUGH: Final = 0.5
"""The share of pods that react, below which little load moves."""
SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """What the checks of a cluster are about."""

    client: KubeClient
    rule_set: RuleSet
    nodes: Mapping[str, Node]
    lease_namespace: str | None
    """None where the user named none."""

    @property
    def home(self) -> str:
        """The namespace that dynsched runs in."""
        return self.lease_namespace or self.client.config.namespace

    @property
    def has_order(self) -> bool:
        return self.rule_set.order is not None

    @property
    def asks_metrics_server(self) -> bool:
        return any(rule.source == "metrics-server" for rule in self.rule_set.rules)

    async def holders(self) -> list[str]:
        """A line for each holder of a Lease. ClusterError."""
        return list(map(str, await find_holders(self.client, self.lease_namespace, self.home)))


def foreign_marks(cluster: ClusterContext) -> Iterator[Finding]:
    """Nodes that somebody else's value keeps from being marked."""
    states = {name: mark_state(each, cluster.rule_set.mark) for name, each in cluster.nodes.items()}
    conflicts = {name: state.conflict for name, state in states.items() if state.conflict}
    for why, names in by_reason(conflicts).items():
        yield warning(
            "somebody else uses the key of the mark; dynsched never marks such a node",
            f"{counted(len(names), 'node')}, as {some(sorted(names), SHOWN)}: {why}",
            "choose another mark.label, or remove what was set by hand",
        )


async def orphaned_marks(cluster: ClusterContext) -> AsyncIterator[Finding]:
    """Marks that nobody will release."""
    mark = cluster.rule_set.mark
    marked = sorted(name for name, each in cluster.nodes.items() if mark_state(each, mark).marked)
    if marked and (mark.is_none or not await cluster.holders()):
        yield warning(
            "nodes are marked, and no dynsched is running that would release them",
            f"{counted(len(marked), 'node')}: {some(marked, SHOWN)}; the mark: {mark}",
            "remove the marks with `dynsched prune`, or start dynsched with a mark",
        )


def no_mark_allowed(cluster: ClusterContext) -> Iterator[Finding]:
    """A selector or a limit that allows no mark."""
    nodes, rule_set, guard = cluster.nodes, cluster.rule_set, cluster.rule_set.guard
    if rule_set.mark.is_none:
        return
    eligible = (each for each in nodes.values() if why_ineligible(each, rule_set.nodes) is None)
    pools = Counter(pool_of(node, guard) for node in eligible)
    if nodes and not pools:
        yield error(
            "no node may be marked at all",
            f"{counted(len(nodes), 'node')}; nodes.selector: {rule_set.nodes.selector or 'none'}",
            "correct nodes.selector, or set nodes.include_control_plane",
        )
    none = [
        f"pool {pool} ({count})" if pool else f"{count} nodes"
        for pool, count in sorted(pools.items())
        if count_of(guard.max_marked, count) == 0
    ]
    if none:
        yield warning(
            "guard.max_marked allows no mark: the share of so few nodes is less than one",
            f"max_marked: {guard.max_marked}; {some(none, SHOWN)}",
            "write a number of nodes, such as max_marked: 1",
        )


async def few_react(cluster: ClusterContext) -> AsyncIterator[Finding]:
    """How many pods react, and by which way. A hint with the order: new pods get it (K4)."""
    rule_set, has_order = cluster.rule_set, cluster.has_order
    if rule_set.mark.is_none and not has_order and not rule_set.has_extender:
        return
    reach = await count_pods(cluster.client, rule_set)
    pods, reacting = reach.pods.total(), reach.reacting.total()
    if not pods or reacting >= ENOUGH * pods:
        return
    ways = ", ".join(f"{count} by {way}" for way, count in sorted(reach.ways.items()))
    worst = (reach.pods - reach.reacting).most_common(SHOWN)
    lacking = [f"{namespace} ({count} of {reach.pods[namespace]})" for namespace, count in worst]
    command = LABEL_IT.replace("NAME", worst[0][0])
    install_it = "" if has_order else "apply manifests/base, then "
    yield (hint if has_order else warning if reacting else error)(
        "few pods got the order or avoid marked nodes, so dynsched changes little"
        if reacting
        else "no pod got the order or avoids marked nodes, so dynsched changes nothing",
        f"{reacting} of {counted(pods, 'pod')} with a node{f' ({ways})' if ways else ''}; "
        f"the others are in {listed(lacking)}",
        f"{install_it}`{command}`: only pods that are created after that get the order",
    )
