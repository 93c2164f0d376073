"""Whatever callers send, memory stays within the base manifest's limit and probes are answered."""

import asyncio
import json
import resource
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import flood_support as floods
import pytest
import yaml
from certificates import Authority
from cluster import SimCluster
from fake_prometheus import FakePrometheus
from flood_support import Flood, Port, Probe
from manifest_support import BASE, OVERLAYS
from operator_support import Operator

from dynsched_sim.examples import make_node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.thorough]

NAMES = [f"ip-10-0-0-{number}.example.internal" for number in range(100)]
LOG = 20_000
"""Bytes that any number of requests may add to the log."""
SECOND = 1.0
"""Of dynsched's own work before a probe is answered; the kubelet waits longer."""


def test_the_limits_are_those_of_the_base_manifest() -> None:
    found = yaml.safe_load((BASE / "deployment.yaml").read_text())
    container = found["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["memory"] == f"{floods.LIMIT:.0f}Mi"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["livenessProbe"]["timeoutSeconds"] > SECOND
    assert not [word for word in container["args"] if "memory" in word]


@asynccontextmanager
async def running(sim: SimCluster, folder: Path, *flags: str) -> AsyncIterator[Operator]:
    """`dynsched run` with the rules of the overlay `extender`, and as many files as are usual."""
    rules = yaml.safe_load((OVERLAYS / "extender" / "rules.yaml").read_text())
    for rule in rules["rules"]:
        rule["expr"] = "load"
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(rules))
    for number, name in enumerate(NAMES):
        await sim.create_node(make_node(name, number, size=9_000))
    async with FakePrometheus() as prometheus:
        prometheus.set(load={name: float(number) for number, name in enumerate(NAMES)})
        told = ["--kubeconfig", str(sim.kubeconfig), "--prom", prometheus.url, "-r", str(path)]
        async with Operator(folder, "run", *told, "--no-leader-elect", *flags) as operator:
            limit = (floods.OPEN_FILES, floods.OPEN_FILES)
            resource.prlimit(operator.process.pid, resource.RLIMIT_NOFILE, limit)
            yield operator


async def withstand(operator: Operator, kinds: Sequence[Flood], tls: Any = None) -> None:
    """One after the other, in one process: what stays behind adds up."""
    port = Port(int(operator.address.rpartition(":")[2]), NAMES, tls, hold=0.5)
    async with asyncio.timeout(90):
        while not await port.ready():
            await asyncio.sleep(0.05)
    pid = operator.process.pid
    log = len(operator.log)
    for flood in kinds:
        async with Probe(port, pid) as probe:
            await flood(port)
        what = flood.__name__
        assert operator.process.returncode is None, what
        assert floods.peak_memory(pid) < floods.LIMIT, what
        assert max(probe.worked) < SECOND, what
    assert len(operator.log) - log < LOG, operator.log[log : log + LOG]


FLOODS: Sequence[Flood] = (
    floods.a_million_empty_names,
    floods.gzip_of_four_million_names,
    floods.unfinished_bodies,
    floods.empty_items,
    floods.many_victims,
    floods.as_many_names_as_there_may_be,
    floods.idle_or_half_sent,
    floods.large_heads,
    floods.requests_ahead_of_answers,
    floods.answers_that_are_not_read,
    floods.bodies_of_a_get,
    floods.requests_that_are_none,
)
"""Those that took it down."""


async def test_no_flood_takes_it_down(sim: SimCluster, tmp_path: Path) -> None:
    floods.open_more_files()
    async with running(sim, tmp_path) as operator:
        await withstand(operator, FLOODS)
        # It still does its work.
        url = f"http://{operator.address}/prioritize"
        asked = {"NodeNames": NAMES}
        async with aiohttp.ClientSession() as session, session.post(url, json=asked) as answer:
            assert answer.status == 200
            scores = {each["Host"]: each["Score"] for each in json.loads(await answer.text())}
        assert scores[NAMES[0]] == 10
        assert scores[NAMES[-1]] == 0


async def test_no_flood_over_tls_takes_it_down(sim: SimCluster, tmp_path: Path) -> None:
    floods.open_more_files()
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("dynsched", "IP:127.0.0.1")
    tls = ssl.create_default_context(cafile=authority.cert)
    async with running(sim, tmp_path, "--tls-cert", pair.cert, "--tls-key", pair.key) as operator:
        first = (floods.handshakes_that_are_reset, floods.half_a_handshake)
        await withstand(operator, [*first, *FLOODS], tls)
