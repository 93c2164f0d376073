"""Enables the order for the namespace `default` on a real API server, with the policy of
manifests/base/order or the component order-webhook.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.append(str(Path(__file__).parent.parent.parent / "tests" / "support"))

from certificates import Authority
from cluster import EnvtestCluster
from manifest_support import Kubectl, order_component
from operator_support import until
from prometheus_support import free_port
from scheduling_support import PODS, make_pod
from webhook_support import at, certificate, configuration, configured

from dynsched.rules import keys

NAMESPACE = "default"
"""The namespace of the pods and of the NodeOrder."""


@asynccontextmanager
async def _labelled(kubectl: Kubectl) -> AsyncIterator[None]:
    label = ("label", "--overwrite", "namespace", NAMESPACE)
    await asyncio.to_thread(kubectl, *label, f"{keys.AVOID_LABEL}=true")
    try:
        yield
    finally:
        await asyncio.to_thread(kubectl, *label, f"{keys.AVOID_LABEL}-")


@asynccontextmanager
async def asking(cluster: EnvtestCluster) -> AsyncIterator[None]:
    """Install the policy and label the namespace until the block ends."""
    kubectl = Kubectl(cluster.kubeconfig)
    file = cluster.kubeconfig.with_name("order.yaml")
    file.write_text(order_component(NAMESPACE))
    try:
        await asyncio.to_thread(kubectl, "apply", "-f", file)
        async with _labelled(kubectl):
            yield
    finally:
        await asyncio.to_thread(kubectl, "delete", "--ignore-not-found", "-f", file)


@asynccontextmanager
async def answering(cluster: EnvtestCluster) -> AsyncIterator[tuple[str, ...]]:
    """Use the webhook instead; yields the flags with which dynsched serves it."""
    kubectl, port = Kubectl(cluster.kubeconfig), free_port()
    with TemporaryDirectory(prefix="webhook-") as folder:
        authority = Authority(Path(folder), "closed-loop")
        own = certificate(authority, Path(folder) / "own")
        body = configuration(authority.cert, url=at(port))
        async with configured(cluster, body), _labelled(kubectl):
            yield "--webhook-cert-dir", str(own), "--webhook-addr", f"127.0.0.1:{port}"


async def until_told(cluster: EnvtestCluster) -> None:
    """Wait until new pods get the order."""

    async def has_order() -> bool:
        made = (await cluster.post(PODS, make_pod("probe"), dryRun="All")).ok
        return keys.ORDER_ANNOTATION in made["metadata"].get("annotations", {})

    await until(has_order, "new pods get the order")
