"""Reviews: whose a token is, and what somebody may do, by what the server is told.

Three kinds: TokenReview, SubjectAccessReview (of non-resource URLs alone) and
SelfSubjectAccessReview.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dynsched.sim.apiserver import refusals
from dynsched.sim.apiserver.resources import Resource

API_AUDIENCE: Final = "https://kubernetes.default.svc"
"""The audience of a token for the API server itself."""

_AUTHORIZATION: Final = "authorization.k8s.io"
_TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "tokenreviews", "TokenReview")
_ACCESS_REVIEWS: Final = Resource(_AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview")
_OWN_REVIEWS: Final = Resource(
    _AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview"
)
_BY_PATH: Final = {
    f"{each.root}/{each.plural}": each for each in (_TOKEN_REVIEWS, _ACCESS_REVIEWS, _OWN_REVIEWS)
}


class Person(NamedTuple):
    """Whose a token is, and what for."""

    name: str
    groups: tuple[str, ...] = ()
    audiences: tuple[str, ...] = (API_AUDIENCE,)


class Known(NamedTuple):
    """What the answers follow from. ``people`` by token; ``readable``: pairs of a user or a group
    and a non-resource URL, which may end in ``*``; ``forbidden``: as of ApiServer.
    """

    people: Mapping[str, Person]
    readable: Collection[tuple[str, str]]
    forbidden: Collection[tuple[str, str]]


class _Attributes(msgspec.Struct):
    verb: str = ""
    resource: str = ""
    subresource: str = ""


class _Url(msgspec.Struct):
    path: str = ""
    verb: str = ""


class _Spec(msgspec.Struct):
    attributes: _Attributes | None = msgspec.field(name="resourceAttributes", default=None)
    url: _Url | None = msgspec.field(name="nonResourceAttributes", default=None)
    user: str = ""
    groups: list[str] | None = None
    token: str = ""
    audiences: list[str] | None = None


class _Review(msgspec.Struct):
    spec: _Spec


def kind_at(path: str) -> Resource | None:
    """Which kind of review is created by a POST to ``path``."""
    return _BY_PATH.get(path)


def answer(kind: Resource, body: bytes, known: Known) -> dict[str, Any]:
    """The review with its status; ApiError 400 for a body that is none."""
    try:
        spec = msgspec.json.decode(body, type=_Review).spec
    except msgspec.DecodeError as error:
        raise refusals.bad_request(str(error)) from None
    if kind is _TOKEN_REVIEWS:
        found = _whose(spec, known)
    elif kind is _ACCESS_REVIEWS:
        found = {"allowed": _may(spec, known)}
    else:
        asked = spec.attributes or _Attributes()
        subject = f"{asked.resource}/{asked.subresource}".rstrip("/")
        found = {"allowed": (asked.verb, subject) not in known.forbidden}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {},
        "spec": msgspec.json.decode(body).get("spec"),
        "status": found,
    }


def _whose(spec: _Spec, known: Known) -> dict[str, Any]:
    person = known.people.get(spec.token)
    asked = spec.audiences or [API_AUDIENCE]
    fitting = [audience for audience in asked if person and audience in person.audiences]
    if person is None or not fitting:
        return {"user": {}, "error": "[invalid bearer token]"}
    groups = [*person.groups, "system:authenticated"]
    user = {"username": person.name, "uid": f"uid-of-{person.name}", "groups": groups}
    return {"authenticated": True, "user": user, "audiences": fitting}


def _may(spec: _Spec, known: Known) -> bool:
    if spec.url is None or spec.url.verb != "get":
        return False
    return any(
        subject in (spec.user, *(spec.groups or ()))
        and (
            spec.url.path == path
            or (path.endswith("*") and spec.url.path.startswith(path.rstrip("*")))
        )
        for subject, path in known.readable
    )
