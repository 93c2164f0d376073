"""Composition root of `dynsched run`: creates, starts and stops all parts."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final

from dynsched.controller.clients import Clients, end_election
from dynsched.controller.evaluator import Evaluator
from dynsched.controller.features import Features
from dynsched.controller.pod_tracking import PodTracking
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter, report_warnings
from dynsched.controller.serving import access_reviews, serving
from dynsched.controller.settings import Settings
from dynsched.core.tick import Tick
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import DryRunCluster, NodeCluster
from dynsched.kube.credentials import load_credentials
from dynsched.kube.node_watch import NodeWatch
from dynsched.kube.transport import KubeApi
from dynsched.rules.file import RulesFile
from dynsched.util.errors import ClusterError
from dynsched.util.latest import Latest
from dynsched.util.stopping import until_done
from dynsched.web.ticks import TickStore

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 1.5
"""Parts that are still running this many seconds after a signal are cancelled."""


class PartDiedError(ClusterError):
    """A part ended unexpectedly, so the process must end too."""


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises an ExpectedError, or the exception of a failed part."""
    gc.freeze()  # modules are never garbage, so no collection has to visit them
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    rules_file = await _rules_file(settings)
    async with Clients(await load_credentials(settings.kubeconfig, settings.context)) as clients:
        leadership = clients.leadership(settings)
        client = clients.open(partial(KubeClient, writer=leadership.writer))
        events = clients.events(client, leadership, settings.pod_uid)
        watch = NodeWatch(client)
        kind = DryRunCluster if settings.dry_run else NodeCluster
        cluster = kind(client, watch.store)
        source = clients.prometheus(settings, rules_file, cluster.nodes)
        metrics_server = clients.metrics_server(cluster.nodes)
        api = clients.open(partial(KubeApi, in_flight=4))
        pods = PodTracking(api, rules_file, cluster, source)
        store = TickStore(
            clock=time.monotonic,
            interval=settings.interval,
            source=settings.prometheus.url,
            synced=lambda: cluster.synced,
            node_series=settings.node_metrics,
            leader=lambda: leadership.leader,
            graphs=settings.prometheus.external_url,
            cluster=settings.cluster_name,
            rules_error=lambda: rules_file.error if rules_file.rule_set is None else None,
        )
        ticks = Latest[Tick]()
        home = settings.lease_namespace or client.config.namespace
        features = Features(
            settings=settings,
            rules_file=rules_file,
            clients=clients,
            cluster=cluster,
            pods=pods,
            leadership=leadership,
            namespace=home,
            ticks=ticks,
            store=store,
            stop=stop,
        )
        reviews = access_reviews(settings, clients)
        server = await clients.enter_async_context(
            serving(settings, store, features.extender, reviews)
        )
        logger.info("serving on %s, querying %s", server.url, settings.prometheus.url)

        async def publish(tick: Tick) -> None:
            store.publish(tick, placed=pods.placed())
            await ticks.publish(tick)

        queries = Queries({"prometheus": source, "metrics-server": metrics_server})
        evaluator = Evaluator(
            rules_file,
            queries=queries,
            histories={"prometheus": source},
            cluster=cluster,
            reporter=Reporter(events, dry_run=settings.dry_run),
            leadership=leadership,
            publish=publish,
            before_writes=features.score,
            pods=pods,
            dry_run=settings.dry_run,
        )

        async def evaluate() -> None:
            await evaluator.run(stop, settings.interval)
            await queries.close()

        parts = {
            "the node watch": watch.run(stop),
            "the evaluator": evaluate(),
            "the pod watch": pods.run(stop),
            "the order": features.keep_order(),
        }
        released = asyncio.Event()
        election = asyncio.create_task(leadership.run(released), name="the leader election")
        try:
            await _run_parts(stop, parts, election)
        finally:
            # The Lease is released after all parts have ended. Events are sent at the same time:
            # if the API server is unreachable, both run into their timeouts.
            await asyncio.gather(
                end_election(election, released), events.close(), return_exceptions=True
            )
    logger.info("stopped")


async def _rules_file(settings: Settings) -> RulesFile:
    # In a pod, a refused file must not end the process: it would crash-loop while marks stay.
    in_pod = settings.pod_uid is not None
    rules_file = await asyncio.to_thread(RulesFile, settings.rules, may_be_refused=in_pod)
    if rules_file.error is None:
        report_warnings(rules_file.warnings)
    return rules_file


async def _run_parts(
    stop: asyncio.Event,
    parts: Mapping[str, Coroutine[Any, Any, None]],
    election: asyncio.Task[None],
) -> None:
    """Run the parts until ``stop`` is set or one of them ends, then give all of them time to end:
    some delete what they wrote.
    """
    tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
    await until_done(stop, election, *tasks)
    early = [] if stop.is_set() else [task for task in (election, *tasks) if task.done()]
    stop.set()
    _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
    if late:
        logger.warning("not all parts ended within %g s; the rest is cancelled", STOP_SECONDS)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in (election, *tasks):
        if task.done() and not task.cancelled():
            task.result()  # raises the exception that ended it
    for task in early:
        raise PartDiedError(f"{task.get_name()} ended unexpectedly")
