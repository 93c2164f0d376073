"""The composition root: the one module that knows all parts, and starts and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from dynsched.api.metrics import Metrics
from dynsched.api.snapshots import SnapshotStore
from dynsched.controller.apply import Written, write_all
from dynsched.controller.loop import Loop
from dynsched.controller.pod_tracking import Extension
from dynsched.controller.reporting import report_doubts
from dynsched.controller.serving import serving
from dynsched.controller.settings import Settings
from dynsched.controller.sole_writer import RELEASE_SECONDS, leading, refuse_pass, refuse_prune
from dynsched.engine.model import Node
from dynsched.engine.plan import plan_prune
from dynsched.engine.snapshot import Snapshot
from dynsched.kube.binder import Binder
from dynsched.kube.call_metrics import list_node_metrics
from dynsched.kube.client import KubeClient, WritePermission
from dynsched.kube.cluster import ListedCluster, NodeCluster
from dynsched.kube.events import NodeEvents
from dynsched.kube.kubeconfig import KubeConfig, load_config
from dynsched.kube.leader import Elector, SoleWriter
from dynsched.kube.leases import why_at_work
from dynsched.kube.list_watch import StreamingApi
from dynsched.kube.node_watch import NodeWatch
from dynsched.kube.reviews import IN_FLIGHT, AccessReviews
from dynsched.kube.transport import HOST, IDENTITY, KubeApi
from dynsched.rules import keys
from dynsched.rules.file import FixedRules, RulesFile, load_rules
from dynsched.rules.labels import Mark, parse_label
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


class PartDiedError(ClusterError):
    """A part ended that should not have: the process must end with it."""


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises an ExpectedError, or whatever a part died of."""
    prepare()
    asyncio.run(_serve(settings))


def run_once(settings: Settings) -> Snapshot:
    """One tick on the nodes as they are listed now, without a watch or a server. Where it writes
    and takes part in the election, it holds the Lease meanwhile; AtWorkError while another does.
    """
    # Before the loop: a pipe is waited for, and Ctrl-C should end that.
    rules_file = FixedRules(load_rules(settings.rules))
    return asyncio.run(_once(settings, rules_file))


@dataclass(frozen=True, slots=True)
class Prune:
    """The options of `dynsched prune`; ``kubeconfig``, ``context``, ``lease_namespace`` as in
    Settings.
    """

    kubeconfig: Path | None = None
    rules: Path | None = None
    """The rules file that defines the mark; None: the default mark. In both cases, marks that the
    evidence on the nodes names are removed too."""
    dry_run: bool = False
    """Whether nothing is removed."""
    lease_older_than: float | None = None
    """Seconds: prune only if the Lease has not been renewed for this long or does not exist."""
    lease_namespace: str | None = None
    force: bool = False
    """Whether to prune even while the Lease is held; only without ``lease_older_than``."""
    context: str | None = None


def prune(order: Prune) -> Written:
    """Remove everything that was ever put on nodes. AtWorkError while an instance is running."""
    return asyncio.run(_prune(order))


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(LoopErrors())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    rules_file = await asyncio.to_thread(RulesFile, settings.rules)
    report_doubts(rules_file.rule_set)
    async with contextlib.AsyncExitStack() as stack:
        elector = None
        if settings.leader_elect and not settings.dry_run:  # a dry run must not keep others waiting
            elector = await stack.enter_async_context(_elector(settings))
        leadership = elector or SoleWriter(may_write=not settings.dry_run)
        client = await stack.enter_async_context(_client(settings, leadership))
        events = NodeEvents(client, own=lambda: elector.lease if elector else None)
        stack.push_async_callback(events.close)
        watch = NodeWatch(client)
        cluster = NodeCluster(client, watch)
        source = _prometheus(settings, rules_file, cluster.nodes)
        stack.push_async_callback(source.close)
        metrics_server = await stack.enter_async_context(_metrics_server(settings, cluster.nodes))
        pod_use = PodUseSource(source, lambda: rules_file.rule_set)
        extension = await stack.enter_async_context(
            _extension(settings, rules_file, cluster, pod_use)
        )
        snapshots = SnapshotStore(
            clock=time.monotonic,
            interval=settings.interval,
            source=settings.prometheus.url,
            synced=lambda: cluster.synced,
            metrics=Metrics(CollectorRegistry()),
            node_series=settings.node_metrics,
            leader=lambda: elector.leader if elector else None,
            graphs=settings.prometheus.external_url,
            bound=extension.bound,
        )
        page_facts = PageFactsSource(
            source,
            snapshots.facts,
            rule_set=lambda: rules_file.rule_set,
            nodes=cluster.nodes,
            watches_pods=lambda: extension.watches,
            namespace=client.config.namespace,
        )
        reviews = await stack.enter_async_context(_reviews(settings)) if settings.web_auth else None
        server = await stack.enter_async_context(
            serving(settings, snapshots, extension.extender, reviews)
        )
        logger.info("serving on %s, querying %s", server.url, settings.prometheus.url)
        loop = Loop(
            rules_file,
            sources={"prometheus": source, "metrics-server": metrics_server},
            histories={"prometheus": source},
            cluster=cluster,
            events=events,
            leadership=leadership,
            publish=lambda snapshot: _publish(snapshot, snapshots, extension),
            pods=extension,
            dry_run=settings.dry_run,
        )
        parts = {
            "the watch of nodes": watch.run(stop),
            "the loop": loop.run(stop, settings.interval),
            "the watch of pods": extension.run(stop),
            "the page's questions": _ask_once_synced(stop, cluster, page_facts),
        }
        await _until_stopped(
            stop,
            [asyncio.create_task(part, name=name) for name, part in parts.items()],
            elector,
            meanwhile=events.close,
        )


