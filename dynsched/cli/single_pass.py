"""The commands of a single pass: what they do, what they print, and when they fail.

`plan` prints what its JSON (`pass_report`) has. Nothing is left out in silence:
what is not shown is counted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from dynsched.cli.tables import render_patches, rule_cells
from dynsched.controller import single_pass
from dynsched.controller.settings import Settings
from dynsched.core.health import several_series
from dynsched.core.marks import NodePatch
from dynsched.core.tick import Tick
from dynsched.core.wording import by_reason, counted, listed, named_rules, some
from dynsched.rules.lint import lint
from dynsched.util.formatting import MAX_ROWS, format_time
from dynsched.util.tables import ago, make_table, named, show
from dynsched.web.nodes import encode_each
from dynsched.web.status import rules_answer

WITHOUT_PODS: Final = (
    "by: expected of {}: one pass watches no pods, so the expected load is the measured one"
)
_Row = tuple[Mapping[str, Any], Mapping[str, Any]]
"""One rule on one node: the node, and the rule."""


def once(settings: Settings) -> None:
    """`run --once`. Like all here: ClickException when not everything could be done."""
    tick = single_pass.run_once(settings)
    expected = [rule.name for rule in tick.rule_set.rules if rule.by == "expected"]
    if expected:
        click.echo(WITHOUT_PODS.format(named_rules(expected)), err=True)
    _end(why_incomplete(tick), tick.planned if settings.dry_run else tick.writes.applied)


def plan(settings: Settings, output: str, *, every: bool) -> None:
    """`plan`; ``every``: the values of all rules on all nodes."""
    tick = single_pass.run_once(settings, partial(click.echo, err=True))
    report, errors = pass_report(tick), why_incomplete(tick)
    if output == "json":
        click.echo(msgspec.json.format(report, indent=2))
    elif any(rule.ok for rule in tick.rules):  # else no value is known, and none is shown
        render_findings(json.loads(report), Console(), every=every)
    _end(errors, None if output == "json" else tick.planned)


def prune(output: str, **options: Any) -> None:
    written = asyncio.run(single_pass.prune(single_pass.PruneOptions(**options)))
    if output == "json":
        done = [
            {"node": patch.node, "action": patch.action, "body": patch.body, "reason": patch.reason}
            for patch in (() if written is None else written.applied)
        ]
        click.echo(msgspec.json.format(msgspec.json.encode(done, enc_hook=str), indent=2))
    # Why nothing was looked at stands in the log.
    failures = () if written is None else written.failures
    printed = None if written is None or output == "json" else written.applied
    _end([str(failure) for failure in failures], printed)


def _end(errors: Sequence[str], patches: Sequence[NodePatch] | None) -> None:
    """Print the patches. That nothing is to change can only be said when nothing failed."""
    if patches is not None and (patches or not errors):
        render_patches(patches, Console())
    if errors:
        raise click.ClickException("\n".join(errors))


def why_incomplete(tick: Tick) -> tuple[str, ...]:
    """One line for each thing that a single pass could not do. Unlike a tick, which the next one
    follows, a pass fails when one rule of several could not be queried.
    """
    failed = {each.rule.name: each.error for each in tick.rules if each.error is not None}
    lines = [
        f"{named_rules(names)} could not be queried: {reason}"
        for reason, names in by_reason(failed).items()
    ]
    if tick.error is not None and len(failed) < len(tick.rules):
        lines.append(tick.error)
    evaluation = tick.evaluation
    left = [name for name in evaluation.table.entries if evaluation.patch_for(name) is not None]
    if left and not (tick.leadership.dry_run or tick.writes.failures):
        lines.append(f"due and not written: {some(left)}; run it again")
    return tuple(lines)


def pass_report(tick: Tick) -> bytes:
    """On one line: what would be written, rules as in `/rules`, nodes as in `/nodes`."""
    errors, rule_set = why_incomplete(tick), tick.rule_set
    holders = {name: each.holder for name, each in tick.evaluation.matched.items() if each.holder}
    repeated = several_series(tick).items()
    return msgspec.json.encode(
        {
            "ok": not errors,
            "errors": errors,
            "warnings": [
                *map(str, lint(rule_set)),
                *(
                    f"rule {name}: the label {label} of its samples holds the node: set "
                    f"node_label: {label}"
                    for name, label in holders.items()
                ),
                *(
                    f"rule {name} has more than one series for a node: {why}"
                    for name, why in repeated
                    if why is not None and name not in holders
                ),
            ],
            "mark": str(rule_set.mark),
            "taken_at": format_time(tick.taken_at),
            "patches": tick.planned,
            "rules": rules_answer(tick)["rules"],
            "nodes": encode_each(tick, sorted(tick.evaluation.table.entries)),
            "unmatched_samples": [
                sample for found in tick.evaluation.matched.values() for sample in found.unmatched
            ],
        },
        enc_hook=str,
    )


def render_findings(report: Mapping[str, Any], console: Console, *, every: bool = False) -> None:
    """Worst first: ``MAX_ROWS`` values, or ``every`` one; then what is pending or not known."""
    asked = {rule["name"]: rule for rule in report["rules"]}
    rows = [(node, rule) for node in report["nodes"] for rule in node["rules"]]
    known = [row for row in rows if row[1]["value"] is not None]
    known.sort(key=lambda row: (-_excess(row[1]), row[0]["name"]))
    shown = known if every else known[:MAX_ROWS]
    marked = sum(node["marked"] for node in report["nodes"])
    head = (
        f"{counted(len(asked), 'rule')} on {counted(len(report['nodes']), 'node')}, of which "
        f"{marked} would be marked ({report['mark']}), at {report['taken_at']}"
    )
    show(console, head)
    if len(shown) < len(known):
        show(console, f"The worst {len(shown)} of {len(known)} values (--all shows every one):")
    cells = []
    for node, rule in shown:
        since, lasts = rule["active_since"], asked[rule["rule"]]["for"]
        pending = rule["state"] == "pending"
        said = f"pending, {ago(since, report['taken_at'])} of {lasts}" if pending else None
        state, value, limit, sample = rule_cells(rule, said)
        cells.append((node["name"], named(rule), value, limit, state, sample, _note(node, rule)))
    titles = ("NODE", "RULE", "VALUE", "THRESHOLD", "STATE", "SAMPLE", "NOTE")
    show(console, make_table(titles, cells), *_sentences(report, asked, rows))


def _excess(rule: Mapping[str, Any]) -> float:
    """How far the value is over the threshold, as a share of it; below 0 when it is not."""
    distance = float(rule["value"]) - float(rule["threshold"])
    return (distance if ">" in rule["op"] else -distance) / (abs(rule["threshold"]) or 1.0)


def _note(node: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    """Why a node will not be marked by this, where that is so."""
    if rule["state"] == "inactive":
        return ""
    if rule["shadow"]:
        return "a shadow rule marks no node"
    if node["ineligible"]:
        return f"not eligible: {node['ineligible']}"
    return str(node["conflict"] or node["withheld"] or "")


def _sentences(
    report: Mapping[str, Any], asked: Mapping[str, Mapping[str, Any]], rows: Sequence[_Row]
) -> Iterator[str]:
    for warning in report["warnings"]:
        yield f"Warning: {warning}"
    pending = [
        f"{node['name']} ({rule['rule']})"
        for node, rule in rows
        if rule["state"] == "pending" and not rule["shadow"]
    ]
    if pending:
        yield f"Pending: {some(pending)}"
    expected = [name for name, rule in asked.items() if rule["by"] == "expected"]
    if expected:
        yield WITHOUT_PODS.format(named_rules(expected))
    for title, key in (("Not eligible", "ineligible"), ("In conflict", "conflict")):
        reasons = {node["name"]: node[key] for node in report["nodes"] if node[key]}
        for reason, names in by_reason(reasons).items():
            yield f"{title}: {some(names)} ({reason})"
    # A rule that does not answer is an error, reported as one.
    answering = {name: rule for name, rule in asked.items() if rule["health"] == "ok"}
    yield from _unknown(answering, rows)
    yield from _unmatched(report)
    for name, rule in asked.items():
        if rule["warnings"]:
            yield f"Rule {name} is answered in part: {'; '.join(rule['warnings'])}"
    forgotten = {name: rule["past_error"] for name, rule in answering.items() if rule["past_error"]}
    for reason, names in by_reason(forgotten).items():
        yield f"No history of {named_rules(names)}, so durations count from now: {reason}"


def _unknown(answering: Mapping[str, Mapping[str, Any]], rows: Sequence[_Row]) -> Iterator[str]:
    blind = {name: rule["blind"] for name, rule in answering.items() if rule["blind"]}
    for name, reason in blind.items():
        yield f"No sample of rule {name} matched a node: {reason}"
    seeing, gaps = answering.keys() - blind, dict[str, list[str]]()
    for node, rule in rows:
        if rule["rule"] in seeing and rule["quality"] != "ok":
            gaps.setdefault(node["name"], []).append(f"{rule['rule']} ({rule['quality']})")
    unknown = {name: listed(found) for name, found in gaps.items()}
    for found, names in by_reason(unknown).items():
        yield f"No current value of {found} for {counted(len(names), 'node')}: {some(names)}"


def _unmatched(report: Mapping[str, Any]) -> Iterator[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for sample in report["unmatched_samples"]:
        found.setdefault((sample["rule"], sample["reason"]), []).append(sample["value"])
    for (rule, reason), values in found.items():
        samples = counted(len(values), "sample")
        labels = f" ({some(sorted(values))})" if any(values) else ""
        yield f"Rule {rule}: no node for {samples}{labels}: {reason}"
