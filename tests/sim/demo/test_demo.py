"""`dynsched demo` from the command line: two clusters, and it leaves nothing behind."""

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from programs import need, run

LIMIT = 120.0
"""Seconds within which an awaited line must appear; most appear in a few."""

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
DEMO = (sys.executable, "-m", "dynsched", "demo")

pytestmark = pytest.mark.slow


class Demo:
    """A running demo whose files are all under ``folder``."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder.with_name("log")
        self._read = 0
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*DEMO, *arguments],
                env=environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for the next line with a match of ``pattern``."""
        deadline = time.monotonic() + LIMIT
        line = re.compile(f"{pattern}.*\n", re.MULTILINE)
        while not (found := line.search(self.log, self._read)):
            ended = self.process.poll() is not None or time.monotonic() > deadline
            assert not ended, f"no {pattern!r} in:\n{self.log}"
            time.sleep(0.02)
        self._read = found.end()
        return found

    @property
    def log(self) -> str:
        return self._log.read_text()

    def end(self, code: int = 0) -> str:
        """Wait for the end, which must have this exit code; return everything that it printed."""
        assert self.process.wait(LIMIT) == code, self.log
        return self.log


def environment(folder: Path) -> dict[str, str]:
    # DYNSCHED_DRY_RUN: the demo must ignore the user's settings for their own dynsched.
    return {**os.environ, "TMPDIR": str(folder), "DYNSCHED_DRY_RUN": "true", "COLUMNS": "110"}


def processes(folder: Path) -> list[str]:
    """Command lines of the processes that name a file in ``folder``."""
    listed = run("ps", "-wweo", "pid=,args=", check=True)
    return [line.strip() for line in listed.stdout.splitlines() if str(folder) in line]


def left_behind(folder: Path) -> list[str]:
    return [str(path) for path in folder.iterdir()] + processes(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The demo's folder for temporary files, in which it must leave nothing behind."""
    path = tmp_path / "tmp"
    path.mkdir()
    yield path
    assert left_behind(path) == []


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Demo]]:
    """Starts a demo that is killed at the end of the test."""
    running: list[Demo] = []

    def begin(*arguments: str) -> Demo:
        running.append(Demo(folder, *arguments))
        return running[-1]

    yield begin
    for each in running:
        each.process.kill()
        each.process.wait()


def test_pods_get_the_order_and_the_printed_commands_work(start) -> None:
    show = start()
    both = show.until(r"Open this +(http://127\.0\.0\.1:\d+)/$")[1]
    dynsched = show.until(r"dynsched +(http://127\.0\.0\.1:\d+)/$")[1]
    kubeconfig = show.until(r"kubeconfig +(\S+)")[1]
    assert json.loads(Path(kubeconfig).read_text())["kind"] == "Config"
    show.until(r"Prometheus +http://127\.0\.0\.1:\d+ \(simulated: it answers only the demo's rules")
    show.until("The simulated API server adds the same preferences to pods as a real one")
    show.until("Ctrl-C stops")
    assert f'<a href="{dynsched}/">' in body_of(f"{both}/")
    now = json.loads(body_of(f"{both}/now"))
    assert [len(cpu) for cpu in (now["nodes"], *now["cpu"].values())] == [12, 12, 12]
    assert now["figures"].startswith("Too early to say")

    why, order, top = (
        re.search(rf"{re.escape(sys.executable)} -m dynsched {name} .*", show.log)[0]
        for name in ("why", "order", "top")
    )
    assert run(*shlex.split(why)).returncode == 0
    nodes = f"{sys.executable} -m dynsched nodes --kubeconfig {kubeconfig}"
    with ThreadPoolExecutor() as pool:  # most of their time is startup
        asked = (f"{command} -o json" for command in (nodes, top, order))
        found, overview, in_force = pool.map(printed_by, asked)
    assert len(found["nodes"]) == 12  # through the cluster, like `kubectl dynsched`
    assert all(node["cpu"]["used_percent"] for node in overview["nodes"])
    assert in_force["error"] is None
    api = json.loads(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    pods = json.loads(body_of(f"{api}/api/v1/namespaces/shop/pods"))["items"]
    ordered = [pod for pod in pods if "dynsched.io/order" in pod["metadata"].get("annotations", {})]
    assert ordered
    for pod in ordered:
        terms = pod["spec"]["affinity"]["nodeAffinity"][PREFERRED]
        assert terms[0]["weight"] == 100
        for (wanted,) in (term["preference"]["matchExpressions"] for term in terms):
            assert wanted["operator"] in ("In", "NotIn")
            assert set(wanted["values"]) <= set(now["nodes"])

    deadline = time.monotonic() + LIMIT
    while "New pods that were placed on" not in body_of(f"{both}/now"):
        assert time.monotonic() < deadline
        time.sleep(1)
    show.process.send_signal(signal.SIGINT)
    printed = " ".join(show.end().split())
    assert re.search(
        r"After \d+s, 20 times as fast as life: New pods that were placed on a node over 80 % CPU: "
        r"\d+ of \d+ with dynsched, \d+ without\. (Too early to say how long|Nodes were over)",
        printed,
    )
    assert show.log.endswith("\nEverything was stopped and removed.\n")
    assert "Traceback" not in printed


def body_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def printed_by(command: str) -> Any:
    done = run(*shlex.split(command))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_flags_set_its_duration_and_its_number_of_nodes(start) -> None:
    printed = start("--seconds", "1", "--nodes", "3", "--seed", "7").end()
    assert re.search(r"Starting a cluster of 3 nodes.*After \d+s, ", printed, re.DOTALL)


def test_on_a_terminal_the_figures_are_updated_and_closing_it_ends_everything(folder) -> None:
    controller, terminal = pty.openpty()
    show = subprocess.Popen(
        ["setsid", "--ctty", *DEMO],
        env={**environment(folder), "TERM": "xterm"},
        executable=need("setsid", "Debian's util-linux"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    seen = b""
    try:
        while not re.search(rb"After \d+s, .*After \d+s, ", seen, re.DOTALL):
            seen += os.read(controller, 65536)
        os.close(controller)  # the terminal's window is closed: SIGHUP, and no more output
        assert show.wait(LIMIT) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            show.kill()
        show.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_ends_it(start, number) -> None:
    show = start()
    show.until("Starting a cluster")
    show.process.send_signal(number)
    show.process.send_signal(number)  # a second signal changes nothing
    show.end()


def test_a_closed_standard_output_ends_it(folder) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(DEMO, env=environment(folder), **pipes) as show:
        show.stdout.readline()
        show.stdout.close()
        assert show.wait(LIMIT) == 1
        assert "Traceback" not in show.stderr.read()


def test_if_the_operator_dies_the_end_of_its_log_is_shown(start, folder) -> None:
    show = start()
    show.until("Ctrl-C stops the demo")
    (operator,) = [line for line in processes(folder) if " -m dynsched run " in line]
    os.kill(int(operator.split()[0]), signal.SIGTERM)
    printed = show.end(1)
    assert "Error: dynsched ended with code 0. Its log ends with:" in printed
    assert printed.rstrip().endswith("stopped")
