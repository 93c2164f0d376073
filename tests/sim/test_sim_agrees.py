"""The same random patches to a real API server and to the simulated one: both answer the same.

Examples are made from fixed seeds, so that a difference, once found, is found again.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster import MERGE, NODES, STRATEGIC, Answer, Cluster, EnvtestCluster, SimCluster
from envtest import Envtest

KEYS = ["a", "b", "status", "example.com/x", "no good", "x/y/z", "/", ""]
VALUES: list[Any] = ["1", "presure", "", "no good", None, 5, True, ["x"], {"y": "z"}]
EFFECTS: list[Any] = ["NoSchedule", "PreferNoSchedule", "NoExecute", "Soft", "", None, 1]
CONDITIONS = ["Ready", "DiskPressure", "Extra"]


class Patches:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self) -> tuple[str, str, Any]:
        """A path below the node, a media type, a patch."""
        kind = self.random.choice([MERGE, MERGE, STRATEGIC])
        path = self.random.choice(["", "", "/status"])
        parts: dict[str, Callable[[], Any]] = {"metadata": self.metadata, "spec": self.spec}
        if kind == MERGE:
            parts["status"] = self.status
        chosen = self.random.sample(sorted(parts), self.random.randint(1, len(parts)))
        return path, kind, {name: parts[name]() for name in chosen}

    def mostly(self, good: list[Any], all_of_them: list[Any]) -> Any:
        return self.random.choice(good if self.random.random() < 0.85 else all_of_them)

    def strings(self) -> dict[str, Any]:
        count = self.random.randint(0, 3)
        keys = [self.mostly(KEYS[:4], KEYS) for _ in range(count)]
        return {key: self.mostly([*VALUES[:3], None], VALUES) for key in keys}

    def metadata(self) -> dict[str, Any]:
        meta: dict[str, Any] = {}
        for name in self.random.sample(["labels", "annotations"], self.random.randint(0, 2)):
            meta[name] = self.mostly([self.strings()], [None, self.strings()])
        if self.random.random() < 0.1:
            meta["finalizers"] = None
        return meta

    def taint(self) -> Any:
        taint = {"key": self.mostly(KEYS[:4], KEYS)}
        if self.random.random() < 0.5:
            taint["value"] = self.mostly(VALUES[:3], VALUES[:5])
        taint["effect"] = self.mostly(EFFECTS[:3], EFFECTS)
        return taint

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        if self.random.random() < 0.7:
            taints = [self.taint() for _ in range(self.random.randint(0, 3))]
            spec["taints"] = self.mostly([taints], [None, {}, taints])
        if self.random.random() < 0.3:
            spec["unschedulable"] = self.mostly([True, False, None], ["x", 1])
        if self.random.random() < 0.1:
            spec["bogus"] = 1
        return spec

    def status(self) -> dict[str, Any]:
        conditions = [
            {"type": name, "status": self.mostly(["True", "False"], ["Unknown", ""])}
            for name in self.random.sample(CONDITIONS, self.random.randint(0, 3))
        ]
        return {"conditions": conditions}


def essence(answer: Answer) -> Any:
    """An answer without what must differ: times, uids, versions and the wording of a refusal; of a
    node's status, which dynsched only reads, the conditions.
    """
    body = answer.body
    if body["kind"] == "Status":
        causes = body.get("details", {}).get("causes", [])
        return answer.status, body.get("reason"), sorted({cause["field"] for cause in causes})
    meta = body["metadata"]
    for system in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        meta.pop(system, None)
    conditions = [(each["type"], each["status"]) for each in body["status"].get("conditions", [])]
    return answer.status, meta, body["spec"], conditions


def node() -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "labels": {"a": "1"}},
        "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": c, "status": "True"} for c in CONDITIONS[:2]]},
    }


async def answers(cluster: Cluster, seed: int) -> list[Any]:
    """One node, and a row of patches to it; also whether each changed the version."""
    patches = Patches(seed)
    version = (await cluster.create_node(node()))["metadata"]["resourceVersion"]
    found = []
    for _ in range(25):
        path, kind, patch = patches.one()
        answer = await cluster.patch(f"{NODES}/n{path}", patch, kind)
        new = answer.body["metadata"].get("resourceVersion", version)
        found.append((path, kind, patch, essence(answer), new != version))
        version = new
    await cluster.delete_node("n")
    return found


@pytest.mark.parametrize("seed", range(8))
async def test_both_answer_the_same(envtest: Envtest, tmp_path: Path, seed: int) -> None:
    async with EnvtestCluster(envtest, tmp_path) as real, SimCluster(tmp_path) as simulated:
        expected, actual = await answers(real, seed), await answers(simulated, seed)
    for one, other in zip(actual, expected, strict=True):
        assert one == other
