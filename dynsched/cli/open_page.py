"""The command `dynsched open`: the page, in the browser of the person at the terminal.

A browser has no credentials for the API server. So kubectl, which has, runs beside as a proxy for
this machine, and for dynsched's paths alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from dynsched.cli import flags
from dynsched.util.errors import ExpectedError

if TYPE_CHECKING:
    from dynsched.kube.services import Service
    from dynsched.tools.running import Where

_SERVING: Final = re.compile(r"Starting to serve on (\S+)")  # what `kubectl proxy` prints first
_GRACE: Final = 5.0
"""Seconds that kubectl has to end by itself."""
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@click.command(name="open", context_settings={"help_option_names": ["-h", "--help"]})
@flags.running
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="The port of `kubectl proxy` on this machine. Default: one that is free.",
)
@click.option("--no-browser", is_flag=True, help="Print the page's address, and open nothing.")
@click.pass_context
def open_page(context: click.Context, /, *, port: int, no_browser: bool, **given: Any) -> None:
    """Open the page of a running dynsched in the browser.

    The page of a dynsched in a cluster is reached through `kubectl proxy`, which runs until Ctrl-C
    and lets nothing else through. docs/page.md says what the page shows.

    \b
    Example:
      dynsched open
      dynsched open --context production --no-browser
    """
    from dynsched.cli.server_flags import where_of
    from dynsched.tools.running import InCluster, opened

    where = where_of(context, given)
    with opened(where) as running:
        running.ask("/healthz")  # what is wrong is said here, in words, and not by the browser
        if not isinstance(running, InCluster):
            _present(f"{running.shown}/", browses=not no_browser)
            return
        service = running.service
        with contextlib.suppress(KeyboardInterrupt), _proxy(where, service, port) as kubectl:
            # `kubectl proxy` says where it listens, as 127.0.0.1:PORT, or why it ends.
            said = (_SERVING.search(line) for line in kubectl.stdout or ())
            if found := next(filter(None, said), None):
                _present(f"http://{found[1]}{service.path}/", browses=not no_browser)
                click.echo("The page can be reached until Ctrl-C.", err=True)
            raise ExpectedError(f"`kubectl proxy` has ended (exit code {kubectl.wait()})")


def _command(kubectl: str, where: Where, service: Service, port: int) -> list[str]:
    """`kubectl proxy` for the GET requests to one Service. While it runs, every program on this
    machine could use the caller's rights through it, so it must not let anything else through.
    """
    return [
        kubectl,
        "proxy",
        f"--port={port}",
        f"--accept-paths=^{re.escape(service.path)}/",
        "--reject-methods=^(POST|PUT|PATCH|DELETE|CONNECT)$",
        *([f"--kubeconfig={where.kubeconfig}"] if where.kubeconfig else []),
        *([f"--context={where.context}"] if where.context else []),
    ]


@contextlib.contextmanager
def _proxy(where: Where, service: Service, port: int) -> Iterator[subprocess.Popen[str]]:
    """`kubectl proxy`, which ends with the block, and on SIGHUP too."""
    found = shutil.which("kubectl")
    if found is None:
        raise ExpectedError(
            "kubectl is not on PATH, and the page of a dynsched in a cluster is shown through "
            "`kubectl proxy`: install it, or see docs/page.md for an Ingress"
        )
    # In a group of its own: kubectl may be a wrapper that starts the real one, and both must end.
    process = subprocess.Popen(  # noqa: S603 (no shell; the program is the user's own kubectl)
        _command(found, where, service, port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, lambda number, _: sys.exit(128 + number))
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE)
                os.killpg(process.pid, signal.SIGKILL)


def _present(url: str, *, browses: bool) -> None:
    click.echo(url)
    # Not on a console without display: browsers there know no JavaScript, and take the terminal.
    has_display = sys.platform != "linux" or any(map(os.environ.get, _DISPLAYS))
    if browses and not (has_display and webbrowser.open(url)):
        click.echo("No browser was found: open this address yourself.", err=True)
