"""The command `dynsched reach`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from dynsched.cli import flags
from dynsched.util.logs import configure_logging, last_words


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@flags.kubeconfig
@flags.rules
@flags.output
@click.option("--all", "every", is_flag=True, help="Show every workload, not only the worst.")
@flags.quiet_logging
def reach(
    *,
    kubeconfig: Path | None,
    context: str | None,
    rules: Path,
    output: str,
    every: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Show which running pods react to the mark, by workload, worst first. It writes nothing.

    A pod reacts if its node affinity avoids the label, if it does not tolerate the taint of the
    mark, or if the extender has a profile for its scheduler. Pods of DaemonSets are not counted:
    each node gets one of them anyway. For workloads that do not react, it prints the patch.

    \b
    Example:
      dynsched reach --rules rules.yaml
    """
    from rich.console import Console

    from dynsched.kube.client import open_client
    from dynsched.rules.file import load_rules
    from dynsched.tools.doctor.ask_cluster import count_pods
    from dynsched.tools.doctor.avoiders import reach_of
    from dynsched.tools.doctor.reach_report import as_json, render
    from dynsched.util.errors import ClusterError

    configure_logging(log_format, log_level)
    with last_words(log_format, (ClusterError,)):
        rule_set = load_rules(rules)

        async def counted() -> None:
            async with open_client(kubeconfig, context) as client:
                await count_pods(client, found)

        found = reach_of(rule_set)
        asyncio.run(counted())
    if output == "json":
        click.echo(json.dumps(as_json(found), indent=2, ensure_ascii=False))
    else:
        render(found, Console(), every=every)
