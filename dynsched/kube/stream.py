"""A call to the API server whose answer has no end: a watch, line by line."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import aiohttp

from dynsched.kube import failures
from dynsched.kube.bodies import MAX_OF_AN_OBJECT, TooLargeError, read_error
from dynsched.kube.failures import Call, SetupError
from dynsched.kube.transport import CONNECT_TIMEOUT, KubeApi
from dynsched.util.errors import ClusterError

WATCH_SECONDS: Final = 290
"""Seconds after which the server is asked to end a watch (timeoutSeconds); the watch is then
resumed at its last resourceVersion."""

_SILENCE: Final = 120.0
"""Seconds without a byte after which a watch ends: its connection may be dead. Bookmarks come about
every minute."""


class ExpiredError(ClusterError):
    """The resourceVersion is too old: begin again with the present one."""

    def __init__(self, call: Call) -> None:
        super().__init__(f"cannot {call}: the resourceVersion is too old")


class StreamingApi(KubeApi):
    """KubeApi, and watches. One watch at a time: it holds a connection for minutes."""

    async def watch(self, call: Call, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The lines of a watch, until the server ends it or was silent for long, as one without
        bookmarks is where nothing happens. An empty line tells that the server has begun to answer.

        Raises ExpiredError for a status 410, which a proxy may give in place of an event; another
        ClusterError, before the first line or in between.
        """
        config = self.config
        try:
            async with await self._open(call, query) as response:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    said = await read_error(response)
                    if response.status == HTTPStatus.UNAUTHORIZED:
                        await self._login_again(config)  # for the next time
                    if response.status == HTTPStatus.GONE:
                        raise ExpiredError(call)
                    raise failures.from_status(call, self.config.server, response.status, said)
                rest = b""
                yield rest
                with suppress(TimeoutError):
                    while chunk := await response.content.readany():
                        *lines, rest = (rest + chunk).split(b"\n")
                        for line in lines:
                            yield line
                        if len(rest) > MAX_OF_AN_OBJECT:
                            raise TooLargeError(MAX_OF_AN_OBJECT)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = failures.from_exception(call, self.config.server, error, _SILENCE)
            if isinstance(failure, SetupError):  # TLS
                await self._login_again(config)
            raise failure from error

    async def _open(self, call: Call, query: Mapping[str, str]) -> aiohttp.ClientResponse:
        await self._login_when_due()
        whole = {**query, "watch": "1", "timeoutSeconds": str(WATCH_SECONDS)}
        method, url, headers, body, _ = await self._client.param_serialize(
            call.method,
            call.path,
            query_params=list(whole.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        answer = await self._client.call_api(
            method,
            url,
            headers,
            body=body,
            _request_timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_TIMEOUT, sock_read=_SILENCE
            ),
        )
        response: aiohttp.ClientResponse = answer.response
        return response
