"""The command `dynsched experiment`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from dynsched.cli import flags
from dynsched.cli.backtest import print_report


@click.command()
@flags.prometheus
@flags.rules
@click.option(
    "--since",
    metavar="MOMENT",
    callback=flags.moment,
    help="Blocks from then on: 2026-11-20T12:00:00Z, Unix seconds, or how long ago (7d). Default: "
    "28 days before the end of the experiment, or before now.",
)
@click.option(
    "--precision",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    metavar="PERCENT",
    help="Tell how many blocks more it takes until an interval reaches no more than so many per "
    "cent of the value without dynsched to each side.",
)
@flags.report_output
@flags.quiet_logging
def experiment(
    *,
    rules: Path,
    since: float | None,
    precision: float,
    output: str,
    **given: Any,
) -> None:
    """Show what marks and the order changed, by an experiment with blocks that are on and off.

    It reads Prometheus alone, while the experiment goes on or afterwards, by the rules file that is
    in force: time of nodes over the rules' thresholds, pods placed on hot nodes, writes to nodes
    and throttled time, each with its 95 % interval. docs/experiment.md says what it cannot tell.

    \b
    Example:
      dynsched experiment --prom http://localhost:9090 -r rules.yaml
      dynsched experiment -r rules.yaml -o html > experiment.html
    """
    from dynsched.controller.settings import settings_of
    from dynsched.rules.file import load_rules
    from dynsched.tools.experiment import report

    prometheus = settings_of(flags.patient(given)).prometheus
    asked = report.experiment(prometheus, load_rules(rules), since, precision / 100)
    found = asyncio.run(asked)
    print_report(found, report.sections(found), output)
