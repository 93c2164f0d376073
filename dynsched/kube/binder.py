"""Binds pods to nodes: the one call that an extender with ``bindVerb`` makes."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from dynsched.kube.credentials import CredentialProvider
from dynsched.kube.failures import ApiRequest, in_namespace
from dynsched.kube.transport import KubeApi

AT_ONCE: Final = 50
"""Bindings under way. The scheduler retries a pod that waits longer than its ``httpTimeout``."""

_TIMEOUT: Final = 5.0


class Binder(KubeApi):
    """Has separate connections, because no watch and no patch must hold up a Binding."""

    def __init__(self, credentials: CredentialProvider) -> None:
        super().__init__(credentials, in_flight=AT_ONCE)

    async def bind(self, *, namespace: str, pod: str, uid: str, node: str) -> None:
        """Create the Binding; needs ``pods/binding`` ``create``. Sent once: if it arrived although
        no answer came, the scheduler sees the pod on its node.

        ConflictError when the pod has a node already or is another one; NotFoundError.
        """
        path = f"/api/v1{in_namespace(namespace)}/pods/{quote(pod, safe='')}/binding"
        call = ApiRequest("create", "pods/binding", path, f"{namespace}/{pod}")
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace} | ({"uid": uid} if uid else {}),
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.call(call, body=body, resend=False, timeout=_TIMEOUT)
