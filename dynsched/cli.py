"""The command line: reads flags and environment, calls `app`, prints. No logic of its own."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
from rich.console import Console

from dynsched import __version__, app
from dynsched.core.model import AlertState, NodePatch
from dynsched.demo import run_demo
from dynsched.logs import configure_logging
from dynsched.settings import RulesFileError, Settings, load_rules
from dynsched.sources.prometheus import PrometheusConfig
from dynsched.terminal import render_nodes, render_patches, render_why
from dynsched.web.client import DEFAULT_SERVER, fetch
from dynsched.web.server import parse_address

F = TypeVar("F", bound=Callable[..., Any])

# The flags of the project that this one follows, in Go's form: -prom URL, --prom URL, -prom=URL.
_FIRST_PROJECT_FLAGS: Final = {
    "kubeconfig": "--kubeconfig",
    "prom": "--prom",
    "r": "--rules",
    "s": "--interval",
    "webaddr": "--webaddr",
}
_FIRST_PROJECT_FLAG: Final = re.compile(rf"--?({'|'.join(_FIRST_PROJECT_FLAGS)})(=.*)?", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script's entry."""
    words = [_long_spelling(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    if words and words[0].startswith("-") and words[0] not in ("--help", "-h", "--version"):
        words.insert(0, "run")  # the first project had no commands
    cli(args=words, prog_name="dynsched")


def _long_spelling(word: str) -> str:
    match = _FIRST_PROJECT_FLAG.fullmatch(word)
    return _FIRST_PROJECT_FLAGS[match[1]] + (match[2] or "") if match else word


def _option(name: str, *more: str, **details: Any) -> Callable[[F], F]:
    """A flag that is also read from ``DYNSCHED_<NAME>``, as its help says."""
    variable = f"DYNSCHED_{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, *more, envvar=variable, show_envvar=True, **details)


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


_FILE: Final = click.Path(path_type=Path)

_kubeconfig = _option(
    "--kubeconfig",
    type=_FILE,
    help="Kubeconfig file. Default: the pod's service account, else $KUBECONFIG, ~/.kube/config.",
)
DEFAULT_RULES: Final = Path("rules.yaml")
_rules = _option(
    "--rules",
    "-r",
    type=_FILE,
    default=DEFAULT_RULES,
    show_default=True,
    help="Rules file; the first project's format is read as well.",
)
_prometheus = _options(
    _option(
        "--prom",
        default="http://localhost:9090",
        show_default=True,
        metavar="URL",
        help="Prometheus, Thanos, VictoriaMetrics or Mimir; a path prefix is kept.",
    ),
    _option(
        "--prom-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="A query that takes longer has failed.",
    ),
    _option("--prom-bearer-token", metavar="TOKEN", help="Bearer token; a file is better."),
    _option("--prom-bearer-token-file", type=_FILE, help="Bearer token, re-read when it changes."),
    _option("--prom-username", help="Basic authentication: user."),
    _option("--prom-password", help="Basic authentication: password; a file is better."),
    _option("--prom-password-file", type=_FILE, help="Password, re-read when it changes."),
    _option("--prom-ca-file", type=_FILE, help="CA certificates (PEM) that Prometheus's is from."),
    _option("--prom-cert-file", type=_FILE, help="Client certificate (PEM)."),
    _option("--prom-key-file", type=_FILE, help="Client certificate's key (PEM)."),
    _option(
        "--prom-insecure-skip-verify", is_flag=True, help="Do not check Prometheus's certificate."
    ),
    _option(
        "--prom-header",
        multiple=True,
        metavar="'NAME: VALUE'",
        help="Extra header, as X-Scope-OrgID: team-a; may be given more than once.",
    ),
)
_logging = _options(
    _option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="One line an event, for people or for programs.",
    ),
    _option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="From which level on events are logged.",
    ),
)
_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for programs.",
)
_server = _option(
    "--server",
    default=DEFAULT_SERVER,
    show_default=True,
    metavar="URL",
    help="The running dynsched to ask.",
)


