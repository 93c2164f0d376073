"""kubectl on the simulated cluster."""

import os
from pathlib import Path

import programs
from cluster import SimCluster


def kubectl_command(sim: SimCluster, home: Path) -> tuple[list[str], dict[str, str]]:
    kubectl = programs.need("kubectl", "kubernetes-client")
    # A home of its own: kubectl keeps what it has discovered.
    environment = os.environ | {"KUBECONFIG": str(sim.kubeconfig), "HOME": str(home)}
    return [kubectl, "--request-timeout=20s"], environment
