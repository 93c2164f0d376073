"""Finds dynsched's Service, and queries a Service through the API server's service proxy, which
removes the caller's credentials from the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from dynsched.core.wording import listed
from dynsched.kube import failures
from dynsched.kube.failures import ApiRequest, in_namespace
from dynsched.kube.lists import pages
from dynsched.kube.transport import ApiResponse, KubeApi
from dynsched.util.errors import ClusterError, ForbiddenError, NotFoundError

NAME: Final = "dynsched"
"""Name of the Service in manifests/base, and of its namespace."""
PORT: Final = 9000
LABEL: Final = "app.kubernetes.io/name=dynsched"
"""Label of the Service in manifests/base and in the chart."""
_PORT_NAMES: Final = ("http", "https")
_TIMEOUT: Final = 30.0
"""Seconds for one answer: `/nodes` of 5,000 nodes is 5.5 MB with three rules."""
_RETRIABLE: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS})
"""Statuses of the API server that a new login or a pause may resolve."""


@dataclass(frozen=True, slots=True)
class Service:
    namespace: str
    name: str
    port: int = PORT
    scheme: str = "http"
    program: str = "dynsched"
    flag: str = "--server"
    """The option for its URL, as an alternative to the API server's proxy."""

    def __str__(self) -> str:
        return f"Service {self.name} in namespace {self.namespace}"

    @property
    def proxied(self) -> str:
        """Its name in RBAC, for services/proxy: ``http:dynsched:9000``."""
        return f"{self.scheme}:{self.name}:{self.port}"

    @property
    def path(self) -> str:
        """Its path in the API server's proxy."""
        where = in_namespace(self.namespace)
        return f"/api/v1{where}/services/{quote(self.proxied, safe=':')}/proxy"


async def find_service(api: KubeApi, namespace: str | None) -> Service:
    """The Service in ``namespace``, or in any if None. ClusterError if it is unclear which."""
    path = f"/api/v1{in_namespace(namespace)}/services"
    call = ApiRequest("list", "services", path, namespace=namespace or "")
    found: list[Service] = []
    try:
        async for page in pages(api, call, dict[str, Any], query={"labelSelector": LABEL}):
            found += filter(None, map(_service_of, page.items or ()))
            del page
    except ForbiddenError:
        # Many people may list in a few namespaces only. The usual names need no list.
        return Service(namespace or NAME, NAME)
    return _choose(found, namespace, api)


def _service_of(item: dict[str, Any]) -> Service | None:
    """None if the Service has no port that could be dynsched's."""
    ports = [
        each for each in item["spec"].get("ports") or () if each.get("protocol", "TCP") == "TCP"
    ]
    best = [each for each in ports if each.get("name") in _PORT_NAMES or each["port"] == PORT]
    if not (best or len(ports) == 1):
        return None
    port = (best or ports)[0]
    is_tls = "https" in (port.get("name"), port.get("appProtocol", "").lower())
    scheme = "https" if is_tls else "http"
    metadata = item["metadata"]
    return Service(metadata["namespace"], metadata["name"], port["port"], scheme)


def _choose(found: list[Service], namespace: str | None, api: KubeApi) -> Service:
    if not found:
        where = f"namespace {namespace}" if namespace else "any namespace"
        raise NotFoundError(
            f"no Service with the label {LABEL} in {where} of {api.config.server}: is dynsched "
            "installed there, and is this the right context? `dynsched top` and `dynsched plan` "
            "work without it"
        )
    here = [each for each in found if each.namespace == api.config.namespace]
    named = [each for each in found if each.name == NAME]
    for some in (found, here, named if namespace else ()):
        if len(some) == 1:
            return some[0]
    names = sorted(f"{each.namespace}/{each.name}" for each in found)
    remedy = "name the URL of one with --server" if namespace else "choose one with --namespace"
    raise ClusterError(f"several Services have the label {LABEL}: {listed(names)}; {remedy}")


async def ask_service(
    api: KubeApi, service: Service, path: str, seconds: float = _TIMEOUT
) -> ApiResponse:
    """The response of the program behind the Service, including its errors. ``path`` is quoted and
    starts with ``/``. ClusterError if the API server did not pass the request on, or got no
    response in time.
    """
    call = ApiRequest(
        "get", "services/proxy", service.path + path, service.proxied, service.namespace
    )
    raw = await api.exchange(
        call,
        passes=lambda raw: raw.status not in _RETRIABLE or _status(raw.body) is None,
        resend=False,
        timeout=seconds,
    )
    refused = _status(raw.body) if raw.status >= HTTPStatus.BAD_REQUEST else None
    if refused is not None:
        raise _refusal(call, api.config.server, service, raw, " ".join(refused.message.split()))
    return raw


def _status(body: bytes) -> failures.Status | None:
    """The Status of the API server itself; None if the program behind the Service answered."""
    found = failures.status_in(body)
    return found if found and (found.kind, found.api_version) == ("Status", "v1") else None


def _refusal(
    call: ApiRequest, server: str, service: Service, raw: ApiResponse, message: str
) -> ClusterError:
    selector = f" -l {LABEL}" if service.program == NAME else ""
    pods = f"look at `kubectl -n {service.namespace} get pods{selector}`"
    words = f": {message}" if message else ""
    match raw.status:
        case HTTPStatus.FORBIDDEN:
            return ForbiddenError(
                f"may not get services/proxy {service.proxied} in namespace {service.namespace}: "
                f"{server} answered 403{words}; docs/look.md has the Role for it; or use "
                f"`kubectl -n {service.namespace} port-forward svc/{service.name} {service.port}` "
                f"and {service.flag} http://localhost:{service.port}"
            )
        case HTTPStatus.NOT_FOUND:
            return NotFoundError(
                f"there is no {service}; name the namespace of {service.program} with --namespace"
            )
        case HTTPStatus.SERVICE_UNAVAILABLE if "no endpoints" in message:
            return ClusterError(
                f"no pod of {service.program} is ready behind the {service}; {pods}"
            )
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return ClusterError(
                f"{server} got no answer from the {service} ({status}{words}); {pods}, whether a "
                "NetworkPolicy lets the API server in, and whether a port for HTTPS is named https "
                "(docs/look.md)"
            )
    return failures.from_status(call, server, raw.status, raw.body)
