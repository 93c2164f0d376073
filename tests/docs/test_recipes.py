"""The example rules measure what they say, on series that Prometheus itself evaluates."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from programs import ROOT
from promql_support import check_values

from dynsched.rules.file import load_rules

EXAMPLES = ROOT / "docs/examples"


class Recipe(NamedTuple):
    example: str
    rule: str
    series: Mapping[str, str]
    """Series in promtool's notation, one value a minute."""
    values: Mapping[str, float]
    """By the labels of the result."""
    moment: str = "10m"


def busy(instance: str, share: float, **labels: str) -> dict[str, str]:
    """CPU time of one core: this share of it is not idle."""
    name, own = "node_cpu_seconds_total", {"instance": instance, "cpu": "0"} | labels
    return rising(name, 1 - share, mode="idle", **own) | rising(name, share, mode="user", **own)


def steady(name: str, value: float, **labels: str) -> dict[str, str]:
    inner = ", ".join(f'{key}="{label}"' for key, label in labels.items())
    return {f"{name}{{{inner}}}": f"{value:g}x2000"}


def disk(free: float, **labels: str) -> dict[str, str]:
    size = steady("node_filesystem_size_bytes", 1e10, instance="a", **labels)
    return size | steady("node_filesystem_avail_bytes", free, instance="a", **labels)


def rising(name: str, each: float, **labels: str) -> dict[str, str]:
    """A counter that rises by so much a second."""
    inner = ", ".join(f'{key}="{label}"' for key, label in labels.items())
    return {f"{name}{{{inner}}}": f"0+{60 * each:g}x2000"}


def stalled(instance: str, share: float) -> dict[str, str]:
    return rising("node_pressure_cpu_waiting_seconds_total", share, instance=instance)


def ticking(instance: str, low: str) -> dict[str, str]:
    return {f'node_cpu_usage_avg_5m{{node="{instance}"}}': low}


def info(*nodes: str) -> dict[str, str]:
    return {f'kube_node_info{{node="{node}"}}': "1x2000" for node in nodes}


A, B = '{instance="a"}', '{instance="b"}'
RECIPES = [
    Recipe("pressure-stall", "cpu-stall",
           # One throttled pod on an idle node; a node that is really overloaded.
           busy("a", 0.05) | stalled("a", 0.58) | busy("b", 0.9) | stalled("b", 0.58),
           {A: 0, B: 58}),
    Recipe("relative", "node-cpu-above-the-others",
           busy("a", 0.9) | busy("b", 0.5), {A: 20, B: -20}),
    Recipe("relative", "node-cpu-above-the-others",  # the floor: the mean counts as 40
           busy("a", 0.3) | busy("b", 0.1), {A: -10, B: -30}),
    Recipe("disk-and-network", "disk-usage",
           disk(1e9, mountpoint="/", fstype="ext4") | disk(9e9, mountpoint="/var", fstype="xfs"),
           {A: 90}),
    Recipe("disk-and-network", "disk-io",
           rising("node_disk_io_time_seconds_total", 0.75, instance="a", device="sda")
           | rising("node_disk_io_time_seconds_total", 0.9, instance="a", device="loop1"),
           {A: 75}),
    Recipe("disk-and-network", "network-out",
           rising("node_network_transmit_bytes_total", 1e9, instance="a", device="eth0")
           | rising("node_network_transmit_bytes_total", 2e9, instance="a", device="veth1"),
           {A: 80}),
    Recipe("gpu", "gpu-usage",
           steady("DCGM_FI_DEV_GPU_UTIL", 100, Hostname="a", gpu="0")
           | steady("DCGM_FI_DEV_GPU_UTIL", 50, Hostname="a", gpu="1") | info("a", "b"),
           {'{Hostname="a"}': 75, '{Hostname="b"}': 0}),
    Recipe("gpu", "gpu-memory",
           steady("DCGM_FI_DEV_FB_USED", 15, Hostname="a", gpu="0")
           | steady("DCGM_FI_DEV_FB_FREE", 5, Hostname="a", gpu="0") | info("a", "b"),
           {'{Hostname="a"}': 75, '{Hostname="b"}': 0}),
    Recipe("alerts", "alerts-by-node",
           # b's alert is resolved, c's is pending only, d's has another name.
           {'ALERTS{alertname="KubeletTooManyPods", alertstate="firing", node="a"}': "1x2000",
            'ALERTS{alertname="KubeletTooManyPods", alertstate="firing", node="b"}': "1 1 stale",
            'ALERTS{alertname="KubeletTooManyPods", alertstate="pending", node="c"}': "1x2000",
            'ALERTS{alertname="Watchdog", alertstate="firing", node="d"}': "1x2000"}
           | info("a", "b", "c", "d"),
           {'{node="a"}': 1, '{node="b"}': 0, '{node="c"}': 0, '{node="d"}': 0}),
    Recipe("alerts", "alerts-by-instance",
           {'ALERTS{alertname="NodeSystemSaturation", alertstate="firing", instance="a"}': "1x2000"}
           | steady("up", 1, job="node-exporter", instance="a")
           | steady("up", 1, job="node-exporter", instance="b"),
           {A: 1, B: 0}),
    Recipe("several-clusters", "node-cpu",
           busy("a", 0.9, cluster="prod-1", prometheus_replica="0")
           | busy("a", 0.9, cluster="prod-1", prometheus_replica="1")
           | busy("a", 0.1, cluster="prod-2", prometheus_replica="0"),
           {A: 90}),
    # 4 of 100 minutes at 100 %, the others at 20 %: the percentile leaves them out.
    Recipe("daily-peak", "node-cpu-p95-6h", ticking("a", "100x3 20x96"), {'{node="a"}': 20},
           "99m"),
    Recipe("daily-peak", "node-cpu-p95-6h", ticking("a", "100x19 20x80"), {'{node="a"}': 100},
           "99m"),
    Recipe("daily-peak", "node-cpu-max-1d", ticking("a", "100x4 20x95"), {'{node="a"}': 100},
           "99m"),
]  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda each: f"{each.example} {each.rule}")
def test_it_measures_what_it_says(recipe: Recipe, tmp_path: Path) -> None:
    (expr,) = (
        rule.expr
        for rule in load_rules(EXAMPLES / f"{recipe.example}.yaml").rules
        if rule.name == recipe.rule
    )
    assert expr is not None
    check_values(tmp_path, recipe.series, {expr: recipe.values}, recipe.moment)
