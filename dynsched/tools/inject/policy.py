"""The admission policy as text, for the label of one rules file."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any, Final

import yaml

from dynsched.rules import keys
from dynsched.rules.labels import LabelMark
from dynsched.rules.rule_set import RuleSet
from dynsched.util.defaults import AVOIDANCE_WEIGHT
from dynsched.util.errors import ExpectedError

_PLACES: Final = re.compile(r"'status'|'presure'|dyn\(100\)")
"""Where policy.yaml has the key, the value and the weight; these forms stand for nothing else."""


def label_of(rule_set: RuleSet) -> LabelMark:
    """The label that marks nodes. ExpectedError where it is none."""
    label = rule_set.mark.label
    if label is None:
        raise ExpectedError(
            f"mark.label is null: nodes are marked by the taint {rule_set.mark.taint} alone, which "
            "pods avoid without an affinity; there is nothing to inject"
        )
    return label


def policy_text(label: LabelMark, weight: int = AVOIDANCE_WEIGHT) -> str:
    """The policy and its binding: YAML with comments, two documents."""
    text = (
        resources.files("dynsched.tools.inject").joinpath("policy.yaml").read_text(encoding="utf-8")
    )
    # Label keys and values have no quotes in them, so they need no escaping in CEL.
    ours = {
        "'status'": f"'{label.key}'",
        "'presure'": f"'{label.value}'",
        "dyn(100)": f"dyn({weight})",
    }
    return _PLACES.sub(lambda place: ours[place[0]], text)


def policy_objects(label: LabelMark, weight: int = AVOIDANCE_WEIGHT) -> list[dict[str, Any]]:
    """The policy and its binding as objects."""
    return list(yaml.safe_load_all(policy_text(label, weight)))


def differences(label: LabelMark, policy: Any, binding: Any) -> list[str]:
    """Why the installed policy does not give pods the preference against ``label``, in words; an
    empty list where it does. The weight is the operator's own choice. ``policy`` and ``binding``
    are the objects as stored, or None.
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
