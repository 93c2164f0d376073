"""What follows pods: what it waits for."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from builders import rule, rule_set

from dynsched.controller.pod_tracking import PodTracking
from dynsched.kube import pod_watch


class Idle:
    """Something that runs until it is stopped, and says so."""

    running, error = 0, None

    def __init__(self, *_: Any, **__: Any) -> None:
        self.runs = asyncio.Event()

    async def run(self, stop: asyncio.Event, *_: Any) -> None:
        self.runs.set()
        await stop.wait()


class Scene:
    """A PodTracking that runs in a cluster whose nodes are not listed yet."""

    def __init__(self) -> None:
        self.pending, self.pod_use = Idle(), Idle()
        self.cluster: Any = SimpleNamespace(synced=False, nodes=dict)
        self.stop = asyncio.Event()
        rules, api = rule_set(rule("cpu", early={})), SimpleNamespace()
        made = PodTracking(
            *(api, lambda: rules, self.cluster),  # type: ignore[arg-type]
            binder=None,
            pod_use=self.pod_use,  # type: ignore[arg-type]
        )
        self.running = asyncio.create_task(made.run(self.stop))


@pytest.fixture
async def scene(monkeypatch) -> AsyncIterator[Scene]:
    found = Scene()
    monkeypatch.setattr(pod_watch, "PodWatch", Idle)
    monkeypatch.setattr(pod_watch, "PendingPods", lambda _: found.pending)
    async with asyncio.timeout(60):
        await found.pending.runs.wait()
        await asyncio.sleep(0)
        yield found
        found.stop.set()
        await found.running


async def test_what_pods_use_is_asked_for_once_the_number_of_nodes_is_known(scene) -> None:
    """By that number an answer is limited, and what was refused is asked again after minutes."""
    assert not scene.pod_use.runs.is_set()
    scene.cluster.synced = True
    await scene.pod_use.runs.wait()


async def test_it_stops_while_it_waits_for_the_nodes(scene) -> None:
    assert not scene.pod_use.runs.is_set()
