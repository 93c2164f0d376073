"""What is read of a pod's JSON, and what it requests, as the scheduler counts it."""

from __future__ import annotations

from functools import lru_cache
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

    @property
    def is_sidecar(self) -> bool:
        """Whether an init container goes on running alongside the main ones."""
        return self.restarts == "Always"


class PodSpec(msgspec.Struct, gc=False):
    """Where a pod is, and what decides how much it requests."""

    node: str = msgspec.field(name="nodeName", default="")
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
    cpu = _requested("cpu", spec, status, least[0])
    memory = _requested("memory", spec, status, least[1])
    return min(cpu, _MAX_CPU), min(memory, _MAX_MEMORY)


def limits_of(spec: PodSpec) -> tuple[float, float]:
    """Cores and bytes; what has no limit counts 0."""
    return min(_limited("cpu", spec), _MAX_CPU), min(_limited("memory", spec), _MAX_MEMORY)


def _limited(resource: str, spec: PodSpec) -> float:
    def limit(resources: _Resources | None) -> float | None:
        return _amount(resources.limits if resources else None, resource)

    of_pod = limit(spec.resources)
    if of_pod is not None:
        return of_pod
    main = [limit(each.resources) for each in spec.containers or ()]
    return _at_its_most(spec, main, [limit(each.resources) for each in spec.init or ()], 0.0)


def _requested(resource: str, spec: PodSpec, status: PodStatus, least: float) -> float:
    """One resource; ``least`` is what counts for a container without a request."""
    states = {each.name: each for each in status.all_containers}
    is_infeasible = any((each.type, each.reason) == _INFEASIBLE for each in status.conditions or ())

    def request(resources: _Resources | None) -> float | None:
        return _amount(resources.requests if resources else None, resource)

    def held(resources: _Resources | None, state: _Resized | None) -> float | None:
        """While a pod is resized, the largest of what is wanted, allocated and in force counts; a
        wish that its node can never fulfil does not.
        """
        wanted = request(resources)
        if state is None or state.resources is None:
            return wanted
        in_force, allocated = request(state.resources), _amount(state.allocated, resource)
        amounts = (None if is_infeasible else wanted, in_force, allocated)
        return max((each for each in amounts if each is not None), default=None)

    main = [held(each.resources, states.get(each.name)) for each in spec.containers or ()]
    init = [
        held(each.resources, states.get(each.name) if each.is_sidecar else None)
        for each in spec.init or ()
    ]
    of_pod, overhead = request(spec.resources), _amount(spec.overhead, resource)
    is_known = any(each is not None for each in (*main, *init, of_pod, overhead))
    whole = spec.resources.requests if spec.resources else None
    if is_known and whole and (whole.cpu is not None or whole.memory is not None):
        least = 0.0
    total = held(spec.resources, status)
    if of_pod is None:
        total = _at_its_most(spec, main, init, least)
    return (total or 0.0) + (overhead or 0.0)


def _at_its_most(
    spec: PodSpec, main: list[float | None], init: list[float | None], least: float
) -> float:
    """Init containers run one after the other before the main ones; a sidecar runs alongside all
    that come after it. ``least`` counts for a container of which nothing is known.
    """
    sidecars = most = 0.0
    for container, amount in zip(spec.init or (), init, strict=True):
        need = least if amount is None else amount
        most = max(most, sidecars + need)
        if container.is_sidecar:
            sidecars += need
    return max(most, sidecars + sum(least if each is None else each for each in main))


def _amount(amounts: Amounts | None, resource: str) -> float | None:
    value = getattr(amounts, resource, None)
    return None if value is None else _quantity(value)
