"""Reviews: whose a token is, and what somebody may do, by what the server is told.

Three kinds: TokenReview, SubjectAccessReview (of non-resource URLs alone) and
SelfSubjectAccessReview.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import msgspec

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
    name: str
    groups: tuple[str, ...] = ()
    audiences: tuple[str, ...] = (API_AUDIENCE,)


def kind_at(path: str) -> Resource | None:
    return _BY_PATH.get(path)


def answer(
    kind: Resource,
    body: bytes,
    people: Mapping[str, Person],
    readable: Collection[tuple[str, str]],
    forbidden: Collection[tuple[str, str]],
) -> dict[str, Any]:
    """``people`` by token; ``readable``: pairs of a user or a group and a non-resource URL, which
    may end in ``*``; ``forbidden``: as of ApiServer.
    """
    spec = msgspec.json.decode(body)["spec"]
    if kind is _TOKEN_REVIEWS:
        found = _whose(spec, people)
    elif kind is _ACCESS_REVIEWS:
        subjects, path = {spec["user"], *spec["groups"]}, spec["nonResourceAttributes"]["path"]
        urls = [url for subject, url in readable if subject in subjects]
        found = {"allowed": any(fnmatchcase(path, url) for url in urls)}
    else:
        asked = spec["resourceAttributes"]
        subject = f"{asked['resource']}/{asked.get('subresource', '')}".rstrip("/")
        found = {"allowed": (asked["verb"], subject) not in forbidden}
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
    return {**head, "spec": spec, "status": found}


def _whose(spec: Mapping[str, Any], people: Mapping[str, Person]) -> dict[str, Any]:
    person = people.get(spec["token"])
    asked = spec.get("audiences") or [API_AUDIENCE]
    fitting = [audience for audience in asked if person and audience in person.audiences]
    if person is None or not fitting:
        return {"user": {}, "error": "[invalid bearer token]"}
    groups = [*person.groups, "system:authenticated"]
    user = {"username": person.name, "uid": f"uid-of-{person.name}", "groups": groups}
    return {"authenticated": True, "user": user, "audiences": fitting}
