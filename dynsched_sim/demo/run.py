"""Sets the stage: API server, load and the operator, and clears all of it away."""

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
"""Seconds after which an operator that has not finished a tick counts as broken."""
_LARGE_CLUSTER: Final = 500
"""Number of nodes from which on ticks are every two seconds instead of twice a second."""
_POLL: Final = 0.5
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BrokenError(Exception):
    """A part of the demo does not work; the message is for the person at the terminal."""


async def run_demo(*, nodes: int, seconds: float | None, seed: int, console: Console) -> int:
    """Run the demo for ``seconds``, counted from when everything is up, or until Ctrl-C.

    The exit code: 0 when it was ended, 1 when a part of it broke. Whichever way it ends, no
    process and no file of it is left.
    """
    stopped = asyncio.Event()
    work = asyncio.create_task(_perform(DemoLoad(nodes, seed), nodes, seconds, console))

    def stop() -> None:
        if not stopped.is_set():  # a second signal must not interrupt the clearing away
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
    """Go on until the time is over. BrokenError when the operator ends before that."""
    ends = math.inf if seconds is None else time.monotonic() + seconds
    with Live(console=console, auto_refresh=False) as live:  # into a pipe only the last text
        while time.monotonic() < ends:
            await _pause(operator, cluster)
            live.update(Text(f"{summary(cluster)}\n"), refresh=True)


async def _pause(operator: Operator, cluster: OrderedCluster) -> None:
    """Wait until the next look. BrokenError when the operator ends before that."""
    try:
        async with asyncio.timeout(_POLL):
            code = await operator.process.wait()
    except TimeoutError:
        cluster.go_on()
        return
    raise BrokenError(f"dynsched ended with code {code}. Its log ends with:\n{operator.tail()}")


def _introduction(both: str, url: str, flags: Sequence[str | Path], hottest: str) -> str:
    _, kubeconfig, _, prometheus, _, rules = flags
    asks = shlex.join(map(str, flags))
    return f"""
  Open this   {both}/

  dynsched    {url}/
  kubeconfig  {kubeconfig}
  rules       {rules}
  Prometheus  {prometheus} (simulated: it answers the demo's rules only)

Two clusters run the same pods: one with kube-scheduler alone, and one where new pods get dynsched's
order too. The simulated API server gives them the same lists as the policy of a real one does.

Try in another terminal, on the cluster with dynsched:
  {program()} order --server {url}
  {program()} why {hottest} --server {url}
  kubectl --kubeconfig {shlex.quote(str(kubeconfig))} get nodes -L status -w
  kubectl --kubeconfig {shlex.quote(str(kubeconfig))} get pods -n shop -o yaml
  {program()} backtest {asks} --since 5m --step 1s

Ctrl-C stops the demo and removes everything.
"""


def program() -> str:
    """How a person calls this program: by its name only where PATH leads to this one."""
    called = Path(sys.argv[0]).absolute()
    if called.name != "dynsched" or not called.is_file():
        return f"{shlex.quote(sys.executable)} -m dynsched"
    found = shutil.which("dynsched")
    return "dynsched" if found and called.samefile(found) else shlex.quote(str(called))


def print_text(console: Console, text: str) -> None:
    """Print a text as it is: not folded, no markup, no colours of numbers."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on Ctrl-C, on SIGTERM, and when the terminal is closed."""
    loop = asyncio.get_running_loop()
    # A signal that is ignored stays so: under nohup the terminal's end is none of ours.
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def hang_up() -> None:
        # The terminal is gone, and writing to it would fail while there is clearing away to do.
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
    """As manifests/base has it: so `kubectl dynsched` finds the operator by the kubeconfig."""
    body = {
        "metadata": {"name": HOME, "labels": {"app.kubernetes.io/name": HOME}},
        "spec": {"ports": [{"name": "http", "port": 9000}]},
    }
    api.objects.create("namespaces", {"metadata": {"name": HOME}})
    api.objects.create("services", body, HOME)
    api.proxy.backends[HOME, HOME] = url
