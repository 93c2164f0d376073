"""`dynsched plan` and `prune` from the command line, on a simulated cluster."""

import asyncio
import json
import time

import pytest
from cluster import LEASES, SimCluster
from command_line import Call, Ended, call_of
from operator_support import write_rules
from replica_support import OPEN

from dynsched.kube.election import LeaseTimes, held_by

CPU, MEM = ({"name": name, "expr": name, "threshold": 80} for name in ("cpu", "mem"))
RULES = {"guard": OPEN, "rules": [CPU, {**MEM, "for": "1m"}]}


@pytest.fixture
async def cluster(sim) -> SimCluster:
    """A cluster with four nodes."""
    await sim.create_nodes(*"abcd")
    return sim


@pytest.fixture
def call(cluster, prometheus, tmp_path, capsys) -> Call:
    """Run a command in a thread of this process: (exit code, stdout, stderr)."""
    common = ["--kubeconfig", str(cluster.kubeconfig)]
    asking = ["-r", str(write_rules(tmp_path, RULES)), "--prom", prometheus.url]

    async def called(command: str, *more: str) -> Ended:
        words = [command, *common, *([] if command == "prune" else asking), *more]
        return await asyncio.to_thread(call_of, capsys, *words)

    return called


async def patched(cluster: SimCluster) -> list[str]:
    return [write.name for write in await cluster.writes() if write.verb == "patch"]


async def test_a_failed_query_of_a_rule_is_exit_code_1(call, prometheus) -> None:
    """It once printed "Nothing to change." with exit code 0, and `[]` with `-o json`."""
    prometheus.set(cpu={"a": 10.0, "b": 20.0})
    prometheus.failing = {"mem": 400}
    code, output, errors = await call("plan")
    assert code == 1
    assert "Nothing to change" not in output
    assert errors.startswith("Error: rule mem")
    code, output, json_errors = await call("plan", "-o", "json")
    report = json.loads(output)
    assert (code, report["ok"], report["patches"]) == (1, False, [])
    assert (errors, json_errors) == (f"Error: {report['errors'][0]}\n",) * 2
    cpu, mem = report["rules"]
    assert (cpu["health"], mem["health"], "HTTP 400" in mem["last_error"]) == ("ok", "err", True)
    values = {node["name"]: node["rules"][0]["value"] for node in report["nodes"]}
    assert values == {"a": 10.0, "b": 20.0, "c": None, "d": None}


async def test_a_dry_run_writes_nothing(call, cluster, prometheus) -> None:
    await cluster.patch_node("b", {"metadata": {"labels": {"status": "presure"}}})
    prometheus.set(cpu={"a": 95.0}, mem={"a": 10.0})
    cluster.server.requests.clear()
    for command, change in ((("plan",), "mark a"), (("prune", "--dry-run"), "release b")):
        code, output, errors = await call(*command)
        assert (code, errors, change in " ".join(output.split())) == (0, "", True)
    assert await cluster.writes() == []


async def test_an_unreachable_prometheus_is_reported_once_and_not_per_rule(
    call, prometheus
) -> None:
    """There were once three lines per rule."""
    await prometheus.down()
    code, output, errors = await call("plan")
    assert (code, output, len(errors.splitlines())) == (1, "", 1)
    assert errors.startswith("Error: ")
    assert "connection refused" in errors


async def test_prune_prints_what_it_removed_and_fails_if_something_is_left(
    call, cluster, tmp_path, monkeypatch
) -> None:
    write_rules(tmp_path, {**RULES, "mark": {"label": "load=high"}})
    for name in ("a", "b"):
        await cluster.patch_node(name, {"metadata": {"labels": {"load": "high"}}})
    monkeypatch.chdir("/")
    assert (await call("prune"))[:2] == (0, "Nothing to change.\n")
    monkeypatch.chdir(tmp_path)  # the rules.yaml in this folder names the mark to prune
    code, output, _ = await call("prune", "--dry-run")
    found = [line.split()[:4] for line in output.splitlines()[1:]]
    assert (code, found) == (0, [["release", each, "label", "load-"] for each in "ab"])
    assert await patched(cluster) == ["a", "b"]  # by the test
    cluster.server.faults.answer(403, verb="patch", name="b")
    code, output, errors = await call("prune")
    assert (code, [line.split()[:2] for line in output.splitlines()[1:]]) == (1, [["release", "a"]])
    assert errors.startswith("Error: b: ")


async def test_prune_prints_in_one_line_why_it_prunes_nothing(call, cluster) -> None:
    """Exit code 0 if the janitor has nothing to do, 1 if a person's prune is refused."""
    await cluster.patch_node("b", {"metadata": {"labels": {"status": "presure"}}})
    spec = held_by("pod-1", None, LeaseTimes(), time.time())
    _ = (await cluster.post(LEASES, {"metadata": {"name": "dynsched"}, "spec": spec})).ok
    code, output, errors = await call("prune", "--if-lease-older-than", "10m")
    assert (code, output) == (0, "")
    assert "the Lease was renewed" in errors
    code, output, errors = await call("prune")
    assert (code, output, len(errors.splitlines())) == (1, "", 1)
    assert errors.startswith("Error: pod-1 ")
    assert await patched(cluster) == ["b"]  # by the test
