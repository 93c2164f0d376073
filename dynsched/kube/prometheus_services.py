"""Finds the Prometheus of a cluster, or a compatible server, by the labels of its Service in common
installations. It is queried through the API server, without a port-forward.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from dynsched.kube.failures import ApiRequest
from dynsched.kube.lists import pages
from dynsched.kube.services import Service, ask_service
from dynsched.kube.transport import KubeApi
from dynsched.util.errors import ClusterError, ForbiddenError

_NAME: Final = "app.kubernetes.io/name"
_COMPONENT: Final = "app.kubernetes.io/component"
_PART_OF: Final = "app.kubernetes.io/part-of"


class _Kind(NamedTuple):
    """The program behind a Service whose labels include ``labels``. ``path``: prefix of
    Prometheus's API. ``wants_login``: it serves HTTPS and needs a token, which the API server does
    not pass on.
    """

    program: str
    labels: dict[str, str]
    path: str = ""
    wants_login: bool = False


_KINDS: Final = (
    *(
        _Kind("Prometheus", labels)
        for labels in (
            {"app": "kube-prometheus-stack-prometheus"},
            {"app": "rancher-monitoring-prometheus"},
            {"app": "prometheus-operator-prometheus"},
            {"app": "prometheus", "component": "server"},
            {_NAME: "prometheus", _COMPONENT: "server"},
            {_NAME: "prometheus", _COMPONENT: "prometheus", _PART_OF: "kube-prometheus"},
            {"app": "prometheus-server"},
            {"operated-prometheus": "true"},
            {"self-monitor": "true"},
        )
    ),
    _Kind("VictoriaMetrics", {_NAME: "vmsingle"}),
    _Kind("VictoriaMetrics", {_NAME: "victoria-metrics-single"}),
    _Kind("VictoriaMetrics", {_NAME: "vmselect"}, "/select/0/prometheus"),
    _Kind("VictoriaMetrics", {"app": "vmselect"}, "/select/0/prometheus"),
    _Kind(
        "OpenShift's Thanos",
        {_NAME: "thanos-query", _PART_OF: "openshift-monitoring"},
        wants_login=True,
    ),
    _Kind("Thanos", {_NAME: "thanos-query"}),
    _Kind("Thanos", {_NAME: "thanos", _COMPONENT: "query"}),
    _Kind("Thanos", {_NAME: "thanos", _COMPONENT: "query-frontend"}),
    _Kind("Mimir", {_NAME: "mimir", _COMPONENT: "query-frontend"}, "/prometheus"),
)
"""In order of preference."""
_PORTS: Final = ("http-web", "web", "http", "http-metrics", "https", "https-web")
"""Names of the API's port, in order of preference."""
PROBE: Final = (
    'group(node_cpu_seconds_total{mode="idle"}) or group(container_cpu_usage_seconds_total{id="/"})'
)
"""Returns one sample if the server has metrics of nodes, and none if it has only others."""
_PROBE_SECONDS: Final = 3.0
_MAX_TRIED: Final = 8
"""Maximum number of Services that are tried."""
_WANTS_LOGIN: Final = (
    "it wants a login, and the API server passes none on; name its own URL with --prom, and its "
    "token with --prom-bearer-token-file"
)


class Found(NamedTuple):
    """A Service, and the kind of program behind it."""

    service: Service
    kind: _Kind

    def __str__(self) -> str:
        """Its URL inside the cluster."""
        name, namespace, port = self.service.name, self.service.namespace, self.service.port
        return f"{self.service.scheme}://{name}.{namespace}.svc:{port}{self.kind.path}"

    def url(self, api: KubeApi) -> str:
        """Its URL through the API server."""
        return f"{api.config.server}{self.service.path}{self.kind.path}"

    async def fetch(
        self, api: KubeApi, path: str, seconds: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Get ``path`` below the URL: status, headers and body. ClusterError."""
        raw = await ask_service(api, self.service, f"{self.kind.path}{path}", seconds)
        return raw.status, raw.headers, raw.body


async def find_prometheus(api: KubeApi) -> tuple[Found | None, list[str]]:
    """The first server with metrics of nodes, else the first that answers, else None; and why
    servers could not be queried. Their failures are returned, not raised.
    """
    try:
        candidates = await _candidates(api)
    except ForbiddenError:
        return None, ["Prometheus was not looked for: you may not list services"]
    except ClusterError as error:
        return None, [f"cannot look for Prometheus: {error}"]
    if not candidates:
        return None, ["No Service has the labels of a known Prometheus"]
    answers = await asyncio.gather(*(_probe(api, found) for found in candidates))
    tried = list(zip(candidates, answers, strict=True))
    taken = [found for wanted in (True, False) for found, answer in tried if answer is wanted]
    why_not = [
        f"{each.kind.program} ({each}) was not taken: {why}"
        for each, why in tried
        if isinstance(why, str)
    ]
    return next(iter(taken), None), why_not


async def _candidates(api: KubeApi) -> list[Found]:
    """In order of preference, then of name and namespace; at most _MAX_TRIED."""
    ranked: list[tuple[int, str, str, Found]] = []
    call = ApiRequest("list", "services", "/api/v1/services")
    async for page in pages(api, call, dict[str, Any]):
        for item in page.items or ():
            labels, port = (item["metadata"].get("labels") or {}).items(), _port_of(item)
            for rank, kind in enumerate(_KINDS):
                if port is not None and kind.labels.items() <= labels:
                    found = _found(item["metadata"], port, kind)
                    ranked.append((rank, found.service.name, found.service.namespace, found))
                    break
        del page
    return [found for *_, found in sorted(ranked, key=lambda each: each[:3])[:_MAX_TRIED]]


def _port_of(item: Mapping[str, Any]) -> dict[str, Any] | None:
    ports = [port for port in item["spec"].get("ports") or () if port.get("protocol") != "UDP"]
    by_name = {port.get("name"): port for port in ports}
    return next((by_name[name] for name in _PORTS if name in by_name), next(iter(ports), None))


def _found(metadata: Mapping[str, Any], port: Mapping[str, Any], kind: _Kind) -> Found:
    hints = (port.get("name", "")[:5], port.get("appProtocol", "").lower())
    scheme = "https" if kind.wants_login or "https" in hints else "http"
    where = metadata["namespace"], metadata["name"], port["port"], scheme
    return Found(Service(*where, kind.program, flag="--prom"), kind)


async def _probe(api: KubeApi, found: Found) -> bool | str:
    """Whether it has metrics of nodes, or why it cannot be queried."""
    if found.kind.wants_login:
        return _WANTS_LOGIN
    try:
        path = f"/api/v1/query?query={quote(PROBE)}"
        status, _, body = await found.fetch(api, path, _PROBE_SECONDS)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return _WANTS_LOGIN
        return bool(json.loads(body)["data"]["result"])
    except ForbiddenError:
        return f"you may not get services/proxy {found.service.proxied}"
    except ClusterError as error:
        return str(error)
    except (ValueError, LookupError, TypeError):
        return f"it answered {status}, but not as Prometheus does"
