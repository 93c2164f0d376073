"""rules.yaml is replaced again and again while a real kube-scheduler asks and pods come up."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from cluster import EnvtestCluster, SimCluster
from envtest import Envtest
from extender_recorder import Exchange, Recorder
from fake_prometheus import FakePrometheus
from operator_support import Operator, until
from scheduling_support import (
    PODS,
    RULE,
    dynsched,
    extended,
    make_pod,
    placed,
    rules,
    scheduler,
    set_loads,
)

pytestmark = pytest.mark.slow

LOADS = {"hot-0": 95.0, "hot-1": 93.0, "cool-0": 20.0, "cool-1": 30.0, "cool-2": 40.0}
EACH = 3
"""Pods that come up under each state of the file, at least."""

WITHOUT = "without a section extender"
STATES: dict[str, Any] = {
    "linear": rules(extender={"profiles": {"default": {"score": {"load": 1}}}}),
    "rejects": rules(extender={"reject": ["load"]}),
    "not YAML": "rules: [",
    "relative": rules(
        extender={"profiles": {"default": {"score": {"load": 3}, "method": "relative"}}}
    ),
    "a bad value": rules(extender={"reject": ["none-such"]}, stale_after="soon"),
    WITHOUT: rules(),
    "requires a label": rules(extender={"require_label": "kubernetes.io/hostname"}),
    "deleted": None,
    "counts pods": rules(
        guard={"bind_burst": {"pods": 3}},
        extender={"profiles": {"default": {"score": {"load": 1}, "method": "least"}}},
    ),
    "another rule": rules(
        rules=[{**RULE, "name": "other", "threshold": 90, "for": "5m"}],
        extender={"reject": ["other"], "profiles": {"none-such": {"score": {"other": 1}}}},
    ),
    "a rule that knows nothing": rules(
        rules=[{**RULE, "expr": "nothing"}], extender={"reject": ["load"]}
    ),
}
REFUSED = ("not YAML", "a bad value", "deleted")


def write(path: Path, content: Any) -> None:
    """Replace the file as `kubectl` and editors do: the old one or the new one, never a half."""
    if content is None:
        path.unlink()
        return
    fresh = path.with_suffix(".new")
    fresh.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    fresh.replace(path)


async def at_work(operator: Operator, state: str) -> None:
    """Until a tick has gone by the file as it is now."""

    async def told() -> bool:
        code, text = await operator.get("/status", "application/json")
        status = json.loads(text) if code in {200, 503} else {}
        if not status.get("tick"):
            return False
        if (status["rules_error"] is not None) != (state in REFUSED):
            return False
        if state in REFUSED:
            return True
        found = json.loads((await operator.get("/rules"))[1])
        section = STATES[state].get("extender", {})
        loaded: dict[str, Any] = found["extender"]
        return all(
            section.get(key, empty) == loaded[key]
            for key, empty in (("reject", []), ("require_label", None))
        ) and set(section.get("profiles", {})) == set(loaded["profiles"])

    await until(told, f"the file is taken up: {state}")


@asynccontextmanager
async def pods_coming_up(cluster: EnvtestCluster) -> AsyncIterator[list[str]]:
    """Their names; a new one every 50 ms until the block ends."""
    names: list[str] = []

    async def create() -> None:
        for number in itertools.count():
            _ = (await cluster.post(PODS, make_pod(f"pod-{number}"))).ok
            names.append(f"pod-{number}")
            await asyncio.sleep(0.05)

    creating = asyncio.create_task(create())
    try:
        yield names
        if creating.done():
            creating.result()
    finally:
        creating.cancel()
        with suppress(asyncio.CancelledError):
            await creating


def well_formed(exchange: Exchange) -> bool:
    """Whether a scheduler takes the answer, and no score outweighs what it should not."""
    if exchange.status == 404 and any(WITHOUT in phase for phase in exchange.phases):
        return True  # the file says that nobody shall ask: `ignorable` then goes on without
    if exchange.status != 200:
        return False
    names = exchange.asked["NodeNames"]
    if exchange.path == "/filter":
        said = exchange.said
        passed, refused = said["NodeNames"], said["FailedAndUnresolvableNodes"]
        return (
            not said["Error"]
            and not said["FailedNodes"]
            and passed == [name for name in names if name not in (refused or {})]
        )
    scores = [entry["Score"] for entry in exchange.said]
    return [entry["Host"] for entry in exchange.said] == names and all(
        isinstance(score, int) and 0 <= score <= 10 for score in scores
    )


async def through_all_states(folder: Path, operator: Operator, recorder: Recorder) -> None:
    """Each state of the file in turn, for as long as it takes that EACH pods are asked about."""
    for state in (*STATES, "linear"):
        recorder.phase = f"{recorder.phase} -> {state}"
        write(folder / "rules.yaml", STATES[state])
        await at_work(operator, state)
        recorder.phase = state
        before = len(recorder.of("prioritize"))

        async def asked(count: int = before + EACH) -> bool:
            return len(recorder.of("prioritize")) >= count

        await until(asked, f"pods are asked about: {state}")


def check(recorder: Recorder, operator: Operator) -> None:
    assert [exchange for exchange in recorder.exchanges if not well_formed(exchange)] == []
    # While `reject` held, and the alert was known to fire, no hot node passed.
    kept_off = [e for e in recorder.of("filter") if e.phases == ("rejects", "rejects")]
    assert kept_off
    assert all(set(e.said["NodeNames"]).isdisjoint({"hot-0", "hot-1"}) for e in kept_off)
    assert "Traceback" not in operator.log


async def test_no_pod_fails_or_waits_whatever_becomes_of_the_rules_file(
    envtest: Envtest, tmp_path: Path
) -> None:
    async with EnvtestCluster(envtest, tmp_path) as cluster, FakePrometheus() as prometheus:
        await set_loads(cluster, prometheus, LOADS)
        async with (
            dynsched(cluster, prometheus, tmp_path, STATES[WITHOUT], "-s", "0.1") as operator,
            Recorder(operator.address) as recorder,
        ):
            recorder.phase = WITHOUT
            with scheduler(envtest, extended("extender", recorder.address)):
                async with pods_coming_up(cluster) as names:
                    await through_all_states(tmp_path, operator, recorder)
                await placed(cluster, names)
            events = (await cluster.get("/api/v1/events")).ok["items"]
        pods = (await cluster.get(PODS)).ok["items"]

    check(recorder, operator)
    assert [e for e in events if e["reason"] == "FailedScheduling"] == []
    assert len(pods) == len(names) >= EACH * len(STATES)


@asynccontextmanager
async def asking(recorder: Recorder, callers: int) -> AsyncIterator[None]:
    """So many callers, each asking as a scheduler does about one pod after the other."""

    enough = asyncio.Event()

    async def ask(caller: int) -> None:
        async with aiohttp.ClientSession(f"http://{recorder.address}") as session:
            for number in itertools.count():
                if enough.is_set():
                    return
                meta = {"name": f"{caller}-{number}", "uid": f"uid-{caller}-{number}"}
                question = {"Pod": {"metadata": meta}, "Nodes": None, "NodeNames": [*LOADS]}
                for verb in ("filter", "prioritize"):
                    async with session.post(f"/{verb}", json=question) as answer:
                        await answer.read()

    tasks = [asyncio.create_task(ask(caller)) for caller in range(callers)]
    try:
        yield
    finally:
        enough.set()
        await asyncio.gather(*tasks)


async def test_every_question_is_answered_whatever_becomes_of_the_rules_file(
    sim: SimCluster, tmp_path: Path
) -> None:
    """The same with callers that ask all the time."""
    async with FakePrometheus() as prometheus:
        await set_loads(sim, prometheus, LOADS)
        async with (
            dynsched(sim, prometheus, tmp_path, STATES[WITHOUT], "-s", "0.1") as operator,
            Recorder(operator.address) as recorder,
        ):
            recorder.phase = WITHOUT
            async with asking(recorder, callers=4):
                await through_all_states(tmp_path, operator, recorder)
    check(recorder, operator)
