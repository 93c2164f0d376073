"""Which running dynsched a command asks, and how: by a URL that the user named (with the standard
library alone, which takes no time to import), or by its Service through the API server of the
current context, with the user's kubeconfig.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import json
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from dynsched.util.connection_errors import Cause, find_failure, no_answer
from dynsched.util.errors import ExpectedError
from dynsched.util.files import FileTooLargeError, read_file
from dynsched.util.proxies import ProxyError, opener, parse_http_url, proxy_for, through

if TYPE_CHECKING:
    from dynsched.kube.services import Service
    from dynsched.kube.transport import KubeApi

TIMEOUT: Final = 10.0
"""Seconds without a byte after which the server counts as hung."""
_MAX_TOKEN_BYTES: Final = 64 * 1024
_REMEDIES: Final[Mapping[Cause, str]] = {
    Cause.REFUSED: "is dynsched running there? check --server",
    Cause.BROKEN: "try again",
    Cause.NOT_TLS: "is it http:// instead of https://? check --server",
    Cause.UNTRUSTED: "name the CA file that signed it in SSL_CERT_FILE, or check --server",
}


class ServerError(ExpectedError):
    """dynsched could not be asked, or refused; the message is for the person at the terminal."""


class Response(NamedTuple):
    """An answer, whatever its status."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Where:
    """Which dynsched the user means: the one at the URL ``server``, or the Service in the cluster
    of ``kubeconfig`` and ``context``, in ``namespace`` or in any. ``token_file``: the token that
    the one at ``server`` wants with --web-auth (the API server passes none on). ``timeout``:
    seconds for an answer; None for the usual ones.
    """

    server: str | None = None
    token_file: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    timeout: float | None = None


class Running(ABC):
    """A running dynsched. ``shown``: where it is, for a person; ``remedy``: what to do where it
    wants a token; ``by``: the proxy on the way.
    """

    shown: str
    remedy: str
    by: str = ""

    @abstractmethod
    def raw(self, path: str) -> Response:
        """What it answers at ``path`` (quoted), whatever the status. ExpectedError."""

    def ask(self, path: str, accept: Collection[int] = (HTTPStatus.OK,)) -> bytes:
        """The body at ``path``; ServerError where the status is not one to ``accept``."""
        answer = self.raw(path)
        if answer.status in accept:
            return answer.body
        needs_token = answer.status == HTTPStatus.UNAUTHORIZED
        why = _refusal(self.shown, answer) + (self.remedy if needs_token else "")
        raise ServerError(why + self.by)

    def json(
        self, path: str, *, key: str = "taken_at", accept: Collection[int] = (HTTPStatus.OK,)
    ) -> dict[str, Any]:
        """The JSON object at ``path``; ServerError also where it has no ``key``, as another's."""
        try:
            found = json.loads(self.ask(path, accept))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or key not in found:
            raise ServerError(f"{self.shown} does not answer as dynsched does; check --server")
        return found


class ByUrl(Running):
    def __init__(
        self, server: str, timeout: float | None = None, token_file: Path | None = None
    ) -> None:
        self.shown = _url_of(server)
        self.remedy = (
            f"; it was read from --server-token-file {token_file}"
            if token_file
            else "; name a file that holds the token with --server-token-file"
        )
        if token_file is not None and not _is_private(self.shown):
            raise ServerError(
                f"the token in {token_file} is not sent to {self.shown}: by plain HTTP anybody on "
                "the way could read it; use https://, or `kubectl port-forward` and localhost"
            )
        self._token_file = token_file
        self._timeout = timeout or TIMEOUT

    def raw(self, path: str) -> Response:
        url, headers = f"{self.shown}{path}", {"Accept": "application/json"}
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 (http or https: _url_of)
        if self._token_file is not None:
            # Not to where a redirect leads: that may be another host.
            request.add_unredirected_header("Authorization", f"Bearer {_token(self._token_file)}")
        try:
            self.by = through(proxy_for(self.shown))
            with opener().open(request, timeout=self._timeout) as response:
                return Response(response.status, response.read())
        except ProxyError as error:
            raise ServerError(f"cannot ask {self.shown}: {error}") from None
        except urllib.error.HTTPError as error:
            with error, contextlib.suppress(OSError, http.client.HTTPException):
                return Response(error.code, error.read())
            return Response(error.code, b"")
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"cannot ask {self.shown}: {self._why(error)}{self.by}") from None

    def _why(self, error: Exception) -> str:
        found = find_failure(error)
        if found is None:
            return f"{str(error) or type(error).__name__}; check --server"
        if found.cause is Cause.TIMEOUT:
            return f"{no_answer(self._timeout)}; look at {self.shown}/status"
        return f"{found}; {_REMEDIES.get(found.cause, 'check --server')}"


