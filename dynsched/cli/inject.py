"""The command `dynsched inject`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dynsched.cli import flags
from dynsched.util.defaults import AVOIDANCE_WEIGHT


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@flags.rules
@click.option(
    "--weight",
    type=click.IntRange(1, 100),
    default=AVOIDANCE_WEIGHT,
    show_default=True,
    help="The weight of the preference, beside other preferences that a pod has.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Print which namespaces ask for the preference and how many of their running pods lack "
    "it, and whether the policy is installed.",
)
@flags.kubeconfig
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "table"]),
    help="Default: yaml, and a table with --check.",
)
def inject(
    *,
    rules: Path,
    weight: int,
    check: bool,
    kubeconfig: Path | None,
    context: str | None,
    output: str | None,
) -> None:
    """Print the admission policy that gives new pods the soft affinity.

    It is for the label that the rules file marks nodes with. The policy applies to namespaces with
    the label dynsched.io/avoid-pressure=true and needs Kubernetes 1.36. This command writes nothing
    to the cluster. With --check, the exit code is 1 where the policy is missing or is for another
    label.

    \b
    Example:
      dynsched inject -o yaml | kubectl apply -f -
      kubectl label namespace shop dynsched.io/avoid-pressure=true
      dynsched inject --check
    """
    import asyncio

    from dynsched.rules.file import load_rules
    from dynsched.tools.inject.policy import check_policy, label_of, policy_objects, policy_text

    label = label_of(load_rules(rules))
    if check:
        if output == "yaml":
            raise click.UsageError("--check prints a table or json")
        asyncio.run(check_policy(label, kubeconfig, context, output))
    elif output == "json":
        items = policy_objects(label, weight)
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
    elif output == "table":
        raise click.UsageError("the policy is printed as yaml or json")
    else:
        click.echo(policy_text(label, weight), nl=False)
