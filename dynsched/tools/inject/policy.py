"""The admission policy as text, for the label of one rules file; and `dynsched inject --check`: the
policy as it is installed, and the pods that it is for.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any, Final

import click
import yaml
from rich.console import Console

from dynsched.engine.wording import counted
from dynsched.kube.client import open_client
from dynsched.kube.inspection import avoid_policy, namespaces_that_ask, running_pods
from dynsched.rules import keys
from dynsched.rules.labels import LabelMark
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.avoiders import PREFERRED
from dynsched.util.defaults import AVOIDANCE_WEIGHT
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import as_mapping, as_mappings
from dynsched.util.tables import make_table, plain, show

_PLACES: Final = re.compile(r"'status'|'presure'|dyn\(100\)")
"""Where policy.yaml has the key, the value and the weight; these forms stand for nothing else."""


def label_of(rule_set: RuleSet) -> LabelMark:
    """The label that marks nodes. ExpectedError where it is none."""
    label = rule_set.mark.label
    if label is None:
        raise ExpectedError(
            f"nodes are marked by no label ({rule_set.mark}), and pods avoid a taint without an "
            "affinity: there is nothing to inject"
        )
    return label


def policy_text(label: LabelMark, weight: int = AVOIDANCE_WEIGHT) -> str:
    """The policy and its binding: YAML with comments, two documents."""
    text = resources.files(__package__).joinpath("policy.yaml").read_text(encoding="utf-8")
    # Label keys and values have no quotes in them, so they need no escaping in CEL.
    ours = {
        "'status'": f"'{label.key}'",
        "'presure'": f"'{label.value}'",
        "dyn(100)": f"dyn({weight})",
    }
    return _PLACES.sub(lambda place: ours[place[0]], text)


def policy_objects(label: LabelMark, weight: int = AVOIDANCE_WEIGHT) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(policy_text(label, weight)))


def differences(label: LabelMark, policy: Any, binding: Any) -> list[str]:
    """Why the installed policy does not give pods the preference against ``label``, in words. The
    weight is the operator's own choice. ``policy``, ``binding``: as stored, or None.
    """
    name = keys.AVOID_POLICY
    if policy is None:
        return [f"the policy {name} is not installed: dynsched inject -o yaml | kubectl apply -f -"]
    found = [] if binding else [f"the policy {name} has no binding, so it applies to nothing"]
    wanted, spec = policy_objects(label)[0]["spec"], policy.get("spec") or {}
    found += [
        f"the installed policy {name} differs from the one for {label} in {part}: "
        "dynsched inject -o yaml | kubectl diff -f -"
        for part in ("matchConditions", "variables", "mutations")
        if _words(wanted[part]) != _words(spec.get(part))
    ]
    return found


def _words(part: Any) -> str:
    """A part of the spec without what may differ: spaces, and the weight."""
    text = re.sub(r"\s+", " ", yaml.safe_dump(part, width=10**6))
    return re.sub(r"dyn\(\d+\)", "dyn()", text)


class Standing(StrEnum):
    AVOIDS = "avoids"
    """It prefers other nodes."""
    EXEMPT = "exempt"
    """It is not to have the preference: it opted out, belongs to a DaemonSet, or has a preference
    of its own about the label."""
    LACKS = "lacks"
    """It would get the preference if it were created now."""


def standing(pod: Mapping[str, Any], mark: LabelMark) -> Standing:
    """What the policy would say of a pod; a test compares the two on a real API server."""
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
