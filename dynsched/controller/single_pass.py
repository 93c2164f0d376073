"""The commands that run once and exit: `plan`, `top` and `prune`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from dynsched.controller.clients import Clients
from dynsched.controller.evaluator import Evaluator
from dynsched.controller.node_writer import write_all
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter, report_warnings
from dynsched.controller.settings import Settings
from dynsched.core.guard import WriteFailure
from dynsched.core.marks import plan_prune
from dynsched.core.tick import Tick, WriteResult
from dynsched.features.found_prometheus import found_or_default
from dynsched.features.order.resource import NODE_ORDERS, NodeOrder, homes_of_orders
from dynsched.kube.client import KubeClient, LeaderWriter
from dynsched.kube.cluster import DryRunCluster, NodeCluster
from dynsched.kube.credentials import CredentialProvider, load_credentials
from dynsched.kube.election import LeaseTimes, held_by, read_lease
from dynsched.kube.leader import LEASE_NAME, Leases
from dynsched.kube.leases import find_holders, why_at_work
from dynsched.rules import keys
from dynsched.rules.file import FixedRules, RulesFileError, fixed_rules, load_rules
from dynsched.rules.labels import Mark, parse_label
from dynsched.util.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError
from dynsched.util.latest import Latest

logger = logging.getLogger(__name__)

TAKEN: Final = LeaseTimes(duration=60)
"""Times of the Lease that `prune` takes: no instance can take it for a minute."""
_TRIES: Final = 5


class AtWorkError(ClusterError):
    """A running instance would undo the writes, so nothing was written."""


def run_once(settings: Settings, log: Callable[[str], None] | None = None) -> Tick:
    """Run `one_pass` with the rules file of the settings."""
    # Read before the event loop starts: the file may be a pipe, and Ctrl-C should end the wait.
    rules_file = fixed_rules(settings.rules)

    async def once() -> Tick:
        credentials = await load_credentials(settings.kubeconfig, settings.context)
        return await one_pass(credentials, settings, rules_file, log)

    return asyncio.run(once())


async def one_pass(
    credentials: CredentialProvider,
    settings: Settings,
    rules_file: FixedRules,
    log: Callable[[str], None] | None = None,
) -> Tick:
    """Run one dry-run tick on the nodes as they are listed now, without a watch or a web server.

    ``log``: if given, Prometheus is looked for unless its URL was named (`found_or_default`).
    """
    report_warnings(rules_file.warnings)
    async with Clients(credentials) as clients:
        leadership = clients.leadership(settings)
        client = clients.open(partial(KubeClient, writer=leadership.writer))
        cluster = await DryRunCluster.listed(client)
        if log and any(rule.source == "prometheus" for rule in rules_file.rule_set.rules):
            found = await found_or_default(client, settings.prometheus, log)
            settings = replace(settings, prometheus=found)
        source = clients.prometheus(settings, rules_file, cluster.nodes)
        metrics_server = clients.metrics_server(cluster.nodes)
        ticks = Latest[Tick]()
        evaluator = Evaluator(
            rules_file,
            queries=Queries({"prometheus": source, "metrics-server": metrics_server}),
            histories={"prometheus": source},
            cluster=cluster,
            reporter=Reporter(clients.events(client, leadership, None), dry_run=True),
            leadership=leadership,
            publish=ticks.publish,
            dry_run=True,
        )
        await evaluator.restore(settings.interval)
        tick = await evaluator.tick()
        assert tick is not None  # noqa: S101 (there are rules)
        return tick


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneOptions:
    """The flags of `prune`. The last two exclude each other."""

    kubeconfig: Path | None = None
    context: str | None = None
    rules: Path | None = None
    """The mark in this file is also removed from nodes without the annotation that records marks.
    None: the default mark is."""
    dry_run: bool = False
    lease_namespace: str | None = None
    lease_older_than: float | None = None
    """Prune only if the Lease was not renewed for this many seconds, or does not exist."""
    take_lease: bool = False
    """Take the Lease from a running instance, which then writes nothing for a minute."""


async def prune(options: PruneOptions) -> WriteResult | None:
    """Remove the order, and everything that annotations record as put on nodes by dynsched.

    Returns None if nothing was done, for the reason in the log. Raises AtWorkError if a running
    instance would undo this; that is not checked in a dry run or with ``mark: none``.
    """
    mark, dry_run = _mark_without_evidence(options.rules), options.dry_run
    async with Clients(await load_credentials(options.kubeconfig, options.context)) as clients:
        client, namespace = clients.open(KubeClient), options.lease_namespace
        if options.take_lease and not dry_run:
            await _take_leases(client, namespace)
        elif options.lease_older_than is not None:
            home = namespace or client.config.namespace
            why_not = await why_at_work(client, home, options.lease_older_than)
            if why_not is not None:
                logger.info("nothing is pruned: %s", why_not)
                return None
        elif not mark.is_none and not dry_run:
            await _require_none_at_work(client, namespace)
        failures = await _withdraw_orders(client, namespace, dry_run=dry_run)
        cluster = await NodeCluster.listed(client)
        patches = plan_prune(cluster.nodes().values(), mark)
        if dry_run:
            return WriteResult(tuple(patches), tuple(failures))
        written = await write_all(
            cluster,
            patches,
            replan=lambda node: next(iter(plan_prune([node], mark)), None),
            on_written=lambda node, patch: logger.debug("%s: %s", node.name, patch.reason),
        )
        return replace(written, failures=(*written.failures, *failures))


def _mark_without_evidence(rules: Path | None) -> Mark:
    """The mark to remove from nodes without the annotation: that of the file, else the default.

    A refused file does not stop the prune, because the annotations record the other marks.
    """
    try:
        if rules is not None:
            return load_rules(rules).mark
    except RulesFileError as error:
        logger.warning("the rules are not used; annotations show which marks to remove: %s", error)
    return Mark(parse_label(keys.DEFAULT_LABEL))


async def _withdraw_orders(
    client: KubeClient, namespace: str | None, *, dry_run: bool
) -> list[WriteFailure]:
    """Delete the order in ``namespace`` (None: in any), and return the failures."""
    name = f"{NODE_ORDERS}/{keys.ORDER_NAME}"
    try:
        for home in await homes_of_orders(client, namespace):
            if not dry_run:
                await NodeOrder(client, home, LeaderWriter()).withdraw()
            done = "would be deleted" if dry_run else "deleted"
            logger.info("%s in namespace %s: %s", name, home, done)
    except ForbiddenError as error:  # the janitor, for one, may change nodes only, and prunes those
        logger.info("the order is not deleted, and expires by itself: %s", error)
    except ClusterError as error:
        return [WriteFailure(name, str(error))]
    return []


async def _take_leases(client: KubeClient, namespace: str | None) -> None:
    """Take the Lease from each running instance (namespaces as in `find_holders`), and wait until
    their last writes have ended.
    """
    holders = await find_holders(client, namespace, client.config.namespace)
    for holder in holders:
        logger.info("%s; taking it", holder)
        await _take(Leases(client, holder.namespace))
    if holders:
        await asyncio.sleep(TAKEN.write_for + TAKEN.write_timeout)


async def _take(leases: Leases) -> None:
    """Take one Lease. Raises AtWorkError if its holder renews it before each attempt."""
    for _ in range(_TRIES):
        body = await leases.read()
        now, least = time.monotonic(), TAKEN.duration
        seen = read_lease(body, None, now, least=least) if body else None
        with contextlib.suppress(ConflictError, NotFoundError):
            await leases.write(seen, held_by("dynsched-prune", seen, TAKEN, time.time()))
            return
    raise AtWorkError(
        f"cannot take the Lease {LEASE_NAME}: each time, it was renewed first; try again"
    )


async def _require_none_at_work(client: KubeClient, namespace: str | None) -> None:
    """Raise AtWorkError if an instance holds a Lease."""
    holders = await find_holders(client, namespace, client.config.namespace)
    if not holders:
        return
    another = "" if namespace else "; if it belongs to another installation, use --lease-namespace"
    raise AtWorkError(
        f"{holders[0]}: this running instance would set the marks again, so nothing was removed. "
        f"Stop it first, for example with `kubectl -n {holders[0].namespace} scale "
        f"deployment/dynsched --replicas=0`, or use --take-lease{another}"
    )
