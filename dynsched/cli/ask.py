"""The commands that query a running dynsched: `nodes`, `why` and `order`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from click.core import ParameterSource

from dynsched.cli import flags

if TYPE_CHECKING:
    from rich.console import Console

    from dynsched.tools.client import Where

Render = Callable[[Any, "Console"], None]


@click.command()
@flags.running
@flags.output
def nodes(*, output: str, **given: Any) -> None:
    """Show all nodes with their rules' states, as a running instance sees them.

    \b
    Example:
      dynsched nodes
      dynsched nodes --context production
    """
    from dynsched.cli.tables import render_nodes

    _ask("/nodes", output, render_nodes, given)


@click.command()
@click.argument("node")
@flags.running
@flags.output
def why(*, node: str, output: str, **given: Any) -> None:
    """Explain why a node is marked or not, and what would clear it.

    \b
    Example:
      dynsched why worker-3
    """
    from dynsched.cli.tables import render_why

    _ask(f"/nodes/{quote(node, safe='')}", output, render_why, given)


@click.command()
@click.argument("pod", required=False)
@click.option(
    "--namespace",
    "-n",
    metavar="NAMESPACE",
    help="Namespace of the pod. Default: the kubeconfig's. Without POD: namespace of dynsched.",
)
@flags.server
@flags.kubeconfig
@flags.output
def order(*, pod: str | None, output: str, **given: Any) -> None:
    """Show the order of the nodes for new pods, or the order that a pod got, and its node.

    Without POD, the running dynsched is queried. With POD, the preferences in the pod are read.
    docs/order.md explains the order.

    \b
    Example:
      dynsched order
      dynsched order web-7d4b9c-x2x5z -n shop
    """
    from dynsched.cli.tables import render_order, render_pod_order

    if pod is None:
        _ask("/order", output, render_order, given)
        return
    import asyncio

    from dynsched.kube.client import KubeClient
    from dynsched.kube.credentials import load_credentials
    from dynsched.tools.policies import pod_order

    async def ask() -> dict[str, Any]:
        credentials = await load_credentials(given["kubeconfig"], given["context"])
        async with KubeClient(credentials) as api:
            found = await pod_order(api, given["namespace"] or api.config.namespace, pod)
            print_source(f"cluster {api.config.cluster}")
            return found

    print_answer(asyncio.run(ask()), output, render_pod_order)


def _ask(path: str, output: str, render: Render, given: Mapping[str, Any]) -> None:
    """Query ``path``, and print the source and the answer. The source shows which cluster it is.

    Raises ExpectedError.
    """
    from dynsched.tools.client import ask_json

    source, found = ask_json(_where(given), path)
    print_source(source)
    print_answer(found, output, render)


def _where(given: Mapping[str, Any]) -> Where:
    """The instance to query. The command line overrides the environment: a cluster that is named
    there is queried even if DYNSCHED_SERVER is set. Raises UsageError if both are on the command
    line.
    """
    from dynsched.tools.client import Where

    source = click.get_current_context().get_parameter_source
    typed = {name for name in given if source(name) is ParameterSource.COMMANDLINE}
    of_cluster = sorted(f"--{name}" for name in typed - {"server", "server_token_file"})
    if "server" in typed and of_cluster:
        raise click.UsageError(
            f"--server and {of_cluster[0]} contradict each other: --server is the URL of dynsched "
            "itself, the other one selects the cluster in which to look for it"
        )
    server, token_file = given["server"], given["server_token_file"]
    at = {name: given[name] for name in ("kubeconfig", "context", "namespace")}
    return Where(None if of_cluster else server, token_file, **at)


def print_source(source: str) -> None:
    click.echo(f"From {source}", err=True)


def print_answer(payload: Any, output: str, render: Render) -> None:
    from rich.console import Console

    if output == "json":
        click.echo(json.dumps(payload, indent=2, ensure_ascii=False))
    else:
        render(payload, Console())
