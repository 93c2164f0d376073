"""The page of a running dynsched, in the browser of the person at the terminal.

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
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from dynsched.tools.running import ByUrl, InCluster, Running, Where
from dynsched.util.errors import ExpectedError

if TYPE_CHECKING:
    from dynsched.kube.services import Service

_SERVING: Final = re.compile(r"Starting to serve on (\S+)")  # what `kubectl proxy` prints first
_GRACE: Final = 5.0
"""Seconds that kubectl has to end by itself."""
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class PageError(ExpectedError):
    """The page cannot be shown; the message says what to do."""


def show_page(running: Running, where: Where, *, port: int, browses: bool) -> None:
    """Print the page's address and open it. Through a cluster it lasts until Ctrl-C. ExpectedError
    when dynsched does not answer.
    """
    running.ask("/healthz")  # what is wrong is said here, in words, and not by the browser
    if isinstance(running, ByUrl):
        _present(f"{running.url}/", browses=browses)
    elif isinstance(running, InCluster):
        service = running.service
        with contextlib.suppress(KeyboardInterrupt), _proxy(where, service, port) as kubectl:
            address = _address(kubectl)
            _present(f"http://{address}{service.path}/", browses=browses)
            click.echo("The page can be reached until Ctrl-C.", err=True)
            code = kubectl.wait()
            raise PageError(f"`kubectl proxy` has ended (exit code {code})")


def proxy_command(kubectl: str, where: Where, service: Service, port: int) -> list[str]:
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
        raise PageError(
            "kubectl is not on PATH, and the page of a dynsched in a cluster is shown through "
            "`kubectl proxy`: install it, or see docs/page.md for an Ingress"
        )
    # In a group of its own: kubectl may be a wrapper that starts the real one, and both must end.
    process = subprocess.Popen(  # noqa: S603 (no shell; the program is the user's own kubectl)
        proxy_command(found, where, service, port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, _end)
    with process:
        try:
            yield process
        finally:
            _stop(process)


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _stop(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)


def _address(kubectl: subprocess.Popen[str]) -> str:
    """Where it listens, as ``127.0.0.1:PORT``. PageError when it ends instead; it has said why."""
    for line in kubectl.stdout or ():
        if found := _SERVING.search(line):
            return found[1]
    raise PageError(
        f"`kubectl proxy` has ended (exit code {kubectl.wait()}); see what it says above"
    )


def _present(url: str, *, browses: bool) -> None:
    click.echo(url)
    if browses and not _open(url):
        click.echo("No browser was found: open this address yourself.", err=True)


def _open(url: str) -> bool:
    """Whether a browser was started. Not on a console without display: those that run there know no
    JavaScript, and take the terminal.
    """
    if sys.platform == "linux" and not any(os.environ.get(name) for name in _DISPLAYS):
        return False
    return webbrowser.open(url)
