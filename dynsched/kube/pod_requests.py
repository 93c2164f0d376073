"""What a pod requests, as the scheduler counts it, from the JSON of its specification."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import msgspec

from dynsched.core.pods import MIN_CPU, MIN_MEMORY
from dynsched.kube.projection import quantity

_MAX_CPU: Final = 1e6
_MAX_MEMORY: Final = 1e18

RUNNING: Final = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
"""Of a list of pods: those that have a node and have not ended, whose requests count there."""

Amount = str | int | float | None


class _Requests(msgspec.Struct, gc=False):
    cpu: Amount = None
    memory: Amount = None


class _Resources(msgspec.Struct, gc=False):
    requests: _Requests | None = None


class _Container(msgspec.Struct, gc=False):
    resources: _Resources | None = None


class PodSpec(msgspec.Struct, gc=False):
    """The part of a specification that says what the pod requests."""

    containers: list[_Container] | None = None
    init: list[_Container] | None = msgspec.field(name="initContainers", default=None)
    resources: _Resources | None = None


def requests_of(spec: PodSpec) -> tuple[float, float]:
    """Cores and bytes. A container without a request counts a little; init containers run before
    the others, so the larger need of the two counts.
    """
    of_pod = spec.resources.requests if spec.resources and spec.resources.requests else _Requests()
    cpu, memory = (
        max(sum(main), *starting, 0.0)
        for main, starting in (
            (_amounts(spec.containers, cpu=True), _amounts(spec.init, cpu=True)),
            (_amounts(spec.containers, cpu=False), _amounts(spec.init, cpu=False)),
        )
    )
    return _amount(of_pod.cpu, cpu, _MAX_CPU), _amount(of_pod.memory, memory, _MAX_MEMORY)


def _amounts(containers: list[_Container] | None, *, cpu: bool) -> list[float]:
    least, most = (MIN_CPU, _MAX_CPU) if cpu else (MIN_MEMORY, _MAX_MEMORY)
    found = []
    for container in containers or ():
        requests = container.resources and container.resources.requests
        value = None if not requests else requests.cpu if cpu else requests.memory
        found.append(_amount(value, least, most))
    return found


def _amount(value: Amount, default: float, most: float) -> float:
    number = None if value is None else _quantity(value)
    return default if number is None else min(number, most)


@lru_cache(maxsize=4096)
def _quantity(value: str | float) -> float | None:
    number = quantity(value)
    return number if number is not None and math.isfinite(number) else None
