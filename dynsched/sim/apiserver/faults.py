"""Faults on order: what a test makes the server do wrong.

    server.faults.answer(503, verb="patch", resource="nodes", times=2, retry_after=1)
    server.faults.delay(0.5, verb="list")
    server.faults.reset(verb="patch", name="node-3", after=True)

Each call arms one fault and returns it; it hits every request that matches all that was named,
``times`` times (for ever by default), until ``remove()`` or ``faults.clear()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dynsched.sim.apiserver.record import RequestRecord
from dynsched.sim.apiserver.refusals import ApiError

_REASONS: Final = {
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
_MATCHABLE: Final = frozenset({"verb", "resource", "name", "subresource", "path"})


@dataclass(slots=True, eq=False)
class Fault:
    """One armed fault: an answer by ``status``, a delay of ``seconds``, or else a reset.

    ``hits`` counts what it struck; ``left`` is how often it strikes still, None for ever.
    """

    match: Mapping[str, str]
    left: int | None
    status: int = 0
    body: Any = None
    retry_after: int | None = None
    seconds: float | None = None
    after: bool = False
    hits: int = 0
    _armed: list[Fault] = field(default_factory=list)

    def remove(self) -> None:
        """Disarm it; twice does no harm."""
        if self in self._armed:
            self._armed.remove(self)

    def strikes(self, record: RequestRecord) -> bool:
        """Whether it hits this request, which is counted; the last of ``times`` disarms it."""
        if any(getattr(record, key) != value for key, value in self.match.items()):
            return False
        self.hits += 1
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.remove()
        return True


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
        ``match``: verb, resource, name, subresource, path; exact.
        """
        told = message or f"injected fault {status}"
        refusal = ApiError(status, _REASONS.get(status, ""), told).body
        how = {"body": refusal if body is None else body, "retry_after": retry_after}
        return self._arm(match, times, status=status, after=after, **how)

    def delay(self, seconds: float, *, times: int | None = None, **match: str) -> Fault:
        """Wait before doing what was asked."""
        return self._arm(match, times, seconds=seconds)

    def reset(self, *, after: bool = False, times: int | None = None, **match: str) -> Fault:
        """Cut the connection, before doing what was asked, or ``after`` it without an answer."""
        return self._arm(match, times, after=after)

    def clear(self) -> None:
        self._armed.clear()

    def struck(self, record: RequestRecord) -> list[Fault]:
        """The faults that hit this request, in the order in which they were armed."""
        return [fault for fault in tuple(self._armed) if fault.strikes(record)]

    def _arm(self, match: dict[str, str], times: int | None, **how: Any) -> Fault:
        unknown = match.keys() - _MATCHABLE
        if unknown:
            raise TypeError(f"a fault cannot match on {', '.join(sorted(unknown))}")
        fault = Fault(match, times, _armed=self._armed, **how)
        self._armed.append(fault)
        return fault
