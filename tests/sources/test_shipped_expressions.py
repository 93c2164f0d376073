"""The shipped CPU expressions on a real Prometheus, whose counters dip as node-exporter's do."""

from collections.abc import Iterator

import pytest
import yaml
from blocks_support import Past, Points, prometheus_of
from programs import ROOT
from prometheus_support import Process
from source_past import NOW, STEP
from source_support import source_at

from dynsched.rules.file import load_rules

DIPPED_AT = NOW - 600
NAME = "node_cpu_seconds_total"
LOAD = 30.0
"""Load of each core on every node, in percent."""


def counter(per_second: float, dip: float) -> Points:
    """A counter with months of CPU time. If a dip makes all of it count as new, the rate over two
    minutes is far above any possible value.
    """
    for at in range(NOW - 1800, NOW, STEP):
        yield at, 5e6 + per_second * (at - NOW) - (dip if at >= DIPPED_AT else 0)


def past() -> Past:
    """Series of five nodes with eight cores. On four nodes, the first core's counter of the mode
    after which the node is named dips by 0.02 s.
    """
    per_second = {"idle": 1 - LOAD / 100, "user": LOAD / 100, "iowait": 0.0, "steal": 0.0}
    return {
        NAME: [
            (
                f'instance="{node}:9100",job="node",cpu="{cpu}",mode="{mode}"',
                counter(each, each * STEP + 0.02 if (mode, cpu) == (node, 0) else 0.0),
            )
            for node in (*per_second, "steady")
            for cpu in range(8)
            for mode, each in per_second.items()
        ]
    }


@pytest.fixture(scope="module")
def dips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with prometheus_of(past(), tmp_path_factory.mktemp("dips")) as running:
        yield running


def shipped() -> Iterator[str]:
    files = ("manifests/base", "manifests/overlays", "docs/examples")
    found = (each for name in files for each in (ROOT / name).rglob("*.yaml"))
    for path in (ROOT / "rules.yaml", *found):
        if path.name == "rules.yaml" or path.parent.name == "examples":
            yield from (rule.expr for rule in load_rules(path).rules if rule.expr)
    recorded = yaml.safe_load((ROOT / "manifests/prometheus/rules.yaml").read_text())
    yield from (each["expr"] for group in recorded["groups"] for each in group["rules"])


SHIPPED = sorted({expr for expr in shipped() if NAME in expr})
IDLE = f'(rate({NAME}{{mode="idle"}}[2m]))'
UNBOUNDED = (
    f"(1 - avg by (instance) {IDLE}) * 100",
    f"(1 - sum by (instance) {IDLE} / sum by (instance) (rate({NAME}[2m]))) * 100",
)


async def values(prometheus: Process, expr: str) -> list[float]:
    found = await source_at(prometheus.url).query_range(expr, NOW - 1200, NOW - STEP, STEP)
    assert (found.error, len(found.series)) == (None, 5)
    return [value for series in found.series for _, value in series.points]


@pytest.mark.parametrize("expr", SHIPPED)
async def test_a_dipping_counter_makes_no_node_look_hot_or_idle(dips, expr) -> None:
    assert "[2m]" in expr or "[5m]" in expr
    found = await values(dips, expr)
    assert LOAD - 4 < min(found) <= max(found) < LOAD + 0.1


@pytest.mark.parametrize("expr", UNBOUNDED)
async def test_without_a_bound_the_dips_make_nodes_look_hot_or_idle(dips, expr) -> None:
    found = await values(dips, expr)
    assert min(found) < -100_000 or max(found) > 99
