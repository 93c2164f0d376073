"""The composition root of `dynsched run`: it knows all parts, and starts and stops them.

What only a flag needs is imported where the flag is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

from prometheus_client import CollectorRegistry

from dynsched.api.metrics import Metrics
from dynsched.api.snapshots import SnapshotStore
from dynsched.controller.loop import Loop
from dynsched.controller.pod_tracking import PodTracking
from dynsched.controller.reporting import report_doubts
from dynsched.controller.serving import serving
from dynsched.controller.settings import Settings
from dynsched.engine.model import Node
from dynsched.engine.snapshot import Snapshot
from dynsched.kube.client import KubeClient, list_node_metrics
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.events import NodeEvents
from dynsched.kube.kubeconfig import KubeConfig, load_config
from dynsched.kube.leader import Elector, SoleWriter
from dynsched.kube.node_watch import NodeWatch
from dynsched.kube.transport import HOST, IDENTITY, KubeApi
from dynsched.rules.file import FixedRules, RulesFile
from dynsched.sources.metrics_server import MetricsServerSource
from dynsched.sources.page_facts import PageFactsSource
from dynsched.sources.pod_use import PodUseSource
from dynsched.sources.prometheus import PrometheusSource
from dynsched.sources.prometheus.answer_limit import answer_limit
from dynsched.util.errors import ClusterError
from dynsched.util.logs import LoopErrors
from dynsched.util.long_running import prepare, tidy_up
from dynsched.util.stopping import until_so

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 1.5
"""Seconds that the parts may take to end after a signal, before they are cancelled."""
RELEASE_SECONDS: Final = 1.0
"""Seconds that the release of the Lease may take; after that, the Lease is left to expire."""


class PartDiedError(ClusterError):
    """A part ended that should not have: the process must end with it."""


class _Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class Connections(contextlib.AsyncExitStack):
    """What is closed at the end, the last one first.

    Each part that calls the API server has connections of its own, so that none waits for another:
    a renewal of the Lease not behind a thousand patches, patches neither behind a metrics-server
    that hangs nor behind made-up tokens, a Binding not behind a watch, which lasts for minutes.
    """

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        super().__init__()
        self._named = kubeconfig, context

    async def open(self, make: Callable[[KubeConfig], C]) -> C:
        # Loaded anew for each: each sets its own limits on it, and renews it.
        made = make(await load_config(*self._named))
        self.push_async_callback(made.close)
        return made

    async def elector(self, settings: Settings) -> Elector:
        api = await self.open(partial(KubeApi, in_flight=2))
        return Elector(
            api,
            namespace=settings.lease_namespace or api.config.namespace,
            identity=f"{HOST}_{settings.pod_uid}" if settings.pod_uid else IDENTITY,
            of_pod=settings.pod_uid is not None,
        )

    def events(self, client: KubeClient, leadership: Elector | SoleWriter) -> NodeEvents:
        events = NodeEvents(client, own=lambda: leadership.lease)
        self.push_async_callback(events.close)
        return events

    def prometheus(
        self,
        settings: Settings,
        rules_file: RulesFile | FixedRules,
        nodes: Callable[[], Mapping[str, Node]],
    ) -> PrometheusSource:
        source = PrometheusSource(
            settings.prometheus,
            limit=lambda: answer_limit(len(nodes()), len(rules_file.rule_set.rules)),
        )
        self.push_async_callback(source.close)
        return source

    async def metrics_server(self, nodes: Callable[[], Mapping[str, Node]]) -> MetricsServerSource:
        api = await self.open(partial(KubeApi, in_flight=1))
        source = MetricsServerSource(partial(list_node_metrics, api), nodes)
        self.push_async_callback(source.close)
        return source


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises an ExpectedError, or whatever a part died of."""
    prepare()
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(LoopErrors())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    rules_file = await asyncio.to_thread(RulesFile, settings.rules)
    report_doubts(rules_file.rule_set)
    async with Connections(settings.kubeconfig, settings.context) as connections:
        leadership: Elector | SoleWriter = SoleWriter(may_write=not settings.dry_run)
        if settings.elects:
            leadership = await connections.elector(settings)
        client = await connections.open(partial(KubeClient, permission=leadership))
        events = connections.events(client, leadership)
        watch = NodeWatch(client)
        cluster = NodeCluster(client, watch)
        source = connections.prometheus(settings, rules_file, cluster.nodes)
        metrics_server = await connections.metrics_server(cluster.nodes)
        pods = await _pod_tracking(connections, settings, rules_file, cluster, source)
        snapshots = SnapshotStore(
            clock=time.monotonic,
            interval=settings.interval,
            source=settings.prometheus.url,
            synced=lambda: cluster.synced,
            metrics=Metrics(CollectorRegistry()),
            node_series=settings.node_metrics,
            leader=lambda: leadership.leader,
            graphs=settings.prometheus.external_url,
            bound=pods.bound,
        )
        page_facts = PageFactsSource(
            source,
            snapshots.facts,
            rule_set=lambda: rules_file.rule_set,
            nodes=cluster.nodes,
            watches_pods=lambda: pods.watches,
            namespace=client.config.namespace,
        )
        reviews = None
        if settings.web_auth:
            from dynsched.kube.reviews import IN_FLIGHT, AccessReviews

            api = await connections.open(partial(KubeApi, in_flight=IN_FLIGHT))
            reviews = AccessReviews(api, settings.web_auth_audience)
        server = await connections.enter_async_context(
            serving(settings, snapshots, pods.extender, reviews)
        )
        logger.info("serving on %s, querying %s", server.url, settings.prometheus.url)

        def publish(snapshot: Snapshot) -> None:
            tidy_up(snapshot.tick)
            snapshots.publish(snapshot, placed=pods.publish(snapshot))

        async def ask_for_the_page() -> None:
            # How large an answer may be depends on the number of nodes, which is 0 until they are
            # listed; what is refused before is asked again after minutes only.
            await until_so(stop, lambda: cluster.synced)
            await page_facts.run(stop)

        loop = Loop(
            rules_file,
            sources={"prometheus": source, "metrics-server": metrics_server},
            histories={"prometheus": source},
            cluster=cluster,
            events=events,
            leadership=leadership,
            publish=publish,
            pods=pods,
            dry_run=settings.dry_run,
        )
        parts = {
            "the watch of nodes": watch.run(stop),
            "the loop": loop.run(stop, settings.interval),
            "the watch of pods": pods.run(stop),
            "the page's questions": ask_for_the_page(),
        }
        await _until_stopped(
            stop,
            [asyncio.create_task(part, name=name) for name, part in parts.items()],
            leadership,
            meanwhile=events.close,
        )


