"""What pods request, compared with what the scheduler's own code says of the same pods."""

import json
from pathlib import Path
from typing import Final

import msgspec
import pytest

from dynsched.kube.pod_requests import PodSpec, PodStatus, requests_of

SCHEDULER: Final = json.loads(Path(__file__).with_name("pod_requests.json").read_bytes())
"""Random pods with sidecars, overhead, requests of the pod and resizes in place; of each, what
Kubernetes 1.37's ``resourcehelper.PodRequests`` came to, in thousandths of a core and in bytes,
with the defaults that the scheduler gives for its scores.
"""


@pytest.mark.parametrize(("pod", "cpu", "memory"), SCHEDULER)
def test_a_pod_requests_what_the_scheduler_counts(pod, cpu, memory) -> None:
    spec = msgspec.convert(pod["spec"], PodSpec)
    status = msgspec.convert(pod["status"], PodStatus)
    assert requests_of(spec, status) == pytest.approx((cpu / 1000, memory), abs=1e-9)
