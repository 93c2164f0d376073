"""The clients of the API server and of Prometheus, made from the settings and closed together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from dynsched.controller.settings import Settings
from dynsched.core.nodes import Node
from dynsched.kube.client import KubeClient, list_node_metrics
from dynsched.kube.credentials import CredentialProvider
from dynsched.kube.events import NodeEvents, Subject
from dynsched.kube.leader import Elector, NoElection
from dynsched.kube.transport import HOST, IDENTITY, KubeApi
from dynsched.rules.file import FixedRules, RulesFile
from dynsched.sources.metrics_server import MetricsServerSource
from dynsched.sources.prometheus import PrometheusSource
from dynsched.sources.prometheus.decode import answer_limit

RELEASE_SECONDS: Final = 1.0
"""Seconds that the release of the Lease may take; after that, the Lease is left to expire."""


C = TypeVar("C", bound=KubeApi)


class Clients(contextlib.AsyncExitStack):
    """What is closed at the end, the last one first. Each part that calls the API server has
    connections of its own, so that none waits for another: a renewal of the Lease not behind a
    thousand patches, patches not behind a metrics-server that hangs. They share their credentials.
    """

    def __init__(self, credentials: CredentialProvider) -> None:
        super().__init__()
        self._credentials = credentials

    def open(self, make: Callable[[CredentialProvider], C]) -> C:
        made = make(self._credentials)
        self.push_async_callback(made.close)
        return made

    def leadership(self, settings: Settings) -> Elector | NoElection:
        if not settings.elects:
            return NoElection(may_write=not settings.dry_run)
        api = self.open(partial(KubeApi, in_flight=2))
        return Elector(
            api,
            namespace=settings.lease_namespace or api.config.namespace,
            identity=f"{HOST}_{settings.pod_uid}" if settings.pod_uid else IDENTITY,
        )

    def events(
        self, client: KubeClient, leadership: Elector | NoElection, pod_uid: str | None
    ) -> NodeEvents:
        """Those about dynsched itself are on its pod; elsewhere on the Lease, if there is one."""
        pod = pod_uid and Subject("Pod", HOST, pod_uid, namespace=client.config.namespace)
        events = NodeEvents(client, own=lambda: pod or leadership.lease)
        self.push_async_callback(events.close)
        return events

    def prometheus(
        self,
        settings: Settings,
        rules_file: RulesFile | FixedRules,
        nodes: Callable[[], Mapping[str, Node]],
    ) -> PrometheusSource:
        return PrometheusSource(
            settings.prometheus,
            limit=lambda: answer_limit(len(nodes()), len(rules_file.in_force.rules)),
        )

    def metrics_server(self, nodes: Callable[[], Mapping[str, Node]]) -> MetricsServerSource:
        api = self.open(partial(KubeApi, in_flight=2))  # a rule for CPU, and one for memory
        return MetricsServerSource(partial(list_node_metrics, api), nodes)


async def end_election(election: asyncio.Task[None], released: asyncio.Event) -> None:
    """Release the Lease; where writes under way last longer than that may take, leave it."""
    released.set()
    await asyncio.wait([election], timeout=RELEASE_SECONDS)
    election.cancel()
    await asyncio.gather(election, return_exceptions=True)
