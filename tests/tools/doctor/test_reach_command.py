"""`dynsched reach` on a cluster: pods in pages, and what is printed."""

import asyncio
import json
from typing import Any

import pytest
import yaml
from pods_support import create

from dynsched.kube import lists
from dynsched.kube.inspection import PodShape
from dynsched.tools.doctor import avoiders
from dynsched.util.errors import ConflictError

AVOIDING = yaml.safe_load("""
nodeAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 50
      preference: {matchExpressions: [{key: status, operator: NotIn, values: [presure]}]}
""")
POD = """
apiVersion: v1
kind: Pod
metadata:
  ownerReferences:
    - {apiVersion: apps/v1, uid: 3b7a0e6e-0000-4000-8000-000000000000, controller: true}
spec:
  nodeName: worker-1
  automountServiceAccountToken: false
  containers:
    - name: main
      image: registry.example.com/x
      resources: {requests: {cpu: 250m, memory: 1Gi}}
"""


def pod(name: str, kind: str, of: str, **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(POD)
    made["metadata"]["name"] = name
    made["metadata"]["ownerReferences"][0].update(kind=kind, name=of)
    made["spec"].update(spec)
    return made


@pytest.fixture
def reach(call, cluster, tmp_path) -> Any:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: cpu, expr: up, threshold: 1}]")
    asked = ("reach", "--kubeconfig", cluster.kubeconfig, "-r", rules)

    async def run(*more: str) -> str:
        code, told, _ = await asyncio.to_thread(call, *asked, *more)
        assert code == 0
        return str(told)

    return run


@pytest.fixture
async def with_pods(cluster, monkeypatch) -> Any:
    monkeypatch.setattr(lists, "PAGE", 2)
    waiting = pod("waits", "StatefulSet", "db")
    del waiting["spec"]["nodeName"]
    for body in (
        *(pod(f"db-{number}", "StatefulSet", "db") for number in range(2)),
        *(pod(f"api-{number}", "StatefulSet", "api", affinity=AVOIDING) for number in range(3)),
        pod("agent-1", "DaemonSet", "agent"),
        waiting,
    ):
        await create(cluster, body)
    return cluster


async def test_pods_come_in_pages_and_are_counted_by_workload(with_pods, reach) -> None:
    told = json.loads(await reach("-o", "json"))
    assert (told["pods"], told["reacting"]) == (5, 3)
    assert told["requests"] == {"cpu": 1.25, "memory": 5 * 2**30}
    assert told["left_out"] == {"pods of DaemonSets": 1}
    worst, best = told["workloads"]
    assert (worst["namespace"], worst["workload"]) == ("default", "db")
    assert (worst["pods"], worst["reacting"]) == (2, 0)
    assert worst["patch"].startswith("kubectl -n default patch statefulset db --type merge")
    assert best["patch"] is None
    assert best["by"] == {"soft affinity": 3}

    text = await reach()
    assert "3 of 5 running pods react to the mark (label status=presure): 60 %" in text
    assert "statefulset/db" in text
    assert "kubectl -n default patch statefulset db" in text


async def test_the_verb_goes_with_one_pod(cluster, reach) -> None:
    await create(cluster, pod("db-0", "StatefulSet", "db"))
    assert "0 of 1 running pod reacts to" in await reach()


async def test_a_cluster_that_refuses_is_one_line(sim, tmp_path, call) -> None:
    sim.server.forbidden = {("list", "pods")}
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: cpu, expr: up, threshold: 1}]")
    asked = ("reach", "--kubeconfig", sim.kubeconfig, "-r", rules)
    code, _, errors = await asyncio.to_thread(call, *asked)
    (line,) = errors.splitlines()
    assert (code, "may not list pods" in line) == (1, True)


async def test_a_list_that_expires_is_begun_once_more(with_pods, reach, monkeypatch) -> None:
    whole, times = avoiders.fold_pods, []

    async def expires(api, take) -> int:
        times.append(1)
        if len(times) == 1:
            take([PodShape("default", "seen-twice")])
            raise ConflictError("the list's snapshot expired between two pages")
        return await whole(api, take)

    monkeypatch.setattr(avoiders, "fold_pods", expires)
    told = json.loads(await reach("-o", "json"))
    assert (told["pods"], len(times)) == (5, 2)