async def _ask_once_synced(
    stop: asyncio.Event, cluster: NodeCluster, page_facts: PageFactsSource
) -> None:
    """How large an answer may be depends on the number of nodes, which is 0 until they are listed;
    what is refused before is asked again after minutes only.
    """
    await until_so(stop, lambda: cluster.synced)
    await page_facts.run(stop)


async def _until_stopped(
    stop: asyncio.Event,
    parts: Sequence[asyncio.Task[None]],
    elector: Elector | None,
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
    election = asyncio.create_task(
        elector.run(released) if elector else released.wait(), name="the leader election"
    )
    try:
        await asyncio.wait([stopping, election, *parts], return_when=asyncio.FIRST_COMPLETED)
        died = [part for part in (*parts, election) if part.done()] if not stop.is_set() else []
        stop.set()
        await asyncio.wait(parts, timeout=STOP_SECONDS)
    finally:
        for task in (stopping, *parts):
            task.cancel()
        await asyncio.gather(stopping, *parts, return_exceptions=True)
        released.set()
        await asyncio.gather(
            asyncio.wait([election], timeout=RELEASE_SECONDS), meanwhile(), return_exceptions=True
        )
        election.cancel()
        await asyncio.gather(election, return_exceptions=True)
    for part in died:
        part.result()
        raise PartDiedError(f"{part.get_name()} ended unexpectedly")
    logger.info("stopped")


async def _once(settings: Settings, rules_file: FixedRules) -> Snapshot:
    report_doubts(rules_file.rule_set)
    async with contextlib.AsyncExitStack() as stack:
        elector = None
        if settings.leader_elect and not settings.dry_run:
            elector = await stack.enter_async_context(_leading(settings))
        leadership = elector or SoleWriter(may_write=not settings.dry_run)
        client = await stack.enter_async_context(_client(settings, leadership))
        events = NodeEvents(client, own=lambda: elector.lease if elector else None)
        stack.push_async_callback(events.close)
        cluster = await ListedCluster.load(client)
        source = _prometheus(settings, rules_file, cluster.nodes)
        stack.push_async_callback(source.close)
        metrics_server = await stack.enter_async_context(_metrics_server(settings, cluster.nodes))
        loop = Loop(
            rules_file,
            sources={"prometheus": source, "metrics-server": metrics_server},
            histories={"prometheus": source},
            cluster=cluster,
            events=events,
            leadership=leadership,
            publish=lambda _: None,  # one pass has no readers
            dry_run=settings.dry_run,
        )
        await loop.remember(settings.interval)
        return await loop.tick()


async def _prune(order: Prune) -> Written:
    mark = load_rules(order.rules).mark if order.rules else Mark(parse_label(keys.DEFAULT_LABEL))
    async with _client(order, SoleWriter(may_write=not order.dry_run)) as client:
        if order.lease_older_than is not None:
            namespace = order.lease_namespace or client.config.namespace
            why_not = await why_at_work(client, namespace, order.lease_older_than)
            if why_not is not None:
                logger.info("nothing is pruned: %s", why_not)
                return Written(why_not=why_not)
        else:
            own = client.config.namespace
            anyway = order.force or order.dry_run
            await refuse_prune(client, order.lease_namespace, own, anyway=anyway)
        cluster = await ListedCluster.load(client)
        patches = plan_prune(cluster.nodes().values(), mark)
        if order.dry_run:
            return Written(applied=patches)
        return await write_all(
            cluster,
            patches,
            replan=lambda node: next(iter(plan_prune([node], mark)), None),
            on_written=lambda node, patch: logger.debug("%s: %s", node.name, patch.reason),
        )


@contextlib.asynccontextmanager
async def _leading(settings: Settings) -> AsyncIterator[Elector]:
    """An Elector that leads while one pass lasts. AtWorkError while another holds the Lease."""
    async with _elector(settings) as elector, _client(settings) as client:
        await refuse_pass(client, settings.lease_namespace, client.config.namespace)
        async with leading(elector):
            yield elector


def _publish(snapshot: Snapshot, snapshots: SnapshotStore, extension: Extension) -> None:
    tidy_up(snapshot.tick)
    snapshots.publish(snapshot, placed=extension.placed())
    extension.extender.publish_soon(snapshot)


async def _config(told: Settings | Prune) -> KubeConfig:
    """Loaded anew for each set of connections: each sets its own limits on it, and renews it."""
    return await load_config(str(told.kubeconfig) if told.kubeconfig else None, told.context)


@contextlib.asynccontextmanager
async def _client(
    told: Settings | Prune, permission: WritePermission | None = None
) -> AsyncIterator[KubeClient]:
    config = await _config(told)
    client = KubeClient(config, permission=permission)
    try:
        yield client
    finally:
        await client.close()


def _prometheus(
    settings: Settings, rules_file: RulesFile | FixedRules, nodes: Callable[[], Mapping[str, Node]]
) -> PrometheusSource:
    return PrometheusSource(
        settings.prometheus,
        limit=lambda: answer_limit(len(nodes()), len(rules_file.rule_set.rules)),
    )


@contextlib.asynccontextmanager
async def _metrics_server(
    settings: Settings, nodes: Callable[[], Mapping[str, Node]]
) -> AsyncIterator[MetricsServerSource]:
    """With connections of its own: a metrics-server that hangs must not hold up patches."""
    config = await _config(settings)
    api = KubeApi(config, in_flight=1)
    source = MetricsServerSource(partial(list_node_metrics, api), nodes)
    try:
        yield source
    finally:
        await source.close()
        await api.close()


@contextlib.asynccontextmanager
async def _reviews(settings: Settings) -> AsyncIterator[AccessReviews]:
    """With connections of its own: made-up tokens must not hold up patches."""
    api = KubeApi(await _config(settings), in_flight=IN_FLIGHT)
    try:
        yield AccessReviews(api, settings.web_auth_audience)
    finally:
        await api.close()


@contextlib.asynccontextmanager
async def _extension(
    settings: Settings, rules_file: RulesFile, cluster: NodeCluster, pod_use: PodUseSource
) -> AsyncIterator[Extension]:
    """With connections of its own: a watch lasts for minutes, and binding must not wait."""
    async with contextlib.AsyncExitStack() as stack:
        api = StreamingApi(await _config(settings), in_flight=4)
        stack.push_async_callback(api.close)
        binder = None
        if settings.bind and not settings.dry_run:
            config = await _config(settings)
            # Until the first list is complete, no node is known to be gone.
            binder = Binder(config, lambda node: not cluster.synced or cluster.has(node))
            stack.push_async_callback(binder.close)
        yield Extension(
            *(api, lambda: rules_file.rule_set, cluster),
            binder=binder,
            pod_use=pod_use,
        )


@contextlib.asynccontextmanager
async def _elector(settings: Settings) -> AsyncIterator[Elector]:
    """With connections of its own: a renewal must not wait behind a thousand patches."""
    config = await _config(settings)
    api = KubeApi(config, in_flight=2)
    try:
        yield Elector(
            api,
            namespace=settings.lease_namespace or config.namespace,
            identity=f"{HOST}_{settings.pod_uid}" if settings.pod_uid else IDENTITY,
            of_pod=settings.pod_uid is not None,
        )
    finally:
        await api.close()
