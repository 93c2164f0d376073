"""The command `dynsched order`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dynsched.cli import flags

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("pod", required=False)
@click.option(
    "--namespace",
    "-n",
    metavar="NAMESPACE",
    help="The pod's. Default: the kubeconfig's. Without POD: where dynsched is.",
)
@flags.asked
@flags.kubeconfig
@flags.output
@click.pass_context
def order(context: click.Context, /, *, pod: str | None, output: str, **given: Any) -> None:
    """Show the order of the nodes for new pods, or which one a pod got, and where it went.

    Without POD a running dynsched is asked, as by `dynsched nodes`. With POD the levels of nodes
    are read from the pod, or why it got none: the API server alone is asked, with your rights.
    docs/order.md says what the order is.

    \b
    Example:
      dynsched order
      dynsched order web-7d4b9c-x2x5z -n shop
    """
    from dynsched.cli.ask import answer_of, print_answer, print_source, where_of

    if pod is None:
        print_answer(answer_of(where_of(context, given), "/order"), output, render_order)
        return
    from dynsched.kube.client import KubeClient
    from dynsched.kube.credentials import load_credentials
    from dynsched.tools.policies import pod_order, render_pod_order

    async def ask() -> dict[str, Any]:
        credentials = await load_credentials(given["kubeconfig"], given["context"])
        async with KubeClient(credentials) as api:
            found = await pod_order(api, given["namespace"] or api.config.namespace, pod)
            print_source(f"cluster {api.config.cluster}")
            return found

    print_answer(asyncio.run(ask()), output, render_pod_order)


def render_order(answer: Mapping[str, Any], console: Console) -> None:
    """The answer of `/order`: whether it is in force, how many nodes it has, and those by rank."""
    from dynsched.util.tables import make_table, show

    if answer["until"]:
        head = f"The order was written at {answer['written_at']}, in force until {answer['until']}."
    elif not answer["leading"]:
        head = f"This replica does not write the order; {answer['leader'] or 'none'} does."
    else:
        head = f"No order is in force{': this is a dry run' if answer['dry_run'] else ''}."
    show(console, head)
    if answer["error"]:
        show(console, f"It cannot be kept: {answer['error']}")
    if answer["counts"] is None:
        show(console, "There is none: no load is known, or ticks are overdue.")
        return
    counts = [f"{number} {kind}" for kind, number in answer["counts"].items() if number]
    rows = []
    for pool in answer["pools"]:
        for node in pool["nodes"]:
            load = "-" if node["load"] is None else f"{node['load']:.1f}"
            place = (pool["pool"] or "-", node["rank"], node["node"])
            rows.append(map(str, (*place, load, node["weight"], node["list"])))
    titles = ("POOL", "RANK", "NODE", "LOAD", "WEIGHT", "LIST")
    show(console, f"Nodes: {', '.join(counts)}.", make_table(titles, rows))
