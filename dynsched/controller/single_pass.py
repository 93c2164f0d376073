"""The commands of a single pass: `run --once`, `plan` and `prune`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from dynsched.controller.apply import write_all
from dynsched.controller.clients import Clients, end_election
from dynsched.controller.evaluator import Evaluator
from dynsched.controller.queries import Queries
from dynsched.controller.reporting import Reporter, report_warnings
from dynsched.controller.settings import Settings
from dynsched.core.marks import plan_prune
from dynsched.core.pace import WriteFailure
from dynsched.core.tick import Tick, WriteResult
from dynsched.features.found_prometheus import found_or_default
from dynsched.features.order.resource import NODE_ORDERS, NodeOrder, homes_of_orders
from dynsched.kube.client import KubeClient
from dynsched.kube.cluster import DryRunCluster, NodeCluster
from dynsched.kube.credentials import CredentialProvider, load_credentials
from dynsched.kube.election import LeaseTimes, held_by, read_lease
from dynsched.kube.leader import LEASE_NAME, Elector, Leases
from dynsched.kube.leader_writer import LeaderWriter
from dynsched.kube.leases import Holder, find_holders, why_at_work
from dynsched.rules import keys
from dynsched.rules.file import FixedRules, RulesFileError, fixed_rules, load_rules
from dynsched.rules.labels import Mark, parse_label
from dynsched.util.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError
from dynsched.util.latest import Latest

logger = logging.getLogger(__name__)

TAKE_SECONDS: Final = 2 * LeaseTimes().duration
"""Seconds that a single pass waits for a Lease that is no longer renewed."""
TAKEN: Final = LeaseTimes(duration=60)
"""A Lease that was taken to prune: nobody else takes it meanwhile."""
_TRIES: Final = 5
POLL: Final = 0.05


class AtWorkError(ClusterError):
    """An instance is running and would undo what is about to be written; nothing was written."""


def run_once(settings: Settings, log: Callable[[str], None] | None = None) -> Tick:
    """As `one_pass`, by the rules of the settings."""
    # Before the loop: a pipe is waited for, and Ctrl-C should end that.
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
    """One tick on the nodes as they are listed now, without a watch or a server. Where it writes
    and takes part in the election, it holds the Lease meanwhile; AtWorkError while another does.

    ``log``: with it, Prometheus is looked for where nobody named one (`found_or_default`).
    """
    report_warnings(rules_file.warnings)
    async with Clients(credentials) as clients:
        leadership = clients.leadership(settings)
        client = clients.open(partial(KubeClient, writer=leadership.writer))
        if isinstance(leadership, Elector):
            with contextlib.suppress(ForbiddenError):  # the election says which right is missing
                if holder := await _holder(client, settings.lease_namespace):
                    raise AtWorkError(
                        f"{holder}: an instance is running, so this pass writes nothing. `dynsched "
                        "plan` shows what is due; --no-leader-elect writes all the same"
                    )
            await clients.enter_async_context(_leading(leadership))
        kind = DryRunCluster if settings.dry_run else NodeCluster
        cluster = await kind.listed(client)
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
            reporter=Reporter(
                clients.events(client, leadership, settings.pod_uid), dry_run=settings.dry_run
            ),
            leadership=leadership,
            publish=ticks.publish,
            dry_run=settings.dry_run,
        )
        await evaluator.restore(settings.interval)
        tick = await evaluator.tick()
        assert tick is not None  # noqa: S101 (there are rules)
        return tick


async def prune(
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    rules: Path | None = None,
    dry_run: bool = False,
    lease_older_than: float | None = None,
    lease_namespace: str | None = None,
    force: bool = False,
    take_lease: bool = False,
) -> WriteResult | None:
    """Remove everything that was ever put on nodes, as the evidence on them says, and the order.
    AtWorkError while an instance is running, but with ``mark: none``. None: nothing was looked at,
    for the reason in the log.

    ``rules``: a file with one more mark, which counts without evidence too, as the default one.
    ``lease_older_than``: only if the Lease was not renewed for so many seconds or does not exist.
    ``force``: even while the Lease is held; only without ``lease_older_than``.
    ``take_lease``: take it from a running instance, which then writes nothing for a minute.
    """
    mark = _mark_without_evidence(rules)
    async with Clients(await load_credentials(kubeconfig, context)) as clients:
        client = clients.open(KubeClient)
        if take_lease and not dry_run:
            await _take_leases(client, lease_namespace)
        elif lease_older_than is not None:
            namespace = lease_namespace or client.config.namespace
            why_not = await why_at_work(client, namespace, lease_older_than)
            if why_not is not None:
                logger.info("nothing is pruned: %s", why_not)
                return None
        elif not mark.is_none:
            await _refuse_prune(client, lease_namespace, anyway=force or dry_run)
        failures = await _withdraw_orders(client, lease_namespace, dry_run=dry_run)
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
    """A refused file is no reason to leave marks on nodes: the evidence beside them needs none."""
    try:
        if rules is not None:
            return load_rules(rules).mark
    except RulesFileError as error:
        logger.warning("marks are removed by the evidence on nodes alone, without rules: %s", error)
    return Mark(parse_label(keys.DEFAULT_LABEL))


async def _withdraw_orders(
    client: KubeClient, namespace: str | None, *, dry_run: bool
) -> list[WriteFailure]:
    """Delete the order in ``namespace``, or in any; what failed."""
    name = f"{NODE_ORDERS}/{keys.ORDER_NAME}"
    try:
        for home in await homes_of_orders(client, namespace):
            if not dry_run:
                await NodeOrder(client, home, LeaderWriter()).withdraw()
            done = "would be deleted" if dry_run else "deleted"
            logger.info("%s in namespace %s: %s", name, home, done)
    except ForbiddenError as error:  # who may only see to nodes prunes these, as the janitor does
        logger.info("the order is left alone, it ends by itself: %s", error)
    except ClusterError as error:
        return [WriteFailure(name, str(error))]
    return []


async def _take_leases(client: KubeClient, namespace: str | None) -> None:
    """Take the Lease from each running instance (namespaces as `find_holders`), and return when
    their last writes have ended.
    """
    holders = await find_holders(client, namespace, client.config.namespace)
    for holder in holders:
        logger.info("%s; it is taken", holder)
        await _take(Leases(client, holder.namespace))
    if holders:
        await asyncio.sleep(TAKEN.write_for + TAKEN.write_timeout)


async def _take(leases: Leases) -> None:
    """AtWorkError where the holder's renewals are always faster."""
    for _ in range(_TRIES):
        body = await leases.read()
        now, least = time.monotonic(), TAKEN.duration
        seen = read_lease(body, None, now, least=least) if body else None
        with contextlib.suppress(ConflictError, NotFoundError):
            await leases.write(seen, held_by("dynsched-prune", seen, TAKEN, time.time()))
            return
    raise AtWorkError(
        f"the Lease {LEASE_NAME} was renewed each time before it was taken; try again"
    )


