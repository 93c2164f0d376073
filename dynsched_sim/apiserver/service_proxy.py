"""The service proxy: forwards a GET on `.../services/NAME/proxy/PATH` to a program.

The simulated cluster runs no pods, so whoever starts the server sets a backend per Service.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Final

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from dynsched_sim.apiserver import api_errors
from dynsched_sim.apiserver.objects import Objects
from dynsched_sim.apiserver.requested import Target
from dynsched_sim.apiserver.resources import SERVICES

_PATH: Final = re.compile(
    r"/api/v1/namespaces/(?P<namespace>[^/]+)/services/"
    r"(?:(?P<scheme>https?):)?(?P<name>[^/:]+)(?::(?P<port>[^/:]*))?/proxy(?P<rest>/.*)"
)
_PASSED: Final = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.IF_NONE_MATCH, hdrs.USER_AGENT)
"""Request headers that are forwarded; the caller's credentials never are."""
_RETURNED: Final = (hdrs.CONTENT_TYPE, hdrs.CONTENT_ENCODING, hdrs.ETAG, hdrs.VARY, hdrs.AGE)


class ServiceProxy:
    """``backends``: URL of the program behind each Service, by (namespace, name)."""

    def __init__(self, objects: Objects) -> None:
        self.backends: MutableMapping[tuple[str, str], str] = {}
        self._objects = objects

    async def answer(self, target: Target, request: web.BaseRequest) -> web.Response:
        """Forward the request. ApiError 404 without the Service, 503 without a backend."""
        name, namespace = target.name, target.namespace
        self._objects.find(SERVICES, name, namespace)
        backend = self.backends.get((namespace, name))
        found = _PATH.fullmatch(request.rel_url.raw_path)
        if backend is None or found is None:
            raise api_errors.unavailable(f'no endpoints available for service "{name}"')
        query = f"?{request.rel_url.raw_query_string}" if request.query_string else ""
        scheme = found["scheme"] or "http"
        sent = f"{scheme}://{backend.partition('://')[2]}{found['rest']}{query}"
        url = URL(sent, encoded=True)
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        try:
            async with (
                aiohttp.ClientSession(auto_decompress=False) as session,
                # The real proxy does not verify the certificate either.
                session.get(url, headers=headers, allow_redirects=False, ssl=False) as response,
            ):
                returned = {k: response.headers[k] for k in _RETURNED if k in response.headers}
                body = await response.read()
                return web.Response(status=response.status, headers=returned, body=body)
        except aiohttp.ServerDisconnectedError:
            raise api_errors.unavailable("error trying to reach service: EOF") from None
        except aiohttp.ClientError as error:
            raise api_errors.unavailable(f"error trying to reach service: {error}") from None


def target_of(path: str) -> Target | None:
    """The Service that a quoted path addresses through the service proxy; None for other paths."""
    found = _PATH.fullmatch(path)
    return Target(SERVICES, found["namespace"], found["name"], "proxy") if found else None
