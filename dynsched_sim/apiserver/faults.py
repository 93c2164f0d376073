"""Injects faults into the simulated API server.

    server.faults.answer(503, verb="patch", resource="nodes", times=2, retry_after=1)
    server.faults.delay(0.5, verb="list")
    server.faults.reset(verb="patch", name="node-3", after=True)

Each call arms one fault and returns it. The fault hits every request that matches all the given
attributes (verb, resource, name, subresource), ``times`` times (unlimited by default) or until
``remove()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from dynsched_sim.apiserver.api_errors import ApiError
from dynsched_sim.apiserver.record import RequestRecord


@dataclass(slots=True, eq=False)
class Fault:
    """One armed fault: a response with ``status``, a delay of ``seconds``, or else a reset.

    ``hits`` counts the requests that were hit; ``left`` is the number still to hit, None if
    unlimited.
    """

    match: Mapping[str, str]
    left: int | None
    status: int = 0
    body: Any = None
    retry_after: int | None = None
    seconds: float | None = None
    after: bool = False
    hits: int = 0

    def remove(self) -> None:
        self.left = 0

    def strikes(self, record: RequestRecord) -> bool:
        if self.left == 0 or any(getattr(record, k) != v for k, v in self.match.items()):
            return False
        self.hits += 1
        if self.left is not None:
            self.left -= 1
        return True


class Faults:
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
        """Respond with a Status object, or with ``body`` verbatim; ``after``: as in `reset`."""
        reason = HTTPStatus(status).phrase.replace(" ", "")
        refusal = ApiError(status, reason, message or f"injected fault {status}").body
        answer = refusal if body is None else body
        return self._arm(Fault(match, times, status, answer, retry_after, after=after))

    def delay(self, seconds: float, *, times: int | None = None, **match: str) -> Fault:
        return self._arm(Fault(match, times, seconds=seconds))

    def reset(self, *, after: bool = False, times: int | None = None, **match: str) -> Fault:
        """Cut the connection before the request is served or, with ``after``, once it is served."""
        return self._arm(Fault(match, times, after=after))

    def struck(self, record: RequestRecord) -> list[Fault]:
        hit = [fault for fault in self._armed if fault.strikes(record)]
        self._armed = [fault for fault in self._armed if fault.left != 0]
        return hit

    def _arm(self, fault: Fault) -> Fault:
        self._armed.append(fault)
        return fault
