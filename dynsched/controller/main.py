"""The composition root of `dynsched run`: it knows all parts, and starts and stops them. What only
a flag needs is imported where the flag is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry

from dynsched.api.app import make_app, make_extender_app
from dynsched.api.extender.endpoints import EXTENDER_ENDPOINTS
from dynsched.api.metrics import Metrics
from dynsched.api.responses import PROBES
from dynsched.api.server import WebServer, parse_address
from dynsched.api.snapshots import SnapshotStore
from dynsched.controller.clients import Clients, end_election
from dynsched.controller.keeping import Keeping
from dynsched.controller.loop import Loop
from dynsched.controller.pod_tracking import PodTracking
from dynsched.controller.reporting import report_warnings
from dynsched.controller.settings import Settings
from dynsched.engine.snapshot import Snapshot
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import NodeCluster
from dynsched.kube.credentials import load_credentials
from dynsched.kube.kept_rules import KeptRules
from dynsched.kube.leader import Elector, NoElection
from dynsched.kube.node_watch import NodeWatch
from dynsched.kube.transport import KubeApi
from dynsched.rules.file import RulesFile
from dynsched.rules.rule_set import NO_RULES
from dynsched.sources.pod_use import PodUseSource
from dynsched.util.errors import ClusterError
from dynsched.util.stopping import until_so
from dynsched.util.tls import TlsConfig

if TYPE_CHECKING:
    from dynsched.api.extender.answers import Extender
    from dynsched.kube.reviews import AccessReviews

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 1.5
"""Seconds that the parts may take to end after a signal, before they are cancelled."""


class PartDiedError(ClusterError):
    """A part ended that should not have: the process must end with it."""


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises an ExpectedError, or whatever a part died of."""
    gc.freeze()  # the garbage collector need not visit the modules
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    rules_file = await _rules_file(settings)
    async with Clients(await load_credentials(settings.kubeconfig, settings.context)) as clients:
        leadership = clients.leadership(settings)
        writer = leadership.writer
        client = clients.open(partial(KubeClient, writer=writer))
        events = clients.events(client, leadership)
        watch = NodeWatch(client)
        cluster = NodeCluster(client, watch.store, lambda: watch.error)
        source = clients.prometheus(settings, rules_file, cluster.nodes)
        metrics_server = clients.metrics_server(cluster.nodes)
        binder = None
        if settings.bind and not settings.dry_run:
            from dynsched.kube.binder import Binder

            # Until the first list is complete, no node is known to be gone.
            is_known = lambda node: not cluster.synced or cluster.has(node)  # noqa: E731
            binder = clients.open(partial(Binder, is_known=is_known))
        pods = PodTracking(
            clients.open(partial(KubeApi, in_flight=4)),
            lambda: rules_file.rule_set,
            cluster,
            binder=binder,
            pod_use=PodUseSource(source, lambda: rules_file.rule_set),
        )
        snapshots = SnapshotStore(
            clock=time.monotonic,
            interval=settings.interval,
            source=settings.prometheus.url,
            synced=lambda: cluster.synced,
            metrics=Metrics(CollectorRegistry()),
            node_series=settings.node_metrics,
            leader=lambda: leadership.leader,
            graphs=settings.prometheus.external_url,
            cluster=settings.cluster_name,
        )
        snapshots.facts.bound = pods.bound
        server = await clients.enter_async_context(
            serving(settings, snapshots, pods.extender, _reviews(settings, clients))
        )
        logger.info("serving on %s, querying %s", server.url, settings.prometheus.url)

        def publish(snapshot: Snapshot) -> None:
            snapshots.publish(snapshot, placed=pods.publish(snapshot))

        async def ask_for_the_page() -> None:
            # How large an answer may be depends on the number of nodes, which is 0 until they are
            # listed; what is refused before is asked again after minutes only.
            await until_so(stop, lambda: cluster.synced and snapshots.facts.is_looked_at, 1.0)
            from dynsched.sources.page_queries import PageQueries

            await PageQueries(
                source,
                snapshots.facts,
                rule_set=lambda: rules_file.rule_set,
                nodes=cluster.nodes,
                namespace=client.config.namespace,
                cluster=settings.cluster_name,
            ).run(stop)

        home = settings.lease_namespace or client.config.namespace
        keeping = Keeping(
            *(KeptRules(client, home, writer), rules_file, writer.may_write),
            in_use=lambda: None if snapshots.snapshot is None else snapshots.snapshot.rule_set,
        )
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

        async def keep_the_order() -> None:
            def is_wanted() -> bool:
                return rules_file.rule_set.order is not None and not settings.dry_run

            await until_so(stop, is_wanted, 1.0)
            if stop.is_set():
                return
            from dynsched.api.order_status import OrderStatus
            from dynsched.controller.ordering import Ordering

            snapshots.tell_of_order(status := OrderStatus(lambda: snapshots.snapshot))
            api = clients.open(partial(KubeApi, in_flight=1))
            await Ordering(api, home, snapshots.order, status, writer).run(stop)

        async def tick() -> None:
            await keeping.recall(stop)
            await loop.run(stop, settings.interval)

        parts = {
            "the watch of nodes": watch.run(stop),
            "the loop": tick(),
            "the watch of pods": pods.run(stop),
            "the page's questions": ask_for_the_page(),
            "the order": keep_the_order(),
        }
        if settings.pod_uid is not None:  # elsewhere nothing would read them
            parts["the kept rules"] = keeping.run(stop)
        await _until_stopped(
            stop,
            [asyncio.create_task(part, name=name) for name, part in parts.items()],
            leadership,
            meanwhile=events.close,
        )