async def _holder(client: KubeClient, namespace: str | None) -> Holder | None:
    """Who holds a Lease; the namespaces are `find_holders`'s."""
    return next(iter(await find_holders(client, namespace, client.config.namespace)), None)


async def _refuse_prune(client: KubeClient, namespace: str | None, *, anyway: bool) -> None:
    """AtWorkError where an instance holds a Lease: with ``anyway`` only a line in the log."""
    try:
        holder = await _holder(client, namespace)
    except ForbiddenError as error:
        if anyway:
            return
        raise ForbiddenError(
            f"it cannot be determined whether an instance is running: {error}; or, if you know "
            "that none is running, use --force"
        ) from error
    if holder is None:
        return
    found = f"{holder}: an instance is running and puts marks back"
    if anyway:
        logger.warning("%s", found)
        return
    another = "" if namespace else "; where it is another installation's, use --lease-namespace"
    raise AtWorkError(
        f"{found}; nothing was removed. Stop it first, for example with `kubectl -n "
        f"{holder.namespace} scale deployment/dynsched --replicas=0`, or use --force{another}"
    )


@contextlib.asynccontextmanager
async def _leading(elector: Elector) -> AsyncIterator[None]:
    """``elector`` holds the Lease inside of the block, and lets go of it at its end. One that its
    holder left without letting go is waited for. AtWorkError when the Lease is not free in time.
    """
    done = asyncio.Event()
    election = asyncio.create_task(elector.run(done), name="the leader election")
    try:
        await _until_it_leads(elector)
        yield
    finally:
        await end_election(election, done)


async def _until_it_leads(elector: Elector) -> None:
    try:
        async with asyncio.timeout(TAKE_SECONDS):
            while not elector.may_write:
                if elector.error is not None:
                    raise ClusterError(elector.error)
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise AtWorkError(
            f"the Lease {LEASE_NAME} could not be taken within {TAKE_SECONDS:g} s: "
            f"the holder is {elector.leader or 'not known'}; nothing was written"
        ) from None
