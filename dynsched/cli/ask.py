"""The commands `dynsched nodes` and `dynsched why`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from dynsched.cli import flags

if TYPE_CHECKING:
    from rich.console import Console

_COMPLETION_SECONDS: Final = 2.0
"""Who presses TAB does not wait longer."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
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

    \b
    Example:
      dynsched nodes --marked
      dynsched nodes --context production --watch
    """
    from dynsched.cli.node_tables import render_nodes
    from dynsched.cli.server_flags import where_of
    from dynsched.tools.running import opened

    with opened(where_of(context, given)) as running:
        if watch:
            from dynsched.cli.watching import watch_nodes

            watch_nodes(running, marked=marked, as_json=output == "json")
        else:
            _print(running.nodes(marked=marked), output, render_nodes)


def _names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """For a shell's completion: the nodes whose names begin so; none where that fails."""
    from dynsched.cli.server_flags import FLAGS, where_of
    from dynsched.tools.running import opened
    from dynsched.util.errors import ExpectedError

    given = {name: context.params.get(name) for name in FLAGS}
    with contextlib.suppress(ExpectedError, click.ClickException, TimeoutError):
        with opened(where_of(context, given, _COMPLETION_SECONDS)) as running:
            names = [str(node["name"]) for node in running.nodes(marked=False)["nodes"]]
        return [name for name in names if name.startswith(incomplete)]
    return []


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("node", shell_complete=_names)
@flags.running
@flags.output
@click.pass_context
def why(context: click.Context, /, *, node: str, output: str, **given: Any) -> None:
    """Explain why a node is marked or not, and what would clear it.

    \b
    Example:
      dynsched why worker-3
    """
    from dynsched.cli.node_tables import render_why
    from dynsched.cli.server_flags import where_of
    from dynsched.tools.running import opened

    with opened(where_of(context, given)) as running:
        _print(running.node(node), output, render_why)


def _print(payload: Any, output: str, render: Callable[[Any, Console], None]) -> None:
    from rich.console import Console

    if output == "json":
        click.echo(json.dumps(payload, indent=2, ensure_ascii=False))
    else:
        render(payload, Console())
