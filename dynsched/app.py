"""The composition root: the one module that knows every shell, and starts and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from dynsched.core import keys
from dynsched.core.errors import ClusterError
from dynsched.core.marks import Mark, parse_label
from dynsched.core.model import Node, NodePatch, Snapshot
from dynsched.core.plan import plan_prune
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import ListedCluster, NodeCluster
from dynsched.kube.config import load_config
from dynsched.kube.events import NodeEvents
from dynsched.kube.watch import NodeWatch
from dynsched.loop import Loop
from dynsched.settings import RulesFileError, Settings, load_rules
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


class PartDiedError(ClusterError):
    """A part ended that should not have: the process must end with it."""


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises one of EXPECTED_ERRORS, or whatever a part died of."""
    asyncio.run(_serve(settings))


def run_once(settings: Settings) -> Snapshot:
    """One tick on the nodes as they are listed now, without a watch or a server."""
    return asyncio.run(_once(settings))


def prune(kubeconfig: Path | None, rules: Path | None, *, dry_run: bool) -> Written:
    """Take back all that was ever put on nodes. ``rules``: the file that says what the mark is;
    None is the default mark, and what the evidence on the nodes tells.
    """
    return asyncio.run(_prune(kubeconfig, rules, dry_run=dry_run))


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    rule_set = load_rules(settings.rules)
    address = parse_address(settings.webaddr)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(settings.kubeconfig))
        source = PrometheusSource(settings.prometheus)
        stack.push_async_callback(source.close)
        events = NodeEvents(client)
        stack.push_async_callback(events.close)
        watch = NodeWatch(client)
        cluster = NodeCluster(client, watch)
        board = Board(
            clock=time.time,
            interval=settings.interval,
            source=settings.prometheus.url,
            synced=lambda: cluster.synced,
            metrics=Metrics(CollectorRegistry()),
        )
        server = await stack.enter_async_context(WebServer(make_app(board), address))
        logger.info("serving %s, asking %s", server.url, settings.prometheus.url)
        loop = Loop(
            rule_set,
            sources={"prometheus": source},
            cluster=cluster,
            events=events,
            publish=board.publish,
            dry_run=settings.dry_run,
        )
        await _until_stopped(
            stop,
            [
                asyncio.create_task(watch.run(stop), name="the watch of nodes"),
                asyncio.create_task(loop.run(stop, settings.interval), name="the loop"),
            ],
        )


async def _until_stopped(stop: asyncio.Event, parts: Sequence[asyncio.Task[None]]) -> None:
    """Wait for ``stop``; let the parts end. A part that ends earlier ends all, by raising: a
    process that lives on without its loop or its watch is the worst state.
    """
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait([stopping, *parts], return_when=asyncio.FIRST_COMPLETED)
        died = [part for part in parts if part.done()] if not stop.is_set() else []
        stop.set()
        await asyncio.wait(parts, timeout=STOP_SECONDS)
    finally:
        for task in (stopping, *parts):
            task.cancel()
        await asyncio.gather(stopping, *parts, return_exceptions=True)
    for part in died:
        part.result()
        raise PartDiedError(f"{part.get_name()} ended by itself")
    logger.info("stopped")


async def _once(settings: Settings) -> Snapshot:
    rule_set = load_rules(settings.rules)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(settings.kubeconfig))
        source = PrometheusSource(settings.prometheus)
        stack.push_async_callback(source.close)
        events = NodeEvents(client)
        stack.push_async_callback(events.close)
        return await Loop(
            rule_set,
            sources={"prometheus": source},
            cluster=await ListedCluster.load(client),
            events=events,
            publish=_nobody,
            dry_run=settings.dry_run,
        ).tick()


async def _prune(kubeconfig: Path | None, rules: Path | None, *, dry_run: bool) -> Written:
    mark = load_rules(rules).mark if rules else Mark(parse_label(keys.DEFAULT_LABEL))
    async with _client(kubeconfig) as client:
        cluster = await ListedCluster.load(client)
        patches = plan_prune(cluster.nodes().values(), mark)
        if dry_run:
            return Written(applied=patches)
        return await write_all(
            cluster, patches, replan=partial(_prune_again, mark), told=_log_removal
        )


def _prune_again(mark: Mark, node: Node) -> NodePatch | None:
    patches = plan_prune([node], mark)
    return patches[0] if patches else None


def _log_removal(node: Node, patch: NodePatch) -> None:
    logger.debug("%s: %s", node.name, patch.reason)


def _nobody(_snapshot: Snapshot) -> None:
    """One pass has no readers."""


@contextlib.asynccontextmanager
async def _client(kubeconfig: Path | None) -> AsyncIterator[KubeClient]:
    client = KubeClient(await load_config(str(kubeconfig) if kubeconfig else None))
    try:
        yield client
    finally:
        await client.close()
