"""The admission policies as text: the soft affinity for the label of one rules file, and the order;
and whether an installed one is the same. No cluster is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, Final, NamedTuple

import yaml

from dynsched.rules import keys
from dynsched.rules.labels import LabelMark
from dynsched.rules.rule_set import RuleSet
from dynsched.util.defaults import AVOIDANCE_WEIGHT
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import as_mapping, as_mappings

HOME: Final = "dynsched"
"""The namespace of manifests/, where the policy of the order looks for its object."""
_PLACES: Final = re.compile(r"'status'|'presure'|dyn\(100\)")
"""Where policy.yaml has the key, the value and the weight; these forms stand for nothing else."""
_COMPARED: Final = ("paramKind", "matchConditions", "variables", "mutations")
MOST_AHEAD: Final = 60.0
"""Seconds for which the policy takes an order to be in force."""
_COOLEST: Final = 100
"""The weight with which an order begins."""
_BY_NAME: Final = [(keys.HOSTNAME_LABEL, "In")]
INSTALL: Final = "dynsched inject -o yaml | kubectl apply -f -"


class Problem(NamedTuple):
    """Why new pods do not get what a policy is to give them, and what to do."""

    what: str
    fix: str


def injected(rule_set: RuleSet, weight: int, namespace: str) -> str:
    """What is installed for these rules. ExpectedError where they want nothing of it."""
    label = rule_set.mark.label
    texts = [policy_text(label, weight)] if label else []
    texts += [order_text(namespace)] if rule_set.order else []
    if not texts:
        raise ExpectedError(
            f"nodes are marked by no label ({rule_set.mark}) for an affinity to avoid, and there "
            "is no section order: there is nothing to inject"
        )
    return "---\n".join(texts)


def policy_text(label: LabelMark, weight: int = AVOIDANCE_WEIGHT) -> str:
    """The policy of the soft affinity, and its binding."""
    # Label keys and values have no quotes in them, so they need no escaping in CEL.
    ours = {
        "'status'": f"'{label.key}'",
        "'presure'": f"'{label.value}'",
        "dyn(100)": f"dyn({weight})",
    }
    return _PLACES.sub(lambda place: ours[place[0]], _component("inject"))


def policy_objects(label: LabelMark, weight: int = AVOIDANCE_WEIGHT) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(policy_text(label, weight)))


def order_text(namespace: str = HOME) -> str:
    """The kind NodeOrder, the policy of the order, its binding, and the right of dynsched."""
    return _component("order").replace(f"namespace: {HOME}", f"namespace: {namespace}")


def _component(name: str) -> str:
    """The objects of a component of manifests/, with comments: components/ are links to there."""
    folder = resources.files(__package__).joinpath("components", name)
    names = yaml.safe_load(folder.joinpath("kustomization.yaml").read_bytes())["resources"]
    return "---\n".join(folder.joinpath(each).read_text(encoding="utf-8") for each in names)


def differences(
    wanted: Iterable[Mapping[str, Any]], policy_name: str, policy: Any, binding: Any
) -> list[Problem]:
    """Why an installed policy does not do what the one in ``wanted`` would. The weight is the
    operator's own choice. ``policy``, ``binding``: as stored, or None.
    """
    ours = next(each for each in wanted if each["metadata"]["name"] == policy_name)
    name = f"the policy {policy_name}"
    if policy is None:
        return [Problem(f"{name} is not installed", INSTALL)]
    found = (
        [] if binding else [Problem(f"{name} has no binding, so it applies to nothing", INSTALL)]
    )
    spec = as_mapping(policy.get("spec"))
    differ = ", ".join(
        part for part in _COMPARED if _words(ours["spec"].get(part)) != _words(spec.get(part))
    )
    if differ:
        what = f"{name} is not the one for these rules and this version; it differs in {differ}"
        found.append(Problem(what, "dynsched inject -o yaml | kubectl diff -f -"))
    return found


def wanted_by(term: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a preference of a pod wants of the node's labels."""
    return as_mappings(as_mapping(term.get("preference")).get("matchExpressions"))


def levels_in(terms: Iterable[Mapping[str, Any]]) -> list[int]:
    """Which of a pod's preferences the order's policy appended to the pod's own; their indices."""
    found: list[int] = []
    for at, term in enumerate(terms):
        if [(each.get("key"), each.get("operator")) for each in wanted_by(term)] == _BY_NAME:
            found = [at] if term.get("weight") == _COOLEST else [*found, at]
    return found


def _words(part: Any) -> str:
    """A part of the spec without what may differ: spaces, and the weight."""
    text = re.sub(r"\s+", " ", yaml.safe_dump(part, width=10**6))
    return re.sub(r"dyn\(\d+\)", "dyn()", text)
