"""A small cluster with a mark by the expected load, for the tests of reports."""

from collections.abc import Mapping
from typing import Any, Final

from scenes import NOON, Scene

from dynsched.core.load.expected import KnownPods
from dynsched.core.load.pods import BoundPod, RecentPod
from dynsched.core.nodes import Node
from dynsched.core.tick import Tick

EXPECTED_RULES: Final[Mapping[str, Any]] = {
    "rules": [
        {
            "name": "node-cpu",
            "expr": "cpu",
            "resource": "cpu",
            "by": "expected",
            "threshold": 64,
            "clear_threshold": 58,
            "lag": "1m",
        },
        {"name": "node-mem", "expr": "mem", "threshold": 85},
    ]
}
"""Nodes have 10 cores, so that a tenth of a core is a point."""

CPU: Final = {"worker-1": 61.0, "worker-2": 44.0, "worker-3": 46.0, "worker-4": 82.0}
MEMORY: Final = dict.fromkeys(CPU, 30.0)
CORES: Final = {"cpu": 10.0, "memory": 2.0**34}
USES: Final = {"cpu": {"shop/web": 1.04, "shop/batch": 0.26}}


def expected_scene(
    *, rules: Mapping[str, Any] = EXPECTED_RULES, **labels: Mapping[str, str]
) -> Scene:
    """``labels`` of nodes, by their names with ``_`` for ``-``."""
    return Scene(
        rules,
        [
            Node(name, labels=labels.get(name.replace("-", "_"), {}), allocatable=CORES)
            for name in CPU
        ],
    )


def known_pods(**changed: Any) -> KnownPods:
    """On worker-1 one pod was bound and one ended, both half a lag ago by what the metric shows."""
    web = BoundPod("1", "worker-1", workload="shop/web")
    batch = BoundPod("2", "worker-1", workload="shop/batch")
    about: dict[str, Any] = {
        "recent": (RecentPod(web, 34.0, None), RecentPod(batch, None, 34.0)),
        "running": 100,
        "use_of_workloads": USES,
        "scrape_intervals": {"node-cpu": 30.0},
    }
    return KnownPods(**{**about, **changed})


def expected_example(*, dry_run: bool = False) -> Tick:
    """worker-1 is marked by its expected load alone, worker-4 by its measured one too."""
    scene = expected_scene()
    return scene.tick(NOON, node_cpu=CPU, node_mem=MEMORY, pods=known_pods(), dry_run=dry_run)
