"""Error responses: ``Status`` objects with the messages of the real server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dynsched_sim.apiserver.resources import Resource

_NO_RESOURCE: Final = "the server could not find the requested resource"
USER: Final = "system:serviceaccount:dynsched:dynsched"
"""The user that every request counts as."""


class ApiError(Exception):
    """An error response; ``body`` is the Status object, ``code`` the HTTP status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({} if details is None else {"details": details}),
            "code": code,
        }


bad_request: Final = partial(ApiError, 400, "BadRequest")
no_such_resource: Final = partial(ApiError, 404, "NotFound", _NO_RESOURCE, {})
unavailable: Final = partial(ApiError, 503, "ServiceUnavailable")


def details_of(resource: Resource, name: str = "", kind: str = "") -> dict[str, Any]:
    named, group = ({"name": name} if name else {}), resource.group
    return {**named, **({"group": group} if group else {}), "kind": kind or resource.plural}


def not_found(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified_plural} "{name}" not found'
    return ApiError(404, "NotFound", message, details_of(resource, name))


def conflict(
    resource: Resource, name: str, why: str | None = None, subresource: str = ""
) -> ApiError:
    """409 for a stale resourceVersion, or for the reason ``why``."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version"
        " and try again"
    )
    what = resource.qualified_plural + (f"/{subresource}" if subresource else "")
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    return ApiError(409, "Conflict", message, details_of(resource, name))


def invalid(resource: Resource | None, name: str, *messages: str) -> ApiError:
    """422 with one message per invalid field.

    ``resource`` is None if the result of a patch is not a valid object.
    """
    kind = ".".join(filter(None, (resource.kind, resource.group))) if resource else ""
    message = f'{kind} "{name}" is invalid: '
    message += messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    details = details_of(resource, name, resource.kind) if resource else {}
    return ApiError(422, "Invalid", message, details)


expired: Final = partial(ApiError, 410, "Expired")
"""410: the requested resourceVersion has been compacted."""


def forbidden(
    resource: Resource, name: str, namespace: str, verb: str, subresource: str = ""
) -> ApiError:
    """403 with the user, the verb, the resource and the scope."""
    what = f'{resource.qualified_plural} "{name}"' if name else resource.qualified_plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    part = f"{resource.plural}/{subresource}" if subresource else resource.plural
    message = (
        f'{what} is forbidden: User "{USER}" cannot {verb} resource "{part}"'
        f' in API group "{resource.group}" {where}'
    )
    return ApiError(403, "Forbidden", message, details_of(resource, name))
