"""The commands that ask a running dynsched: `nodes`, `why`, and `open`, which shows its page."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click
from click.core import ParameterSource

from dynsched.cli import flags
from dynsched.util.errors import ClusterError, ExpectedError, NotRunningError

if TYPE_CHECKING:
    from rich.console import Console

    from dynsched.kube.services import Service
    from dynsched.tools.client import Running, Where

KUBECTL: Final = "kubectl"
"""The object of the click context under `kubectl dynsched`."""
_FLAGS: Final = ("server", "server_token_file", "kubeconfig", "context", "namespace")
_COMPLETION_SECONDS: Final = 2.0
"""Who presses TAB does not wait longer."""
_SERVING: Final = re.compile(r"Starting to serve on (\S+)")  # what `kubectl proxy` prints first
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@click.command()
@flags.running
@flags.output
@click.option("--marked", is_flag=True, help="Only nodes that carry the mark.")
@click.option(
    "--watch",
    "-w",
    is_flag=True,
    help="Go on, until Ctrl-C: on a terminal the table is drawn again after each tick; into a "
    "pipe, a line is added for each node whose state changes. With -o json: one object a line.",
)
@click.pass_context
def nodes(
    context: click.Context, /, *, output: str, marked: bool, watch: bool, **given: Any
) -> None:
    """Show all nodes with their rules' states, as a running instance sees them.

    Where none is running in the cluster: which nodes are marked, by the evidence on them; the exit
    code is 1.

    \b
    Example:
      dynsched nodes --marked
      dynsched nodes --context production --watch
    """
    from dynsched.cli.node_tables import render_nodes
    from dynsched.tools.client import nodes_path

    if watch:
        from dynsched.cli.watching import watch_nodes

        with asked(context, given) as running:
            watch_nodes(running, marked=marked, as_json=output == "json")
        return
    with _or_evidence(context, given, output), asked(context, given) as running:
        print_answer(running.json(nodes_path(marked=marked)), output, render_nodes)


def _names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """For a shell's completion: the nodes whose names begin so; none where that fails."""
    given = {name: context.params.get(name) for name in _FLAGS}
    with contextlib.suppress(ExpectedError, click.ClickException, TimeoutError):
        with asked(context, given, _COMPLETION_SECONDS) as running:
            names = [str(node["name"]) for node in running.json("/nodes")["nodes"]]
        return [name for name in names if name.startswith(incomplete)]
    return []


@click.command()
@click.argument("node", shell_complete=_names)
@flags.running
@flags.output
@click.pass_context
def why(context: click.Context, /, *, node: str, output: str, **given: Any) -> None:
    """Explain why a node is marked or not, and what would clear it. Of a pod: `dynsched order`.

    \b
    Example:
      dynsched why worker-3
    """
    from dynsched.cli.node_tables import render_why

    with _or_evidence(context, given, output, node), asked(context, given) as running:
        found = running.json(f"/nodes/{quote(node, safe='')}")
        if output != "json" and found["pressured"]:
            found["above"] = running.above(node)
        print_answer(found, output, render_why)


@click.command(name="open")
@flags.running
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="The port of `kubectl proxy` on this machine. Default: one that is free.",
)
@click.option("--no-browser", is_flag=True, help="Print the page's address, and open nothing.")
@click.pass_context
def open_page(context: click.Context, /, *, port: int, no_browser: bool, **given: Any) -> None:
    """Open the page of a running dynsched in the browser.

    The page of a dynsched in a cluster is reached through `kubectl proxy`, which runs until Ctrl-C
    and lets nothing else through. docs/page.md says what the page shows.

    \b
    Example:
      dynsched open
      dynsched open --context production --no-browser
    """
    from dynsched.tools.client import InCluster

    with asked(context, given | {"server_token_file": None}) as running:
        # As the browser will, without a token: what is wrong is said here, in words.
        running.remedy = (
            "; a browser sends none, so something before the page has to add one (docs/web-auth.md)"
        )
        running.ask("/")
        if not isinstance(running, InCluster):
            _present(f"{running.shown}/", browses=not no_browser)
            return
        service = running.service
        proxy = _proxy(_where(context, given), service, port)
        with contextlib.suppress(KeyboardInterrupt), proxy as kubectl:
            # `kubectl proxy` says where it listens, as 127.0.0.1:PORT, or why it ends.
            said = (_SERVING.search(line) for line in kubectl.stdout or ())
            if found := next(filter(None, said), None):
                _present(f"http://{found[1]}{service.path}/", browses=not no_browser)
                click.echo("The page can be reached until Ctrl-C.", err=True)
            raise ExpectedError(f"`kubectl proxy` has ended (exit code {kubectl.wait()})")


