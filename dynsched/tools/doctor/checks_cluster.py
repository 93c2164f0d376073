"""The checks of nodes, pods, rights, the order and other programs: N2, W1, K1, K2, K4, P0 of
metrics-server. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from dynsched.core.guard import count_of
from dynsched.core.marks import mark_state
from dynsched.core.nodes import Node, pool_of, why_ineligible
from dynsched.core.wording import by_reason, counted, listed, some
from dynsched.kube.inspection import Right
from dynsched.rules import keys
from dynsched.rules.labels import TaintMark
from dynsched.rules.rule_set import RuleSet
from dynsched.tools.doctor.avoiders import Reach
from dynsched.tools.doctor.findings import Finding, error, hint, warning
from dynsched.tools.policies import LABEL_IT, NOT_SERVED, Problem, install

NODE_POOLS: Final = "karpenter.sh/v1"
IN_THE_POD: Final = (
    "kubectl -n dynsched exec deploy/dynsched -- dynsched doctor --rules rules/rules.yaml"
)
"""The rules of the shipped Deployment, below the image's working directory."""
ENOUGH: Final = 0.5
"""The share of pods that react, below which little load moves."""
GOOD_REQUESTS: Final = 20.0
"""Percent by which a pod's use may differ from its request times the ratio of both: within it
kube-scheduler alone does as well (docs/effect.md#requests)."""
_SHOWN: Final = 3


def rights(refused: Iterable[Right], person: str | None = None) -> Iterator[Finding]:
    """``person``: whose account is in use, where it is not dynsched's own."""
    if person is not None and refused:
        lacking = [f"{verb} {resource}" for verb, resource, *_ in refused]
        yield warning(
            f"dynsched's own rights are not known: the account in use, {person}, lacks some",
            f"it may not {listed(lacking)}",
            f"`{IN_THE_POD}` looks at dynsched's own",
        )
        return
    by_resource: dict[Right, list[str]] = {}
    for right in refused:
        by_resource.setdefault(right._replace(verb="", group=""), []).append(right.verb)
    for (_, resource, _, namespace, name), verbs in by_resource.items():
        where = f" in namespace {namespace}" if namespace else ""
        what = f"{resource}{f' {name}' if name else ''}{where}"
        yield error(
            f"the account in use may not {listed(verbs)} {what}",
            "the API server's review of each right (SelfSubjectAccessReview)",
            "apply manifests/base of this version, or upgrade the chart: both bring the roles",
        )


def two_writers(holders: Sequence[str]) -> Iterator[Finding]:
    if len(holders) > 1:
        yield error(
            "more than one dynsched holds a Lease in this cluster: they write the same nodes",
            listed(holders),
            "stop all but one, or give them the same --lease-namespace",
        )


def affinity(problems: Iterable[Problem]) -> Iterator[Finding]:
    """K4: why the installed policy of the soft affinity does not do what it is for."""
    for what, fix in problems:
        yield warning("pods do not avoid marked nodes as the policy intends", what, fix)


def order(
    problems: Collection[Problem], asking: Sequence[str], *, wanted: bool, is_injected: bool
) -> Iterator[Finding]:
    """K4: why new pods do not get the order. ``asking``: the namespaces that ask for it."""
    label = f"label {keys.AVOID_LABEL}=true"
    who = f"{counted(len(asking), 'namespace')} with the {label}: {some(asking, _SHOWN) or 'none'}"
    if wanted:
        for what, fix in problems:
            yield warning(f"new pods are not getting the order: {what}", who, fix)
        if not asking:
            yield hint("no namespace asks for the order, so that no pod gets it", who, LABEL_IT)
    elif asking and not is_injected and problems:
        yield warning(
            "namespaces ask that their pods avoid hot nodes, and no policy answers",
            f"{who}; rules.yaml has no section order, and the soft affinity is not injected",
            NOT_SERVED.fix if NOT_SERVED in problems else install("order"),
        )


def karpenter_and_taint(taint: TaintMark) -> Iterator[Finding]:
    """Where NODE_POOLS is served: also by clouds that run Karpenter out of sight."""
    yield warning(
        "Karpenter takes a node with a PreferNoSchedule taint for closed to pods that do not "
        "tolerate it: while nodes are marked it keeps nodes that it could remove, and adds some",
        f"the API server serves {NODE_POOLS}; mark.taint is {taint}, which PREFERENCE_POLICY does "
        "not change",
        "write mark.taint: null, mark by the label, and set PREFERENCE_POLICY=Ignore",
    )


