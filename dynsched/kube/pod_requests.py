"""What is read of a pod's JSON, and what it requests, as the scheduler counts it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Final

import msgspec

from dynsched.core.load.pods import MIN_CPU, MIN_MEMORY
from dynsched.kube.decode_node import Amounts, quantity
from dynsched.kube.lists import ObjectMeta
from dynsched.rules.keys import ORDER_ANNOTATION

_MAX_CPU: Final = 1e6
_MAX_MEMORY: Final = 1e18
_INFEASIBLE: Final = ("PodResizePending", "Infeasible")
_EPOCH: Final = "1971"

ASSIGNED_NOT_TERMINATED: Final = {
    "fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
}
"""Selects the pods that have a node and have not ended: their requests count there."""

_Get = Callable[[Amounts], str | int | float | None]
_quantity = lru_cache(maxsize=4096)(quantity)


class Annotations(msgspec.Struct, gc=False):
    """What is read of a pod's annotations."""

    order: str | None = msgspec.field(name=ORDER_ANNOTATION, default=None)


class PodMeta(ObjectMeta, gc=False):
    """What is read of a pod's metadata."""

    annotations: Annotations | None = None


class _Resources(msgspec.Struct, gc=False):
    requests: Amounts | None = None
    limits: Amounts | None = None


class _Container(msgspec.Struct, gc=False):
    name: str = ""
    resources: _Resources | None = None
    restarts: str | None = msgspec.field(name="restartPolicy", default=None)


class PodSpec(msgspec.Struct, gc=False):
    """What decides how much a pod requests."""

    containers: list[_Container] | None = None
    init: list[_Container] | None = msgspec.field(name="initContainers", default=None)
    resources: _Resources | None = None
    overhead: Amounts | None = None


class _Resized(msgspec.Struct, gc=False):
    """What a pod, or a container, holds: other than it requests while it is resized in place."""

    resources: _Resources | None = None
    allocated: Amounts | None = msgspec.field(name="allocatedResources", default=None)


class _Run(msgspec.Struct, gc=False, frozen=True):
    started: str | None = msgspec.field(name="startedAt", default=None)


class _State(msgspec.Struct, gc=False, frozen=True):
    running: _Run | None = None
    terminated: _Run | None = None


_NOT_YET: Final = _State()


class _ContainerStatus(_Resized, gc=False):
    name: str = ""
    state: _State = _NOT_YET
    before: _State = msgspec.field(name="lastState", default=_NOT_YET)


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    reason: str | None = None


class PodStatus(_Resized, gc=False):
    """What its containers do, and what they were given."""

    containers: list[_ContainerStatus] | None = msgspec.field(
        name="containerStatuses", default=None
    )
    init: list[_ContainerStatus] | None = msgspec.field(name="initContainerStatuses", default=None)
    conditions: list[_Condition] | None = None

    @property
    def all_containers(self) -> list[_ContainerStatus]:
        """Init containers too."""
        return [*(self.containers or ()), *(self.init or ())]

    @property
    def has_run(self) -> bool:
        """One that could not be started says that it was started in 1970."""
        return any(
            run is not None and (run.started or "") > _EPOCH
            for each in self.all_containers
            for run in (each.state.running, each.state.terminated, each.before.terminated)
        )


def requests_of(
    spec: PodSpec, status: PodStatus, *, least: tuple[float, float] = (MIN_CPU, MIN_MEMORY)
) -> tuple[float, float]:
    """Cores and bytes. ``least`` is what a container without a request counts: a little where the
    scheduler compares nodes, and nothing where it looks whether a pod has room.
    """
    cpu = _requested(attrgetter("cpu"), spec, status, least[0])
    memory = _requested(attrgetter("memory"), spec, status, least[1])
    return min(cpu, _MAX_CPU), min(memory, _MAX_MEMORY)


def limits_of(spec: PodSpec) -> tuple[float, float]:
    """Cores and bytes; what has no limit counts 0."""
    cpu, memory = (_limited(attrgetter(name), spec) for name in ("cpu", "memory"))
    return min(cpu, _MAX_CPU), min(memory, _MAX_MEMORY)


def _limited(get: _Get, spec: PodSpec) -> float:
    def limit(resources: _Resources | None) -> float | None:
        return _amount(get, resources.limits if resources else None)

    of_pod = limit(spec.resources)
    if of_pod is not None:
        return of_pod
    return _at_its_most(
        [limit(each.resources) or 0.0 for each in spec.containers or ()],
        [(limit(each.resources) or 0.0, each.restarts == "Always") for each in spec.init or ()],
    )


def _requested(get: _Get, spec: PodSpec, status: PodStatus, least: float) -> float:
    """One resource; ``least`` is what counts for a container without a request."""
    states = {each.name: each for each in status.all_containers}
    is_infeasible = any((each.type, each.reason) == _INFEASIBLE for each in status.conditions or ())

    def held(resources: _Resources | None, state: _Resized | None) -> float | None:
        """While a pod is resized, the largest of what is wanted, allocated and in force counts; a
        wish that its node can never fulfil does not.
        """
        wanted = _requested_amount(get, resources)
        if state is None or state.resources is None:
            return wanted
        in_force, allocated = _requested_amount(get, state.resources), _amount(get, state.allocated)
        amounts = (None if is_infeasible else wanted, in_force, allocated)
        return max((each for each in amounts if each is not None), default=None)

    main = [held(each.resources, states.get(each.name)) for each in spec.containers or ()]
    init = [
        (held(each.resources, states.get(each.name)), True)
        if each.restarts == "Always"
        else (_requested_amount(get, each.resources), False)
        for each in spec.init or ()
    ]
    of_pod, overhead = _requested_amount(get, spec.resources), _amount(get, spec.overhead)
    if _is_set(spec.resources) and any(
        each is not None for each in (*main, *(need for need, _ in init), of_pod, overhead)
    ):
        least = 0.0
    if of_pod is None:
        total = _at_its_most(
            [least if each is None else each for each in main],
            [(least if need is None else need, stays) for need, stays in init],
        )
    else:
        total = held(spec.resources, status) or 0.0
    return total + (overhead or 0.0)


def _at_its_most(main: list[float], init: list[tuple[float, bool]]) -> float:
    """Init containers run one after the other before the main ones; a sidecar, which is an init
    container that ``stays``, runs alongside all that come after it.
    """
    sidecars = most = 0.0
    for need, stays in init:
        most = max(most, sidecars + need)
        if stays:
            sidecars += need
    return max(most, sidecars + sum(main))


def _is_set(resources: _Resources | None) -> bool:
    requests = resources.requests if resources else None
    return requests is not None and (requests.cpu is not None or requests.memory is not None)


def _requested_amount(get: _Get, resources: _Resources | None) -> float | None:
    return _amount(get, resources.requests if resources else None)


def _amount(get: _Get, amounts: Amounts | None) -> float | None:
    value = None if amounts is None else get(amounts)
    return None if value is None else _quantity(value)
