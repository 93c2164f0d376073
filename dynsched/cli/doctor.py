"""The command `dynsched doctor`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from dynsched.cli import flags
from dynsched.cli.ask import print_answer
from dynsched.util.errors import ExpectedError


@click.command()
@flags.kubeconfig
@flags.prometheus_or_found
@flags.rules_or_shipped
@flags.server
@flags.namespace
@flags.output
@flags.quiet_logging
def doctor(
    *,
    output: str,
    server: str | None,
    server_token_file: Path | None,
    namespace: str | None,
    **given: Any,
) -> None:
    """Check the rules against the live Prometheus and the cluster. It writes nothing.

    Each finding has a code, its evidence and a fix. docs/check.md explains the codes. Exit codes:
    0: no error; 1: an error; 2: Prometheus or the API server did not answer, or the rules file is
    missing or wrong.

    \b
    Example:
      dynsched doctor --prom http://localhost:9090 -r rules.yaml
    """
    from dynsched.controller.settings import settings_of
    from dynsched.rules.file import load_rules
    from dynsched.tools.client import Where
    from dynsched.tools.doctor.examine import examine
    from dynsched.tools.doctor.findings import render

    try:
        settings = settings_of(given)
        report = examine(
            load_rules(settings.rules),
            Where(
                server,
                server_token_file,
                kubeconfig=settings.kubeconfig,
                context=settings.context,
                namespace=namespace,
            ),
            prometheus=settings.prometheus,
            log=partial(click.echo, err=True),
        )
    except ExpectedError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    print_answer(report.as_json(), output, lambda _, console: render(report, console))
    for line in report.unreachable:
        click.echo(f"Error: {line}", err=True)
    sys.exit(report.exit_code)
