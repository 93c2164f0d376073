"""The checks of rights, other programs and pods: K1, K2, W1, W2, P0 of metrics-server. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from dynsched.engine.guard import is_eligible
from dynsched.engine.wording import counted, listed, some
from dynsched.kube.inspection import Program, Right
from dynsched.rules.labels import LabelMark, Mark, TaintMark
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.avoiders import PREFERRED, Cause, Workload
from dynsched.tools.doctor.finding import Told, error, hint, warning
from dynsched.tools.doctor.gathered import AUTOSCALER, KARPENTER, ClusterFacts
from dynsched.tools.doctor.reach_report import headline
from dynsched.util.formatting import as_mapping, as_mappings

_QUOTED: Final = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_BALANCES: Final = "--balance-similar-node-groups"
_IGNORES: Final = "--balancing-ignore-label"
_PREFERENCE_FLAG: Final = "--preference-policy"
_PREFERENCE: Final = "PREFERENCE_POLICY"
_TAINTS: Final = "RemovePodsViolatingNodeTaints"
_AFFINITY: Final = "RemovePodsViolatingNodeAffinity"
_OFF: Final = frozenset({"false", "0", "f"})
ENOUGH: Final = 0.5
"""The share of pods that react, below which marks move little load."""
FEW_NODES: Final = 3
_SHOWN: Final = 3
_SUMMARIES: Final = {
    Cause.PINNED: (
        "pods are pinned to one node each, so that no mark moves them",
        "remove the nodeSelector or the required affinity by hostname",
    ),
    Cause.SCHEDULER: (
        "pods have another schedulerName, whose scheduler may not read soft preferences",
        "see that scheduler's documentation, or give it a profile in the section extender",
    ),
    Cause.TOLERATES: (
        "pods tolerate every taint, the mark's too",
        "tolerate only the taints that are meant",
    ),
}


def metrics_server(facts: ClusterFacts, _: RuleSet) -> Iterator[Told]:
    """P0 of the rules whose source is metrics-server."""
    if facts.metrics is not None:
        yield error(
            "metrics-server does not answer, so its rules know nothing of any node",
            facts.metrics,
            "make `kubectl top nodes` work, or write rules of source prometheus",
        )


def rights(facts: ClusterFacts, _: RuleSet) -> Iterator[Told]:
    """K1: rights that are lacking, and two writers."""
    by_role: dict[Right, list[str]] = {}
    for right in facts.refused:
        by_role.setdefault(right._replace(verb=""), []).append(right.verb)
    for (_verb, resource, group, namespace, name), verbs in by_role.items():
        where = f" in namespace {namespace}" if namespace else ""
        named = f", resourceNames: [{name}]" if name else ""
        asked = f"{verbs[0]} {resource}{f'.{group}' if group else ''}"
        yield error(
            f"the account in use may not {listed(verbs)} {resource}{f' {name}' if name else ''}"
            f"{where}",
            f"SelfSubjectAccessReview; `kubectl auth can-i {asked}"
            f"{f' -n {namespace}' if namespace else ''}` says the same",
            f"add to the {'Role' if resource == 'leases' else 'ClusterRole'} dynsched: "
            f'{{apiGroups: ["{group}"], resources: [{resource}]{named}, '
            f"verbs: [{', '.join(verbs)}]}}",
        )
    if len(facts.holders or ()) > 1:
        yield error(
            "more than one dynsched holds a Lease in this cluster: they write the same nodes",
            listed(list(facts.holders or ())),
            "stop all but one, or give them the same --lease-namespace",
        )


def admission(facts: ClusterFacts, rule_set: RuleSet) -> Iterator[Told]:
    """K1: the policies in the cluster against the mark of rules.yaml."""
    label = rule_set.mark.label
    marks = _strings(_variable(facts.guardrail, "marks"))
    if label is not None and marks and str(label) not in marks:
        yield error(
            "the guardrail refuses the mark of rules.yaml: no node can be marked",
            f"mark.label is {label}; the policy allows {listed(sorted(marks))}",
            f"add '{label}' to `marks` of the ValidatingAdmissionPolicy dynsched-guardrail",
        )
    if facts.injection is not None:
        told = _strings(_variable(facts.injection, "term") or str(facts.injection))
        if label is None or not {label.key, label.value} <= set(told):
            yield error(
                "the injection gives pods an affinity to another label than the mark's",
                f"mark.label is {label or 'not set'}; the MutatingAdmissionPolicy "
                "dynsched-avoid-pressure does not name its key and value",
                "write the policy anew for these rules: `dynsched inject -o yaml`",
            )


def neighbours(facts: ClusterFacts, rule_set: RuleSet) -> Iterator[Told]:
    """K2: programs that the mark disturbs, or that work against it."""
    label, taint = rule_set.mark.label, rule_set.mark.taint
    for program in facts.programs:
        place = f"{program.kind} {program.namespace}/{program.name}"
        if AUTOSCALER in program.image and label is not None:
            yield from _autoscaler(place, program, label)
        if KARPENTER in program.image and taint is not None:
            yield _karpenter_by_taint(place, taint)
        if KARPENTER in program.image and label is not None:
            yield from _karpenter_by_label(place, program)
    for place, policy in facts.policies.items():
        for profile in as_mappings(as_mapping(policy).get("profiles")):
            yield from _descheduler(place, profile, rule_set.mark)
    if facts.cilium is not None and label is not None:
        yield from _cilium(facts.cilium, label)


def _autoscaler(place: str, program: Program, label: LabelMark) -> Iterator[Told]:
    ignored = _values(program.words, _IGNORES)
    if label.key in ignored:
        return
    is_on = [each.lower() not in _OFF for each in _values(program.words, _BALANCES)][-1:] == [True]
    yield (warning if is_on else hint)(
        "Cluster Autoscaler compares the labels of nodes"
        + (
            ", and takes groups of nodes with and without the mark for different ones"
            if is_on
            else f" as soon as {_BALANCES} is set, the mark's too"
        ),
        f"{place}: {_IGNORES} is {listed(ignored) or 'not set'}",
        f"add {_IGNORES}={label.key} to its arguments",
    )


def _karpenter_by_taint(place: str, taint: TaintMark) -> Told:
    return warning(
        "Karpenter takes a node with a PreferNoSchedule taint for closed to pods that do not "
        "tolerate it: while nodes are marked it keeps nodes that it could remove, and adds some",
        f"{place}; mark.taint is {taint}, which {_PREFERENCE} does not change",
        f"write mark.taint: null, mark by the label, and set {_PREFERENCE}=Ignore",
    )


def _karpenter_by_label(place: str, program: Program) -> Iterator[Told]:
    by_environment = [value for name, value in program.environment if name == _PREFERENCE]
    set_to = _values(program.words, _PREFERENCE_FLAG) + by_environment
    if "Ignore" not in set_to:
        yield warning(
            "Karpenter treats a preference as a requirement first: it may add a node, or keep one, "
            "only because the others are marked",
            f"{place}: {_PREFERENCE_FLAG} is {listed(set_to) or 'not set (Respect)'}",
            f"set {_PREFERENCE_FLAG}=Ignore (or {_PREFERENCE}=Ignore)",
        )


def _descheduler(place: str, profile: Mapping[str, Any], mark: Mark) -> Iterator[Told]:
    points = as_mapping(profile.get("plugins")).values()
    enabled = {name for point in points for name in as_mapping(point).get("enabled") or ()}
    configured = {
        each.get("name"): as_mapping(each.get("args"))
        for each in as_mappings(profile.get("pluginConfig"))
        if each.get("name") in enabled
    }
    taints, affinity = configured.get(_TAINTS, {}), configured.get(_AFFINITY, {})
    excluded = [str(each).partition("=")[0] for each in taints.get("excludedTaints") or ()]
    drains = taints.get("includePreferNoSchedule") is True
    if mark.taint is not None and drains and mark.taint.key not in excluded:
        yield error(
            "the descheduler evicts every pod that does not tolerate the taint of the mark: it "
            "drains marked nodes",
            f"{place}: {_TAINTS} with includePreferNoSchedule",
            f"add {mark.taint.key} to its excludedTaints",
        )
    if mark.label is not None and PREFERRED in (affinity.get("nodeAffinityType") or ()):
        yield warning(
            "the descheduler evicts pods by soft affinity, again and again, while nodes are marked",
            f"{place}: {_AFFINITY} with {PREFERRED}",
            f"leave {PREFERRED} out of its nodeAffinityType",
        )


def _cilium(config: Mapping[str, str], label: LabelMark) -> Iterator[Told]:
    of_nodes = ["node-labels"] if config.get("enable-node-selector-labels") == "true" else []
    for key in ("labels", *of_nodes):
        patterns = config.get(key, "").split()
        named = [each for each in patterns if _selects(each, label.key)]
        if named or (key in of_nodes and not patterns):
            yield warning(
                "Cilium makes identities of the mark's label: each mark changes identities, and "
                "endpoints are made anew",
                f"ConfigMap kube-system/cilium-config, {key}: "
                f"{listed(named) or 'empty, which is every label'}",
                f"leave the label out: add !k8s:{re.escape(label.key)} to {key}",
            )


def _selects(pattern: str, key: str) -> bool:
    """Whether an entry of Cilium's filter names this key: ``k8s:status``, or a pattern for it."""
    try:
        return not pattern.startswith("!") and bool(re.match(pattern.rpartition(":")[2], key))
    except re.error:
        return False


