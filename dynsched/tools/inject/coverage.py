"""`dynsched inject --check`: the policy as it is installed, and the pods that it is for.

The policy is text for the API server (`dynsched.tools.inject.policy`). `standing` says the same of
pods that exist already; a test compares the two on a real API server.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dynsched.engine.wording import counted
from dynsched.kube.client import open_client
from dynsched.kube.inspection import avoid_policy, namespaces_that_ask, running_pods
from dynsched.rules import keys
from dynsched.rules.labels import LabelMark
from dynsched.tools.doctor.avoiders import PREFERRED
from dynsched.tools.inject.policy import differences
from dynsched.util.formatting import as_mapping, as_mappings
from dynsched.util.tables import make_table, plain, show


class Standing(StrEnum):
    AVOIDS = "avoids"
    """It prefers other nodes."""
    EXEMPT = "exempt"
    """It is not to have the preference: it opted out, belongs to a DaemonSet, or has a preference
    of its own about the label."""
    LACKS = "lacks"
    """It would get the preference if it were created now."""


def standing(pod: Mapping[str, Any], mark: LabelMark) -> Standing:
    metadata = as_mapping(pod.get("metadata"))
    affinity = as_mapping(as_mapping(pod.get("spec")).get("affinity"))
    own = [
        each
        for term in as_mappings(as_mapping(affinity.get("nodeAffinity")).get(PREFERRED))
        for each in as_mappings(as_mapping(term.get("preference")).get("matchExpressions"))
        if each.get("key") == mark.key
    ]
    if any(e.get("operator") == "NotIn" and mark.value in (e.get("values") or ()) for e in own):
        return Standing.AVOIDS
    marks = [as_mapping(metadata.get(part)) for part in ("labels", "annotations")]
    opted_out = any(each.get(keys.AVOID_LABEL) == "false" for each in marks)
    owners = as_mappings(metadata.get("ownerReferences"))
    if own or opted_out or any(owner.get("kind") == "DaemonSet" for owner in owners):
        return Standing.EXEMPT
    return Standing.LACKS


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
