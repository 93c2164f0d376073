"""The command `dynsched top`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

import click

from dynsched.cli import flags

_STEP: Final = 30.0
"""Seconds between two steps of the history that is replayed for `for`. The default interval of 10 s
would need three times the samples."""


@click.command()
@flags.kubeconfig
@flags.prometheus_or_found
@flags.output
@flags.every
@flags.quiet_logging
def top(*, output: str, every: bool, **given: Any) -> None:
    """Show what nodes use and what their pods request, worst first, and where new pods would go.

    It needs only a kubeconfig, and writes nothing. It finds Prometheus in the cluster, or uses
    metrics-server; without both it shows only requests and limits. docs/look.md explains the
    columns.

    \b
    Example:
      dynsched top
      watch dynsched top --context production
    """
    from dynsched.cli.ask import print_answer, print_source
    from dynsched.cli.overview_table import render, report
    from dynsched.controller.overview import look
    from dynsched.controller.settings import settings_of

    overview = asyncio.run(look(settings_of({**given, "dry_run": True, "interval": _STEP})))
    print_source(f"cluster {overview.cluster}")
    print_answer(report(overview), output, partial(render, every=every))
