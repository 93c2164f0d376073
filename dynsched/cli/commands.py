"""The command line: reads flags and environment, calls other packages, and prints.

Each command imports its modules when it runs: importing all of them takes most of a second, and
`--help` and `check` need only a few.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dynsched import __version__
from dynsched.cli import flags
from dynsched.util.durations import parse_duration
from dynsched.util.errors import ExpectedError

if TYPE_CHECKING:
    from dynsched.rules.parse import ParsedRules

_IN_MODULES: Final = {
    **{name: (name, name) for name in ("backtest", "collect", "demo", "doctor", "top")},
    **{name: ("ask", name) for name in ("nodes", "order", "why")},
}
"""Commands in separate modules: the module, and the name of the command in it."""


def main(arguments: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    cli(args=with_command(words), prog_name="dynsched")


def with_command(words: Sequence[str]) -> list[str]:
    """Translate a command line of dynamicScheduler, which had no commands and other flags."""
    words = [flags.long_spelling(word) for word in words]
    no_command = words and words[0].startswith("-")
    is_run = no_command and words[0] not in ("--help", "-h", "--version")
    return ["run", *words] if is_run else words


class Commands(click.Group):
    """Prints an ExpectedError as one line, with exit code 1. Other exceptions keep a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ExpectedError as error:
            raise click.ClickException(str(error)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_IN_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _IN_MODULES:
            module, name = _IN_MODULES[cmd_name]
            command: click.Command = getattr(import_module(f"dynsched.cli.{module}"), name)
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dynsched")
def cli() -> None:
    """Tell the Kubernetes scheduler which nodes to avoid, by their real load.

    \b
    Example:
      dynsched top                         # needs only a kubeconfig
      dynsched demo                        # no cluster needed
      dynsched run --prom http://prometheus:9090 --rules rules.yaml
    """


@cli.command()
@flags.kubeconfig
@flags.prometheus
@flags.for_the_page
@flags.rules
@flags.option(
    "--interval",
    "-s",
    callback=flags.seconds(at_least=0.1),
    default="10s",
    metavar="DURATION",
    help="Time from one evaluation (tick) to the next; a number without a unit means seconds.",
)
@flags.option(
    "--webaddr",
    default=":9000",
    metavar="[HOST]:PORT",
    help="Address of /status, /nodes, /metrics and the page.",
)
@flags.option("--dry-run", is_flag=True, help="Evaluate and show everything, but write nothing.")
@flags.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    help="Write only while holding the Lease `dynsched`, so that several replicas can run. Do not "
    "use --no-leader-elect with the janitor.",
)
@flags.lease_namespace
@flags.option(
    "--pod-uid",
    callback=lambda _context, _option, uid: uid or None,
    metavar="UID",
    help="Uid of the pod that dynsched runs in, from the downward API. After a crash, the new "
    "container then takes over the pod's Lease at once. Only one dynsched may run in the pod.",
)
@flags.option(
    "--node-metrics/--no-node-metrics",
    default=True,
    help="Whether /metrics has series for each node.",
)
@flags.tls
@flags.web_auth
@flags.extender
@flags.webhook
@flags.logging
def run(**given: Any) -> None:
    """Watch the load, and keep the order and the marks up to date, until stopped.

    \b
    Example:
      dynsched run --prom http://prometheus.monitoring:9090 -r rules.yaml -s 10
    """
    from dynsched.controller import main
    from dynsched.controller.settings import settings_of
    from dynsched.util.logs import logging_aside

    settings = settings_of(given)
    with logging_aside():
        main.run(settings)


@cli.command()
@flags.kubeconfig
@flags.prometheus_or_found
@flags.rules_or_shipped
@flags.output
@flags.every
@flags.quiet_logging
def plan(*, output: str, every: bool, **given: Any) -> None:
    """Evaluate the rules once, write nothing, and print which nodes would be marked or released.

    It also prints the reasons, the nodes' values, worst first, and what is unknown. The recent
    history of every rule is replayed first, so that a `for` that has passed counts. The exit code
    is 1 if the query of a rule fails: the plan is then incomplete.

    \b
    Example:
      dynsched plan
      dynsched plan --prom http://localhost:9090 -r rules.yaml
    """
    from dynsched.cli import single_pass
    from dynsched.controller.settings import settings_of

    single_pass.plan(settings_of({**given, "dry_run": True}), output, every=every)


