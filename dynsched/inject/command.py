"""The command `dynsched inject`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import click
from rich.console import Console

from dynsched import flags
from dynsched.core import keys
from dynsched.core.avoidance import Standing, standing
from dynsched.core.labels import LabelMark
from dynsched.core.wording import counted
from dynsched.inject.policy import (
    DEFAULT_WEIGHT,
    differences,
    label_of,
    policy_objects,
    policy_text,
)
from dynsched.kube.admission import find_policy, namespaces_that_ask, running_pods
from dynsched.kube.config import load_config
from dynsched.kube.transport import KubeApi
from dynsched.rules_file import load_rules
from dynsched.tables import make_table, plain, show


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@flags.rules
@click.option(
    "--weight",
    type=click.IntRange(1, 100),
    default=DEFAULT_WEIGHT,
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
    label = label_of(load_rules(rules))
    if check:
        if output == "yaml":
            raise click.UsageError("--check prints a table or json")
        _check(label, str(kubeconfig) if kubeconfig else None, context, output)
    elif output == "json":
        items = policy_objects(label, weight)
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
    elif output == "table":
        raise click.UsageError("the policy is printed as yaml or json")
    else:
        click.echo(policy_text(label, weight), nl=False)


def _check(
    label: LabelMark, kubeconfig: str | None, context: str | None, output: str | None
) -> None:
    found, pods = asyncio.run(_look(label, kubeconfig, context))
    if output == "json":
        told = {
            "label": str(label),
            "policy": {"ok": not found, "problems": found},
            "namespaces": [
                {"name": name} | {str(each): count[each] for each in Standing}
                for name, count in pods.items()
            ],
        }
        click.echo(json.dumps(told, indent=2))
    else:
        _show(label, pods)
    if found:
        raise click.ClickException("\n".join(found))


async def _look(
    label: LabelMark, kubeconfig: str | None, context: str | None
) -> tuple[list[str], dict[str, Counter[Standing]]]:
    """What is wrong with the installed policy, and the pods of each namespace that asks."""
    api = KubeApi(await load_config(kubeconfig, context))
    try:
        found = differences(label, *await find_policy(api))
        pods: dict[str, Counter[Standing]] = {}
        for name in await namespaces_that_ask(api):
            count = pods[name] = Counter()
            async for pod in running_pods(api, name):
                count[standing(pod, label)] += 1
    finally:
        await api.close()
    return found, pods


def _show(label: LabelMark, pods: dict[str, Counter[Standing]]) -> None:
    if not pods:
        click.echo(
            f"no namespace asks for it: kubectl label namespace NAME {keys.AVOID_LABEL}=true"
        )
        return
    table = make_table("NAMESPACE", f"AVOID {label}", "EXEMPT", "LACK IT")
    for name, count in pods.items():
        table.add_row(plain(name), *(plain(str(count[each])) for each in Standing))
    show(Console(), table)
    lacking = sum(count[Standing.LACKS] for count in pods.values())
    if lacking:
        rest = f"{counted(lacking, 'running pod')} lack{'s' if lacking == 1 else ''} it"
        click.echo(f"{rest} until created anew: kubectl -n NAMESPACE rollout restart deployment")
