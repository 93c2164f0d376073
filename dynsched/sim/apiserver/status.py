"""What the server says when it refuses: ``Status`` objects, in the real server's words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynsched.sim.apiserver.resources import Resource


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong with an object: the reason's code, the sentence, the field's path."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """A refusal; ``body`` is the Status object, ``code`` the HTTP status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}

    @property
    def body(self) -> dict[str, Any]:
        """The Status object, in the real server's order of keys."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def _details(resource: Resource, name: str = "", kind: str = "", **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    details["kind"] = kind or resource.plural
    return details | more


def not_found(resource: Resource, name: str) -> ApiError:
    """404 for an object."""
    message = f'{resource.qualified_plural} "{name}" not found'
    return ApiError(404, "NotFound", message, details=_details(resource, name))


def no_such_resource() -> ApiError:
    """404 for a path inside a served group and version."""
    message = "the server could not find the requested resource"
    return ApiError(404, "NotFound", message, details={})


def already_exists(resource: Resource, name: str) -> ApiError:
    """409 for a second create."""
    message = f'{resource.qualified_plural} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=_details(resource, name))


def conflict(
    resource: Resource,
    name: str,
    why: str | None = None,
    *,
    kind: bool = False,
    subresource: str = "",
) -> ApiError:
    """409 for a stale resourceVersion, or a precondition that does not hold.

    ``kind``: name the kind instead of the plural, as the real server does for delete.
    """
    why = why or (
        "the object has been modified; please apply your changes to the latest version"
        " and try again"
    )
    what = resource.qualified_kind if kind else resource.qualified_plural
    what += f"/{subresource}" if subresource else ""
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    details = _details(resource, name, kind=resource.kind if kind else resource.plural)
    return ApiError(409, "Conflict", message, details=details)


def invalid(what: str, name: str, causes: Iterable[Cause], **details: str) -> ApiError:
    """422: every cause in one message. ``what`` is ``Kind`` or ``Kind.group``."""
    found = list(dict.fromkeys(causes))
    told = [f"{cause.field}: {cause.message}" for cause in found]
    message = f'{what} "{name}" is invalid: '
    message += told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    listed = [{"reason": c.reason, "message": c.message, "field": c.field} for c in found]
    body: dict[str, Any] = {"name": name} if name else {}
    return ApiError(422, "Invalid", message, details=body | details | {"causes": listed})


def invalid_object(resource: Resource, name: str, causes: Iterable[Cause]) -> ApiError:
    """422 for an object of ``resource``."""
    group = {"group": resource.group} if resource.group else {}
    return invalid(resource.qualified_kind, name, causes, **group, kind=resource.kind)


def invalid_options(kind: str, field: str, reason: str, message: str) -> ApiError:
    """422 for the query's options, as ``PatchOptions`` or ``ListOptions``."""
    cause = Cause(reason, message, field)
    return invalid(f"{kind}.meta.k8s.io", "", [cause], group="meta.k8s.io", kind=kind)


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def rejected() -> ApiError:
    """422 without a cause: what the real server says of a JSON patch that does not apply."""
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message, details={})


def internal(message: str) -> ApiError:
    """500 without a reason, as plain Go errors come out of the real server."""
    return ApiError(500, "", message)


def method_not_allowed() -> ApiError:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})


def unsupported_media_type(message: str = "415: Unsupported Media Type") -> ApiError:
    """415."""
    return ApiError(415, "UnsupportedMediaType", message, details={})


def not_acceptable() -> ApiError:
    """406."""
    message = "406: Not Acceptable\n\nAvailable representations: application/json"
    return ApiError(406, "NotAcceptable", message, details={})


def expired(message: str, *, continuation: str = "") -> ApiError:
    """410: the asked-for resourceVersion is compacted away.

    ``continuation`` is a token that lists on from the same key at the present version.
    """
    metadata = {"continue": continuation} if continuation else None
    return ApiError(410, "Expired", message, metadata=metadata)


def version_too_large(asked: int, current: int) -> ApiError:
    """504: a resourceVersion from the future."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return ApiError(504, "Timeout", message, details=details)


def unavailable(message: str) -> ApiError:
    """503."""
    return ApiError(503, "ServiceUnavailable", message)


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(
    resource: Resource, name: str, namespace: str, user: str, verb: str, *, subresource: str = ""
) -> ApiError:
    """403, naming who may not do what where."""
    what = f'{resource.qualified_plural} "{name}"' if name else resource.qualified_plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    part = f"{resource.plural}/{subresource}" if subresource else resource.plural
    message = (
        f'{what} is forbidden: User "{user}" cannot {verb} resource "{part}"'
        f' in API group "{resource.group}" {where}'
    )
    return ApiError(403, "Forbidden", message, details=_details(resource, name))
