"""Faults on order: what a test makes the server do wrong.

    server.faults.answer(503, verb="patch", resource="nodes", times=2, retry_after=1)
    server.faults.delay(0.5, verb="list")
    server.faults.reset(verb="patch", name="node-3", after=True)

Each call arms one fault and returns it; it hits every request that matches all that was named,
``times`` times (for ever by default), until ``remove()`` or ``faults.clear()``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from dynsched.sim.apiserver.record import RequestRecord
from dynsched.sim.apiserver.status import ApiError

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Kind(Enum):
    """What a fault does."""

    ANSWER = "answer"
    DELAY = "delay"
    RESET = "reset"


@dataclass(slots=True, eq=False)
class Fault:
    """One armed fault. ``hits`` counts what it struck."""

    kind: Kind
    matches: Callable[[RequestRecord], bool]
    left: int | None
    status: int = 0
    body: Any = None
    retry_after: int | None = None
    seconds: float = 0.0
    after: bool = False
    hits: int = 0
    _armed: list[Fault] = field(default_factory=list)

    def remove(self) -> None:
        """Disarm it; twice does no harm."""
        if self in self._armed:
            self._armed.remove(self)

    def strike(self) -> None:
        """Count a hit; the last of ``times`` disarms."""
        self.hits += 1
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.remove()


class Faults:
    """The faults of one server. With nothing armed it is a server without faults."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []

    def answer(
        self,
        status: int,
        *,
        message: str = "",
        body: str | None = None,
        retry_after: int | None = None,
        after: bool = False,
        times: int | None = None,
        **match: str,
    ) -> Fault:
        """Answer with ``status``: a Status object, or ``body`` as it is (an HTML page, say).

        ``after``: do what was asked first, and then answer so.
        ``match``: verb, resource, namespace, name, subresource, method, path; exact.
        """
        told = message or f"injected fault {status}"
        refusal = ApiError(status, _REASONS.get(status, ""), told)
        return self._arm(
            Kind.ANSWER,
            match,
            times,
            status=status,
            body=refusal.body if body is None else body,
            retry_after=retry_after,
            after=after,
        )

    def delay(self, seconds: float, *, times: int | None = None, **match: str) -> Fault:
        """Wait before doing what was asked."""
        return self._arm(Kind.DELAY, match, times, seconds=seconds)

    def reset(self, *, after: bool = False, times: int | None = None, **match: str) -> Fault:
        """Cut the connection, before doing what was asked, or ``after`` it without an answer."""
        return self._arm(Kind.RESET, match, times, after=after)

    def clear(self) -> None:
        """Disarm all."""
        self._armed.clear()

    def struck(self, record: RequestRecord) -> list[Fault]:
        """The faults that hit this request, in the order in which they were armed."""
        hit = [fault for fault in tuple(self._armed) if fault.matches(record)]
        for fault in hit:
            fault.strike()
        return hit

    def _arm(self, kind: Kind, match: dict[str, str], times: int | None, **how: Any) -> Fault:
        unknown = match.keys() - _MATCHABLE
        if unknown:
            raise TypeError(f"a fault cannot match on {', '.join(sorted(unknown))}")

        def matches(record: RequestRecord) -> bool:
            return all(getattr(record, key) == value for key, value in match.items())

        fault = Fault(kind, matches, times, _armed=self._armed, **how)
        self._armed.append(fault)
        return fault


_MATCHABLE: Final = frozenset(
    {"verb", "resource", "namespace", "name", "subresource", "method", "path"}
)
