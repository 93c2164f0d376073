"""The flags that commands share, and what the environment calls them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from dynsched.core.defaults import DEFAULT_SERVER, EXTENDER_MEMORY
from dynsched.core.durations import parse_seconds

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


def long_spelling(word: str) -> str:
    """One word of a command line, in today's spelling."""
    match = _FIRST_PROJECT_FLAG.fullmatch(word)
    return _FIRST_PROJECT_FLAGS[match[1]] + (match[2] or "") if match else word


def option(name: str, *more: str, **details: Any) -> Callable[[F], F]:
    """A flag that is also read from ``DYNSCHED_<NAME>``, as its help says."""
    first = name.partition("/")[0].removeprefix("--")
    variable = f"DYNSCHED_{first.replace('-', '_').upper()}"
    return click.option(name, *more, envvar=variable, show_envvar=True, **details)


def options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator."""

    def apply(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


class _Header(click.ParamType[tuple[str, str]]):
    """``NAME: VALUE``."""

    name = "header"
    envvar_list_splitter = "\n"  # a value may have spaces in it

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        name, colon, text = value.partition(":")
        if not colon or not name.strip():
            # The value is not repeated: what stands there may be a secret.
            self.fail("it is to be written as 'NAME: VALUE'", param, ctx)
        return name.strip(), text.strip()


def interval(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Seconds, given as a number or as a duration."""
    try:
        return parse_seconds(text, at_least=0.1)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


FILE: Final = click.Path(path_type=Path, readable=False)
"""Whoever opens it says what is wrong with it, also when it may not be read."""

kubeconfig = options(
    option(
        "--kubeconfig",
        type=FILE,
        help="Kubeconfig file. Default: the pod's service account, else $KUBECONFIG, "
        "~/.kube/config.",
    ),
    option("--context", metavar="NAME", help="Its context. Default: the file's current-context."),
)
DEFAULT_RULES: Final = Path("rules.yaml")
rules = option(
    "--rules",
    "-r",
    type=FILE,
    default=DEFAULT_RULES,
    show_default=True,
    help="Rules file; dynamicScheduler's rule.yaml is read as well.",
)
prometheus = options(
    option(
        "--prom",
        default="http://localhost:9090",
        show_default=True,
        metavar="URL",
        help="Prometheus, Thanos, VictoriaMetrics or Mimir; a path prefix is kept.",
    ),
    option(
        "--prom-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="A query that takes longer has failed.",
    ),
    option("--prom-bearer-token", metavar="TOKEN", help="Bearer token; a file is better."),
    option("--prom-bearer-token-file", type=FILE, help="Bearer token, re-read when it changes."),
    option("--prom-username", help="Basic authentication: user."),
    option("--prom-password", help="Basic authentication: password; a file is better."),
    option("--prom-password-file", type=FILE, help="Password, re-read when it changes."),
    option("--prom-ca-file", type=FILE, help="CA certificates (PEM) that Prometheus's is from."),
    option("--prom-cert-file", type=FILE, help="Client certificate (PEM)."),
    option("--prom-key-file", type=FILE, help="Client certificate's key (PEM)."),
    option(
        "--prom-insecure-skip-verify", is_flag=True, help="Do not check Prometheus's certificate."
    ),
    option(
        "--prom-header",
        type=_Header(),
        multiple=True,
        metavar="'NAME: VALUE'",
        help="Extra header, as X-Scope-OrgID: team-a; may be given more than once (in the "
        "environment: one a line).",
    ),
)
tls = options(
    option("--tls-cert", type=FILE, help="Serve HTTPS with this certificate (PEM chain)."),
    option("--tls-key", type=FILE, help="Its key (PEM, not encrypted). Both are re-read."),
    option(
        "--tls-client-ca",
        type=FILE,
        help="Ask callers for a certificate of this CA (PEM); probes need none.",
    ),
)
extender = options(
    option(
        "--bind/--no-bind",
        default=False,
        show_default=True,
        help="Answer /bind of the scheduler extender; needs the right to create pods/binding, and "
        "--tls-client-ca or a loopback --webaddr.",
    ),
    option(
        "--extender-memory",
        type=click.IntRange(1, 1024),
        default=EXTENDER_MEMORY,
        show_default=True,
        metavar="MIB",
        help="Memory for the scheduler's questions under way; whole Nodes take some 10 KB each.",
    ),
)
lease_namespace = option(
    "--lease-namespace",
    metavar="NAMESPACE",
    help="Where the Lease `dynsched` is. Default: the pod's namespace, else the kubeconfig's.",
)


def _logging(level: str) -> Callable[[F], F]:
    return options(
        option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="One line an event, for people or for programs.",
        ),
        option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default=level,
            show_default=True,
            help="From which level on events are logged.",
        ),
    )


logging = _logging("info")
quiet_logging = _logging("error")
"""For a command whose output says all that its log would say."""
output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for programs.",
)
server = option(
    "--server",
    default=DEFAULT_SERVER,
    show_default=True,
    metavar="URL",
    help="The running dynsched to ask.",
)
