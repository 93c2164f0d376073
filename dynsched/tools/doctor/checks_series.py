"""The checks of the labels and the parts of an expression's series: P10, P14, P15, and the label of
P4 that holds the node.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from typing import Final

from dynsched.core.samples import holder_of, match_samples
from dynsched.core.wording import counted, some
from dynsched.tools.doctor.checks_values import CheckedRule
from dynsched.tools.doctor.findings import Finding, error, hint, warning
from dynsched.util.formatting import one_line

_NODE_LABELS: Final = ("node", "instance")
_MAY_HOLD: Final = (
    "kubernetes_node",
    "kubernetes_io_hostname",
    "nodename",
    "node_name",
    "hostname",
    "host",
)
"""Usual labels with the node's name, where ``instance`` is the address of the exporter's pod."""
_OF_METADATA: Final = r"(?!label_|annotation_)"
"""kube-state-metrics has the labels of objects as labels with these prefixes."""
_CLUSTER: Final = re.compile(
    rf"(?i){_OF_METADATA}(.*(cluster(?!_?ip)|tenant|region|datacenter)|(env|environment|site|dc)$)"
)
_COPY: Final = re.compile(
    rf"(?i)(job|service|endpoint|metrics_path)$|{_OF_METADATA}.*(replica(?!set|s$)|^prometheus)"
)
"""The labels of scrape jobs, and of the replicas that scrape the same targets. One job may scrape a
kubelet by two Services, and two of its paths have the same metrics.
"""
_SHOWN: Final = 100


async def with_series(rule: CheckedRule) -> CheckedRule:
    """The rule with what is known of the labels of its series."""
    names = dict.fromkeys((rule.read_label, *rule.rule.node_labels, *_NODE_LABELS, *_MAY_HOLD))
    wanted = {*names, *(f"exported_{name}" for name in names)}
    series = {
        selector: await rule.queries.label_sets(
            selector, lambda name: name in wanted or bool(_CLUSTER.match(name) or _COPY.match(name))
        )
        for selector in rule.expression.selectors
        if not selector.is_condition
    }
    return replace(rule, series=series, holder=_holder(replace(rule, series=series)))


def _holder(rule: CheckedRule) -> str:
    if rule.context.lookup is None:
        return ""
    matched = match_samples(rule.rule, rule.answer.samples, rule.context.lookup)
    read, sets = rule.read_label, [each for found in rule.series.values() for each in found]
    own = f"exported_{read}"
    if matched.holder or own in (rule.rule.expr or ""):  # the expression makes a label of it
        return matched.holder
    if not matched.readings:
        return holder_of(sets, (read,), rule.context.lookup)
    pairs = ({name: each[name] for name in (read, own) if name in each} for each in sets)
    return holder_of(pairs, (read,), rule.context.lookup)


def another_label(rule: CheckedRule) -> Finding:
    """P4: the rule has a ``holder``."""
    holder, read = rule.holder, rule.read_label
    sets = [each.labels for each in rule.answer.samples]
    sets += [each for found in rule.series.values() for each in found]
    shown = next(each for each in sets if holder in each and each.get(read) != each[holder])
    names = (name for name in (read, holder) if name in shown)
    relabelled = holder.removeprefix("exported_") != holder
    return error(
        f"the label {holder} holds the node, and the rule reads {read or 'none'}"
        + (": the node of the exporter" if relabelled else ""),
        f"labels of a series: {', '.join(f'{name}={shown[name]!r}' for name in names)}",
        f"aggregate by {holder}, and set node_label: {holder}"
        + ("; or set honor_labels: true in the scrape job" if relabelled else ""),
    )


def copies(rule: CheckedRule) -> Iterator[Finding]:
    """P10: nodes whose series come from several clusters, or more than once."""
    seen: set[str] = set()
    for selector, sets in rule.series.items():
        for label in sorted({name for each in sets for name in each} - seen):
            values = sorted({each.get(label, "") for each in sets})
            if len(values) == 1 or not (_CLUSTER.match(label) or _COPY.match(label)):
                continue
            by_node: defaultdict[str, set[str]] = defaultdict(set)
            for each in sets:
                by_node[_node_of(each, rule)].add(each.get(label, ""))
            shared = sorted(node for node, found in by_node.items() if node and len(found) > 1)
            named = some([repr(value) if value else "(none)" for value in values], 4)
            evidence = f"{selector.text}: {named}" + (
                f"; more than one for {counted(len(shared), 'node')}, as {shared[0]}"
                if shared
                else ""
            )
            seen.add(label)
            select = f'select one of them: {{{label}="..."}}'
            if _CLUSTER.match(label) and shared:
                yield error(
                    f"the series come with several values of the label {label}: nodes of different "
                    "clusters have the same address",
                    evidence,
                    select,
                )
            elif "cluster" in label.lower():
                yield hint(
                    f"the series come with several values of the label {label}", evidence, select
                )
            elif shared and rule.expression.adds_up(selector, label):
                yield warning(
                    f"the load of a node counts more than once: series that differ in {label} are "
                    "added up",
                    evidence,
                    f"{select}; or aggregate them first: max without ({label}) (...)",
                )


def _node_of(labels: Mapping[str, str], rule: CheckedRule) -> str:
    names = (rule.read_label, *rule.rule.node_labels, *_NODE_LABELS)
    texts = [labels[name] for name in names if name in labels]
    lookup = rule.context.lookup
    if lookup is None:
        return next(iter(texts), "")
    return next((node for text in texts if (node := lookup.find(text).node)), "")


def fragile_joins(rule: CheckedRule) -> Iterator[Finding]:
    for join in rule.expression.joins:
        yield warning(
            "the query fails for all nodes as soon as one has two series in a join",
            f"nothing makes one series of each group: {one_line(join.one_side, _SHOWN)}",
            f"write in its place: {one_line(join.lasting, _SHOWN)}",
        )


async def alternatives_without_nodes(rule: CheckedRule) -> AsyncIterator[Finding]:
    """P15: what stands before an ``or`` has values, and none of them is a node's."""
    lookup, parts = rule.context.lookup, rule.expression.alternatives
    if lookup is None or len(parts) == 1:
        return
    before: list[tuple[str, str]] = []
    for part in parts:
        samples = await rule.queries.samples(part, "P15") or ()
        found = match_samples(rule.rule, samples, lookup)
        if found.readings:
            break
        if found.unmatched:
            before.append((part, f"{found.unmatched[0].value}: {found.unmatched[0].reason}"))
    else:
        return  # N1 says that no node has a value
    for other, why in before:
        yield warning(
            "one part of an `or` gives all values of nodes, because those before it name no node",
            f"{one_line(other, _SHOWN)}: {why}",
            f"make {rule.rule.node_labels[0]} the name or an address of the node in this part",
        )
