"""Users of tokens and permissions on paths, for a simulated API server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from dynsched_sim.apiserver.api_server import Review

API_AUDIENCE = "https://kubernetes.default.svc"
"""The audience of a token for the API server itself."""
_GROUPS = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]


@dataclass(frozen=True)
class SimReaders:
    tokens: dict[str, tuple[str, Sequence[str]]] = field(default_factory=dict)
    """User name and audiences, by token."""
    paths: dict[str, list[str]] = field(default_factory=dict)
    """Permitted paths, by user; a path may end in ``*``."""

    def reviews(self) -> dict[str, Review]:
        return {
            "/apis/authentication.k8s.io/v1/tokenreviews": self._review_token,
            "/apis/authorization.k8s.io/v1/subjectaccessreviews": self._review_access,
        }

    def _review_token(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        name, audiences = self.tokens.get(spec["token"], ("", ()))
        fitting = [each for each in spec.get("audiences") or [API_AUDIENCE] if each in audiences]
        if not fitting:
            return {"user": {}, "error": "[invalid bearer token]"}
        user = {"username": name, "uid": f"uid-of-{name}", "groups": _GROUPS}
        return {"authenticated": True, "user": user, "audiences": fitting}

    def _review_access(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        path = spec["nonResourceAttributes"]["path"]
        return {"allowed": any(fnmatchcase(path, one) for one in self.paths.get(spec["user"], ()))}
