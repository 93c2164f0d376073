"""Clients of the API server and Prometheus, made from the settings and closed together."""

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
"""Seconds in which the Lease must be released; after that, it is left to expire."""


C = TypeVar("C", bound=KubeApi)


class Clients(contextlib.AsyncExitStack):
    """Opens clients, and closes them in reverse order.

    Each part that calls the API server has separate connections: the renewal of the Lease must not
    wait behind a thousand patches, nor patches behind a metrics-server that hangs. All share the
    same credentials.
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
        """Events about dynsched itself are posted on its pod, or else on its Lease, if any."""
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
    """Release the Lease. If running writes take longer than RELEASE_SECONDS, leave it to expire."""
    released.set()
    await asyncio.wait([election], timeout=RELEASE_SECONDS)
    election.cancel()
    await asyncio.gather(election, return_exceptions=True)
