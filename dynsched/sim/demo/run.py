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
from dynsched.sim.apiserver.api_server import ApiServer
from dynsched.sim.apiserver.resources import NODES
from dynsched.sim.apiserver.store import Change, ChangeType
from dynsched.sim.demo.operator import Operator, running
from dynsched.sim.demo.show import Tally, screen, tell
from dynsched.sim.examples import make_node, make_pods
from dynsched.sim.prometheus_api import Machine, SimulatedPrometheus, serve

_START_SECONDS: Final = 60.0
"""Seconds after which an operator that has not finished a tick counts as broken."""
_LARGE_CLUSTER: Final = 500
"""Number of nodes from which on ticks are every two seconds instead of every second."""
_POLL: Final = 0.5
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BrokenError(Exception):
    """A part of the demo does not work; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where everything is, once it runs. ``hot``: the node to watch."""

    url: str
    kubeconfig: Path
    rules: Path
    prometheus: str
    hot: str


@dataclass(slots=True)
class _Outcome:
    """``elapsed``: seconds that the show takes; None when it did not begin."""

    tally: Tally = field(default_factory=Tally)
    writes: int = 0
    elapsed: float | None = None

    def count(self, change: Change) -> None:
        self.writes += change.type is ChangeType.MODIFIED


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
        except BrokenError as error:
            tell(Console(stderr=True), f"Error: {error}")
            return 1
    if outcome.elapsed is not None and not console.is_terminal:  # there it stands already
        tell(console, outcome.tally.summary(outcome.elapsed, outcome.writes))
    tell(console, "Everything was stopped and removed.")
    return 0


async def _perform(
    nodes: int, seconds: float | None, seed: int, console: Console, outcome: _Outcome
) -> None:
    tell(console, f"Starting a cluster of {nodes} nodes, a simulated Prometheus, and dynsched ...")
    packaged = resources.files("dynsched.sim") / "demo-rules.yaml"
    with tempfile.TemporaryDirectory(prefix="dynsched-demo-", ignore_cleanup_errors=True) as name:
        rules = Path(name) / "rules.yaml"
        rules.write_text(packaged.read_text(encoding="utf-8"), encoding="utf-8")
        async with ApiServer() as api:
            prometheus = SimulatedPrometheus(_fill(api, nodes), load_rules(rules), seed=seed)
            api.store.subscribe(NODES, outcome.count)
            async with serve(prometheus.application()) as load:
                stage = _Stage(
                    url=f"http://127.0.0.1:{_free_port()}",
                    kubeconfig=api.kubeconfig(Path(name) / "kubeconfig"),
                    rules=rules,
                    prometheus=load,
                    hot=prometheus.first_to_heat().name,
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
        await _first_answer(session, operator)
        _introduce(console, stage)
        began = time.monotonic()
        with screen(console, outcome.tally, lambda: outcome.writes) as show:
            try:
                while seconds is None or time.monotonic() - began < seconds:
                    if (payload := await _nodes(session)) is not None:
                        show(payload, time.monotonic() - began)
                    await _pause(operator)
            finally:
                outcome.elapsed = time.monotonic() - began


async def _first_answer(session: aiohttp.ClientSession, operator: Operator) -> None:
    try:
        async with asyncio.timeout(_START_SECONDS):
            while await _nodes(session) is None:
                await _pause(operator)
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


async def _pause(operator: Operator) -> None:
    """Wait until it is to be asked again. BrokenError when the operator ends before that."""
    try:
        async with asyncio.timeout(_POLL):
            code = await operator.process.wait()
    except TimeoutError:
        return
    raise BrokenError(f"dynsched ended with code {code}. Its log ends with:\n{operator.tail()}")


def _introduce(console: Console, stage: _Stage) -> None:
    kubeconfig, rules = (shlex.quote(str(path)) for path in (stage.kubeconfig, stage.rules))
    asked = f"--prom {stage.prometheus} --rules {rules}"
    tell(
        console,
        f"""
  Open this   {stage.url}/

  kubeconfig  {stage.kubeconfig}
  rules       {stage.rules}
  dynsched    {stage.url}  {stage.url}/nodes
  Prometheus  {stage.prometheus} (simulated: it answers the demo's rules only)

Try in another terminal:
  kubectl --kubeconfig {kubeconfig} get nodes -L status -w
  kubectl --kubeconfig {kubeconfig} describe node {stage.hot}
  {program()} why {stage.hot} --server {stage.url}
  {program()} doctor --kubeconfig {kubeconfig} {asked} --server {stage.url}
  {program()} reach --kubeconfig {kubeconfig} --rules {rules}
  {program()} backtest --kubeconfig {kubeconfig} {asked} --since 10m --step 5s

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


def _fill(api: ApiServer, count: int) -> list[Machine]:
    """Nodes `worker-01` and so on, and the pods that `dynsched reach` and the page tell of."""
    width = max(2, len(str(count)))
    machines = []
    for index in range(count):
        body = make_node(f"worker-{index + 1:0{width}}", index)
        api.objects.create("nodes", body)
        addresses = {entry["type"]: entry["address"] for entry in body["status"]["addresses"]}
        machines.append(Machine(body["metadata"]["name"], addresses["InternalIP"]))
    for namespace in ("batch", "shop"):
        api.objects.create("namespaces", {"metadata": {"name": namespace}})
    for namespace, pod in make_pods([each.name for each in machines], parse_label(DEFAULT_LABEL)):
        api.objects.create("pods", pod, namespace)
    return machines


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
