"""Asks the API server what the checks of nodes, pods and rights need. Read-only: lists, gets, and
reviews of rights, which store nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final, TypeVar

import yaml

from dynsched.engine.model import Node
from dynsched.kube.client import EVENT_NAMESPACE, KubeClient, list_node_metrics
from dynsched.kube.inspection import (
    Program,
    Right,
    config_map,
    fold_pods,
    is_allowed,
    policy,
    programs,
)
from dynsched.kube.leases import LEASE_NAME, find_holders
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.avoiders import Reach, reach_of
from dynsched.tools.doctor.gathered import AUTOSCALER, DESCHEDULER, KARPENTER, ClusterFacts
from dynsched.util.errors import ClusterError, ConflictError

_T = TypeVar("_T")
GUARDRAIL: Final = "dynsched-guardrail"


async def count_pods(client: KubeClient, reach: Reach) -> Reach:
    """Count all running pods into ``reach``. ClusterError."""
    try:
        await fold_pods(client, reach.add)
    except ConflictError:  # the snapshot of a long list expired before its end
        reach.clear()
        await fold_pods(client, reach.add)
    return reach


async def ask_cluster(
    client: KubeClient, nodes: Mapping[str, Node], rule_set: RuleSet, namespace: str | None
) -> ClusterFacts:
    """All facts about the cluster. Raises nothing for what the server does: what fails is told in
    the facts, and the rest goes on.
    """
    errors: dict[str, str] = {}
    home = namespace or client.config.namespace
    api = client

    async def asked(codes: str, question: Awaitable[_T]) -> _T | None:
        try:
            return await question
        except ClusterError as error:
            errors.update(dict.fromkeys(codes.split(), str(error)))
            return None

    found = await asked("K2", programs(api, (AUTOSCALER, KARPENTER, DESCHEDULER))) or []
    # That metrics-server does not answer is a finding, and no check that was not made.
    if _asks_metrics_server(rule_set):
        await asked("metrics", list_node_metrics(api))
    holders = await asked("N2", find_holders(api, namespace, home))
    return ClusterFacts(
        nodes,
        reach=await asked("W1 W2", count_pods(client, reach_of(rule_set))),
        refused=await asked("K1", _refused(api, needed_rights(rule_set, home))) or (),
        holders=None if holders is None else tuple(map(str, holders)),
        guardrail=await asked("K1", policy(api, "validatingadmissionpolicies", GUARDRAIL)),
        injection=await asked("K1", policy(api, "mutatingadmissionpolicies", keys.AVOID_POLICY)),
        programs=found,
        policies=await asked("K2", _policies(api, found)) or {},
        cilium=await asked("K2", config_map(api, "kube-system", "cilium-config")),
        metrics=errors.pop("metrics", None),
        errors=errors,
    )


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
    if _asks_metrics_server(rule_set):
        found.append(Right("list", "nodes", "metrics.k8s.io"))
    return found


def _asks_metrics_server(rule_set: RuleSet) -> bool:
    return any(rule.source == "metrics-server" for rule in rule_set.rules)


async def _refused(api: KubeApi, rights: Iterable[Right]) -> list[Right]:
    allowed = {right: await is_allowed(api, right) for right in rights}
    if None in allowed.values():
        raise ClusterError(f"{api.config.server} makes no reviews of rights (404)")
    return [right for right, is_ours in allowed.items() if not is_ours]


async def _policies(api: KubeApi, found: Iterable[Program]) -> dict[str, Any]:
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
