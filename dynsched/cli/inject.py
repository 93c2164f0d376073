"""The command `dynsched inject`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from dynsched.cli import flags
from dynsched.cli.ask import print_answer
from dynsched.util.defaults import AVOIDANCE_WEIGHT


@click.command()
@flags.rules
@click.option(
    "--weight",
    type=click.IntRange(1, 100),
    default=AVOIDANCE_WEIGHT,
    show_default=True,
    help="The weight of the preference, beside other preferences that a pod has.",
)
@flags.option(
    "--lease-namespace",
    metavar="NAMESPACE",
    help="Where dynsched runs, and keeps the object of the order. Default: dynsched.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Print which namespaces ask for the preference and how many of their running pods lack "
    "it, and whether the policies are installed.",
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
    lease_namespace: str | None,
    check: bool,
    kubeconfig: Path | None,
    context: str | None,
    output: str | None,
) -> None:
    """Print the admission policies that give new pods preferences, for the rules file.

    One gives the soft affinity against the label that marks nodes. With a section `order` in the
    rules file there is another one, with the kind of the object that it reads and the right to
    write it; see docs/order.md. They apply to namespaces with the label
    dynsched.io/avoid-pressure=true and need Kubernetes 1.36. This command writes nothing to the
    cluster. With --check, the exit code is 1 where a policy is missing or is for other rules, or no
    order is in force; with a section `order` the soft affinity may be missing. To take back one of
    them, name it: docs/inject.md and docs/order.md have the commands.

    \b
    Example:
      dynsched inject -o yaml | kubectl apply -f -
      kubectl label namespace shop dynsched.io/avoid-pressure=true
      dynsched inject --check
    """
    import yaml

    from dynsched.rules.file import load_rules
    from dynsched.tools.inject.policy import HOME, injected

    rule_set = load_rules(rules)
    text = injected(rule_set, weight, lease_namespace or HOME)
    if check:
        if output == "yaml":
            raise click.UsageError("--check prints a table or json")
        from dynsched.tools.inject.installed import check_policies, render_check

        found = asyncio.run(check_policies(rule_set, kubeconfig, context))
        print_answer(found, output or "table", render_check)
        if found["policy"]["problems"]:
            raise click.ClickException("\n".join(found["policy"]["problems"]))
    elif output == "json":
        items = list(yaml.safe_load_all(text))
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
    elif output == "table":
        raise click.UsageError("the policies are printed as yaml or json")
    else:
        click.echo(text, nl=False)
