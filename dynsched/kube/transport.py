"""Calls to the API server: with login, timeout, limited concurrency, bounded retries, clear errors.

It uses `kubernetes.aio`'s ApiClient, but not its generated API classes: importing CoreV1Api alone
costs 25 MB, and its typed models break on objects that are newer than they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypedDict, Unpack

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient
from multidict import CIMultiDict

from dynsched import __version__
from dynsched.kube import failures
from dynsched.kube.credentials import CredentialProvider
from dynsched.kube.failures import (
    ApiRequest,
    ExpiredError,
    ProxyRefusedError,
    RedirectError,
    SetupError,
)
from dynsched.kube.kubeconfig import KubeConfig
from dynsched.util.errors import NotPermittedError
from dynsched.util.stopping import jittered

logger = logging.getLogger(__name__)

HOST: Final = socket.gethostname()
"""In a pod, the name of the pod."""
IDENTITY: Final = f"{HOST}_{uuid.uuid4().hex[:8]}"
"""This process in the Lease and the audit log. It changes when a container restarts."""
USER_AGENT: Final = f"dynsched/{__version__} ({IDENTITY})"

IN_FLIGHT: Final = 20
"""Maximum concurrent calls. More would not make 1,000 patches faster, but crowd out others."""
TIMEOUT: Final = 10.0
LIST_TIMEOUT: Final = 30.0
CONNECT_TIMEOUT: Final = 5.0
ATTEMPTS: Final = 3
MAX_PAUSE: Final = 10.0
"""The longest Retry-After, in seconds, that is waited for; else the next tick tries again."""
_RETRY: Final = 0.4
"""Seconds until a call is sent again after a lost connection or a 5xx."""

_METHODS: Final = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


async def _conceal_proxy(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Remove the proxy's URL, with its password, from errors, because asyncio logs the errors of
    kopf's tasks unchanged.
    """
    try:
        return await handler(request)
    except aiohttp.ClientHttpProxyError as error:
        raise ProxyRefusedError(error.status) from None
    except aiohttp.ClientConnectorError as error:
        error.args = (str(error),)  # args held the whole connection key
        raise


