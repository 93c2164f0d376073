"""The modules that one sample crosses, from Prometheus's answer to the patch of the node."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from aiohttp import web
from bench import rules
from cluster import SimCluster
from fake_prometheus import FakePrometheus
from kubernetes.aio.client import ApiClient
from operator_support import write_rules
from programs import ROOT

from dynsched.app import run_once
from dynsched.settings import Settings
from dynsched.sim.nodes import make_node
from dynsched.sources.prometheus import PrometheusConfig

PACKAGE = f"{ROOT / 'dynsched'}/"
SECTION = re.compile(r"^## The path of one sample$(.*?)^## ", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"`([\w/]+\.py)`")


class Crossed:
    """A trace function. While ``on``, it adds the modules of dynsched that execute a line."""

    def __init__(self) -> None:
        self.on = False
        self.modules: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE):
            return None
        if self.on and event == "line" and frame.f_code.co_name != "<module>":
            self.modules.add(path.removeprefix(PACKAGE))
        return self


def named_in_the_document() -> list[str]:
    """The modules that the steps of the section name, one by one."""
    section = SECTION.search((ROOT / "docs/architecture.md").read_text())
    assert section is not None
    steps = section[1].split("\n1. ", 1)[1].split("\n\n", 1)[0]
    return MODULE.findall(steps)


async def test_a_sample_crosses_exactly_the_modules_that_the_architecture_names(
    sim: SimCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossed = Crossed()

    class Answering(FakePrometheus):
        async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
            response = await super()._answer(request)
            crossed.on = True
            return response

    call_api = ApiClient.call_api

    def sent(client: ApiClient, method: str, *more: Any, **options: Any) -> Any:
        if method == "PATCH":
            crossed.on = False
        return call_api(client, method, *more, **options)

    monkeypatch.setattr(ApiClient, "call_api", sent)
    await sim.create_node(make_node("a"))
    async with Answering() as prometheus:
        prometheus.set(load={"a": 91.0})
        settings = Settings(
            rules=write_rules(tmp_path, rules()),
            prometheus=PrometheusConfig(prometheus.url),
            kubeconfig=sim.kubeconfig,
            leader_elect=False,  # a renewal of the Lease at that moment would be traced too
        )
        one_pass = threading.Thread(target=run_once, args=(settings,))
        before = threading.gettrace()
        threading.settrace(crossed)
        try:
            one_pass.start()
            await asyncio.to_thread(one_pass.join)
        finally:
            threading.settrace(before)  # type: ignore[arg-type]  # None is accepted
    assert (await sim.get_node("a"))["metadata"]["labels"]["status"] == "presure"

    named = named_in_the_document()
    assert len(named) == len(set(named)), "a module is on the path once"
    assert crossed.modules == set(named)
