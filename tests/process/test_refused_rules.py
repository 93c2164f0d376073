"""A start with a refused rules file."""

import asyncio
import sys

import pytest
from operator_support import until, write_rules
from programs import run
from replica_support import COOL, HOT, is_marked, replica, rules, status, until_status

pytestmark = pytest.mark.slow

BAD = "rules: [{name: load, expr: load, treshold: 80}]\n"
IN_A_POD = ("--interval", "0.2", "--pod-uid", "0e5f")


async def test_in_a_pod_it_runs_without_rules_until_the_file_is_corrected(
    cluster, prometheus, tmp_path
) -> None:
    """It once crashed in a loop, and nobody removed the marks."""
    await cluster.create_nodes("a", "b")
    prometheus.set(load={"a": HOT, "b": COOL})
    async with replica(cluster, prometheus, tmp_path, *IN_A_POD) as operator:
        await until(lambda: is_marked(cluster, "a"), "the mark")
        assert await operator.stop() == 0
    writes = len(await cluster.writes("nodes"))

    prometheus.set(load={"a": COOL, "b": HOT})
    (tmp_path / "rules.yaml").write_text(BAD)
    async with replica(cluster, prometheus, tmp_path, *IN_A_POD, content=None) as operator:
        await operator.until_ready()

        async def has_event() -> bool:
            events = await cluster.list_events(kind="Pod")
            return "RulesRefused" in {event["reason"] for event in events}

        await until(has_event, "the Event")
        assert (await operator.get("/status"))[0] == 503
        error = (await status(operator))["error"]
        assert error.startswith("no rules are in force: ")
        assert "treshold: unknown key" in error
        assert len(await cluster.writes("nodes")) == writes

        write_rules(tmp_path, rules())
        await until(lambda: is_marked(cluster, "b"), "the rules of the corrected file are in force")
        await until_status(operator, lambda found: found["ok"] and not found["rules_error"])
        assert await operator.stop() == 0


async def test_outside_of_a_pod_it_exits(cluster, tmp_path) -> None:
    (tmp_path / "rules.yaml").write_text(BAD)
    words = ("--kubeconfig", cluster.kubeconfig, "-r", tmp_path / "rules.yaml")
    done = await asyncio.to_thread(run, sys.executable, "-m", "dynsched", "run", *words)
    assert (done.returncode, "treshold: unknown key" in done.stderr) == (1, True)