async def _pod_tracking(
    connections: Connections,
    settings: Settings,
    rules_file: RulesFile,
    cluster: NodeCluster,
    source: PrometheusSource,
) -> PodTracking:
    binder = None
    if settings.bind and not settings.dry_run:
        from dynsched.kube.binder import Binder

        # Until the first list is complete, no node is known to be gone.
        binder = await connections.open(
            partial(Binder, is_known=lambda node: not cluster.synced or cluster.has(node))
        )
    return PodTracking(
        await connections.open(partial(KubeApi, in_flight=4)),
        lambda: rules_file.rule_set,
        cluster,
        binder=binder,
        pod_use=PodUseSource(source, lambda: rules_file.rule_set),
    )


async def _until_stopped(
    stop: asyncio.Event,
    parts: Sequence[asyncio.Task[None]],
    leadership: Elector | SoleWriter,
    *,
    meanwhile: Callable[[], Awaitable[None]],
) -> None:
    """Wait for ``stop``; let the parts end. A part that ends earlier ends all, by raising: a
    process that lives on without its loop or its watch is the worst state.

    The Lease is let go of last, when no write can be under way any more; ``meanwhile`` is done
    beside that, for each waits for an API server that may not answer.
    """
    stopping = asyncio.create_task(stop.wait(), name="stop")
    released = asyncio.Event()
    election = asyncio.create_task(leadership.run(released), name="the leader election")
    try:
        await asyncio.wait([stopping, election, *parts], return_when=asyncio.FIRST_COMPLETED)
        died = [part for part in (*parts, election) if part.done()] if not stop.is_set() else []
        stop.set()
        await asyncio.wait(parts, timeout=STOP_SECONDS)
    finally:
        for task in (stopping, *parts):
            task.cancel()
        await asyncio.gather(stopping, *parts, return_exceptions=True)
        await asyncio.gather(end_election(election, released), meanwhile(), return_exceptions=True)
    for part in died:
        part.result()
        raise PartDiedError(f"{part.get_name()} ended unexpectedly")
    logger.info("stopped")


async def end_election(election: asyncio.Task[None], released: asyncio.Event) -> None:
    """Let go of the Lease. To be called when no write is under way any more."""
    released.set()
    await asyncio.wait([election], timeout=RELEASE_SECONDS)
    election.cancel()
    await asyncio.gather(election, return_exceptions=True)
