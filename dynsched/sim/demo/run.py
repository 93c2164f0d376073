"""Sets the stage: API server, load, Prometheus and the operator, and clears all of it away."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from rich.console import Console
from rich.live import Live

from dynsched.rules.file import load_rules
from dynsched.rules.keys import DEFAULT_LABEL
from dynsched.rules.labels import parse_label
from dynsched.sim.apiserver.resources import NODES
from dynsched.sim.apiserver.server import ApiServer
from dynsched.sim.apiserver.store import Change, ChangeType
from dynsched.sim.demo.show import Lines, Picture, Show, Tally, tell
from dynsched.sim.exporter import Exporter, Machine, serve
from dynsched.sim.nodes import make_node
from dynsched.sim.pods import WORKLOADS, make_pods
from dynsched.sim.processes import Child, Workspace, free_port
from dynsched.sim.prometheus import (
    PrometheusFailedError,
    find_prometheus,
    scrape_dynsched,
    start_prometheus,
)

START_SECONDS: Final = 60.0
"""Seconds after which an operator that has not finished a tick counts as broken."""
LARGE_CLUSTER: Final = 500
"""Number of nodes from which on scrapes and ticks are every two seconds instead of every second."""
_POLL: Final = 0.5
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BrokenError(Exception):
    """A part of the demo does not work; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """All that runs, once it does."""

    operator: Child
    url: str
    kubeconfig: Path
    rules: Path
    prometheus: str
    is_simulated: bool


@dataclass(slots=True)
class _Outcome:
    """What is left to tell when everything is over."""

    tally: Tally = field(default_factory=Tally)
    writes: int = 0
    began: float | None = None
    ended: float | None = None

    def count(self, change: Change) -> None:
        """Called by the API server's store on each change of a node."""
        self.writes += change.type is ChangeType.MODIFIED

    @contextmanager
    def timed(self) -> Iterator[None]:
        """The show is on as long as this is."""
        self.began = time.monotonic()
        try:
            yield
        finally:
            self.ended = time.monotonic()

    def elapsed(self) -> float:
        """Seconds that the show has taken, or took; 0 when it did not begin."""
        now = time.monotonic() if self.ended is None else self.ended
        return 0.0 if self.began is None else now - self.began


async def run_demo(*, nodes: int, seconds: float | None, seed: int, console: Console) -> int:
    """Run the demo for ``seconds``, counted from when everything is up, or until Ctrl-C.

    The exit code: 0 when it was ended, 1 when a part of it broke. Whichever way it ends, no
    process and no file of it is left.
    """
    outcome = _Outcome()
    stopped = asyncio.Event()
    work = asyncio.create_task(_perform(nodes, seconds, seed, console, outcome))

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
        except (BrokenError, PrometheusFailedError) as error:
            tell(Console(stderr=True), f"Error: {error}")
            return 1
    if outcome.began is not None and not console.is_terminal:  # there it stands already
        tell(console, outcome.tally.summary(outcome.elapsed(), outcome.writes))
    tell(console, "Everything was stopped and removed.")
    return 0


async def _perform(
    nodes: int, seconds: float | None, seed: int, console: Console, outcome: _Outcome
) -> None:
    """Set up, show, and clear away."""
    async with ApiServer() as api:
        names = list(_names(nodes))
        machines = [_create_node(api, name, index) for index, name in enumerate(names)]
        pods = _create_pods(api, names)
        api.store.subscribe(NODES, outcome.count)
        binary = find_prometheus()
        with _rules_file() as packaged:
            rule_set = None if binary else load_rules(packaged)
            exporter = Exporter(machines, seed=seed, rule_set=rule_set, pods=pods)
            # The workspace comes last, and so goes first: the operator ends before its cluster.
            async with (
                serve(exporter.application()) as load,
                Workspace("dynsched-demo-") as workspace,
            ):
                rules = Path(shutil.copy(packaged, workspace.folder / "rules.yaml"))
                tell(console, f"Starting a cluster of {nodes} nodes, {_measured_by(binary)} ...")
                stage = await _set_up(
                    workspace, api, load, rules, binary, many=nodes >= LARGE_CLUSTER
                )
                await _show(stage, seconds, console, outcome, exporter.first_to_heat().name)


async def _set_up(
    workspace: Workspace, api: ApiServer, load: str, rules: Path, binary: str | None, *, many: bool
) -> _Stage:
    """Start Prometheus, where there is one, and the operator."""
    interval = 2 if many else 1
    prometheus = load
    if binary:
        target = load.removeprefix("http://")
        prometheus = await start_prometheus(workspace, binary, target, interval=f"{interval}s")
    kubeconfig = api.kubeconfig(workspace.folder / "kubeconfig")
    address = f"127.0.0.1:{free_port()}"
    if binary:
        scrape_dynsched(workspace, address)
    operator = await workspace.start(
        "operator",
        *(sys.executable, "-m", "dynsched", "run"),
        *("--kubeconfig", kubeconfig, "--prom", prometheus, "--rules", rules),
        *("--interval", str(interval), "--webaddr", address),
        environment=_environment(),
    )
    url = f"http://{address}"
    _create_service(api, url)
    return _Stage(operator, url, kubeconfig, rules, prometheus, is_simulated=binary is None)


