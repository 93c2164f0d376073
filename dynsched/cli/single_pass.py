"""The commands `plan` and `prune`: what they print, and when they fail.

`plan` prints its JSON (`pass_report`) as a table. Nodes that are not shown are counted.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from dynsched.cli.flags import DEFAULT_RULES
from dynsched.cli.tables import Part, render_nodes, render_patches
from dynsched.controller import single_pass
from dynsched.controller.settings import Settings
from dynsched.core.marks import NodePatch
from dynsched.core.tick import Tick
from dynsched.core.wording import by_reason, counted, named_rules, some
from dynsched.rules import shipped
from dynsched.rules.lint import lint
from dynsched.util.formatting import MAX_ROWS
from dynsched.util.tables import show
from dynsched.web.nodes import nodes_answer
from dynsched.web.status import rules_answer


def plan(settings: Settings, output: str, *, every: bool) -> None:
    """Run `plan`. ``every``: show all nodes. Raises ClickException if any part failed."""
    tick = single_pass.run_once(settings, partial(click.echo, err=True))
    report, errors = pass_report(tick), why_incomplete(tick)
    if output == "json":
        click.echo(msgspec.json.format(report, indent=2))
    elif any(rule.ok for rule in tick.rules):  # otherwise there is no value to show
        render_report(json.loads(report), Console(), every=every)
    _end(errors, None if output == "json" else tick.planned)
    if output != "json":
        show(Console(), next_step(settings.rules))


def next_step(rules: Path) -> str:
    """The last line of `plan`, with the flag by which `doctor` checks the same rules, if needed."""
    flag = "" if rules in (DEFAULT_RULES, shipped.PATH) else f" -r {shlex.quote(str(rules))}"
    return f"Next: `dynsched doctor{flag}` shows what would not work in this cluster."


def prune(**options: Any) -> None:
    written = asyncio.run(single_pass.prune(single_pass.PruneOptions(**options)))
    if written is not None:  # otherwise nothing was done, and the log has the reason
        _end([str(failure) for failure in written.failures], written.applied)


def _end(errors: Sequence[str], patches: Sequence[NodePatch] | None) -> None:
    """Print the patches, then raise ClickException if there are errors. "Nothing to change." is
    printed only without errors.
    """
    if patches is not None and (patches or not errors):
        render_patches(patches, Console())
    if errors:
        raise click.ClickException("\n".join(errors))


def why_incomplete(tick: Tick) -> tuple[str, ...]:
    """One line for each failure. A single pass fails if any rule could not be queried; a tick does
    not, because the next one follows.
    """
    failed = {each.rule.name: each.error for each in tick.rules if each.error is not None}
    lines = [
        f"{named_rules(names)} could not be queried: {reason}"
        for reason, names in by_reason(failed).items()
    ]
    if tick.error is not None and len(failed) < len(tick.rules):
        lines.append(tick.error)
    return tuple(lines)


def pass_report(tick: Tick) -> bytes:
    """The JSON of `plan`: the answer of `/nodes`, and what would be written, the rules as in
    `/rules`, and the samples that match no node.
    """
    errors = why_incomplete(tick)
    holders = {name: each.holder for name, each in tick.evaluation.matched.items() if each.holder}
    return msgspec.json.encode(
        {
            "ok": not errors,
            "errors": errors,
            "warnings": [
                *map(str, lint(tick.rule_set)),
                *(
                    f"rule {name}: the label {label} of its samples names the node: set "
                    f"node_label: {label}"
                    for name, label in holders.items()
                ),
            ],
            "patches": tick.planned,
            "rules": rules_answer(tick)["rules"],
            "unmatched_samples": [
                sample for found in tick.evaluation.matched.values() for sample in found.unmatched
            ],
            **nodes_answer(tick),
        },
        enc_hook=str,
    )


def render_report(report: Part, console: Console, *, every: bool = False) -> None:
    """Print the worst ``MAX_ROWS`` nodes (``every``: all), then everything that is wrong."""
    # Failed rules are not repeated here: they are printed as errors.
    nodes = {**report, "failed_rules": {}}
    render_nodes(nodes, console, None if every else MAX_ROWS)
    show(console, *_sentences(report))


def _sentences(report: Part) -> Iterator[str]:
    for warning in report["warnings"]:
        yield f"Warning: {warning}"
    rules = report["rules"]
    for rule in rules:
        if rule["blind"] and rule["health"] == "ok":
            yield f"No sample of rule {rule['name']} matched a node: {rule['blind']}"
    yield from _unknown(report)
    found: dict[tuple[str, str], list[str]] = {}
    for sample in report["unmatched_samples"]:
        found.setdefault((sample["rule"], sample["reason"]), []).append(sample["value"])
    for (name, reason), values in found.items():
        labels = f" ({some(sorted(values))})" if any(values) else ""
        yield f"Rule {name}: no node for {counted(len(values), 'sample')}{labels}: {reason}"
    for rule in rules:
        if rule["warnings"]:
            yield f"Rule {rule['name']} is answered in part: {'; '.join(rule['warnings'])}"
        if rule["past_error"] and rule["health"] == "ok":
            yield (
                f"No history of rule {rule['name']}, so durations count from now: "
                f"{rule['past_error']}"
            )


def _unknown(report: Part) -> Iterator[str]:
    for rule in report["rules"]:
        unknown = [
            node["name"]
            for node in report["nodes"]
            if any(of["rule"] == rule["name"] and of["quality"] != "ok" for of in node["rules"])
        ]
        if unknown and rule["health"] == "ok" and not rule["blind"]:
            nodes = counted(len(unknown), "node")
            yield f"No current value of rule {rule['name']} for {nodes}: {some(unknown)}"
