"""Sets the stage: API server, load and the operator, and clears all of it away."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from rich.console import Console

from dynsched.rules.file import load_rules
from dynsched.rules.keys import DEFAULT_LABEL
from dynsched.rules.labels import parse_label
from dynsched.rules.rule_set import RuleSet
from dynsched_sim.apiserver.api_server import ApiServer
from dynsched_sim.apiserver.resources import NODES
from dynsched_sim.apiserver.store import ChangeType, StoreChange
from dynsched_sim.demo.operator import Operator, running
from dynsched_sim.demo.show import Tally, print_text, screen
from dynsched_sim.examples import NAMESPACES, make_node, make_pod
from dynsched_sim.load import DemoLoad, DemoPod
from dynsched_sim.prometheus_api import Machine, SimulatedPrometheus, serve

_START_SECONDS: Final = 60.0
"""Seconds after which an operator that has not finished a tick counts as broken."""
_LARGE_CLUSTER: Final = 500
"""Number of nodes from which on ticks are every two seconds instead of every second."""
_POLL: Final = 0.5
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BrokenError(Exception):
    """A part of the demo does not work; the message is for the person at the terminal."""


class _Cluster:
    """Nodes `worker-01` and so on, and pods that come and go on them; it begins when it is made."""

    def __init__(self, api: ApiServer, nodes: int, load: DemoLoad, rules: RuleSet) -> None:
        self._objects, self._label = api.objects, parse_label(DEFAULT_LABEL)
        self._machines = []
        width = max(2, len(str(nodes)))
        for index in range(nodes):
            body = make_node(f"worker-{index + 1:0{width}}", index)
            api.objects.create("nodes", body)
            addresses = {entry["type"]: entry["address"] for entry in body["status"]["addresses"]}
            self._machines.append(Machine(body["metadata"]["name"], addresses["InternalIP"]))
        for namespace in set(NAMESPACES.values()):
            api.objects.create("namespaces", {"metadata": {"name": namespace}})
        self._load = load
        self.prometheus = SimulatedPrometheus(self._machines, rules, load)
        self._names = {number: self._create(pod) for number, pod in load.pods.items()}
        self.first_hot = self._machines[next(iter(load.pods.values())).node].name

    def go_on(self) -> None:
        """Pods end and come as they would have until now."""
        nodes = [self._objects.find("nodes", machine.name) for machine in self._machines]
        key, value = self._label.key, self._label.value
        marked = [index for index, node in enumerate(nodes) if node.labels.get(key) == value]
        ended, new = self._load.step(self.prometheus.age, marked)
        for pod in ended:
            self._objects.delete("pods", self._names.pop(pod.number), NAMESPACES[pod.workload])
        self._names |= {pod.number: self._create(pod) for pod in new}

    def _create(self, pod: DemoPod) -> str:
        node = self._machines[pod.node].name
        body = make_pod(pod.workload, pod.number, node, self._label)
        return self._objects.create("pods", body, NAMESPACES[pod.workload]).name


@dataclass(frozen=True, slots=True)
class _Stage:
    url: str
    kubeconfig: Path
    rules: Path
    prometheus: str
    cluster: _Cluster


@dataclass(slots=True)
class _Outcome:
    """``elapsed``: seconds that the show takes; None when it did not begin."""

    load: DemoLoad
    tally: Tally = field(default_factory=Tally)
    writes: int = 0
    elapsed: float | None = None

    def count(self, change: StoreChange) -> None:
        self.writes += change.type is ChangeType.MODIFIED

    def summary(self) -> str:
        return self.tally.summary(self.elapsed or 0.0, self.writes, *self.load.hot)


async def run_demo(*, nodes: int, seconds: float | None, seed: int, console: Console) -> int:
    """Run the demo for ``seconds``, counted from when everything is up, or until Ctrl-C.

    The exit code: 0 when it was ended, 1 when a part of it broke. Whichever way it ends, no
    process and no file of it is left.
    """
    outcome = _Outcome(DemoLoad(nodes, seed))
    stopped = asyncio.Event()
    work = asyncio.create_task(_perform(nodes, seconds, console, outcome))

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
    if outcome.elapsed is not None and not console.is_terminal:  # there it stands already
        print_text(console, outcome.summary())
    print_text(console, "Everything was stopped and removed.")
    return 0


async def _perform(nodes: int, seconds: float | None, console: Console, outcome: _Outcome) -> None:
    print_text(
        console, f"Starting a cluster of {nodes} nodes, a simulated Prometheus, and dynsched ..."
    )
    packaged = resources.files("dynsched_sim") / "demo-rules.yaml"
    with tempfile.TemporaryDirectory(prefix="dynsched-demo-", ignore_cleanup_errors=True) as name:
        rules = Path(name) / "rules.yaml"
        rules.write_text(packaged.read_text(encoding="utf-8"), encoding="utf-8")
        async with ApiServer() as api:
            cluster = _Cluster(api, nodes, outcome.load, load_rules(rules))
            api.store.subscribe(NODES, outcome.count)
            async with serve(cluster.prometheus.application()) as load:
                stage = _Stage(
                    url=f"http://127.0.0.1:{_free_port()}",
                    kubeconfig=api.kubeconfig(Path(name) / "kubeconfig"),
                    rules=rules,
                    prometheus=load,
                    cluster=cluster,
                )
                _create_service(api, stage.url)
                command = (
                    *(sys.executable, "-m", "dynsched", "run"),
                    *("--kubeconfig", stage.kubeconfig, "--prom", load, "--rules", rules),
                    *("--interval", "2" if nodes >= _LARGE_CLUSTER else "1"),
                    *("--webaddr", stage.url.removeprefix("http://")),
                )
                async with running(Path(name), *command) as operator:
                    await _show(stage, operator, seconds, console, outcome)


async def _show(
    stage: _Stage, operator: Operator, seconds: float | None, console: Console, outcome: _Outcome
) -> None:
    """Show `/nodes` until the time is over. BrokenError when the operator ends before that."""
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(stage.url, timeout=timeout) as session:
        await _first_answer(session, operator, stage.cluster)
        _introduce(console, stage)
        began = time.monotonic()
        with screen(console, outcome.tally, outcome.summary) as show:
            while seconds is None or (outcome.elapsed or 0.0) < seconds:
                outcome.elapsed = time.monotonic() - began
                if (payload := await _nodes(session)) is not None:
                    show(payload, outcome.elapsed)
                await _pause(operator, stage.cluster)


async def _first_answer(
    session: aiohttp.ClientSession, operator: Operator, cluster: _Cluster
) -> None:
    try:
        async with asyncio.timeout(_START_SECONDS):
            while await _nodes(session) is None:
                await _pause(operator, cluster)
    except TimeoutError:
        raise BrokenError(
            f"dynsched has not finished a tick in {_START_SECONDS:.0f}s. Its log ends with:\n"
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


async def _pause(operator: Operator, cluster: _Cluster) -> None:
    """Wait until the next look; pods go on. BrokenError when the operator ends before that."""
    cluster.go_on()
    try:
        async with asyncio.timeout(_POLL):
            code = await operator.process.wait()
    except TimeoutError:
        return
    raise BrokenError(f"dynsched ended with code {code}. Its log ends with:\n{operator.tail()}")


def _introduce(console: Console, stage: _Stage) -> None:
    kubeconfig, rules = (shlex.quote(str(path)) for path in (stage.kubeconfig, stage.rules))
    flags = f"--prom {stage.prometheus} --rules {rules}"
    print_text(
        console,
        f"""
  Open this   {stage.url}/

  kubeconfig  {stage.kubeconfig}
  rules       {stage.rules}
  dynsched    {stage.url}
  Prometheus  {stage.prometheus} (simulated: it answers the demo's rules only)

Try in another terminal:
  kubectl --kubeconfig {kubeconfig} get nodes -L status -w
  kubectl --kubeconfig {kubeconfig} describe node {stage.cluster.first_hot}
  {program()} why {stage.cluster.first_hot} --server {stage.url}
  {program()} doctor --kubeconfig {kubeconfig} {flags} --server {stage.url}
  {program()} backtest --kubeconfig {kubeconfig} {flags} --since 5m --step 1s

Ctrl-C stops the demo and removes everything.
""",
    )


def program() -> str:
    """How a person calls this program: by its name only where PATH leads to this one."""
    called = Path(sys.argv[0]).absolute()
    if called.name != "dynsched" or not called.is_file():
        return f"{shlex.quote(sys.executable)} -m dynsched"
    found = shutil.which("dynsched")
    return "dynsched" if found and called.samefile(found) else shlex.quote(str(called))


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
    name = "dynsched"
    body = {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": name}},
        "spec": {"ports": [{"name": "http", "port": 9000}]},
    }
    api.objects.create("namespaces", {"metadata": {"name": name}})
    api.objects.create("services", body, name)
    api.proxy.backends[name, name] = url
