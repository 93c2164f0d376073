"""Binds a pod to a node: the one call that an extender with ``bindVerb`` makes."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from dynsched.kube.failures import Call
from dynsched.kube.transport import KubeApi

_TIMEOUT: Final = 5.0


async def bind_pod(api: KubeApi, *, namespace: str, pod: str, uid: str, node: str) -> None:
    """Create the Binding; needs ``pods/binding`` ``create``. Sent once: had it arrived although no
    answer came, the scheduler sees the pod on its node.

    With a ``uid`` the API server refuses a namesake. Raises ClusterError: ConflictError when the
    pod has a node already, NodeGoneError when there is none of this name.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/binding"
    call = Call("create", "pods/binding", "POST", path, f"{namespace}/{pod}")
    metadata = {"name": pod, "namespace": namespace} | ({"uid": uid} if uid else {})
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await api.call(call, body=body, resend=False, timeout=_TIMEOUT)
