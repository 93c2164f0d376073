"""Asks the API server what the checks of nodes, pods and rights need. Read-only: lists, gets, and
reviews of rights, which store nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from dynsched.engine.avoiders import Reach, reach_of
from dynsched.engine.model import Node
from dynsched.kube.call_metrics import list_node_metrics
from dynsched.kube.client import EVENT_NAMESPACE, KubeClient
from dynsched.kube.holders import find_holders
from dynsched.kube.inspection import Program, Right, config_map, is_allowed, policy, programs
from dynsched.kube.kubeconfig import load_config
from dynsched.kube.leases import LEASE_NAME
from dynsched.kube.pods_listed import fold_pods
from dynsched.kube.transport import KubeApi
from dynsched.rules import keys
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.gathered import ClusterFacts
from dynsched.util.errors import ClusterError, ConflictError

_T = TypeVar("_T")
GUARDRAIL: Final = "dynsched-guardrail"
AUTOSCALER: Final = "cluster-autoscaler"
KARPENTER: Final = "karpenter"
DESCHEDULER: Final = "descheduler"
IMAGES: Final = (AUTOSCALER, KARPENTER, DESCHEDULER)
"""Parts of the names of images, by which the programs are known."""
_TRIES: Final = 2
"""A list of many pods whose snapshot expires before its end is begun once more."""


@contextlib.asynccontextmanager
async def open_client(kubeconfig: Path | None, context: str | None) -> AsyncIterator[KubeClient]:
    """Connections to the API server. ClusterError with one line for a person."""
    client = KubeClient(await load_config(str(kubeconfig) if kubeconfig else None, context))
    try:
        yield client
    finally:
        await client.close()


async def count_pods(client: KubeClient, reach: Reach) -> None:
    """Count all running pods into ``reach``. ClusterError."""
    for attempt in range(1, _TRIES + 1):
        try:
            await fold_pods(client.api, reach.add)
        except ConflictError:
            if attempt == _TRIES:
                raise
            reach.clear()
        else:
            return


async def ask_cluster(
    client: KubeClient, nodes: Mapping[str, Node], rule_set: RuleSet, namespace: str | None
) -> ClusterFacts:
    """All facts about the cluster. Raises nothing for what the server does: what fails is told in
    the facts, and the rest goes on.
    """
    errors: dict[str, str] = {}
    home = namespace or client.config.namespace
    reach = reach_of(rule_set)
    api = client.api

    async def asked(codes: str, question: Awaitable[_T]) -> _T | None:
        try:
            return await question
        except ClusterError as error:
            errors.update(dict.fromkeys(codes.split(), str(error)))
            return None

    is_counted = await asked("W1 W2", _counted(client, reach))
    rights = needed_rights(rule_set, home)
    refused = await asked("K1", _refused(api, rights))
    found = await asked("K2", programs(api, IMAGES)) or []
    metrics = None
    if _asks_metrics_server(rule_set):
        try:
            await list_node_metrics(api)
        except ClusterError as error:
            metrics = str(error)
    return ClusterFacts(
        nodes,
        reach if is_counted else None,
        tuple(refused or ()),
        await asked("N2", _holders(api, namespace, home)),
        await asked("K1", policy(api, "validatingadmissionpolicies", GUARDRAIL)),
        await asked("K1", policy(api, "mutatingadmissionpolicies", keys.AVOID_POLICY)),
        tuple(found),
        await asked("K2", _policies(api, found)) or {},
        await asked("K2", config_map(api, "kube-system", "cilium-config")),
        metrics,
        errors,
    )


def needed_rights(rule_set: RuleSet, home: str) -> tuple[Right, ...]:
    """What dynsched does with these rules, as the roles in manifests/base grant it."""
    found = [
        *(Right(verb, "nodes") for verb in ("get", "list", "watch", "patch")),
        *(Right(verb, "events", namespace=EVENT_NAMESPACE) for verb in ("create", "patch")),
        Right("create", "leases", "coordination.k8s.io", home),
        *(
            Right(verb, "leases", "coordination.k8s.io", home, LEASE_NAME)
            for verb in ("get", "update")
        ),
    ]
    if rule_set.uses_expected_load:
        found += [Right(verb, "pods") for verb in ("list", "watch")]
    if _asks_metrics_server(rule_set):
        found.append(Right("list", "nodes", "metrics.k8s.io"))
    return tuple(found)


def _asks_metrics_server(rule_set: RuleSet) -> bool:
    return any(rule.source == "metrics-server" for rule in rule_set.rules)


async def _counted(client: KubeClient, reach: Reach) -> bool:
    await count_pods(client, reach)
    return True


async def _refused(api: KubeApi, rights: Iterable[Right]) -> list[Right]:
    refused = []
    for right in rights:
        allowed = await is_allowed(api, right)
        if allowed is None:
            raise ClusterError(f"{api.config.server} makes no reviews of rights (404)")
        if not allowed:
            refused.append(right)
    return refused


async def _holders(api: KubeApi, namespace: str | None, own: str) -> tuple[str, ...]:
    return tuple(map(str, await find_holders(api, namespace, own)))


async def _policies(api: KubeApi, found: Iterable[Program]) -> dict[str, Any]:
    """What stands in the ConfigMaps that a descheduler mounts."""
    policies = {}
    for program in found:
        if DESCHEDULER in program.image:
            for name in program.config_maps:
                data = await config_map(api, program.namespace, name)
                for key, text in (data or {}).items():
                    with contextlib.suppress(yaml.YAMLError, RecursionError):
                        place = f"ConfigMap {program.namespace}/{name}, {key}"
                        policies[place] = yaml.safe_load(text)
    return policies
