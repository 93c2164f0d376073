"""A read-only API server with the objects that a test gives it, by path.

It is for resources that the simulator does not serve.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from aiohttp import web
from api_support import kubeconfig
from manifest_support import BASE

from dynsched.util.formatting import format_time

ADMISSION = "/apis/admissionregistration.k8s.io/v1"


ORDER_KIND = "/apis/dynsched.io/v1"
ORDER_POLICY = f"{ADMISSION}/mutatingadmissionpolicies/dynsched-order"
ORDER_BINDING = f"{ADMISSION}/mutatingadmissionpolicybindings/dynsched-order"
ORDER_WEBHOOK = f"{ADMISSION}/mutatingwebhookconfigurations/dynsched-order"
HELD_POLICY, HELD_BINDING = f"{ORDER_POLICY}-held", f"{ORDER_BINDING}-held"
ORDER_OBJECT = f"{ORDER_KIND}/namespaces/dynsched/nodeorders/dynsched"
NAMESPACES = "/api/v1/namespaces"


_POLICY, _BINDING = yaml.safe_load_all((BASE / "order/policy.yaml").read_text())
_HELD, _HELD_BINDING = yaml.safe_load_all((BASE / "order/held.yaml").read_text())
ORDER_IN_FORCE: dict[str, Any] = {
    ADMISSION: {"resources": [{"name": "mutatingadmissionpolicies"}]},
    ORDER_KIND: {"resources": [{"name": "nodeorders"}]},
    ORDER_POLICY: _POLICY,
    ORDER_BINDING: _BINDING,
    HELD_POLICY: _HELD,
    HELD_BINDING: _HELD_BINDING,
    ORDER_OBJECT: lambda: {"spec": {"until": format_time(time.time() + 20)}},
    NAMESPACES: [{"metadata": {"name": "shop"}}],
}
"""Objects of a cluster in which the order is in force, with one namespace that gets it."""


class CannedCluster:
    """``objects``: the GET response by path: an object, a list's items, or a function."""

    def __init__(self, folder: Path, objects: Mapping[str, Any]) -> None:
        self.objects = objects
        self.kubeconfig = folder / "canned-kubeconfig"
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None))

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        kubeconfig(self.kubeconfig, url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        found = self.objects.get(request.path)
        if found is None:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        if callable(found):
            found = found()
        if isinstance(found, list):
            found = {"metadata": {"resourceVersion": "1"}, "items": found}
        return web.json_response(found)
