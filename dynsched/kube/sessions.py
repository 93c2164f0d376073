"""What every session with the API server has in common: nothing from the environment but what
`dynsched.plumbing.proxies` found there, and no secret of a proxy in an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from dynsched.kube.failures import ProxyRefusedError


async def _conceal_proxy(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Take the proxy's URL, with its password, out of errors: asyncio logs the errors of kopf's
    tasks as they are.
    """
    try:
        return await handler(request)
    except aiohttp.ClientHttpProxyError as error:
        raise ProxyRefusedError(error.status) from None
    except aiohttp.ClientConnectorError as error:
        error.args = (str(error),)  # it was the whole key of the connection
        raise


SESSION: Final[Mapping[str, Any]] = {
    # True would also send what ~/.netrc says, and read NO_PROXY by other rules than kubectl.
    "trust_env": False,
    "middlewares": (_conceal_proxy,),
}
"""Arguments of `aiohttp.ClientSession`."""
