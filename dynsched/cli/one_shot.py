"""The commands of one pass: what they do, what they print, and when they fail."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
import msgspec
from rich.console import Console

from dynsched.api.status import pass_report
from dynsched.cli.node_tables import render_patches
from dynsched.cli.plan_report import WITHOUT_PODS, render_findings
from dynsched.controller import one_pass
from dynsched.controller.settings import Settings
from dynsched.engine.health import why_incomplete
from dynsched.engine.model import AlertState, NodePatch
from dynsched.engine.wording import counted, named_rules


def once(settings: Settings) -> None:
    """`run --once`. Like all here: ClickException when not everything could be done."""
    snapshot = one_pass.run_once(settings)
    for rule in snapshot.rules:
        pending = rule.states.get(AlertState.PENDING, 0)
        if pending:
            count = f"{counted(pending, 'node')} {'is' if pending == 1 else 'are'}"
            click.echo(f"rule {rule.rule.name}: {count} pending", err=True)
    compared = [rule.name for rule in snapshot.rule_set.file_rules if rule.early is not None]
    if compared:
        click.echo(WITHOUT_PODS.format(named_rules(compared)), err=True)
    errors = why_incomplete(snapshot)
    _print_changes(snapshot.planned if settings.dry_run else snapshot.applied, errors)
    _fail_if(errors)


def plan(settings: Settings, output: str, *, every: bool) -> None:
    """`plan`; ``every``: the values of all rules on all nodes."""
    snapshot = one_pass.run_once(settings)
    report, errors = pass_report(snapshot), why_incomplete(snapshot)
    if output == "json":
        click.echo(msgspec.json.format(report, indent=2))
    else:
        if any(rule.ok for rule in snapshot.rules):  # else no value is known, and none is shown
            render_findings(json.loads(report), Console(), every=every)
        _print_changes(snapshot.planned, errors)
    _fail_if(errors)


def prune(order: one_pass.Prune, output: str) -> None:
    """`prune`."""
    written = one_pass.prune(order)
    errors = [str(failure) for failure in written.failures]
    if output == "json":
        told = [
            {"node": patch.node, "action": patch.action, "body": patch.body, "reason": patch.reason}
            for patch in written.applied
        ]
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2))
    elif written.why_not is None:  # what it is otherwise stands in the log
        _print_changes(written.applied, errors)
    _fail_if(errors)


def _print_changes(patches: Sequence[NodePatch], errors: Sequence[str]) -> None:
    """That nothing is to change can only be said when nothing failed."""
    if patches or not errors:
        render_patches(patches, Console())


def _fail_if(errors: Sequence[str]) -> None:
    if errors:
        raise click.ClickException("\n".join(errors))