async def _show(
    stage: _Stage, seconds: float | None, console: Console, outcome: _Outcome, hot: str
) -> None:
    """Show `/nodes` until the time is over. BrokenError when the operator ends before that."""
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(stage.url, timeout=timeout) as session:
        await _first_answer(session, stage.operator)
        _introduce(console, stage, hot)
        with outcome.timed(), _screen(console, outcome) as show:
            while seconds is None or outcome.elapsed() < seconds:
                if (payload := await _nodes(session)) is not None:
                    show.update(payload, outcome.elapsed())
                await _pause(stage.operator)


async def _first_answer(session: aiohttp.ClientSession, operator: Child) -> None:
    try:
        async with asyncio.timeout(START_SECONDS):
            while await _nodes(session) is None:
                await _pause(operator)
    except TimeoutError:
        raise BrokenError(
            f"dynsched has not finished a tick in {START_SECONDS:.0f}s. Its log ends with:\n"
            f"{operator.tail()}"
        ) from None


async def _nodes(session: aiohttp.ClientSession) -> dict[str, Any] | None:
    """The operator's `/nodes`; None while there is none."""
    try:
        async with session.get("/nodes") as response:
            body = await response.read()
            return msgspec.json.decode(body, type=dict[str, Any]) if response.ok else None
    except (aiohttp.ClientError, TimeoutError):
        return None


async def _pause(operator: Child) -> None:
    """Wait for the next look. BrokenError when the operator ends before it."""
    try:
        async with asyncio.timeout(_POLL):
            code = await operator.ended()
    except TimeoutError:
        return
    raise BrokenError(f"dynsched ended with code {code}. Its log ends with:\n{operator.tail()}")


def _introduce(console: Console, stage: _Stage, hot: str) -> None:
    kubeconfig, rules = (shlex.quote(str(path)) for path in (stage.kubeconfig, stage.rules))
    asked = f"--prom {stage.prometheus} --rules {rules}"
    simulated = " (simulated: it answers the demo's rules only)" if stage.is_simulated else ""
    tell(
        console,
        f"""
  Open this   {stage.url}/

  kubeconfig  {stage.kubeconfig}
  rules       {stage.rules}
  dynsched    {stage.url}  {stage.url}/nodes
  Prometheus  {stage.prometheus}{simulated}

Try in another terminal:
  kubectl --kubeconfig {kubeconfig} get nodes -L status -w
  kubectl --kubeconfig {kubeconfig} describe node {hot}
  {program()} why {hot} --server {stage.url}
  {program()} doctor --kubeconfig {kubeconfig} {asked} --server {stage.url}
  {program()} reach --kubeconfig {kubeconfig} --rules {rules}
  {program()} backtest --kubeconfig {kubeconfig} {asked} --since 10m --step 5s

Ctrl-C stops the demo and removes everything.
""",
    )


def program() -> str:
    """How a person calls this program: by its name only where PATH leads to this one."""
    running = Path(sys.argv[0]).absolute()
    if running.name != "dynsched" or not running.is_file():
        return f"{shlex.quote(sys.executable)} -m dynsched"
    found = shutil.which("dynsched")
    return "dynsched" if found and running.samefile(found) else shlex.quote(str(running))


@contextmanager
def _screen(console: Console, outcome: _Outcome) -> Iterator[Show]:
    """What fits the console: a live table on a terminal, else lines."""
    if not console.is_terminal:
        yield Lines(console, outcome.tally)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield Picture(live, outcome.tally, lambda: outcome.writes)


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


@contextmanager
def _rules_file() -> Iterator[Path]:
    with resources.as_file(resources.files("dynsched.sim") / "demo-rules.yaml") as path:
        yield path


def _names(count: int) -> Iterator[str]:
    """``worker-01`` and so on: in the order of their names also by kubectl."""
    width = max(2, len(str(count)))
    return (f"worker-{number:0{width}}" for number in range(1, count + 1))


def _create_node(api: ApiServer, name: str, index: int) -> Machine:
    body = make_node(name, index)
    api.objects.create("nodes", body)
    addresses = {entry["type"]: entry["address"] for entry in body["status"]["addresses"]}
    return Machine(name, addresses["InternalIP"])


def _create_pods(api: ApiServer, nodes: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The pods that `dynsched reach` and the page tell of: namespaces and bodies."""
    pods = list(make_pods(nodes, parse_label(DEFAULT_LABEL)))
    for namespace in dict.fromkeys(workload.namespace for workload in WORKLOADS):
        api.objects.create("namespaces", {"metadata": {"name": namespace}})
    for namespace, body in pods:
        api.objects.create("pods", body, namespace)
    return pods


def _create_service(api: ApiServer, url: str) -> None:
    """As manifests/base has it: so `kubectl dynsched` finds the operator by the kubeconfig."""
    name = "dynsched"
    body = {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": name}},
        "spec": {"ports": [{"name": "http", "port": 9000}]},
    }
    api.objects.create("namespaces", {"metadata": {"name": name}})
    api.objects.create("services", body, name)
    api.proxy.backends[name, name] = url


def _measured_by(binary: str | None) -> str:
    if binary:
        return f"measured by a real Prometheus ({binary}), and dynsched"
    return "measured by a simulator (no prometheus on PATH), and dynsched"


def _environment() -> dict[str, str]:
    """Ours without what would change how the operator runs. No proxy is asked for loopback."""
    return {name: text for name, text in os.environ.items() if not name.startswith("DYNSCHED_")}
