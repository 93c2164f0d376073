"""The service proxy: a GET on `.../services/NAME/proxy/PATH` is passed on to a program.

A simulated cluster has no pods that run, so who starts the server says where each Service leads.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Final, NamedTuple

import aiohttp
from aiohttp import hdrs, web

from dynsched.sim.apiserver import refusals
from dynsched.sim.apiserver.objects import Objects
from dynsched.sim.apiserver.resources import SERVICES

_PATH: Final = re.compile(
    r"/api/v1/namespaces/(?P<namespace>[^/]+)/services/"
    r"(?:(?P<scheme>https?):)?(?P<name>[^/:]+)(?::(?P<port>[^/:]*))?/proxy(?P<rest>/.*)?"
)
_PASSED: Final = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.IF_NONE_MATCH, hdrs.USER_AGENT)
"""Headers of a request that the program gets; the caller's credentials it never gets."""
_RETURNED: Final = (
    *(hdrs.CONTENT_TYPE, hdrs.CONTENT_ENCODING, hdrs.ETAG, hdrs.CACHE_CONTROL, hdrs.VARY, hdrs.AGE),
    *("Content-Security-Policy", "Referrer-Policy", "X-Content-Type-Options"),
)
_SECONDS: Final = 30.0


class Asked(NamedTuple):
    """A request through the proxy: to which Service, and which path of it, quoted."""

    namespace: str
    name: str
    scheme: str
    rest: str


class ServiceProxy:
    """``backends``: by namespace and name, the URL of the program that a Service leads to. Whether
    it is asked by HTTPS, the request says.
    """

    def __init__(self, objects: Objects) -> None:
        self.backends: MutableMapping[tuple[str, str], str] = {}
        self._objects = objects

    async def answer(self, asked: Asked, request: web.BaseRequest) -> web.Response:
        """What the program answers; ApiError 404 where there is no such Service, 503 where nothing
        is behind it.
        """
        self._objects.find(SERVICES, asked.name, asked.namespace)
        if not asked.rest:
            return web.Response(status=301, headers={hdrs.LOCATION: f"{request.path}/"})
        url = self.backends.get((asked.namespace, asked.name))
        if url is None:
            raise refusals.unavailable(f'no endpoints available for service "{asked.name}"')
        url = f"{asked.scheme}://{url.partition('://')[2]}"
        query = f"?{request.query_string}" if request.query_string else ""
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
                session.get(
                    f"{url}{asked.rest}{query}",
                    headers=headers,
                    allow_redirects=False,
                    ssl=False,  # the real one does not check the certificate either
                ) as answered,
            ):
                found = {
                    each: answered.headers[each] for each in _RETURNED if each in answered.headers
                }
                body = await answered.read()
                return web.Response(status=answered.status, headers=found, body=body)
        except aiohttp.ServerDisconnectedError:
            raise refusals.unavailable("error trying to reach service: EOF") from None
        except aiohttp.ClientError as error:
            raise refusals.unavailable(f"error trying to reach service: {error}") from None


def parse(path: str) -> Asked | None:
    """What a path (quoted) asks of the service proxy; None for a path of anything else."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    rest, scheme = found["rest"] or "", found["scheme"] or "http"
    return Asked(found["namespace"], found["name"], scheme, rest)
