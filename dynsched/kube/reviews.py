"""Authenticates and authorizes the user of a token by TokenReview and SubjectAccessReview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dynsched.kube.failures import ApiRequest
from dynsched.kube.transport import KubeApi
from dynsched.util.formatting import as_mapping

CALL_TIMEOUT: Final = 3.0
"""Maximum seconds for one review, because a person waits for it."""
IN_FLIGHT: Final = 4
"""Maximum concurrent reviews, because made-up tokens must not keep the API server busy."""


@dataclass(frozen=True, slots=True)
class User:
    """The user of an HTTP request, as the API server knows them. RBAC uses name and groups; an
    authorization webhook may use all fields.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class AccessReviews:
    """Reviews as in kube-rbac-proxy. With ``audiences``, a token must be for one. ClusterError."""

    def __init__(self, api: KubeApi, audiences: Sequence[str] = ()) -> None:
        self._api = api
        self._audiences = tuple(audiences)

    async def user_of(self, token: str) -> User | None:
        """The user of a token; None if the API server does not accept the token."""
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        found = await self._review("authentication", "TokenReview", spec)
        user = found.get("user") or {}
        if not found.get("authenticated") or not user.get("username"):
            return None
        # A server without support for audiences returns none: it has not checked them.
        if self._audiences and not {*self._audiences} & {*(found.get("audiences") or ())}:
            return None
        extra = {name: tuple(values) for name, values in (user.get("extra") or {}).items()}
        groups = tuple(user.get("groups") or ())
        return User(user["username"], user.get("uid", ""), groups, extra)

    async def may_get(self, user: User, path: str) -> bool:
        """Whether ``user`` has the verb ``get`` on the non-resource URL ``path``."""
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        found = await self._review("authorization", "SubjectAccessReview", spec)
        return bool(found.get("allowed")) and not found.get("denied")

    async def _review(self, group: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Only the status of the review, because the server's response also contains the token."""
        version, resource = f"{group}.k8s.io/v1", f"{kind.lower()}s"
        call = ApiRequest("create", resource, f"/apis/{version}/{resource}")
        body = {"apiVersion": version, "kind": kind, "spec": spec}
        # A review changes nothing, so it may be sent again.
        answer = await self._api.call(call, body=body, timeout=CALL_TIMEOUT)
        return as_mapping(as_mapping(answer.body).get("status"))
