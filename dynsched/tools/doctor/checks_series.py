"""The checks of which node a series belongs to, and whether it counts twice: P4 and P10."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final

from dynsched.core.samples import holder_of
from dynsched.core.wording import counted, some
from dynsched.tools.doctor.expressions import SeriesSelector
from dynsched.tools.doctor.findings import Finding, error, warning
from dynsched.tools.doctor.rule_context import NODE_LABELS, CheckedRule
from dynsched.util.formatting import label_name

_NODE_NAMES: Final = (
    "kubernetes_node",
    "kubernetes_io_hostname",
    "nodename",
    "node_name",
    "hostname",
    "host",
)
"""Common labels for the node's name if ``instance`` is the address of the exporter's pod."""
_OF_METADATA: Final = r"(?!label_|annotation_)"
"""Excludes labels with these prefixes: kube-state-metrics copies the labels and annotations of
objects into them."""
_CLUSTER: Final = re.compile(
    rf"(?i){_OF_METADATA}(.*(cluster(?!_?ip)|tenant|region|datacenter)|(env|environment|site|dc)$)"
)
_COPY: Final = re.compile(
    rf"(?i)(job|service|endpoint|metrics_path)$|{_OF_METADATA}.*(replica(?!set|s$)|^prometheus)"
)
"""Labels of scrape jobs, and of Prometheus replicas that scrape the same targets. One job may
scrape a kubelet through two Services, and two paths of a kubelet have the same metrics."""
LabelSets = Mapping[SeriesSelector, Sequence[Mapping[str, str]]]
"""By selector, the values of the labels that name nodes, jobs and clusters."""


async def _label_sets(rule: CheckedRule) -> LabelSets:
    names = dict.fromkeys((rule.read_label, *rule.rule.node_labels, *NODE_LABELS, *_NODE_NAMES))
    wanted = {*names, *(f"exported_{name}" for name in names)}
    return {
        selector: await rule.queries.label_sets(
            selector, lambda name: name in wanted or _distinguishes_copies(name)
        )
        for selector in rule.expression.selectors
        if not selector.is_condition
    }


def _distinguishes_copies(label: str) -> bool:
    return bool(_CLUSTER.match(label) or _COPY.match(label))


async def one_series_a_node(rule: CheckedRule) -> AsyncIterator[Finding]:
    labels, samples = rule.rule.node_labels, rule.answer.samples
    node, several = label_name(labels[-1]), rule.matched.several
    bare = [each for each in samples if each.labels.keys().isdisjoint(labels)]
    sets = [each for found in (await _label_sets(rule)).values() for each in found]
    holder = _holder(rule, sets)
    if holder and not (bare and holder in labels):
        yield _another_label(rule, holder, [*(each.labels for each in samples), *sets])
    elif bare:
        yield error(
            f"the samples have no label {' or '.join(labels)}, so they belong to no node",
            f"labels of a sample: {', '.join(sorted(bare[0].labels)) or 'none'}",
            f"aggregate by the node: sum by ({node}) (...), or set node_label",
        )
    elif several is not None:
        differ = ", ".join(several.labels) or "nothing"
        yield warning(
            "there are several series for one node, and the worst of them counts",
            f"{several.example} and {several.nodes - 1} more; the series differ in {differ}",
            f"aggregate by the node: max by ({node}) (...), or select one of the series",
        )


def _holder(rule: CheckedRule, sets: Sequence[Mapping[str, str]]) -> str:
    """The label that names the node if the rule reads another one; else ""."""
    read, lookup = rule.read_label, rule.context.lookup
    own = f"exported_{read}"
    if rule.matched.holder or own in (rule.rule.expr or ""):  # the expression already uses it
        return rule.matched.holder
    if not rule.matched.readings:
        return holder_of(sets, (read,), lookup)
    pairs = ({name: each[name] for name in (read, own) if name in each} for each in sets)
    return holder_of(pairs, (read,), lookup)


def _another_label(rule: CheckedRule, holder: str, sets: Sequence[Mapping[str, str]]) -> Finding:
    read = rule.read_label
    shown = next(each for each in sets if holder in each and each.get(read) != each[holder])
    names = (name for name in (read, holder) if name in shown)
    relabelled = holder.startswith("exported_")
    return error(
        f"the label {holder} holds the node, but the rule reads {read or 'none'}"
        + (": the exporter's node" if relabelled else ""),
        f"labels of a series: {', '.join(f'{name}={shown[name]!r}' for name in names)}",
        f"aggregate by {holder}, and set node_label: {holder}"
        + ("; or set honor_labels: true in the scrape job" if relabelled else ""),
    )


async def copies(rule: CheckedRule) -> AsyncIterator[Finding]:
    """Nodes with series of several clusters, or with series that count more than once."""
    seen: set[str] = set()
    for selector, sets in (await _label_sets(rule)).items():
        labels = {name for each in sets for name in each} - seen
        for label in sorted(name for name in labels if _distinguishes_copies(name)):
            for finding in _copied(rule, selector, sets, label):
                seen.add(label)
                yield finding


def _copied(
    rule: CheckedRule, selector: SeriesSelector, sets: Sequence[Mapping[str, str]], label: str
) -> Iterator[Finding]:
    by_node: defaultdict[str, set[str]] = defaultdict(set)
    for each in sets:
        by_node[rule.node_of(each)].add(each.get(label, ""))
    shared = sorted(node for node, found in by_node.items() if node and len(found) > 1)
    if not shared:
        return
    values = sorted(set[str]().union(*by_node.values()))
    evidence = (
        f"{selector.text}: {some([repr(each) if each else '(none)' for each in values], 4)}; "
        f"more than one for {counted(len(shared), 'node')}, as {shared[0]}"
    )
    select = f'select one of them: {{{label}="..."}}'
    if _CLUSTER.match(label):
        yield error(
            f"the series have several values of the label {label}: nodes of different clusters "
            "have the same address",
            evidence,
            select,
        )
    elif rule.expression.adds_up(selector, label):
        yield warning(
            f"the load of a node counts more than once: series that differ in {label} are added up",
            evidence,
            f"{select}; or aggregate them first: max without ({label}) (...)",
        )
