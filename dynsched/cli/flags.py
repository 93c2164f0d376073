"""Flags that commands share, and their environment variables."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click
from click.core import ParameterSource

from dynsched.util.durations import parse_duration, parse_seconds
from dynsched.util.errors import ExpectedError
from dynsched.util.formatting import MAX_ROWS, format_time, parse_time

F = TypeVar("F", bound=Callable[..., Any])

# The flags of dynamicScheduler, in Go's form: -prom URL, --prom URL, -prom=URL.
_DYNAMIC_SCHEDULER_FLAGS: Final = {
    "kubeconfig": "--kubeconfig",
    "prom": "--prom",
    "r": "--rules",
    "s": "--interval",
    "webaddr": "--webaddr",
}
_DYNAMIC_SCHEDULER_FLAG: Final = re.compile(
    rf"--?({'|'.join(_DYNAMIC_SCHEDULER_FLAGS)})(=.*)?", re.DOTALL
)


def long_spelling(word: str) -> str:
    """One word of a command line; a flag of dynamicScheduler becomes the current one."""
    match = _DYNAMIC_SCHEDULER_FLAG.fullmatch(word)
    return _DYNAMIC_SCHEDULER_FLAGS[match[1]] + (match[2] or "") if match else word


FILE: Final = click.Path(path_type=Path, readable=False)
"""A path that click does not check: the code that opens the file reports all errors, including a
missing permission."""


def option(name: str, *more: str, **details: Any) -> Callable[[F], F]:
    """A flag that is also read from ``DYNSCHED_<NAME>``. Its help shows this, and the default."""
    first = name.partition("/")[0].removeprefix("--")
    variable = f"DYNSCHED_{first.replace('-', '_').upper()}"
    details.setdefault("show_default", "default" in details)
    return click.option(name, *more, envvar=variable, show_envvar=True, **details)


def file_option(name: str, help_text: str, **details: Any) -> Callable[[F], F]:
    return option(name, type=FILE, help=help_text, **details)


def options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


class _Header(click.ParamType[tuple[str, str]]):
    """``NAME: VALUE``."""

    name = "header"
    envvar_list_splitter = "\n"  # values may contain spaces

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        name, colon, text = value.partition(":")
        if not colon or not name.strip():
            # The message does not show the value, which may be a secret.
            self.fail("write it as 'NAME: VALUE'", param, ctx)
        return name.strip(), text.strip()


def seconds(
    *, at_least: float
) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """A callback that parses a number of seconds or a duration; None if the flag is not given."""

    def parse(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
        try:
            return None if text is None else parse_seconds(text, at_least=at_least)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return parse


def moment(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """A callback that parses RFC 3339, Unix seconds, or a duration before now."""
    if text is None:
        return None
    for read in (parse_time, lambda ago: time.time() - parse_duration(ago), float):
        with suppress(ValueError, OverflowError, OSError):
            if (moment := read(text)) is not None and moment >= 0 and format_time(moment):
                return moment
    raise click.BadParameter(
        "write a time like 2026-11-20T12:00:00Z, Unix seconds, or how long ago: 2h"
    )


kubeconfig = options(
    file_option(
        "--kubeconfig",
        "Kubeconfig file. Default: the pod's service account, else $KUBECONFIG, ~/.kube/config.",
    ),
    option("--context", metavar="NAME", help="Kubeconfig context. Default: current-context."),
)
DEFAULT_RULES: Final = Path("rules.yaml")
rules = option(
    "--rules",
    "-r",
    type=FILE,
    default=DEFAULT_RULES,
    help="Rules file. dynamicScheduler's rule.yaml works too.",
)


def _or_shipped(_context: click.Context, _option: click.Parameter, named: Path | None) -> Path:
    if named is not None or DEFAULT_RULES.is_file():
        return named or DEFAULT_RULES
    from dynsched.rules.shipped import PATH

    click.echo("By the rules that come with dynsched: there is no rules.yaml here", err=True)
    return PATH


rules_or_shipped = option(
    "--rules",
    "-r",
    type=FILE,
    callback=_or_shipped,
    help="Rules file. dynamicScheduler's rule.yaml works too. Default: rules.yaml if there is one, "
    "else the shipped rules.",
)
_prometheus_access = options(
    option(
        "--prom-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        metavar="SECONDS",
        help="A query that takes longer counts as failed.",
    ),
    option("--prom-bearer-token", metavar="TOKEN", help="Bearer token; prefer a file."),
    file_option("--prom-bearer-token-file", "Bearer token, re-read when it changes."),
    option("--prom-username", help="Basic authentication: user."),
    option("--prom-password", help="Basic authentication: password; prefer a file."),
    file_option("--prom-password-file", "Password, re-read when it changes."),
    file_option("--prom-ca-file", "CA certificates (PEM) that signed Prometheus's certificate."),
    file_option("--prom-cert-file", "Client certificate (PEM)."),
    file_option("--prom-key-file", "Client certificate's key (PEM)."),
    option(
        "--prom-insecure-skip-verify", is_flag=True, help="Do not check Prometheus's certificate."
    ),
    option(
        "--prom-header",
        type=_Header(),
        multiple=True,
        metavar="'NAME: VALUE'",
        help="Extra header, such as X-Scope-OrgID: team-a. Can be repeated (in the environment: "
        "one per line).",
    ),
)


def _prometheus(default: str) -> Callable[[F], F]:
    url = "URL of Prometheus, Thanos, VictoriaMetrics or Mimir, with its path prefix."
    help_text = f"{url} {default}"
    return options(option("--prom", metavar="URL", help=help_text), _prometheus_access)


prometheus = _prometheus("Default: http://localhost:9090.")
prometheus_or_found = _prometheus(
    "Default: one that is found in the cluster, else http://localhost:9090 (`top`: metrics-server)."
)
prometheus_if_given = _prometheus("Default: none.")
for_the_page = options(
    option(
        "--prom-external-url",
        metavar="URL",
        help="Where people reach Prometheus, for the page's links. Default: --prom.",
    ),
    option("--cluster-name", metavar="NAME", help="The cluster's name on the page."),
)
tls = options(
    file_option("--tls-cert", "Serve HTTPS with this certificate (PEM chain)."),
    file_option("--tls-key", "Its private key (PEM, not encrypted). Changed files are read again."),
    file_option(
        "--tls-client-ca",
        "Require a client certificate signed by this CA (PEM), except from probes.",
    ),
)
web_auth = options(
    option(
        "--web-auth/--no-web-auth",
        default=False,
        help="Require readers to send a bearer token whose user may `get` the path. See "
        "docs/operate.md#who-may-read.",
    ),
    option(
        "--web-auth-audience",
        multiple=True,
        metavar="NAME",
        help="Accepted audience of these tokens. Can be repeated. Default: the API server's own.",
    ),
)
extender = options(
    option(
        "--extender-addr",
        metavar="[HOST]:PORT",
        help="Separate address for the scheduler extender only. Default: --webaddr.",
    ),
    file_option("--extender-client-ca", "Like --tls-client-ca, but only for --extender-addr."),
    option(
        "--bind/--no-bind",
        default=False,
        help="Serve /bind of the scheduler extender. It needs permission to create pods/binding, "
        "and --tls-client-ca or a loopback address.",
    ),
)
webhook = options(
    file_option(
        "--webhook-cert-dir",
        "Before Kubernetes 1.36: give new pods the order through an admission webhook. The "
        "directory has its tls.crt and tls.key. See docs/order.md.",
    ),
    option(
        "--webhook-addr",
        default=":9443",
        metavar="[HOST]:PORT",
        help="Address of the admission webhook.",
    ),
)


def _lease_namespace(default: str) -> Callable[[F], F]:
    help_text = f"Namespace of the Lease `dynsched`. Default: {default}"
    return option("--lease-namespace", metavar="NAMESPACE", help=help_text)


lease_namespace = _lease_namespace("the pod's, or without a pod the kubeconfig's.")
lease_namespace_or_any = _lease_namespace(
    "every namespace. With --if-lease-older-than: the pod's, or without a pod the kubeconfig's."
)


log_format = option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Format of the log.",
)


def _logging(level: str) -> Callable[[F], F]:
    """Add the flags of the log, and configure it before the command runs."""
    log_level = option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=level,
        help="Lowest level that is logged.",
    )

    def apply(function: F) -> F:
        @wraps(function)
        def logged(*args: Any, log_format: str, log_level: str, **given: Any) -> Any:
            from dynsched.util.logs import configure_logging, last_words

            configure_logging(log_format, log_level)
            with last_words((ExpectedError, click.ClickException)):
                return function(*args, **given)

        return options(log_format, log_level)(cast("F", logged))

    return apply


logging = _logging("info")
quiet_logging = _logging("error")
"""For commands whose output already contains what they would log."""
output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for programs.",
)
every = click.option(
    "--all", "every", is_flag=True, help=f"All nodes, not only the worst {MAX_ROWS}."
)
namespace = option(
    "--namespace",
    "-n",
    metavar="NAMESPACE",
    help="Namespace of dynsched. Default: any.",
)


def _token_file(context: click.Context, _: click.Parameter, value: Any) -> Any:
    """The token file; None if it comes from the environment and --server from the command line,
    because the token may be for another server.
    """
    server, file = map(context.get_parameter_source, ("server", "server_token_file"))
    return None if server is ParameterSource.COMMANDLINE is not file else value


server = options(
    option(
        "--server",
        metavar="URL",
        help="URL of the running dynsched. Default: its Service in the cluster of the current "
        "context, through the API server.",
    ),
    file_option(
        "--server-token-file",
        "Bearer token, if dynsched runs with --web-auth. The API server forwards none.",
        callback=_token_file,
    ),
)
running = options(server, kubeconfig, namespace)
"""Select the running instance that is queried; see `dynsched.tools.client`."""
