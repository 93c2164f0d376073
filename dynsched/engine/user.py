"""Who asks: the user that the API server has found for a bearer token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class User:
    """As Kubernetes knows them; RBAC looks at the name and the groups, a webhook perhaps at all."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