def asked(
    context: click.Context, given: Mapping[str, Any], timeout: float | None = None
) -> contextlib.AbstractContextManager[Running]:
    from dynsched.tools.client import opened

    return opened(_where(context, given, timeout))


@contextlib.contextmanager
def _or_evidence(
    context: click.Context, given: Mapping[str, Any], output: str, node: str | None = None
) -> Iterator[None]:
    """Where no dynsched is running, print the marks by the evidence on nodes before the error."""
    try:
        yield
    except NotRunningError as error:
        import asyncio
        from functools import partial

        from dynsched.cli.node_tables import render_left
        from dynsched.tools.left_marks import left_marks

        try:
            found = asyncio.run(left_marks(_where(context, given), node))
        except ClusterError as why_not:
            raise NotRunningError(f"{error}; and of the nodes: {why_not}") from None
        print_answer(found, output, partial(render_left, node=node))
        raise


def _where(context: click.Context, given: Mapping[str, Any], timeout: float | None = None) -> Where:
    """Which dynsched is asked. What was typed counts more than the environment: a cluster that is
    named on the command line is asked although DYNSCHED_SERVER is set, and this machine is not.
    UsageError where both are typed.
    """
    from dynsched.tools.client import Where

    typed = {
        name for name in _FLAGS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    of_cluster = sorted(f"--{name}" for name in typed - {"server", "server_token_file"})
    if "server" in typed and of_cluster:
        raise click.UsageError(
            f"--server and {of_cluster[0]} contradict each other: --server is the URL of dynsched "
            "itself, the other one says in which cluster to look for it"
        )
    return Where(
        server=None if of_cluster else given["server"],
        token_file=given["server_token_file"],
        kubeconfig=given["kubeconfig"],
        context=given["context"],
        namespace=given["namespace"],
        # Who calls kubectl means the cluster of its current context.
        tries_local=not of_cluster and context.find_root().obj != KUBECTL,
        timeout=timeout,
    )


def print_answer(payload: Any, output: str, render: Callable[[Any, Console], None]) -> None:
    from rich.console import Console

    if output == "json":
        click.echo(json.dumps(payload, indent=2, ensure_ascii=False))
    else:
        render(payload, Console())


@contextlib.contextmanager
def _proxy(where: Where, service: Service, port: int) -> Iterator[subprocess.Popen[str]]:
    """`kubectl proxy`, for a browser has no credentials for the API server; it ends with the block,
    and on SIGHUP too. Every program on this machine could use the caller's rights through it, so
    it lets nothing through but GET requests to the one Service.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ExpectedError(
            "kubectl is not on PATH, and the page of a dynsched in a cluster is shown through "
            "`kubectl proxy`: install it, or see docs/page.md for an Ingress"
        )
    command = [
        *(kubectl, "proxy", f"--port={port}", f"--accept-paths=^{re.escape(service.path)}/"),
        "--reject-methods=^(POST|PUT|PATCH|DELETE|CONNECT)$",
        *([f"--kubeconfig={where.kubeconfig}"] if where.kubeconfig else []),
        *([f"--context={where.context}"] if where.context else []),
    ]
    # In a group of its own: kubectl may be a wrapper that starts the real one, and both must end.
    process = subprocess.Popen(  # noqa: S603 (no shell; the program is the user's own kubectl)
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, lambda number, _: sys.exit(128 + number))
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def _present(url: str, *, browses: bool) -> None:
    click.echo(url)
    # Not on a console without display: browsers there know no JavaScript, and take the terminal.
    has_display = sys.platform != "linux" or any(map(os.environ.get, _DISPLAYS))
    if browses and not (has_display and webbrowser.open(url)):
        click.echo("No browser was found: open this address yourself.", err=True)
