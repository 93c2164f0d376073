"""The workload of a pod, derived from its name, and the error of pods' requests."""

from dataclasses import replace

import pytest
from pod_names import PODS

from dynsched.core.load.pods import BoundPod, PodUse, error_of_requests, workload_of


@pytest.mark.parametrize(("pod", "workload"), PODS.items())
def test_the_workload_is_derived_from_the_name_of_the_pod(pod: str, workload: str) -> None:
    assert workload_of("shop", pod) == f"shop/{workload}"


@pytest.mark.parametrize(
    ("uses", "cores", "error"),
    [
        ([0.5 * request for request in range(1, 31)], range(1, 31), 0.0),
        ([0.5, 1.5] * 15, [1.0] * 30, 50.0),
        ([1.0] * 19, [1.0] * 19, None),  # too few
        ([0.0] * 30, [1.0] * 30, None),
    ],
)
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_the_error_of_requests(uses, cores, error, resource) -> None:
    pods = [
        replace(BoundPod(f"{at}", "a", name=f"d/p-{at}"), **{resource: float(request)})
        for at, request in enumerate(cores)
    ]
    of_pod = {pod.name: use for pod, use in zip(pods, uses, strict=True)}
    found = error_of_requests(PodUse(resource, of_pod=of_pod), [*pods, BoundPod("new", "a")])
    assert found == (error if error is None else pytest.approx(error))
