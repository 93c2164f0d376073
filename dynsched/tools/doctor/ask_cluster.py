"""Asks the API server what the checks of nodes, pods and rights need. Read-only: lists, gets, and
reviews of rights, which store nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Final

import yaml

from dynsched.kube.client import EVENT_NAMESPACE, KubeClient
from dynsched.kube.inspection import Program, Right, config_map, fold_pods, is_allowed
from dynsched.kube.leases import LEASE_NAME
from dynsched.kube.transport import KubeApi
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.avoiders import Reach
from dynsched.util.errors import ClusterError, ConflictError

AUTOSCALER: Final = "cluster-autoscaler"
KARPENTER: Final = "karpenter"
DESCHEDULER: Final = "descheduler"
PROGRAMS: Final = (AUTOSCALER, KARPENTER, DESCHEDULER)
"""Parts of the names of images, by which the programs are known."""


async def count_pods(client: KubeClient, reach: Reach) -> Reach:
    """Count all running pods into ``reach``. ClusterError."""
    try:
        await fold_pods(client, reach.add)
    except ConflictError:  # the snapshot of a long list expired before its end
        reach.clear()
        await fold_pods(client, reach.add)
    return reach


def needed_rights(rule_set: RuleSet, home: str) -> list[Right]:
    """What dynsched does with these rules, as the roles in manifests/base grant it."""
    leases = "coordination.k8s.io"
    found = [
        *(Right(verb, "nodes") for verb in ("get", "list", "watch", "patch")),
        *(Right(verb, "events", namespace=EVENT_NAMESPACE) for verb in ("create", "patch")),
        Right("create", "leases", leases, home),
        *(Right(verb, "leases", leases, home, LEASE_NAME) for verb in ("get", "update")),
    ]
    if rule_set.uses_expected_load:
        found += [Right(verb, "pods") for verb in ("list", "watch")]
    if asks_metrics_server(rule_set):
        found.append(Right("list", "nodes", "metrics.k8s.io"))
    return found


def asks_metrics_server(rule_set: RuleSet) -> bool:
    return any(rule.source == "metrics-server" for rule in rule_set.rules)


async def refused(api: KubeApi, rights: Iterable[Right]) -> list[Right]:
    allowed = {right: await is_allowed(api, right) for right in rights}
    if None in allowed.values():
        raise ClusterError(f"{api.config.server} makes no reviews of rights (404)")
    return [right for right, is_ours in allowed.items() if not is_ours]


async def policies_of(api: KubeApi, found: Iterable[Program]) -> dict[str, Any]:
    """What stands in the ConfigMaps that a descheduler mounts."""
    places = [
        (each.namespace, name)
        for each in found
        if DESCHEDULER in each.image
        for name in each.config_maps
    ]
    policies = {}
    for namespace, name in places:
        for key, text in (await config_map(api, namespace, name) or {}).items():
            with contextlib.suppress(yaml.YAMLError, RecursionError):
                policies[f"ConfigMap {namespace}/{name}, {key}"] = yaml.safe_load(text)
    return policies
