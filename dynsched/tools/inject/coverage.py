"""`dynsched inject --check`: the policy as it is installed, and the pods that it is for."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click
from rich.console import Console

from dynsched.engine.avoidance import Standing, standing
from dynsched.engine.wording import counted
from dynsched.kube.client import open_client
from dynsched.kube.inspection import avoid_policy, namespaces_that_ask, running_pods
from dynsched.rules import keys
from dynsched.rules.labels import LabelMark
from dynsched.tools.inject.policy import differences
from dynsched.util.tables import make_table, plain, show


async def check_policy(
    label: LabelMark, kubeconfig: Path | None, context: str | None, output: str | None
) -> None:
    """Print what `inject --check` finds; ClickException where the policy is not as it should be."""
    async with open_client(kubeconfig, context) as api:
        found = differences(label, *await avoid_policy(api))
        pods = {
            name: Counter([standing(pod, label) async for pod in running_pods(api, name)])
            for name in await namespaces_that_ask(api)
        }
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
