"""Pods for tests."""

from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any, Final

from cluster import Cluster
from operator_support import until

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, node: str | None = None, **requests: str) -> dict[str, Any]:
    resources = {"requests": requests} if requests else {}
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "i", "resources": resources}],
        "terminationGracePeriodSeconds": 0,
    }
    if node is not None:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def create(cluster: Cluster, body: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.post(PODS, body)).ok
    return found


STARTED: Final[Mapping[str, Any]] = {
    "name": "c",
    "image": "i",
    "imageID": "i",
    "ready": True,
    "restartCount": 0,
    "state": {"running": {"startedAt": "2026-11-20T12:00:00Z"}},
}
"""The status of a running container, as the kubelet writes it."""


async def start(cluster: Cluster, name: str) -> None:
    """Set the status that the kubelet writes once the pod's container runs."""
    status = {"phase": "Running", "containerStatuses": [STARTED]}
    _ = (await cluster.patch(f"{PODS}/{name}/status", {"status": status})).ok


async def reached(found: Callable[[], Any], expected: object) -> None:
    """Wait until ``found`` returns ``expected``; on failure the assertion shows both.

    ``found`` may be asynchronous.
    """

    async def now() -> Any:
        value = found()
        return await value if isawaitable(value) else value

    async def is_reached() -> bool:
        return await now() == expected

    try:
        await until(is_reached, "what is expected")
    except AssertionError:
        assert await now() == expected