class _Cli(click.Group):
    """What a person can mend ends in one line and exit code 1; anything else is a bug."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except app.EXPECTED_ERRORS as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dynsched")
def cli() -> None:
    """Tell the Kubernetes scheduler which nodes to avoid, by their real load.

    \b
    Example:
      dynsched demo                        # no cluster needed
      dynsched run --prom http://prometheus:9090 --rules rules.yaml
    """


@cli.command()
@_kubeconfig
@_prometheus
@_rules
@_option(
    "--interval",
    "-s",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time from the start of one tick to the start of the next.",
)
@_option(
    "--webaddr",
    default=":9000",
    show_default=True,
    metavar="[HOST]:PORT",
    help="Where /status, /nodes, /metrics and the others are served.",
)
@_option("--dry-run", is_flag=True, help="Decide and show everything, write nothing.")
@click.option("--once", is_flag=True, help="One tick, then end; no HTTP server.")
@_logging
def run(*, once: bool, log_format: str, log_level: str, **flags: Any) -> None:
    """Watch the load and keep the marks on the nodes right, until stopped.

    \b
    Example:
      dynsched run --prom http://prometheus.monitoring:9090 -r rules.yaml -s 10
    """
    configure_logging(log_format, log_level)
    settings = _settings(flags)
    if once:
        _one_pass(settings, "table")
    else:
        app.run(settings)


@cli.command()
@_kubeconfig
@_prometheus
@_rules
@_output
@_logging
def plan(*, output: str, log_format: str, log_level: str, **flags: Any) -> None:
    """One pass that writes nothing: print which nodes would be marked and released, and why.

    A rule with `for` fires only after it has been seen over its threshold for that long: this
    one pass shows it as pending at most. `run --dry-run` watches for longer.

    \b
    Example:
      dynsched plan --prom http://localhost:9090 -r rules.yaml
    """
    configure_logging(log_format, log_level)
    _one_pass(_settings({**flags, "dry_run": True}), output)


@cli.command()
@_rules
@_output
@click.argument("files", nargs=-1, type=_FILE)
def check(*, rules: Path, files: tuple[Path, ...], output: str) -> None:
    """Check rules files: every error with its line and column, all in one go.

    \b
    Example:
      dynsched check rules.yaml
    """
    bad = False
    report: dict[str, list[str]] = {}
    for file in files or (rules,):
        try:
            rule_set = load_rules(file)
        except RulesFileError as error:
            bad = True
            report[str(file)] = list(error.lines)
            if output == "table":
                click.echo("\n".join(error.lines), err=True)
        else:
            report[str(file)] = []
            if output == "table":
                names = ", ".join(rule.name for rule in rule_set.rules)
                click.echo(f"{file}: {len(rule_set.rules)} rules: {names}; {rule_set.mark}")
    if output == "json":
        click.echo(json.dumps(report, indent=2))
    if bad:
        sys.exit(1)


@cli.command()
@_server
@_output
@click.option("--marked", is_flag=True, help="Only nodes that carry the mark.")
def nodes(*, server: str, output: str, marked: bool) -> None:
    """Show all nodes with their rules' states, as a running instance sees them.

    \b
    Example:
      kubectl -n dynsched port-forward svc/dynsched 9000 &
      dynsched nodes --marked
    """
    _print(fetch(server, "/nodes?marked=true" if marked else "/nodes"), output, render_nodes)


@cli.command()
@click.argument("node")
@_server
@_output
def why(*, node: str, server: str, output: str) -> None:
    """Say why a node is marked or not, and what would clear it.

    \b
    Example:
      dynsched why worker-3
    """
    _print(fetch(server, f"/nodes/{node}"), output, render_why)


@cli.command()
@_kubeconfig
@_option(
    "--rules",
    "-r",
    type=_FILE,
    help="Rules file that says what the mark is. Default: rules.yaml where there is one, else "
    "status=presure.",
)
@_option("--dry-run", is_flag=True, help="Print what would be removed, remove nothing.")
@_output
@_logging
def prune(
    *,
    kubeconfig: Path | None,
    rules: Path | None,
    dry_run: bool,
    output: str,
    log_format: str,
    log_level: str,
) -> None:
    """Remove from all nodes everything that dynsched ever put on them, and nothing else.

    Stop the running instances first: they would put the marks back.

    \b
    Example:
      kubectl -n dynsched scale deployment dynsched --replicas 0
      dynsched prune
    """
    configure_logging(log_format, log_level)
    if rules is None and DEFAULT_RULES.is_file():
        rules = DEFAULT_RULES
    written = app.prune(kubeconfig, rules, dry_run=dry_run)
    _print_patches(written.applied, output)
    _fail_if("\n".join(written.failures))


def _one_pass(settings: Settings, output: str) -> None:
    snapshot = app.run_once(settings)
    for rule in snapshot.rules:
        pending = rule.states.get(AlertState.PENDING, 0)
        if pending:
            click.echo(f"rule {rule.rule.name}: {pending} nodes are pending", err=True)
        if rule.error is not None:
            click.echo(f"rule {rule.rule.name}: {rule.error}", err=True)
    _print_patches(snapshot.planned if settings.dry_run else snapshot.applied, output)
    _fail_if(snapshot.error)


def _settings(flags: dict[str, Any]) -> Settings:
    """Settings from the flags; those of Prometheus begin with ``prom_``."""
    prometheus: dict[str, Any] = {
        name.removeprefix("prom_"): str(value) if isinstance(value, Path) else value
        for name, value in flags.items()
        if name.startswith("prom_")
    }
    headers = dict(map(_header, prometheus.pop("header")))
    others = {name: value for name, value in flags.items() if not name.startswith("prom")}
    try:
        if "webaddr" in others:
            parse_address(others["webaddr"])
        config = PrometheusConfig(flags["prom"], headers=headers, **prometheus)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return Settings(prometheus=config, **others)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        # The text is not repeated: what stands there may be a secret.
        raise click.UsageError("--prom-header is to be written as 'NAME: VALUE'")
    return name.strip(), value.strip()


def _print(payload: Any, output: str, render: Callable[[Any, Console], None]) -> None:
    if output == "json":
        click.echo(json.dumps(payload, indent=2, ensure_ascii=False))
    else:
        render(payload, Console())


def _print_patches(patches: Sequence[NodePatch], output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(patches), indent=2))
    else:
        render_patches(patches, Console())


def _fail_if(error: str | None) -> None:
    if error:
        raise click.ClickException(error)


@cli.command()
@click.option(
    "--nodes",
    type=click.IntRange(3, 5_000),
    default=12,
    show_default=True,
    help="How many nodes the cluster has.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="End by itself so long after everything is up. Default: run until Ctrl-C.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another load.")
def demo(*, nodes: int, seconds: float | None, seed: int) -> None:
    """Show it all on this machine: a simulated cluster whose nodes heat and cool, and dynsched.

    Where a prometheus binary is on PATH it measures the load; else that is simulated too.

    \b
    Example:
      dynsched demo --nodes 12 --seconds 60
    """
    sys.exit(asyncio.run(run_demo(nodes=nodes, seconds=seconds, seed=seed, console=Console())))
