"""One call to the API server: login, time limit, few at once, bounded retries, clear errors.

By `kubernetes.aio`'s ApiClient, below its generated API classes: importing CoreV1Api alone costs
25 MB, and its typed models break on objects that are newer than they are.
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
"""In a pod, its name."""
IDENTITY: Final = f"{HOST}_{uuid.uuid4().hex[:8]}"
"""This process, to the Lease and the audit log; unique also when a container starts again."""
USER_AGENT: Final = f"dynsched/{__version__} ({IDENTITY})"

IN_FLIGHT: Final = 20
"""Calls at once. More does not make 1,000 patches faster, and crowds others out of the server."""
TIMEOUT: Final = 10.0
LIST_TIMEOUT: Final = 30.0
CONNECT_TIMEOUT: Final = 5.0
ATTEMPTS: Final = 3
MAX_PAUSE: Final = 10.0
"""A Retry-After beyond this many seconds is not waited for; the next tick will come back."""
_RETRY: Final = 0.4
"""Seconds until a call is sent again after a lost connection or a 5xx."""

_METHODS: Final = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


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


async def _refuse_redirect(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Raise for an answer that aiohttp would follow, with the body and its tokens."""
    response = await handler(request)
    if HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST:
        response.close()
        raise RedirectError(response.status, response.headers.get("Location", ""))
    return response


SESSION: Final[Mapping[str, Any]] = {
    # True would also send what ~/.netrc says, and read NO_PROXY by other rules than kubectl.
    "trust_env": False,
    "middlewares": (_conceal_proxy, _refuse_redirect),
}
"""Arguments of every `aiohttp.ClientSession` with the API server, kopf's among them."""


class RequestOptions(TypedDict, total=False):
    """``may_write`` is called right before each sending, because the Lease can be lost while a
    write waits for its turn; if it returns False, nothing is sent (NotPermittedError). ``resend``
    (the default): the request does no harm twice, so it is sent again after a 5xx or a lost
    connection (never after a timeout). ``timeout``: seconds of one HTTP exchange.
    """

    query: Mapping[str, str] | None
    body: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    may_write: Callable[[], bool] | None
    resend: bool
    timeout: float


class ApiResponse(NamedTuple):
    """``body``: of `call`, decoded, None where the status is not 2xx; of `exchange`, bytes."""

    status: int
    body: Any
    headers: Mapping[str, str] = MappingProxyType({})


class KubeApi:
    """Its connections, its slots and its delays are shared by all its calls: what must not wait
    behind a thousand patches needs another instance. Instances share their ``credentials``.
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
        """The client, with these credentials. An open connection keeps its certificate, so another
        certificate needs another client; what is under way goes on by the former one until the next
        takes its place.
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
        """Close all connections, those of former credentials too."""
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
        """Send; and again after a 429, a 401 that a new login may cure, and as ``resend`` says.
        Statuses of 300 and above raise ClusterError, unless they are in ``accept``. ``shape`` is
        the msgspec type to decode a 2xx answer to.
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
        """As `call`, without decoding. An answer of 300 and above is returned if it ``passes``, and
        raises otherwise.
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
                # Of TLS: the CA or the client certificate may have been replaced.
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
        """A good answer that is read as it comes in, until nothing came for ``silence`` seconds.
        It holds a connection, and no slot. Raises ClusterError, also inside of the block.
        """
        config = await self.credentials.current()
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=silence)
        try:
            async with await self._request(call, config, limit, {"query": query}) as response:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    said = await response.read()
                    if response.status == HTTPStatus.UNAUTHORIZED:
                        await self._renewed(config)  # for the next time
                    if response.status == HTTPStatus.GONE:
                        raise ExpiredError(call)
                    raise failures.from_status(call, self.config.server, response.status, said)
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
        all_headers = CIMultiDict([*headers.items(), *config.headers])  # groups have one name
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
            # The server speaks to this client, not to this call: all of its calls wait. (The form
            # of the header with a date is not used by Kubernetes.)
            said = raw.headers.get("Retry-After", "")
            retry_after = float(said) if said.isdecimal() else 1.0
            self._delay(min(retry_after, MAX_PAUSE))
            return retry_after <= MAX_PAUSE
        if resend and raw.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._delay(jittered(_RETRY))
            return True
        return False

    def _delay(self, seconds: float) -> None:
        """Delay all calls from now on by so many seconds at least."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    async def _pause(self) -> None:
        wait = self._not_before - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait + jittered(0.2))

    async def _renewed(self, refused: KubeConfig) -> bool:
        """Whether there are other credentials than the refused ones now."""
        return not (await self.credentials.current(refused)).logs_in_as(refused)
