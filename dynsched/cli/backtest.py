"""The command `dynsched backtest`."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dynsched.cli import flags
from dynsched.cli.ask import print_answer


@click.command()
@flags.kubeconfig
@flags.prometheus_or_found
@flags.rules_or_shipped
@click.option(
    "--since",
    default="7d",
    show_default=True,
    metavar="DURATION",
    callback=flags.seconds(at_least=1),
    help="How far back to replay.",
)
@click.option(
    "--until",
    metavar="MOMENT",
    callback=flags.moment,
    help="End of the replay: 2026-11-20T12:00:00Z, Unix seconds, or a duration before now (2h). "
    "Default: now.",
)
@click.option(
    "--step",
    default="30s",
    show_default=True,
    metavar="DURATION",
    callback=flags.seconds(at_least=1),
    help="Time between two evaluations. It grows if over 20 million samples would be needed.",
)
@click.option(
    "--compare",
    type=flags.FILE,
    metavar="FILE",
    help="Another rules file: replay both, and show the difference per node.",
)
@flags.output
@flags.quiet_logging
def backtest(
    *,
    rules: Path,
    compare: Path | None,
    output: str,
    **given: Any,
) -> None:
    """Replay the rules over Prometheus's history: what would have been marked, and how often.

    It decides as `dynsched run` does, but uses only measured load. It writes nothing to the
    cluster.

    \b
    Example:
      dynsched backtest --prom http://localhost:9090 -r rules.yaml --since 7d
      dynsched backtest -r rules.yaml --compare new-rules.yaml -o json
    """
    from dynsched.controller.settings import settings_of
    from dynsched.rules.file import load_rules
    from dynsched.tools.backtest import gathering, rendering

    context = click.get_current_context()
    if context.get_parameter_source("prom_timeout") is ParameterSource.DEFAULT:
        given["prom_timeout"] = 120.0  # Prometheus's own limit, because the queries look far back
    prometheus = {name: given.pop(name) for name in [*given] if name.startswith("prom")}
    rule_sets = [load_rules(rules)]
    if compare is not None:
        rule_sets.append(load_rules(compare, flag="--compare"))
    options = gathering.BacktestOptions(settings_of(prometheus).prometheus, rule_sets, **given)
    report = asyncio.run(gathering.backtest(options, partial(click.echo, err=True)))
    print_answer(report, output, rendering.render)
