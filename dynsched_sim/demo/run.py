"""Starts the API server, the load and the operator of the demo, and removes them all at the end."""

from __future__ import annotations

import asyncio
import math
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dynsched.rules.file import load_rules
from dynsched_sim.apiserver.api_server import ApiServer
from dynsched_sim.demo.cluster import HOME, OrderedCluster
from dynsched_sim.demo.operator import Operator, running
from dynsched_sim.demo.show import page, summary
from dynsched_sim.load import DemoLoad
from dynsched_sim.prometheus_api import serve

_START_SECONDS: Final = 60.0
"""Seconds to wait for the operator's first NodeOrder before the demo gives up."""
_LARGE_CLUSTER: Final = 500
"""From this number of nodes on, dynsched ticks every two seconds instead of twice a second."""
_POLL: Final = 0.5
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BrokenError(Exception):
    """A part of the demo failed; the message is for the user at the terminal."""


async def run_demo(*, nodes: int, seconds: float | None, seed: int, console: Console) -> int:
    """Run the demo for ``seconds`` after everything is up, or until Ctrl-C; returns the exit code.

    0 if it was ended, 1 if a part failed. Either way, no process and no file is left behind.
    """
    stopped = asyncio.Event()
    work = asyncio.create_task(_perform(DemoLoad(nodes, seed), nodes, seconds, console))

    def stop() -> None:
        if not stopped.is_set():  # a second signal must not interrupt the cleanup
            stopped.set()
            work.cancel()

    with _on_signals(stop):
        try:
            await work
        except asyncio.CancelledError:
            if not stopped.is_set():
                raise
        except BrokenError as error:
            print_text(Console(stderr=True), f"Error: {error}")
            return 1
    print_text(console, "Everything was stopped and removed.")
    return 0


async def _perform(load: DemoLoad, nodes: int, seconds: float | None, console: Console) -> None:
    print_text(
        console, f"Starting a cluster of {nodes} nodes, a simulated Prometheus, and dynsched ..."
    )
    packaged = resources.files("dynsched_sim") / "demo-rules.yaml"
    with tempfile.TemporaryDirectory(prefix="dynsched-demo-", ignore_cleanup_errors=True) as name:
        rules = Path(name) / "rules.yaml"
        rules.write_text(packaged.read_text(encoding="utf-8"), encoding="utf-8")
        async with ApiServer() as api:
            cluster = OrderedCluster(api, nodes, load, load_rules(rules))
            kubeconfig, url = api.kubeconfig(Path(name) / "kubeconfig"), f"127.0.0.1:{_free_port()}"
            _create_service(api, f"http://{url}")
            async with (
                serve(cluster.prometheus.application()) as prometheus,
                serve(page(cluster, f"http://{url}")) as both,
            ):
                flags = ("--kubeconfig", kubeconfig, "--prom", prometheus, "--rules", rules)
                command = (
                    *(sys.executable, "-m", "dynsched", "run", *flags, "--webaddr", url),
                    *("--interval", "2" if nodes >= _LARGE_CLUSTER else "0.5"),
                    *("--lease-namespace", HOME),
                )
                async with running(Path(name), *command) as operator:
                    await _until_up(operator, cluster)
                    print_text(
                        console, _introduction(both, f"http://{url}", flags, cluster.hottest)
                    )
                    await _show(operator, cluster, seconds, console)


async def _until_up(operator: Operator, cluster: OrderedCluster) -> None:
    try:
        async with asyncio.timeout(_START_SECONDS):
            while cluster.order() is None:
                await _pause(operator, cluster)
    except TimeoutError:
        raise BrokenError(
            f"dynsched has written no order in {_START_SECONDS:.0f}s. Its log ends with:\n"
            f"{operator.tail()}"
        ) from None


async def _show(
    operator: Operator, cluster: OrderedCluster, seconds: float | None, console: Console
) -> None:
    """Show the summary until the time is over. BrokenError if the operator ends before that."""
    ends = math.inf if seconds is None else time.monotonic() + seconds
    with Live(console=console, auto_refresh=False) as live:  # a pipe gets only the last text
        while time.monotonic() < ends:
            await _pause(operator, cluster)
            live.update(Text(f"{summary(cluster)}\n"), refresh=True)


async def _pause(operator: Operator, cluster: OrderedCluster) -> None:
    """Wait for one poll interval, then advance. BrokenError if the operator ends during it."""
    try:
        async with asyncio.timeout(_POLL):
            code = await operator.process.wait()
    except TimeoutError:
        cluster.go_on()
        return
    raise BrokenError(f"dynsched ended with code {code}. Its log ends with:\n{operator.tail()}")


def _introduction(both: str, url: str, flags: Sequence[str | Path], hottest: str) -> str:
    _, kubeconfig, _, prometheus, _, rules = flags
    return f"""
  Open this   {both}/

  dynsched    {url}/
  kubeconfig  {kubeconfig}
  rules       {rules}
  Prometheus  {prometheus} (simulated: it answers only the demo's rules and the shipped ones)

Two clusters run the same pods. One has kube-scheduler alone; in the other, new pods also get
dynsched's order. The simulated API server adds the same preferences to pods as a real one.

Try in another terminal, on the cluster with dynsched:
  {program()} top --kubeconfig {shlex.quote(str(kubeconfig))} --prom {prometheus}
  {program()} order --server {url}
  {program()} why {hottest} --server {url}
  kubectl --kubeconfig {shlex.quote(str(kubeconfig))} get nodes -L status -w

Ctrl-C stops the demo and removes everything.
"""


def program() -> str:
    """The command to call this program; "dynsched" only if PATH resolves to this installation."""
    called = Path(sys.argv[0]).absolute()
    if called.name != "dynsched" or not called.is_file():
        return f"{shlex.quote(sys.executable)} -m dynsched"
    found = shutil.which("dynsched")
    return "dynsched" if found and called.samefile(found) else shlex.quote(str(called))


def print_text(console: Console, text: str) -> None:
    """Print ``text`` unchanged: no wrapping, no markup, no highlighted numbers."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on Ctrl-C, on SIGTERM, and when the terminal is closed."""
    loop = asyncio.get_running_loop()
    # An ignored signal stays ignored: under nohup the demo must survive the terminal.
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def hang_up() -> None:
        # The terminal is gone; writing to it would fail in the middle of the cleanup.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        stop()

    for number in heeded:
        loop.add_signal_handler(number, hang_up if number is signal.SIGHUP else stop)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _create_service(api: ApiServer, url: str) -> None:
    """Create the Service of manifests/base, so that `kubectl dynsched` finds the operator."""
    body = {
        "metadata": {"name": HOME, "labels": {"app.kubernetes.io/name": HOME}},
        "spec": {"ports": [{"name": "http", "port": 9000}]},
    }
    api.objects.create("namespaces", {"metadata": {"name": HOME}})
    api.objects.create("services", body, HOME)
    api.proxy.backends[HOME, HOME] = url
