"""The API server fails: what was decided is written once, or later, or said to be unwritten.

See docs/reliability.md; what befalls the watch alone is in test_node_watch.py.
"""

import logging

import pytest
from bench import COOL, HOT, bench, rules
from cluster import Cluster


async def patches(cluster: Cluster) -> list[tuple[str, int]]:
    """The patches of nodes so far, with what was answered."""
    found = [write for write in await cluster.writes() if write.manager == "dynsched"]
    return [(write.name, write.status) for write in found if write.verb == "patch"]


async def test_a_node_that_is_deleted_between_plan_and_write(cluster, prometheus, tmp_path) -> None:
    await cluster.create_nodes("a", "b", "c")
    prometheus.set(load={"a": HOT, "b": HOT, "c": HOT})

    async def replaced() -> None:
        await cluster.delete_node("c")
        await cluster.create_nodes("c")

    async with bench(cluster, prometheus, tmp_path, rules()) as it:
        it.storage.meddle = {"a": lambda: cluster.delete_node("a"), "c": replaced}
        await it.tick()
        assert it.status()["error"] is None
        assert it.status()["patch_failures"]["count"] == 0
        assert "a" not in it.last.evaluation.alerts
        assert "c" not in it.last.evaluation.alerts  # what was decided was of another machine
        assert await it.marked() == "b"
        await it.tick()
        assert await it.marked() == "b c"


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        (lambda faults: faults.answer(500, verb="patch", name="a"), "answered 500"),
        (lambda faults: faults.answer(429, verb="patch", name="a", retry_after=0), "answered 429"),
        (lambda faults: faults.reset(verb="patch", name="a"), "connection broke"),
    ],
    ids=["500", "429", "reset"],
)
async def test_a_node_that_cannot_be_written_is_said_and_tried_again(
    sim, prometheus, tmp_path, *, arm, said
) -> None:
    await sim.create_nodes("a", "b", "c")
    prometheus.set(load=dict.fromkeys("abc", HOT))
    async with bench(sim, prometheus, tmp_path, rules()) as it:
        fault = arm(sim.server.faults)
        await it.tick()
        assert await it.marked() == "b c"
        assert it.status()["error"].startswith("1 of 3 nodes could not be written: a: ")
        assert said in it.status()["error"]
        assert it.status()["patch_failures"]["count"] == 1
        assert it.metric("dynsched_patch_failures_total") == 1
        assert not it.node("a").marked

        fault.remove()
        await it.tick()
        assert await it.marked() == "a b c"
        assert it.status()["error"] is None


@pytest.mark.parametrize("after", [False, True], ids=["before it was done", "after it was done"])
@pytest.mark.parametrize("how", ["reset", 500])
async def test_a_patch_whose_answer_is_lost_is_done_and_told_once(
    sim, prometheus, tmp_path, caplog, *, how, after
) -> None:
    caplog.set_level(logging.INFO)
    await sim.create_nodes("a")
    async with bench(sim, prometheus, tmp_path, rules()) as it:
        for load in (HOT, COOL):
            prometheus.set(load={"a": load})
            if how == "reset":
                sim.server.faults.reset(verb="patch", resource="nodes", times=1, after=after)
            else:
                sim.server.faults.answer(how, verb="patch", resource="nodes", times=1, after=after)
            for _ in range(3):
                await it.tick()
        told = [r.getMessage() for r in caplog.records if r.name == "dynsched.controller.reporting"]
        assert told == ["mark node a: load 91 > 80", "release node a: no rule fires any more"]
        assert await it.told("a") == {"Pressured": 1, "Relieved": 1}
        assert it.metric('dynsched_patches_total{action="mark"}') == 1
        assert await it.marked() == ""