@cli.command()
@flags.rules
@flags.prometheus_if_given
@flags.output
@click.argument("files", nargs=-1, metavar="[FILE|-]...", type=flags.FILE)
def check(*, rules: Path, files: tuple[Path, ...], output: str, **given: Any) -> None:
    """Check rules files: every error at once, with its line and column.

    A FILE may also be a manifest: the rules in its ConfigMaps are checked. `-` is standard input.
    Warnings do not change the exit code. With --prom, that server parses the expressions.

    \b
    Example:
      dynsched check rules.yaml --prom http://localhost:9090
      kubectl -n dynsched get configmap -o yaml | dynsched check -
    """
    import asyncio

    from dynsched.rules.check import check as check_file
    from dynsched.tools.doctor.syntax import parse_by_server, parse_here

    remedy = "name a rules file" if files else "name the file with --rules"
    reports = [report for file in files or (rules,) for report in check_file(file, remedy)]
    trouble = None
    if given["prom"] is None:
        reports = list(map(parse_here, reports))
    else:
        from dynsched.controller.settings import settings_of
        from dynsched.sources.prometheus import PrometheusSource

        source = PrometheusSource(settings_of(given).prometheus)
        reports, trouble = asyncio.run(parse_by_server(reports, source))
    _print_checked(reports, output)
    if trouble is not None:
        click.echo(f"Error: the expressions were not parsed: {trouble}", err=True)
    if trouble is not None or any(report.errors for report in reports):
        sys.exit(1)


def _print_checked(reports: Sequence[ParsedRules], output: str) -> None:
    from dynsched.core.wording import counted, listed

    if output == "json":
        found = {each.name: {"errors": each.errors, "warnings": each.warnings} for each in reports}
        click.echo(json.dumps(found, indent=2))
        return
    for report in reports:
        for line in (*report.errors, *report.warnings):
            click.echo(line, err=True)
        if report.rule_set is None or report.errors:
            continue
        names = [rule.name for rule in report.rule_set.rules]
        text = f"{counted(len(names), 'rule')}: {', '.join(names)}; {report.rule_set.mark}"
        if (order := report.rule_set.order) is not None:
            text += f"; order by {listed([name for name, weight in order.score.items() if weight])}"
        click.echo(f"{report.name}: {text}")


@cli.command()
@flags.kubeconfig
@flags.option(
    "--rules",
    "-r",
    type=flags.FILE,
    help="Also remove the mark that this file sets, from nodes whose annotation does not record "
    "it. Needed after `mark.label` was changed: name the old file. Default: rules.yaml if present.",
)
@flags.option("--dry-run", is_flag=True, help="Print what would be removed, but remove nothing.")
@flags.option(
    "--if-lease-older-than",
    metavar="DURATION",
    help="Prune only if the Lease `dynsched` has not been renewed for this long (for example 10m) "
    "or does not exist. The janitor uses it.",
)
@flags.lease_namespace_or_any
@click.option(
    "--take-lease",
    is_flag=True,
    help="For an uninstall: take the Lease from a running instance, wait until its writes have "
    "ended (12 s), then prune. Nobody writes until a minute after that Lease was taken: "
    "uninstall dynsched at once.",
)
@flags.logging
def prune(*, if_lease_older_than: str | None, **given: Any) -> None:
    """Remove the order, and everything that dynsched ever put on nodes, and nothing else.

    Running instances would set the marks again. While one holds the Lease `dynsched`, nothing is
    removed and the exit code is 1.

    \b
    Example:
      dynsched prune --take-lease
      kubectl delete -k my-dynsched
    """
    from dynsched.cli import single_pass

    if given["rules"] is None and flags.DEFAULT_RULES.is_file():
        given["rules"] = flags.DEFAULT_RULES
    try:
        age = parse_duration(if_lease_older_than) if if_lease_older_than else None
    except ValueError as error:
        raise click.UsageError(f"--if-lease-older-than: {error}") from None
    if age is not None and given["take_lease"]:
        raise click.UsageError("--take-lease and --if-lease-older-than contradict each other")
    single_pass.prune(lease_older_than=age, **given)
