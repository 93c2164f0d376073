"""SelfSubjectAccessReview: what the caller may do, by what the server is told to forbid."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from dynsched.sim.apiserver import status

PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _Attributes(msgspec.Struct):
    verb: str = ""
    resource: str = ""
    subresource: str = ""


class _Spec(msgspec.Struct):
    attributes: _Attributes | None = msgspec.field(name="resourceAttributes", default=None)


class _Review(msgspec.Struct):
    spec: _Spec


def answer(body: bytes, forbidden: Collection[tuple[str, str]]) -> dict[str, Any]:
    """The review with its status; ApiError 400 for a body that is none."""
    try:
        asked = msgspec.json.decode(body, type=_Review).spec.attributes or _Attributes()
    except msgspec.DecodeError as error:
        raise status.bad_request(str(error)) from None
    subject = f"{asked.resource}/{asked.subresource}".rstrip("/")
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": msgspec.json.decode(body).get("spec"),
        "status": {"allowed": (asked.verb, subject) not in forbidden},
    }
