"""The checks of rights, of metrics-server and of other programs: K1, P0 and K2. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dynsched.engine.avoiders import PREFERRED
from dynsched.engine.wording import listed
from dynsched.kube.inspection import Program
from dynsched.rules.labels import LabelMark, TaintMark
from dynsched.tools.doctor.finding import Finding, Severity
from dynsched.tools.doctor.gathered import ClusterFacts
from dynsched.util.untyped import as_mapping, as_mappings

_QUOTED: Final = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_BALANCES: Final = "--balance-similar-node-groups"
_IGNORES: Final = "--balancing-ignore-label"
_PREFERENCES: Final = ("--preference-policy", "PREFERENCE_POLICY")
_TAINTS: Final = "RemovePodsViolatingNodeTaints"
_AFFINITY: Final = "RemovePodsViolatingNodeAffinity"
_OFF: Final = frozenset({"false", "0", "f"})


def check_rights(facts: ClusterFacts) -> Iterator[Finding]:
    """K1: rights that are lacking, and two writers."""
    by_role: dict[tuple[str, str, str, str], list[str]] = {}
    for right in facts.refused:
        key = (right.group, right.resource, right.namespace, right.name)
        by_role.setdefault(key, []).append(right.verb)
    for (group, resource, namespace, name), verbs in by_role.items():
        where = f" in namespace {namespace}" if namespace else ""
        what = f"{resource}{f' {name}' if name else ''}{where}"
        role = "Role" if resource == "leases" else "ClusterRole"
        named = f", resourceNames: [{name}]" if name else ""
        yield Finding(
            "K1",
            Severity.ERROR,
            f"the account in use may not {listed(verbs)} {what}",
            _review(verbs[0], resource, group, namespace),
            f'add to the {role} dynsched: {{apiGroups: ["{group}"], resources: [{resource}]{named}'
            f", verbs: [{', '.join(verbs)}]}}",
        )
    if len(facts.holders or ()) > 1:
        yield Finding(
            "K1",
            Severity.ERROR,
            "more than one dynsched holds a Lease in this cluster: they write the same nodes",
            listed(list(facts.holders or ())),
            "stop all but one, or give them the same --lease-namespace",
        )


def check_metrics(facts: ClusterFacts) -> Iterator[Finding]:
    """P0 of the rules whose source is metrics-server."""
    if facts.metrics is not None:
        yield Finding(
            "P0",
            Severity.ERROR,
            "metrics-server does not answer, so its rules know nothing of any node",
            facts.metrics,
            "make `kubectl top nodes` work, or write rules of source prometheus",
        )


def check_admission(facts: ClusterFacts, label: LabelMark | None) -> Iterator[Finding]:
    """K1: the policies in the cluster against the mark of rules.yaml."""
    if facts.guardrail is not None and label is not None:
        marks = _strings(_variable(facts.guardrail, "marks"))
        if marks and str(label) not in marks:
            yield Finding(
                "K1",
                Severity.ERROR,
                "the guardrail refuses the mark of rules.yaml: no node can be marked",
                f"mark.label is {label}; the policy allows {listed(sorted(marks))}",
                f"add '{label}' to `marks` of the ValidatingAdmissionPolicy dynsched-guardrail",
            )
    if facts.injection is not None:
        told = frozenset(_strings(_variable(facts.injection, "term") or str(facts.injection)))
        if label is None or not {label.key, label.value} <= told:
            yield Finding(
                "K1",
                Severity.ERROR,
                "the injection gives pods an affinity to another label than the mark's",
                f"mark.label is {label or 'not set'}; the MutatingAdmissionPolicy "
                "dynsched-avoid-pressure does not name its key and value",
                "write the policy anew for these rules: `dynsched inject -o yaml`",
            )


def check_neighbours(
    facts: ClusterFacts, label: LabelMark | None, taint: TaintMark | None
) -> Iterator[Finding]:
    """K2: programs that the mark disturbs, or that work against it."""
    for program in facts.programs:
        if label is not None and "cluster-autoscaler" in program.image:
            yield from _autoscaler(program, label)
        elif "karpenter" in program.image:
            yield from _karpenter(program, label, taint)
    for place, policy in facts.policies.items():
        yield from _descheduler(place, policy, label, taint)
    if facts.cilium is not None and label is not None:
        yield from _cilium(facts.cilium, label)


def _autoscaler(program: Program, label: LabelMark) -> Iterator[Finding]:
    ignored = list(_values(program.words, _IGNORES))
    if label.key in ignored:
        return
    balances = [each.lower() not in _OFF for each in _values(program.words, _BALANCES)]
    is_on = bool(balances) and balances[-1]
    yield Finding(
        "K2",
        Severity.WARNING if is_on else Severity.INFO,
        "Cluster Autoscaler compares the labels of nodes"
        + (
            ", and takes groups of nodes with and without the mark for different ones"
            if is_on
            else f" as soon as {_BALANCES} is set, the mark's too"
        ),
        f"{_place(program)}: {_IGNORES} is {listed(ignored) or 'not set'}",
        f"add {_IGNORES}={label.key} to its arguments",
    )


def _karpenter(
    program: Program, label: LabelMark | None, taint: TaintMark | None
) -> Iterator[Finding]:
    if taint is not None:
        yield Finding(
            "K2",
            Severity.WARNING,
            "Karpenter takes a node with a PreferNoSchedule taint for closed to pods that do not "
            "tolerate it: while nodes are marked it keeps nodes that it could remove, and adds "
            "some",
            f"{_place(program)}; mark.taint is {taint}, which {_PREFERENCES[1]} does not change",
            f"write mark.taint: null, mark by the label, and set {_PREFERENCES[1]}=Ignore",
        )
    set_to = [
        *_values(program.words, _PREFERENCES[0]),
        *(value for name, value in program.environment if name == _PREFERENCES[1]),
    ]
    if label is None or "Ignore" in set_to:
        return
    yield Finding(
        "K2",
        Severity.WARNING,
        "Karpenter treats a preference as a requirement first: it may add a node, or keep one, "
        "only because the others are marked",
        f"{_place(program)}: {_PREFERENCES[0]} is {listed(set_to) or 'not set (Respect)'}",
        f"set {_PREFERENCES[0]}=Ignore (or {_PREFERENCES[1]}=Ignore)",
    )


def _descheduler(
    place: str, policy: Any, label: LabelMark | None, taint: TaintMark | None
) -> Iterator[Finding]:
    for profile in as_mappings(as_mapping(policy).get("profiles")):
        enabled = {
            name
            for point in as_mapping(profile.get("plugins")).values()
            for name in as_mapping(point).get("enabled") or ()
        }
        configured = {
            str(each.get("name")): as_mapping(each.get("args"))
            for each in as_mappings(profile.get("pluginConfig"))
        }
        taints, affinity = configured.get(_TAINTS, {}), configured.get(_AFFINITY, {})
        is_excluded = taint is not None and any(
            str(each).partition("=")[0] == taint.key for each in taints.get("excludedTaints") or ()
        )
        drains = taints.get("includePreferNoSchedule") is True and not is_excluded
        if taint is not None and _TAINTS in enabled and drains:
            yield Finding(
                "K2",
                Severity.ERROR,
                "the descheduler evicts every pod that does not tolerate the taint of the mark: it "
                "drains marked nodes",
                f"{place}: {_TAINTS} with includePreferNoSchedule",
                f"add {taint.key} to its excludedTaints",
            )
        loops = PREFERRED in (affinity.get("nodeAffinityType") or ())
        if label is not None and _AFFINITY in enabled and loops:
            yield Finding(
                "K2",
                Severity.WARNING,
                "the descheduler evicts pods by soft affinity, again and again, while nodes are "
                "marked",
                f"{place}: {_AFFINITY} with {PREFERRED}",
                f"leave {PREFERRED} out of its nodeAffinityType",
            )


def _cilium(config: Mapping[str, str], label: LabelMark) -> Iterator[Finding]:
    keys = ["labels"]
    if config.get("enable-node-selector-labels") == "true":
        keys.append("node-labels")
    for key in keys:
        named = [each for each in config.get(key, "").split() if _selects(each, label.key)]
        everything = key == "node-labels" and not config.get(key, "").strip()
        if named or everything:
            yield Finding(
                "K2",
                Severity.WARNING,
                "Cilium makes identities of the mark's label: each mark changes identities, and "
                "endpoints are made anew",
                f"ConfigMap kube-system/cilium-config, {key}: "
                f"{listed(named) if named else 'empty, which is every label'}",
                f"leave the label out: add !k8s:{re.escape(label.key)} to {key}",
            )


def _selects(pattern: str, key: str) -> bool:
    """Whether an entry of Cilium's filter names this key: ``k8s:status``, or a pattern for it."""
    if pattern.startswith("!"):
        return False
    name = pattern.rpartition(":")[2]
    try:
        return re.match(name, key) is not None
    except re.error:
        return name == key


def _values(words: Iterable[str], flag: str) -> Iterator[str]:
    """``--flag=value``, ``--flag value``, and a flag alone, which is true."""
    listed_words = list(words)
    for place, word in enumerate(listed_words):
        name, equals, value = word.partition("=")
        if name != flag:
            continue
        following = listed_words[place + 1 : place + 2]
        if equals:
            yield value
        elif following and not following[0].startswith("-"):
            yield following[0]
        else:
            yield "true"


def _variable(policy: Mapping[str, Any], name: str) -> str:
    spec = as_mapping(policy.get("spec"))
    for each in as_mappings(spec.get("variables")):
        if each.get("name") == name:
            return str(each.get("expression"))
    return ""


def _strings(expression: str) -> list[str]:
    """The strings of a CEL expression."""
    return [single or double for single, double in _QUOTED.findall(expression)]


def _review(verb: str, resource: str, group: str, namespace: str) -> str:
    qualified = f"{resource}.{group}" if group else resource
    where = f" -n {namespace}" if namespace else ""
    return f"SelfSubjectAccessReview; `kubectl auth can-i {verb} {qualified}{where}` says the same"


def _place(program: Program) -> str:
    return f"{program.kind} {program.namespace}/{program.name}"
