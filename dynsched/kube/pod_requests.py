"""Decodes the needed fields of a pod, and computes its requests as the scheduler does."""

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
"""Selects the pods that have a node and have not ended. Their requests count on that node."""

_quantity = lru_cache(maxsize=4096)(quantity)


class Annotations(msgspec.Struct, gc=False):
    """The annotations of a pod that are decoded."""

    order: str | None = msgspec.field(name=ORDER_ANNOTATION, default=None)


class PodMeta(ObjectMeta, gc=False):
    """The metadata of a pod that is decoded."""

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
        """Whether this init container keeps running alongside the main containers."""
        return self.restarts == "Always"


class PodSpec(msgspec.Struct, gc=False):
    """A pod's node, and the fields that determine its requests."""

    node: str = msgspec.field(name="nodeName", default="")
    containers: list[_Container] | None = None
    init: list[_Container] | None = msgspec.field(name="initContainers", default=None)
    resources: _Resources | None = None
    overhead: Amounts | None = None


class _Resized(msgspec.Struct, gc=False):
    """The resources that a pod or container has; they differ from its spec during a resize."""

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
    """The states of a pod's containers, and the resources that it has."""

    containers: list[_ContainerStatus] | None = msgspec.field(
        name="containerStatuses", default=None
    )
    init: list[_ContainerStatus] | None = msgspec.field(name="initContainerStatuses", default=None)
    conditions: list[_Condition] | None = None

    @property
    def all_containers(self) -> list[_ContainerStatus]:
        """The statuses of main and init containers."""
        return [*(self.containers or ()), *(self.init or ())]

    @property
    def has_run(self) -> bool:
        """Whether any container has started. One that could not start reports a start in 1970."""
        return any(
            run is not None and (run.started or "") > _EPOCH
            for each in self.all_containers
            for run in (each.state.running, each.state.terminated, each.before.terminated)
        )


def requests_of(
    spec: PodSpec, status: PodStatus, *, least: tuple[float, float] = (MIN_CPU, MIN_MEMORY)
) -> tuple[float, float]:
    """A pod's requests in cores and bytes. ``least`` counts for a container without a request: a
    small amount if the scheduler scores nodes, and 0 if it checks whether a pod fits.
    """
    cpu = _requested("cpu", spec, status, least[0])
    memory = _requested("memory", spec, status, least[1])
    return min(cpu, _MAX_CPU), min(memory, _MAX_MEMORY)


def limits_of(spec: PodSpec) -> tuple[float, float]:
    """A pod's limits in cores and bytes; a container without a limit counts 0."""
    return min(_limited("cpu", spec), _MAX_CPU), min(_limited("memory", spec), _MAX_MEMORY)


def _limited(resource: str, spec: PodSpec) -> float:
    def limit(resources: _Resources | None) -> float | None:
        return _amount(resources.limits if resources else None, resource)

    of_pod = limit(spec.resources)
    if of_pod is not None:
        return of_pod
    main = [limit(each.resources) for each in spec.containers or ()]
    return _peak(spec, main, [limit(each.resources) for each in spec.init or ()], 0.0)


def _requested(resource: str, spec: PodSpec, status: PodStatus, least: float) -> float:
    """A pod's request of one resource. ``least`` counts for a container without a request."""
    states = {each.name: each for each in status.all_containers}
    is_infeasible = any((each.type, each.reason) == _INFEASIBLE for each in status.conditions or ())

    def request(resources: _Resources | None) -> float | None:
        return _amount(resources.requests if resources else None, resource)

    def effective(resources: _Resources | None, state: _Resized | None) -> float | None:
        """During a resize, the largest of the desired, allocated and actual amounts counts, except
        for a desired amount that is infeasible on the node.
        """
        desired = request(resources)
        if state is None or state.resources is None:
            return desired
        actual, allocated = request(state.resources), _amount(state.allocated, resource)
        amounts = (None if is_infeasible else desired, actual, allocated)
        return max((each for each in amounts if each is not None), default=None)

    main = [effective(each.resources, states.get(each.name)) for each in spec.containers or ()]
    init = [
        effective(each.resources, states.get(each.name) if each.is_sidecar else None)
        for each in spec.init or ()
    ]
    of_pod, overhead = request(spec.resources), _amount(spec.overhead, resource)
    is_known = any(each is not None for each in (*main, *init, of_pod, overhead))
    whole = spec.resources.requests if spec.resources else None
    if is_known and whole and (whole.cpu is not None or whole.memory is not None):
        least = 0.0
    total = effective(spec.resources, status)
    if of_pod is None:
        total = _peak(spec, main, init, least)
    return (total or 0.0) + (overhead or 0.0)


def _peak(spec: PodSpec, main: list[float | None], init: list[float | None], least: float) -> float:
    """The largest sum of amounts at one time. Init containers run one after the other before the
    main ones; a sidecar runs alongside all that come after it. ``least`` counts for a container
    without an amount.
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
