"""Turns a failed call to the API server into an error class and a one-line message for people. No
header, token or query ever gets into a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec

from dynsched.util.connection_errors import TLS_CAUSES, Cause, find_failure, no_answer
from dynsched.util.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError
from dynsched.util.formatting import one_line

_USER: Final = re.compile(r'User "([^"]+)"')
OURS: Final = re.compile(r"system:serviceaccount:[^:]+:dynsched(-[^:]+)?")
"""The service accounts of the manifests."""
_PROXY: Final = "check proxy-url in the kubeconfig, HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
_CA: Final = "check the CA in the kubeconfig and the server's name"
_IS_IT_UP: Final = "is the API server up and reachable?"
_REMEDIES: Final[Mapping[Cause, str]] = {
    Cause.HOST: "check the server's URL and DNS",
    Cause.REFUSED: "is the API server up?",
    Cause.NOT_TLS: "is it https, or another port?",
    Cause.UNTRUSTED: _CA,
    Cause.OTHER_HOST: _CA,
    Cause.INVALID: _CA,
    Cause.ALERT: "check the client certificate in the kubeconfig",
    Cause.TLS: "is it https, or another port?",
}
_MAX_CHARACTERS: Final = 300
"""Maximum characters of the API server's message that are passed on."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """``namespace``: the namespace of the Role that allows it; empty if a ClusterRole does."""

    verb: str
    resource: str
    path: str
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f" {self.name}" if self.name else "")


def in_namespace(namespace: str | None) -> str:
    """The ``/namespaces/NAME`` part of a path; empty without a namespace."""
    return f"/namespaces/{quote(namespace, safe='')}" if namespace else ""


class SetupError(ClusterError):
    """Retrying does not help: credentials, certificates or the address are wrong."""


class ProxyRefusedError(aiohttp.ClientConnectionError):
    """A proxy answered instead of the API server. The text omits its URL and password."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the proxy answered {status}")
        self.status = status


class RedirectError(aiohttp.ClientConnectionError):
    """A 3xx response. It is not followed, because the request and its tokens must not go to another
    address. The text has only those parts of the address that cannot be secret.
    """

    def __init__(self, status: int, location: str) -> None:
        target = one_line(re.split("[?#]", location)[0].rpartition("@")[2]) or "nowhere"
        super().__init__(f"{status}: it redirects to {target}, which is not followed")


class ExpiredError(ClusterError):
    """The resourceVersion is too old: start again from the current one."""

    def __init__(self, call: ApiRequest) -> None:
        super().__init__(f"cannot {call}: the resourceVersion is too old")


class Status(msgspec.Struct):
    """The object in which the API server explains an error."""

    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")
    message: str = ""
    code: int = 0


def status_in(body: bytes | msgspec.Raw) -> Status | None:
    """The Status in a body; None for anything else, such as a proxy's response."""
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def from_status(call: ApiRequest, server: str, status: int, body: bytes) -> ClusterError:
    """The error for a response with status 300 or above."""
    message = _status_message(body)
    where = f"cannot {call}: {server} answered {status}"
    match status:
        case HTTPStatus.UNAUTHORIZED:
            why = "the credentials were not accepted; log in again, or check the pod's account"
            if not server.lower().startswith("https://"):
                why = "no credentials are sent by plain HTTP; use https://"
            return SetupError(f"{where}: {why}")
        case HTTPStatus.FORBIDDEN:
            return forbidden(call, server, message.removeprefix(": "))
        case HTTPStatus.NOT_FOUND if call.name:
            return NotFoundError(f"cannot {call}: it is gone (404)")
        case HTTPStatus.NOT_FOUND:
            return SetupError(
                f"{where} for {call.path}: is this the URL of a Kubernetes API server?"
            )
        case HTTPStatus.CONFLICT:
            changed = f"cannot {call}: it has changed since it was read (409)"
            return ConflictError(f"{where}{message}" if call.verb == "create" else changed)
        case HTTPStatus.TOO_MANY_REQUESTS:
            message = ": too many requests, even after retries"
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            message += "; look at the API server's health and logs"
    return ClusterError(f"{where}{message}")


def from_exception(
    call: ApiRequest, server: str, error: BaseException, timeout: float
) -> ClusterError:
    """The error for a call without a complete response. ``timeout`` is in seconds."""
    where = f"cannot {call}: {server}"
    if isinstance(error, ProxyRefusedError):
        return ClusterError(f"{where}: the proxy answered {error.status}; {_PROXY}")
    if isinstance(error, RedirectError):
        return SetupError(f"{where} answered {error}; check the server's URL")
    found = find_failure(error)
    if found is None or found.cause is Cause.BROKEN:
        kind = type(error).__name__
        return ClusterError(f"{where}: {Cause.BROKEN.value} before the answer ({kind})")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ClusterError(f"{where}: the proxy {error.host}:{error.port}: {found}; {_PROXY}")
    if found.cause is Cause.HOST and isinstance(error, aiohttp.ClientConnectorError):
        found = replace(found, detail=error.host)  # this may be the proxy's host
    why = no_answer(timeout) if found.cause is Cause.TIMEOUT else str(found)
    kind_of_error = SetupError if found.cause in TLS_CAUSES else ClusterError
    return kind_of_error(f"{where}: {why}; {_REMEDIES.get(found.cause, _IS_IT_UP)}")


def forbidden(call: ApiRequest, server: str, message: str) -> ForbiddenError:
    """The error for a 403; ``message``: that of the API server's Status, if any."""
    if message and "cannot " not in message:
        # Refused by an admission policy or a webhook, not by RBAC: a role would not help.
        return ForbiddenError(f"cannot {call}: {server} refused: {message}")
    found = _USER.search(message)
    user = found[1] if found else ""
    who = f" --as={user}" if user else ""
    where = f" -n {call.namespace}" if call.namespace else ""
    # A Role may allow this name only; `auth can-i` without the name would then answer no.
    what = f"{call.resource}/{call.name}" if call.namespace and call.name else call.resource
    reason = f": {message}" if message else ""
    role = "Role" if call.namespace else "ClusterRole"
    grant = (
        f"grant with `kubectl apply -f manifests/base/rbac.yaml` (its {role}), or with that of the "
        "component that needs it"
    )
    if user and not OURS.fullmatch(user):
        grant = (
            f"ask an administrator to bind a {role} with it to {user}; docs/look.md has those "
            "for people"
        )
    return ForbiddenError(
        f"may not {call.verb} {call.resource}: {server} answered 403{reason}; check with `kubectl "
        f"auth can-i {call.verb} {what}{where}{who}`, {grant}"
    )


def _status_message(body: bytes) -> str:
    """`: message` of a Status; empty for anything else, which could contain a secret."""
    status = status_in(body)
    if status is None or not status.message:
        return ""
    return f": {one_line(status.message, _MAX_CHARACTERS)}"
