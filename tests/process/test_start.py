"""The start of a command: the packages that it imports."""

import os
import sys

import pytest
from programs import ROOT, run

HEAVY = {"aiohttp", "kopf", "kubernetes", "numpy", "pydantic", "requests", "rich"}
PROGRAM = """
import sys
from dynsched.cli.commands import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """The modules that a process with these arguments has imported when it ends."""
    done = run(sys.executable, "-c", PROGRAM, *arguments, cwd=ROOT, check=True)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        ("--version", set()),
        ("--help", set()),
        ("run --help", set()),
        ("check rules.yaml", {"pydantic"}),
        ("nodes --server localhost:1", {"rich", "pydantic"}),
        ("collect --pushgateway http://localhost:1 --ip 127.0.0.1 --once", set()),
    ],
)
def test_commands_that_need_no_cluster_do_not_import_its_packages(command, needs) -> None:
    assert imported(*command.split()) & HEAVY == needs


def test_run_imports_neither_the_simulator_nor_tables() -> None:
    modules = imported("run", "--rules", "no-such-file")

    assert "kopf" in modules  # the imports of `run` were reached
    assert not {"dynsched_sim", "dynsched_sim.demo", "rich"} & modules


def test_sigterm_ends_it_even_before_it_is_set_up() -> None:
    """The kernel delivers no unhandled signals to the first process of a container."""
    program = """
import os, signal, sys, types
commands = types.ModuleType("dynsched.cli.commands")
commands.main = lambda: os.kill(os.getpid(), signal.SIGTERM)
sys.modules["dynsched.cli.commands"] = commands
from dynsched.__main__ import main
main()
"""
    done = run(sys.executable, "-c", program, cwd=ROOT)
    assert done.returncode == 128 + 15  # without a handler: -15


AS_ON_WINDOWS = """
import asyncio, subprocess, sys, tempfile, time
sys.modules.update(dict.fromkeys(("fcntl", "grp", "pwd", "resource", "syslog", "termios")))
for name in [each for each in dir(time) if each.startswith(("CLOCK_", "clock_"))]:
    delattr(time, name)
from dynsched.__main__ import main
main()
"""
REFUSED = "Prometheus at http://127.0.0.1:1: connection refused"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("check rules.yaml", "rules.yaml: 2 rules"),
        ("check rules.yaml --prom http://127.0.0.1:1", REFUSED),
        ("doctor", "no cluster configuration"),
        ("backtest", "no cluster configuration"),
        ("plan", "no cluster configuration"),
        ("nodes", "no cluster configuration"),
        ("prune", "no cluster configuration"),
    ],
)
def test_commands_for_a_workstation_start_without_unix_modules(tmp_path, command, expected) -> None:
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "none")}
    done = run(sys.executable, "-c", AS_ON_WINDOWS, *command.split(), cwd=ROOT, env=environment)
    assert expected in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
