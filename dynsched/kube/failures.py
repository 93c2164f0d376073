"""What went wrong in a call to the API server, as one line for a person and a class for the code.
No header, token or query ever gets into a message.
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
"""The accounts of the manifests."""
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
"""Characters of the API server's own words that are passed on."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """``namespace``: the one whose Role allows it; empty for what the ClusterRole does."""

    verb: str
    resource: str
    path: str
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f" {self.name}" if self.name else "")


def in_namespace(namespace: str | None) -> str:
    """That part of a path; empty where no namespace is named."""
    return f"/namespaces/{quote(namespace, safe='')}" if namespace else ""


class SetupError(ClusterError):
    """Waiting will not help: credentials, certificates or the address are wrong."""


class ProxyRefusedError(aiohttp.ClientConnectionError):
    """A proxy answered in the API server's place; the URL with its password is not in the text."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the proxy answered {status}")
        self.status = status


class RedirectError(aiohttp.ClientConnectionError):
    """An answer of 3xx, which is not followed: the request, with all tokens in it, is not meant for
    another address. Of that address, only what cannot be secret is in the text.
    """

    def __init__(self, status: int, location: str) -> None:
        target = one_line(re.split("[?#]", location)[0].rpartition("@")[2]) or "nowhere"
        super().__init__(f"{status}: it redirects to {target}, which is not followed")


class ExpiredError(ClusterError):
    """The resourceVersion is too old: begin again with the present one."""

    def __init__(self, call: ApiRequest) -> None:
        super().__init__(f"cannot {call}: the resourceVersion is too old")


class Status(msgspec.Struct):
    """The object in which the API server explains an error."""

    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")
    message: str = ""
    code: int = 0


def status_in(body: bytes | msgspec.Raw) -> Status | None:
    """The Status in a body; None for anything else, such as the answer of a proxy."""
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def from_status(call: ApiRequest, server: str, status: int, body: bytes) -> ClusterError:
    """The error for an answer of 300 and above."""
    said = _said(body)
    where = f"cannot {call}: {server} answered {status}"
    match status:
        case HTTPStatus.UNAUTHORIZED:
            why = "the credentials were not accepted; log in again, or check the pod's account"
            if not server.lower().startswith("https://"):
                why = "no credentials are sent by plain HTTP; use https://"
            return SetupError(f"{where}: {why}")
        case HTTPStatus.FORBIDDEN:
            return forbidden(call, server, said.removeprefix(": "))
        case HTTPStatus.NOT_FOUND if call.name:
            return NotFoundError(f"cannot {call}: it is gone (404)")
        case HTTPStatus.NOT_FOUND:
            return SetupError(
                f"{where} for {call.path}: is this the URL of a Kubernetes API server?"
            )
        case HTTPStatus.CONFLICT:
            changed = f"cannot {call}: it has changed since it was read (409)"
            return ConflictError(f"{where}{said}" if call.verb == "create" else changed)
        case HTTPStatus.TOO_MANY_REQUESTS:
            said = ": too many requests, even after retries"
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            said += "; look at the API server's health and logs"
    return ClusterError(f"{where}{said}")


def from_exception(
    call: ApiRequest, server: str, error: BaseException, timeout: float
) -> ClusterError:
    """The error for a call that got no whole answer. ``timeout`` is in seconds."""
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
        found = replace(found, detail=error.host)  # it may be a proxy's
    why = no_answer(timeout) if found.cause is Cause.TIMEOUT else str(found)
    kind_of_error = SetupError if found.cause in TLS_CAUSES else ClusterError
    return kind_of_error(f"{where}: {why}; {_REMEDIES.get(found.cause, _IS_IT_UP)}")


def forbidden(call: ApiRequest, server: str, said: str) -> ForbiddenError:
    """The error for a 403; ``said`` is the message of the API server's Status, if any."""
    if said and "cannot " not in said:
        # An admission policy or a webhook, not RBAC: a role would not help.
        return ForbiddenError(f"cannot {call}: {server} refused: {said}")
    found = _USER.search(said)
    user = found[1] if found else ""
    who = f" --as={user}" if user else ""
    where = f" -n {call.namespace}" if call.namespace else ""
    # A right may be granted by name alone, and then "may I, to any?" is answered by no.
    what = f"{call.resource}/{call.name}" if call.namespace and call.name else call.resource
    reason = f": {said}" if said else ""
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


def _said(body: bytes) -> str:
    """`: message` of a Status object; empty for anything else, which could hold a secret."""
    status = status_in(body)
    if status is None or not status.message:
        return ""
    return f": {one_line(status.message, _MAX_CHARACTERS)}"
