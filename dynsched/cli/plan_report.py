"""What one pass found, as a table and sentences for people: `dynsched plan`.

Made from its JSON (``api.pass_report``). Nothing is left out in silence: what is not shown is
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from dynsched.cli.node_words import how_early, is_early
from dynsched.engine.wording import MAX_NAMED, by_reason, counted, listed, named_rules, some
from dynsched.rules.fields import NEEDS
from dynsched.util.defaults import MAX_ROWS
from dynsched.util.formatting import format_threshold, format_value
from dynsched.util.tables import STYLES, ago, is_shadow, make_table, named, plain, sample_age, show

WITHOUT_PODS: Final = (
    "Early marks by {}: one pass watches no pods, so the expected load is the measured one"
)


_Row = tuple[Mapping[str, Any], Mapping[str, Any]]
"""One rule on one node: the node, and the rule."""


def render_findings(report: Mapping[str, Any], console: Console, *, every: bool = False) -> None:
    """The values, worst first, beside their thresholds: ``MAX_ROWS`` of them, or ``every`` one;
    and below, what is pending and what is not known.
    """
    asked = _asked(report)
    rows = [
        (node, rule) for node in report["nodes"] for rule in node["rules"] if rule["rule"] in asked
    ]
    known = [row for row in rows if row[1]["value"] is not None]
    known.sort(key=lambda row: (-_excess(row[1]), row[0]["name"]))
    shown = known if every else known[:MAX_ROWS]
    show(console, plain(_headline(report)))
    if len(shown) < len(known):
        head = f"The worst {len(shown)} of {len(known)} values (--all shows every one):"
        show(console, plain(head))
    if shown:
        show(console, _values(report, shown))
    for sentence in _sentences(report, rows):
        show(console, plain(sentence))


def _excess(rule: Mapping[str, Any]) -> float:
    """How far the value is over the threshold, as a share of it; below 0 when it is not."""
    distance = float(rule["value"]) - float(rule["threshold"])
    return (distance if ">" in rule["op"] else -distance) / (abs(rule["threshold"]) or 1.0)


def _asked(report: Mapping[str, Any]) -> frozenset[str]:
    """The names of the rules whose source can answer a single pass."""
    return frozenset(rule["name"] for rule in report["rules"] if rule["source"] in NEEDS)


def _headline(report: Mapping[str, Any]) -> str:
    rules = len(_asked(report))
    marked = sum(node["marked"] for node in report["nodes"])
    return (
        f"{counted(rules, 'rule')} on {counted(len(report['nodes']), 'node')}, of which {marked} "
        f"{'is' if marked == 1 else 'are'} marked ({report['mark']}), at {report['taken_at']}"
    )


def _values(report: Mapping[str, Any], rows: Iterable[_Row]) -> Table:
    table = make_table("NODE", "RULE", "VALUE", "THRESHOLD", "STATE", "SAMPLE", "NOTE")
    for node, rule in rows:
        table.add_row(
            plain(node["name"]),
            plain(named(rule)),
            plain(format_value(rule["value"])),
            plain(f"{rule['op']} {format_threshold(rule['threshold'])}"),
            plain(_state(report, rule), STYLES.get(rule["state"], "")),
            plain(sample_age(rule), "" if rule["quality"] == "ok" else "yellow"),
            plain(_note(node, rule)),
        )
    return table


def _state(report: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    if rule["state"] == "pending":
        lasts = next(each["for"] for each in report["rules"] if each["name"] == rule["rule"])
        return f"pending, {ago(rule['active_since'], report['taken_at'])} of {lasts}"
    return f"{rule['state']} (keep_firing_for)" if rule["keep_firing_since"] else str(rule["state"])


def _note(node: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    """Why a node will not be marked by this, where that is so."""
    if rule["state"] == "inactive":
        return ""
    if is_shadow(rule):
        return "a shadow rule marks no node"
    if node["ineligible"]:
        return f"not eligible: {node['ineligible']}"
    return str(node["conflict"] or node["withheld"] or "")


def _sentences(report: Mapping[str, Any], rows: Sequence[_Row]) -> Iterator[str]:
    """What the values do not show."""
    for warning in report["warnings"]:
        yield f"Warning: {warning}"
    pending = [
        f"{node['name']} ({rule['rule']})"
        for node, rule in rows
        if rule["state"] == "pending" and not is_shadow(rule)
    ]
    if pending:
        yield f"Pending: {some(pending)}"
    yield from _early(report)
    for title, key in (("Not eligible", "ineligible"), ("In conflict", "conflict")):
        reasons = {node["name"]: node[key] for node in report["nodes"] if node[key]}
        for reason, names in by_reason(reasons).items():
            yield f"{title}: {some(names)} ({reason})"
    yield from _unknown(report, rows)
    yield from _unmatched(report)
    asked = _asked(report)
    for rule in report["rules"]:
        if rule["warnings"] and rule["name"] in asked:
            yield f"Rule {rule['name']} is answered in part: {'; '.join(rule['warnings'])}"
    answering = [rule for rule in report["rules"] if rule["health"] == "ok"]
    forgotten = {rule["name"]: rule["past_error"] for rule in answering if rule["past_error"]}
    for reason, names in by_reason(forgotten).items():
        yield f"No history of {named_rules(names)}, so durations count from now: {reason}"


def _early(report: Mapping[str, Any]) -> Iterator[str]:
    """Nodes that are not hot, and to be marked by their expected load."""
    compared = [rule["name"] for rule in report["rules"] if rule["early"]]
    if not compared:
        return
    early = [node for node in report["nodes"] if is_early(node)]
    if early:
        yield f"Early, and not hot: {counted(len(early), 'node')}"
    for node in early[:MAX_NAMED]:
        why = node["ineligible"] or node["conflict"] or node["withheld"]
        yield f"- {node['name']}: {how_early(node)}{f'; {why}' if why else ''}"
    if len(early) > MAX_NAMED:
        yield f"- and {len(early) - MAX_NAMED} more"
    yield WITHOUT_PODS.format(named_rules(compared))


def _unknown(report: Mapping[str, Any], rows: Sequence[_Row]) -> Iterator[str]:
    """Nodes of which rules that answer know nothing now; that others do not answer is an error."""
    answering = {rule["name"] for rule in report["rules"] if rule["health"] == "ok"}
    blind = {rule["name"]: rule["blind"] for rule in report["rules"] if rule["blind"]}
    for name, reason in blind.items():
        yield f"No sample of rule {name} matched a node: {reason}"
    gaps: dict[str, list[str]] = {}
    seen: Counter[str] = Counter()
    for node, rule in rows:
        if rule["rule"] in answering - blind.keys():
            seen[node["name"]] += 1
            if rule["quality"] != "ok":
                gaps.setdefault(node["name"], []).append(f"{rule['rule']} ({rule['quality']})")
    dark = [name for name, found in gaps.items() if len(found) == seen[name]]
    if dark:
        yield f"No current value for {counted(len(dark), 'node')}: {some(dark)}"
    partly = {name: listed(found) for name, found in gaps.items() if len(found) < seen[name]}
    for found, names in by_reason(partly).items():
        yield f"No current value of {found} for {counted(len(names), 'node')}: {some(names)}"


def _unmatched(report: Mapping[str, Any]) -> Iterator[str]:
    """Samples that found no node, by rule and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for sample in report["unmatched_samples"]:
        found.setdefault((sample["rule"], sample["reason"]), []).append(sample["value"])
    for (rule, reason), values in found.items():
        samples = counted(len(values), "sample")
        labels = f" ({some(sorted(values))})" if any(values) else ""
        yield f"Rule {rule}: no node for {samples}{labels}: {reason}"