class InCluster(Running):
    """A dynsched that is asked through the API server. Closed with `close`."""

    remedy = (
        "; the API server passes no token on: use a port-forward, --server and --server-token-file"
    )

    def __init__(self, where: Where) -> None:
        # One loop for as long as this lives: connections belong to it.
        self._runner = asyncio.Runner()
        self._timeout = where.timeout
        try:
            self._api, self.service = self._runner.run(_opened(where))
        except BaseException:
            self._runner.close()
            raise
        context = f", context {where.context}" if where.context else ""
        self.shown = f"the {self.service} of {self._api.config.server}{context}"

    def raw(self, path: str) -> Response:
        """ClusterError for what the API server refuses."""
        from dynsched.kube import services

        timeout = self._timeout or services.TIMEOUT
        asked = services.ask_service(self._api, self.service, path, timeout=timeout)
        answer = self._runner.run(asked)
        return Response(answer.status, answer.body)

    def close(self) -> None:
        try:
            self._runner.run(self._api.close())
        finally:
            self._runner.close()


async def _opened(where: Where) -> tuple[KubeApi, Service]:
    # Here, not above: to import them takes half a second, which --server has no use for.
    from dynsched.kube.kubeconfig import load_config
    from dynsched.kube.services import find_service
    from dynsched.kube.transport import KubeApi

    api = KubeApi(await load_config(where.kubeconfig, where.context))
    try:
        async with asyncio.timeout(where.timeout):
            return api, await find_service(api, where.namespace)
    except BaseException:
        await api.close()
        raise


@contextmanager
def opened(where: Where) -> Iterator[Running]:
    """The dynsched that is to be asked. ExpectedError where none is found."""
    if where.server is not None:
        yield ByUrl(where.server, where.timeout, where.token_file)
        return
    with contextlib.closing(InCluster(where)) as found:
        yield found


def _token(file: Path) -> str:
    try:
        found = read_file(str(file), _MAX_TOKEN_BYTES).decode("ascii").strip()
    except (FileTooLargeError, UnicodeDecodeError):
        found = ""
    except OSError as error:
        raise ServerError(f"--server-token-file {file}: {error.strerror or error}") from None
    if not found or not found.isprintable() or " " in found:
        raise ServerError(f"--server-token-file {file}: it does not hold one token and no more")
    return found


def _is_private(url: str) -> bool:
    """Whether nobody can read on the way: by TLS, or on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _url_of(server: str) -> str:
    """The URL that ``--server`` names. ``:PORT`` is on this machine, as it is for --webaddr."""
    try:
        parts = parse_http_url(f"localhost{server}" if server.startswith(":") else server)
    except ValueError:
        parts = None
    if parts is None or parts.query or parts.fragment:
        raise ServerError("--server is not a URL like http://localhost:9000")
    return parts.geturl().rstrip("/")


def _refusal(shown: str, answer: Response) -> str:
    """An answer with an error status as one line: dynsched's own words where they are."""
    try:
        message = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError):
        # Not ours: a proxy or an ingress on the way, or something else on that port.
        told = f"{answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
        return f"{shown} answered {told}; is it dynsched? check --server"
    return " ".join(str(message).split())