def _values(words: Sequence[str], flag: str) -> list[str]:
    """``--flag=value``, ``--flag value``, and a flag alone, which is true."""
    found = []
    for word, following in zip_longest(words, words[1:], fillvalue="-"):
        name, _, value = word.partition("=")
        if name == flag:
            found.append(value or ("true" if following.startswith("-") else following))
    return found


def _variable(policy: Mapping[str, Any] | None, name: str) -> str:
    variables = as_mappings(as_mapping(as_mapping(policy).get("spec")).get("variables"))
    return next((str(each.get("expression")) for each in variables if each.get("name") == name), "")


def _strings(expression: str) -> list[str]:
    """The strings of a CEL expression."""
    return [single or double for single, double in _QUOTED.findall(expression)]


def few_react(facts: ClusterFacts, _: RuleSet) -> Iterator[Told]:
    """W1."""
    reach = facts.reach
    if reach is None or not reach.pods or reach.reacting >= ENOUGH * reach.pods:
        return
    worst = [_name(each) for each in reach.worst_first() if each.reacting < each.pods]
    yield (warning if reach.reacting else error)(
        "few pods react to the mark, so that marks move little load"
        if reach.reacting
        else "no pod reacts to the mark: dynsched would change nothing",
        f"{headline(reach)} Worst: {some(worst, _SHOWN)}",
        "see `dynsched reach` for a patch of each workload, inject the affinity, or set mark.taint",
    )


def cancelled(facts: ClusterFacts, rule_set: RuleSet) -> Iterator[Told]:
    """W2."""
    workloads = facts.reach.worst_first() if facts.reach is not None else []
    for cause, (summary, fix) in _SUMMARIES.items():
        found = [each for each in workloads if each.causes[cause]]
        if found:
            count = counted(sum(each.causes[cause] for each in found), "pod")
            yield warning(summary, f"{count}: {some(list(map(_name, found)), _SHOWN)}", fix)
    spread = [_name(each) for each in workloads if each.spread_by_default]
    eligible = sum(is_eligible(node, rule_set.nodes) for node in facts.nodes.values())
    if spread and 0 < eligible <= FEW_NODES:
        yield hint(
            "on three nodes or fewer, the scheduler's default spreading has about the weight of "
            "the soft affinity, and places some pods on marked nodes",
            f"{counted(eligible, 'node')} may be marked; {some(spread, _SHOWN)}",
            "give the pods a topologySpreadConstraint of their own, or set mark.taint",
        )


def _name(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.name}"