def _reviews(settings: Settings, clients: Clients) -> AccessReviews | None:
    """Who may read, as the API server says; None without ``--web-auth``."""
    if not settings.web_auth:
        return None
    from dynsched.kube.reviews import IN_FLIGHT, AccessReviews

    api = clients.open(partial(KubeApi, in_flight=IN_FLIGHT))
    return AccessReviews(api, settings.web_auth_audience)


async def _rules_file(settings: Settings) -> RulesFile:
    # A pod that ends by a refused file is started again, and ends again, while marks stay.
    instead = NO_RULES if settings.pod_uid is not None else None
    rules_file = await asyncio.to_thread(RulesFile, settings.rules, instead)
    if rules_file.error is None:
        report_warnings(rules_file.warnings)
    return rules_file


async def _until_stopped(
    stop: asyncio.Event,
    parts: Sequence[asyncio.Task[None]],
    leadership: Elector | NoElection,
    *,
    meanwhile: Callable[[], Awaitable[None]],
) -> None:
    """Wait for ``stop``; let the parts end. A part that ends earlier ends all, by raising. The
    Lease is released last; ``meanwhile`` runs alongside, because each waits for an API server that
    may not answer.
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


@contextlib.asynccontextmanager
async def serving(
    settings: Settings,
    snapshots: SnapshotStore,
    extender: Callable[[], Extender | None],
    reviews: AccessReviews | None,
) -> AsyncIterator[WebServer]:
    """The server of ``--webaddr``, while it and that of ``--extender-addr``, if any, listen. With
    ``reviews`` a bearer token is needed, but for probes and the scheduler. Raises ListenError.
    """
    context, guards = _tls(settings.tls)
    if reviews is not None:
        from dynsched.api.auth import require_token

        # The kubelet and kube-scheduler have no token to send.
        open_paths = PROBES | EXTENDER_ENDPOINTS.keys()
        guards.append(require_token(reviews.user_of, reviews.may_get, open_paths))
        if settings.tls is None and not parse_address(settings.webaddr).loopback:
            logger.warning(
                "--web-auth without --tls-cert: tokens come over plain HTTP, and whoever reads one "
                "on the way can use it until it expires; give --tls-cert and --tls-key, or let "
                "only a proxy with TLS reach %s",
                settings.webaddr,
            )
    own = settings.extender_addr
    shared = extender if own is None else None
    app = make_app(snapshots, shared, guards=guards)
    async with contextlib.AsyncExitStack() as stack:
        if own is not None:
            tls, known = _tls(settings.extender_tls)
            alone = make_extender_app(snapshots, extender, guards=known)
            server = WebServer(alone, parse_address(own), tls, flag="--extender-addr")
            await stack.enter_async_context(server)
            logger.info("serving the scheduler extender on %s", server.url)
        server = WebServer(app, parse_address(settings.webaddr), context)
        yield await stack.enter_async_context(server)


def _tls(config: TlsConfig | None) -> tuple[ssl.SSLContext | None, list[Middleware]]:
    """What a server listens with, and what refuses callers without a certificate."""
    if config is None:
        return None, []
    from dynsched.api.certificates import ServerTls, require_certificate

    return ServerTls(config).context, [require_certificate] if config.client_ca else []
