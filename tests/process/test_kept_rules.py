"""What was in force stays in force, over a restart too: the process, and what it keeps."""

import asyncio
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from fake_prometheus import FakePrometheus
from operator_support import Operator, until, write_rules
from pods_support import reached
from programs import run
from replica_support import (
    COOL,
    HOT,
    is_marked,
    metric,
    replica,
    rules,
    some_ticks,
    status,
    until_status,
)

pytestmark = pytest.mark.slow

KEPT = "/api/v1/namespaces/default/configmaps/dynsched-rules-in-force"
BAD = "rules: [{name: load, expr: load, treshold: 80}]\n"
BAD_QUERY = "rules: [{name: load, expr: load(, threshold: 80}]\n"


class Pod:
    """A pod of dynsched's Deployment, whose container is started again and again."""

    def __init__(self, cluster: Cluster, prometheus: FakePrometheus, folder: Path) -> None:
        self.cluster, self.prometheus, self.folder = cluster, prometheus, folder
        self.file = folder / "rules.yaml"

    def __call__(self) -> Operator:
        flags = ("--interval", "0.2", "--pod-uid", "0e5f")
        return replica(self.cluster, self.prometheus, self.folder, *flags, content=None)

    async def kept(self) -> str | None:
        answer = await self.cluster.get(KEPT)
        return answer.body.get("data", {}).get("rules.yaml") if answer.status == 200 else None

    async def until_marked(self, *names: str) -> None:
        await until(lambda: is_marked(self.cluster, *names), f"marked: {names}")

    async def writes(self) -> int:
        return len(await self.cluster.writes("configmaps"))


@pytest.fixture
async def pod(cluster, prometheus, tmp_path) -> Pod:
    await cluster.create_nodes("a", "b")
    prometheus.set(load={"a": HOT, "b": COOL})
    return Pod(cluster, prometheus, tmp_path)


async def test_a_start_with_a_refused_file_goes_on_with_what_was_in_force(pod, cluster) -> None:
    """It was a loop of crashes, while the marks stayed and nobody took them away."""
    good = f"# \U0001f525\n{write_rules(pod.folder, rules()).read_text()}"
    pod.file.write_text(good)
    async with pod() as operator:
        await pod.until_marked("a")
        await reached(pod.kept, good)
        await some_ticks(operator, 5)
        assert await operator.stop() == 0
    assert await pod.writes() == 2
    pod.prometheus.failing["load("] = 400
    for content, why in (
        (BAD, "treshold: unknown key"),
        (BAD_QUERY, "HTTP 400"),
        (None, "No such file"),
    ):
        pod.file.write_text(content) if content else pod.file.unlink()
        pod.prometheus.set(load={"a": HOT, "b": HOT if content else COOL})
        async with pod() as operator:
            await pod.until_marked(*("ab" if content else "a"))
            told = await until_status(operator, lambda found: found["leading"])
            assert (told["ok"], why in told["rules_error"]) == (True, True)
            assert await metric(operator, "dynsched_rules_reload_success") == 0
            await until(lambda: told_of_refusal(cluster), "the Event")
            if content is None:
                pod.file.write_text(good := good.replace("80", "95"))
                await pod.until_marked()
                await reached(pod.kept, good)
            assert await operator.stop() == 0
    assert await pod.writes() == 4


async def told_of_refusal(cluster: Cluster) -> bool:
    events = await cluster.list_events(kind="Pod")
    return "RulesRefused" in {event["reason"] for event in events}


@pytest.mark.parametrize("kept", [None, BAD], ids=["none", "refused too"])
async def test_without_rules_it_runs_and_marks_nothing_until_there_are_some(
    pod, cluster, kept
) -> None:
    pod.file.write_text(BAD)
    if kept is not None:
        body = {"metadata": {"name": KEPT.rpartition("/")[2]}, "data": {"rules.yaml": kept}}
        _ = (await cluster.post(KEPT.rpartition("/")[0], body)).ok
    async with pod() as operator:
        await operator.until_ready()
        assert (await operator.get("/status"))[0] == 503
        assert "treshold: unknown key" in (await status(operator))["error"]
        pod.file.write_text(text := write_rules(pod.folder, rules()).read_text())
        await pod.until_marked("a")
        await reached(pod.kept, text)
        assert await operator.stop() == 0


async def test_rules_whose_queries_have_not_passed_replace_none_that_are_kept(pod) -> None:
    good = write_rules(pod.folder, rules()).read_text()
    async with pod() as operator:
        await reached(pod.kept, good)
        assert await operator.stop() == 0
    pod.file.write_text(BAD_QUERY)
    pod.prometheus.failing["*"] = 503  # it starts too, so that nothing is known of the query
    async with pod() as operator:
        await until_status(operator, lambda found: "HTTP 503" in (found["error"] or ""))
        await asyncio.sleep(2.5)
        pod.prometheus.failing["load("] = 400
        await until_status(operator, lambda found: "HTTP 400" in (found["error"] or ""))
        await asyncio.sleep(2.5)
        assert await pod.kept() == good
        assert await operator.stop() == 0
    del pod.prometheus.failing["*"]
    async with pod() as operator:
        told = await until_status(operator, lambda found: found["ok"])
        assert "HTTP 400" in told["rules_error"]
        assert await operator.stop() == 0


async def test_outside_of_a_pod_a_refused_file_ends_it(pod) -> None:
    write_rules(pod.folder, rules())
    async with pod() as operator:
        await reached(pod.kept, pod.file.read_text())
        await operator.stop()
    pod.file.write_text(BAD)
    words = ("--kubeconfig", pod.cluster.kubeconfig, "-r", pod.file)
    done = await asyncio.to_thread(run, sys.executable, "-m", "dynsched", "run", *words)
    assert (done.returncode, "treshold: unknown key" in done.stderr) == (1, True)


async def test_without_the_right_to_keep_rules_all_else_goes_on(sim, prometheus, tmp_path) -> None:
    """An installation with the Role of an older version."""
    await sim.create_nodes("a", "b")
    pod = Pod(sim, prometheus, tmp_path)
    prometheus.set(load={"a": HOT, "b": COOL})
    sim.server.forbidden = {("get", "configmaps")}
    write_rules(tmp_path, rules())
    async with pod() as operator:
        await pod.until_marked("a")
        await until(lambda: "not kept for a restart" in operator.log, "the warning")
        await some_ticks(operator, 5)
        assert operator.log.count("not kept for a restart: may not get configmaps") == 1
        assert await operator.stop() == 0
    sim.server.forbidden = set()
    async with pod() as operator:
        await reached(pod.kept, pod.file.read_text())
        assert await operator.stop() == 0
    sim.server.forbidden = {("get", "configmaps")}
    await sim.server.down()
    pod.file.write_text(BAD)
    async with pod() as operator:  # what was in force is waited for
        await operator.until(lambda code: code == 200, "/healthz")
        await sim.server.up()
        await until(lambda: "may not get configmaps" in operator.log, "it is refused")
        sim.server.forbidden = set()  # as those of an API server that has just started
        await until_status(operator, lambda found: found["ok"])
        assert await is_marked(sim, "a")
        assert await operator.stop() == 0