async def _refuse_redirect(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Raise for a redirect, because aiohttp would send the body and its tokens on."""
    response = await handler(request)
    if HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST:
        response.close()
        raise RedirectError(response.status, response.headers.get("Location", ""))
    return response


SESSION: Final[Mapping[str, Any]] = {
    # True would also send credentials from ~/.netrc, and NO_PROXY would differ from kubectl's.
    "trust_env": False,
    "middlewares": (_conceal_proxy, _refuse_redirect),
}
"""Arguments of every `aiohttp.ClientSession` for the API server, including kopf's."""


class RequestOptions(TypedDict, total=False):
    """``may_write`` is called right before each send, because the Lease can be lost while a write
    waits for its turn; if it returns False, nothing is sent (NotPermittedError). ``resend`` (True
    by default): the request is harmless when repeated, so it is sent again after a 5xx or a lost
    connection (never after a timeout). ``timeout``: seconds of one HTTP exchange.
    """

    query: Mapping[str, str] | None
    body: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    may_write: Callable[[], bool] | None
    resend: bool
    timeout: float


class ApiResponse(NamedTuple):
    """``body``: decoded by `call`, None if the status is not 2xx; bytes from `exchange`."""

    status: int
    body: Any
    headers: Mapping[str, str] = MappingProxyType({})


class KubeApi:
    """A client of the API server. All its calls share its connections, slots and delays, so calls
    that must not wait behind a thousand patches need another instance. Instances share their
    ``credentials``.
    """

    def __init__(self, credentials: CredentialProvider, *, in_flight: int = IN_FLIGHT) -> None:
        self.credentials = credentials
        self._slots = asyncio.Semaphore(in_flight)
        self._not_before = 0.0
        self._in_flight = in_flight
        self._tls = self.config.tls
        self._client = self._client_of(self.config)
        self._former: ApiClient | None = None

    @property
    def config(self) -> KubeConfig:
        return self.credentials.config

    def _client_of(self, config: KubeConfig) -> ApiClient:
        configuration = copy.copy(config.configuration)
        configuration.client_session_kwargs = dict(SESSION)
        configuration.connection_pool_maxsize = self._in_flight
        client = ApiClient(configuration)
        if config.ssl_context is not None:
            client.rest_client.ssl_context = config.ssl_context
        client.user_agent = USER_AGENT
        return client

    async def _client_with(self, config: KubeConfig) -> ApiClient:
        """The client for these credentials. An open connection keeps its certificate, so another
        certificate needs another client. Calls in progress continue on the former client, which is
        closed at the next change.
        """
        outdated = None
        if config.tls != self._tls:
            client = self._client_of(config)
            outdated, self._former, self._client = self._former, self._client, client
            self._tls = config.tls
        client = self._client
        if outdated is not None:
            await outdated.close()  # type: ignore[no-untyped-call]
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, including those of former credentials."""
        for client in (self._client, self._former):
            if client is not None:
                await client.close()  # type: ignore[no-untyped-call]

    async def call(
        self,
        call: ApiRequest,
        *,
        accept: Collection[int] = (),
        shape: Any = Any,
        **request: Unpack[RequestOptions],
    ) -> ApiResponse:
        """Send a request, and send it again after a 429, after a 401 if there is a new login, and
        according to ``resend``. A status of 300 or above raises ClusterError, unless it is in
        ``accept``. ``shape`` is the msgspec type to decode a 2xx response to.
        """
        raw = await self.exchange(call, passes=lambda raw: raw.status in accept, **request)
        if raw.status >= HTTPStatus.MULTIPLE_CHOICES:
            return ApiResponse(raw.status, None)
        try:
            return raw._replace(body=msgspec.json.decode(raw.body, type=shape))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SetupError(
                f"cannot {call}: {self.config.server} answered something that is not JSON; is this "
                "a Kubernetes API server, or a proxy's login page?"
            ) from error

    async def exchange(
        self,
        call: ApiRequest,
        *,
        passes: Callable[[ApiResponse], bool],
        **request: Unpack[RequestOptions],
    ) -> ApiResponse:
        """Like `call`, without decoding. A response with status 300 or above is returned if it
        ``passes``, and raises otherwise.
        """
        timeout, resend = request.get("timeout", TIMEOUT), request.get("resend", True)
        for attempt in range(1, ATTEMPTS + 1):
            config = self.config
            try:
                async with self._slots:
                    await self._pause()
                    config = await self.credentials.current()
                    raw = await self._send(call, config, timeout, request)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                failure = failures.from_exception(call, self.config.server, error, timeout)
                # A TLS failure: the CA or the client certificate may have been replaced.
                in_vain = isinstance(failure, SetupError) and not await self._renewed(config)
                is_last = attempt == ATTEMPTS or not resend
                if is_last or in_vain or isinstance(error, TimeoutError):
                    raise failure from error
                self._delay(jittered(_RETRY))
            else:
                if raw.status < HTTPStatus.MULTIPLE_CHOICES or passes(raw):
                    return raw
                may_pass = attempt < ATTEMPTS
                if not (may_pass and await self._may_send_again(raw, config, resend=resend)):
                    raise failures.from_status(call, self.config.server, raw.status, raw.body)
        raise AssertionError  # the last attempt returned or raised

    @contextlib.asynccontextmanager
    async def stream(
        self, call: ApiRequest, query: Mapping[str, str], silence: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful response to read as it arrives, until nothing arrives for ``silence``
        seconds. It takes a connection but no slot. Raises ClusterError, also inside the block.
        """
        config = await self.credentials.current()
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=silence)
        try:
            async with await self._request(call, config, limit, {"query": query}) as response:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    body = await response.read()
                    if response.status == HTTPStatus.UNAUTHORIZED:
                        await self._renewed(config)  # for the next time
                    if response.status == HTTPStatus.GONE:
                        raise ExpiredError(call)
                    raise failures.from_status(call, self.config.server, response.status, body)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = failures.from_exception(call, self.config.server, error, silence)
            if isinstance(failure, SetupError):  # TLS
                await self._renewed(config)
            raise failure from error

    async def _send(
        self, call: ApiRequest, config: KubeConfig, seconds: float, request: RequestOptions
    ) -> ApiResponse:
        limit = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_TIMEOUT))
        answered = await self._request(call, config, limit, request)
        return ApiResponse(answered.status, await answered.read(), answered.headers)

    async def _request(
        self,
        call: ApiRequest,
        config: KubeConfig,
        limit: aiohttp.ClientTimeout,
        request: RequestOptions,
    ) -> aiohttp.ClientResponse:
        client = await self._client_with(config)
        method, url, headers, body, _ = await client.param_serialize(
            _METHODS.get(call.verb, "GET"),
            call.path,
            query_params=list((request.get("query") or {}).items()),
            header_params={"Accept": "application/json", **(request.get("headers") or {})},
            body=request.get("body"),
        )
        all_headers = CIMultiDict([*headers.items(), *config.headers])  # groups share one name
        if (may_write := request.get("may_write")) and not may_write():
            raise NotPermittedError(
                f"cannot {call}: not sent, because this replica is no longer the leader"
            )
        answer = await client.call_api(method, url, all_headers, body=body, _request_timeout=limit)
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _may_send_again(self, raw: ApiResponse, sent_by: KubeConfig, *, resend: bool) -> bool:
        if raw.status == HTTPStatus.UNAUTHORIZED:
            return await self._renewed(sent_by)
        if raw.status == HTTPStatus.TOO_MANY_REQUESTS:
            # The server throttles this client, not only this call, so all its calls wait.
            # (Kubernetes does not use the form of the header with a date.)
            header = raw.headers.get("Retry-After", "")
            retry_after = float(header) if header.isdecimal() else 1.0
            self._delay(min(retry_after, MAX_PAUSE))
            return retry_after <= MAX_PAUSE
        if resend and raw.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._delay(jittered(_RETRY))
            return True
        return False

    def _delay(self, seconds: float) -> None:
        """Send no further call for at least this number of seconds."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    async def _pause(self) -> None:
        wait = self._not_before - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait + jittered(0.2))

    async def _renewed(self, refused: KubeConfig) -> bool:
        """Whether there are now other credentials than the refused ones."""
        return not (await self.credentials.current(refused)).logs_in_as(refused)
