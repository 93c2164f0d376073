"""The workload of a pod, by its name."""

import pytest
from pod_names import PODS

from dynsched.core.load.pods import workload_of


@pytest.mark.parametrize(("pod", "workload"), PODS.items())
def test_the_workload_is_what_all_pods_of_it_are_named_after(pod: str, workload: str) -> None:
    assert workload_of("shop", pod) == f"shop/{workload}"
