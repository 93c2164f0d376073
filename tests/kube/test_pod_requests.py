"""Requests of pods, compared with the results of kube-scheduler's own code."""

import json
from pathlib import Path
from typing import Final

import msgspec
import pytest

from dynsched.kube.pod_requests import PodSpec, PodStatus, requests_of

SCHEDULER: Final = json.loads(Path(__file__).with_name("pod_requests.json").read_bytes())
"""Random pods with sidecars, overhead, pod-level requests and in-place resizes. For each, the
result of Kubernetes 1.37's ``resourcehelper.PodRequests`` in thousandths of a core and in bytes,
with the default requests that kube-scheduler uses for its scores.
"""


@pytest.mark.parametrize(("pod", "cpu", "memory"), SCHEDULER)
def test_the_requests_of_a_pod_equal_those_that_kube_scheduler_counts(pod, cpu, memory) -> None:
    spec = msgspec.convert(pod["spec"], PodSpec)
    status = msgspec.convert(pod["status"], PodStatus)
    assert requests_of(spec, status) == pytest.approx((cpu / 1000, memory), abs=1e-9)
