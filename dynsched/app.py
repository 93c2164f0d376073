"""The composition root: the one module that knows every shell, and starts and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from dynsched.core import keys
from dynsched.core.errors import ClusterError
from dynsched.core.marks import Mark, parse_label
from dynsched.core.model import Snapshot
from dynsched.core.plan import plan_prune
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import ListedCluster, NodeCluster
from dynsched.kube.config import load_config
from dynsched.kube.events import NodeEvents
from dynsched.kube.leader import Elector, SoleWriter, lease_age
from dynsched.kube.transport import KubeApi
from dynsched.kube.watch import NodeWatch
from dynsched.loop import Loop
from dynsched.settings import RulesFile, RulesFileError, Settings, load_rules
from dynsched.sources.prometheus import PrometheusSource
from dynsched.web.api import make_app
from dynsched.web.client import ServerError
from dynsched.web.metrics import Metrics
from dynsched.web.server import ListenError, WebServer, parse_address
from dynsched.web.state import Board
from dynsched.writer import Written, write_all

logger = logging.getLogger(__name__)

EXPECTED_ERRORS: Final = (ClusterError, RulesFileError, ListenError, ServerError)
"""What a person can mend; the message says how. Anything else is a bug."""

STOP_SECONDS: Final = 3.0
"""How long the parts may take to end by themselves after a signal."""
RELEASE_SECONDS: Final = 1.0
"""How long letting go of the Lease may take; else it runs out by itself."""


class PartDiedError(ClusterError):
    """A part ended that should not have: the process must end with it."""


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises one of EXPECTED_ERRORS, or whatever a part died of."""
    asyncio.run(_serve(settings))


def run_once(settings: Settings) -> Snapshot:
    """One tick on the nodes as they are listed now, without a watch, a server or an election."""
    return asyncio.run(_once(settings))


@dataclass(frozen=True, slots=True)
class Prune:
    """What `dynsched prune` is told. ``rules``: the file that says what the mark is; None is the
    default mark, and what the evidence on the nodes tells. ``lease_older_than`` (seconds): prune
    only if the Lease was not renewed for so long, or is not there.
    """

    kubeconfig: Path | None = None
    rules: Path | None = None
    dry_run: bool = False
    lease_older_than: float | None = None
    lease_namespace: str | None = None


def prune(order: Prune) -> Written:
    """Take back all that was ever put on nodes."""
    return asyncio.run(_prune(order))


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    rules_file = RulesFile(settings.rules)
    address = parse_address(settings.webaddr)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(settings.kubeconfig))
        elector = (
            await stack.enter_async_context(_elector(settings)) if settings.leader_elect else None
        )
        source = PrometheusSource(settings.prometheus)
        stack.push_async_callback(source.close)
        events = NodeEvents(client, own=lambda: elector.lease if elector else None)
        stack.push_async_callback(events.close)
        watch = NodeWatch(client)
        cluster = NodeCluster(client, watch)
        board = Board(
            clock=time.monotonic,
            interval=settings.interval,
            source=settings.prometheus.url,
            synced=lambda: cluster.synced,
            metrics=Metrics(CollectorRegistry()),
            leader=lambda: elector.leader if elector else None,
        )
        server = await stack.enter_async_context(WebServer(make_app(board), address))
        logger.info("serving %s, asking %s", server.url, settings.prometheus.url)
        loop = Loop(
            rules_file,
            sources={"prometheus": source},
            histories={"prometheus": source},
            cluster=cluster,
            events=events,
            leadership=elector or SoleWriter(),
            publish=board.publish,
            dry_run=settings.dry_run,
        )
        parts = {
            "the watch of nodes": watch.run(stop),
            "the loop": loop.run(stop, settings.interval),
        }
        await _until_stopped(
            stop, [asyncio.create_task(part, name=name) for name, part in parts.items()], elector
        )


async def _until_stopped(
    stop: asyncio.Event, parts: Sequence[asyncio.Task[None]], elector: Elector | None
) -> None:
    """Wait for ``stop``; let the parts end. A part that ends earlier ends all, by raising: a
    process that lives on without its loop or its watch is the worst state.

    The Lease is let go of last, when no write can be under way any more.
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
        await asyncio.wait([election], timeout=RELEASE_SECONDS)
        election.cancel()
        await asyncio.gather(election, return_exceptions=True)
    for part in died:
        part.result()
        raise PartDiedError(f"{part.get_name()} ended by itself")
    logger.info("stopped")


async def _once(settings: Settings) -> Snapshot:
    rules_file = RulesFile(settings.rules)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(settings.kubeconfig))
        source = PrometheusSource(settings.prometheus)
        stack.push_async_callback(source.close)
        events = NodeEvents(client)
        stack.push_async_callback(events.close)
        loop = Loop(
            rules_file,
            sources={"prometheus": source},
            histories={"prometheus": source},
            cluster=await ListedCluster.load(client),
            events=events,
            leadership=SoleWriter(),
            publish=lambda _: None,  # one pass has no readers
            dry_run=settings.dry_run,
        )
        await loop.remember(settings.interval)
        return await loop.tick()


async def _prune(order: Prune) -> Written:
    mark = load_rules(order.rules).mark if order.rules else Mark(parse_label(keys.DEFAULT_LABEL))
    async with _client(order.kubeconfig) as client:
        if order.lease_older_than is not None:
            namespace = order.lease_namespace or client.config.namespace
            age = await lease_age(client.api, namespace, time.time())
            if age is not None and age < order.lease_older_than:
                logger.info("nothing is pruned: the Lease was renewed %.0f s ago", age)
                return Written()
        cluster = await ListedCluster.load(client)
        patches = plan_prune(cluster.nodes().values(), mark)
        if order.dry_run:
            return Written(applied=patches)
        return await write_all(
            cluster,
            patches,
            replan=lambda node: next(iter(plan_prune([node], mark)), None),
            told=lambda node, patch: logger.debug("%s: %s", node.name, patch.reason),
        )


@contextlib.asynccontextmanager
async def _client(kubeconfig: Path | None) -> AsyncIterator[KubeClient]:
    client = KubeClient(await load_config(str(kubeconfig) if kubeconfig else None))
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def _elector(settings: Settings) -> AsyncIterator[Elector]:
    """With connections of its own: a renewal must not wait behind a thousand patches."""
    config = await load_config(str(settings.kubeconfig) if settings.kubeconfig else None)
    api = KubeApi(config, in_flight=2)
    try:
        yield Elector(
            api,
            namespace=settings.lease_namespace or config.namespace,
            # Unique even when a pod's container restarts under the same name.
            identity=f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}",
        )
    finally:
        await api.close()
