"""The command `dynsched open`."""

from __future__ import annotations

from typing import Any

import click

from dynsched.cli import flags


@click.command(name="open", context_settings={"help_option_names": ["-h", "--help"]})
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
    from dynsched.cli.page_forward import show_page
    from dynsched.cli.server_flags import where_of
    from dynsched.tools.running import opened

    where = where_of(context, given)
    with opened(where) as running:
        show_page(running, where, port=port, browses=not no_browser)
