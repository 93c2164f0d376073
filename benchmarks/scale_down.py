"""Which nodes lose their pods when Deployments are scaled down, with real servers.

    export KUBEBUILDER_ASSETS=/path/to/bin
    python benchmarks/scale_down.py [--waves 3] [--nodes 40] [--hot 6] [--deployments 20]

etcd, kube-apiserver, kube-scheduler and kube-controller-manager are the real ones, and so is
`dynsched run`, with the rights and the policy of manifests/components/scale-down; the load is what
a stand-in for Prometheus says, and that pods run is what one for kubelets says. In each wave other
nodes are hot, and all Deployments go from 30 replicas to 20 and back. Two Deployments more have
costs of somebody else's, which have to stay.

Targets: 90 % of the replicas that could leave hot nodes do; no cost of others is changed; nothing
is written in steady state, and nothing of ours is left when it is switched off.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from cluster import EnvtestCluster
from envtest import Envtest, assets
from scaling_support import Outcome, Plan, granted, play

TARGET = 0.9


async def measure(envtest: Envtest, folder: Path, plan: Plan) -> list[Outcome]:
    """Without dynsched, and with it."""
    async with EnvtestCluster(envtest, folder) as cluster:
        without = await play(envtest, cluster, folder, plan, None)
    async with EnvtestCluster(envtest, folder) as cluster:
        with granted(cluster, folder) as account:
            return [without, await play(envtest, cluster, folder, plan, account)]


def row(name: str, found: Outcome) -> tuple[str, ...]:
    return (
        name,
        str(found.removed),
        f"{found.from_hot} of {found.could} ({found.share:.0%})",
        f"{found.chance:.0f}",
        f"{found.writes / found.minutes:.0f}",
        str(found.while_steady),
        str(found.foreign_changed),
        str(found.left),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for each in fields(Plan):
        parser.add_argument(f"--{each.name}", type=int, default=each.default)
    plan = Plan(**vars(parser.parse_args()))
    programs = assets()
    if programs is None:
        sys.exit("set KUBEBUILDER_ASSETS to a folder with the servers")
    with tempfile.TemporaryDirectory() as name:
        envtest = Envtest(programs, Path(name))
        try:
            envtest.start()
            without, ours = asyncio.run(measure(envtest, Path(name), plan))
        finally:
            envtest.stop()
    table = Table(
        *("", "replicas removed", "of hot nodes, of those that could", "by chance"),
        *("writes a minute", "in steady state", "others' costs changed", "left at the end"),
        box=box.MARKDOWN,
    )
    table.add_row(*row("without", without))
    table.add_row(*row("scale_down", ours))
    Console(width=150).print(table)
    missed = ours.share < TARGET or ours.while_steady or ours.foreign_changed or ours.left
    print("a target is missed" if missed else "every target is met")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