def few_react(reach: Reach, *, with_order: bool) -> Iterator[Finding]:
    """W1: how many pods react, and by which way. A hint ``with_order``: new pods get it (K4)."""
    pods, reacting = reach.pods.total(), reach.reacting.total()
    if not pods or reacting >= ENOUGH * pods:
        return
    ways = ", ".join(f"{count} by {way}" for way, count in sorted(reach.ways.items()))
    worst = (reach.pods - reach.reacting).most_common(_SHOWN)
    lacking = [f"{namespace} ({count} of {reach.pods[namespace]})" for namespace, count in worst]
    command = LABEL_IT.replace("NAME", worst[0][0])
    install_it = "" if with_order else "apply manifests/base, then "
    yield (hint if with_order else warning if reacting else error)(
        "few pods got the order or avoid marked nodes, so dynsched changes little"
        if reacting
        else "no pod got the order or avoids marked nodes, so dynsched changes nothing",
        f"{reacting} of {counted(pods, 'pod')} with a node{f' ({ways})' if ways else ''}; "
        f"the others are in {listed(lacking)}",
        f"{install_it}`{command}`: only pods that are created after that get the order",
    )


def requests(off: float) -> Iterator[Finding]:
    """W3: what requests are worth. ``off``: percent by which new pods' use differs from them."""
    here = f"requests predict what new pods use within {off:.0f} %"
    evidence = "new pods of the last minutes, by request times the ratio of use to requests"
    if off < GOOD_REQUESTS:
        fix = "nothing to do: the order gains little here (docs/effect.md#requests)"
        yield hint(f"{here}: kube-scheduler alone does as well", evidence, fix)
    else:
        fix = "nothing to do: this is what the order is for (docs/effect.md#requests)"
        yield hint(f"{here}: real load tells more", evidence, fix)


def marks(
    nodes: Mapping[str, Node], rule_set: RuleSet, holders: Sequence[str] | None
) -> Iterator[Finding]:
    """The marks on nodes. ``holders``: those of Leases, a line each; None: not known."""
    states = {node.name: mark_state(node, rule_set.mark) for node in nodes.values()}
    conflicts = {name: state.conflict for name, state in states.items() if state.conflict}
    for why, names in by_reason(conflicts).items():
        yield warning(
            "somebody else uses the key of the mark; dynsched never marks such a node",
            f"{counted(len(names), 'node')}, as {some(sorted(names), _SHOWN)}: {why}",
            "choose another mark.label, or remove what was set by hand",
        )
    marked = sorted(name for name, state in states.items() if state.marked)
    if marked and (rule_set.mark.is_none or holders == []):
        yield warning(
            "nodes are marked, and no dynsched is running that would release them",
            f"{counted(len(marked), 'node')}: {some(marked, _SHOWN)}; the mark: {rule_set.mark}",
            "remove the marks with `dynsched prune`, or start dynsched with a mark",
        )


def no_marks(nodes: Mapping[str, Node], rule_set: RuleSet) -> Iterator[Finding]:
    """N2: a selector or a limit that allows no mark."""
    guard = rule_set.guard
    pools = Counter(
        pool_of(node, guard)
        for node in nodes.values()
        if why_ineligible(node, rule_set.nodes) is None
    )
    if nodes and not pools:
        yield error(
            "no node may be marked at all",
            f"{counted(len(nodes), 'node')}; nodes.selector: {rule_set.nodes.selector or 'none'}",
            "correct nodes.selector, or set nodes.include_control_plane",
        )
    none = [
        f"pool {pool} ({count})" if pool else f"{count} nodes"
        for pool, count in sorted(pools.items())
        if count_of(guard.max_marked, count) == 0
    ]
    if none:
        yield warning(
            "guard.max_marked allows no mark: the share of so few nodes is less than one",
            f"max_marked: {guard.max_marked}; {some(none, _SHOWN)}",
            "write a number of nodes, such as max_marked: 1",
        )
