"""Deletion costs that versions before 0.3.0 wrote to pods: `dynsched prune` removes them."""

from pathlib import Path

import pytest
from api_support import stranger
from cluster import Cluster, SimCluster
from pods_support import PODS, create, pod

from dynsched.controller.single_pass import prune
from dynsched.rules.keys import COST_ANNOTATION, DELETION_COST

OURS = {DELETION_COST: "-26", COST_ANNOTATION: "-26"}
THEIRS = {DELETION_COST: "7", "team": "pay"}
CHANGED = {DELETION_COST: "-9", COST_ANNOTATION: "-3"}
GIVEN = {"ours": {**OURS, "team": "pay"}, "theirs": THEIRS, "changed": CHANGED, "none": {}}
LEFT = {"ours": {"team": "pay"}, "theirs": THEIRS, "changed": {DELETION_COST: "-9"}, "none": {}}


async def put(cluster: Cluster) -> None:
    for name, annotations in GIVEN.items():
        body = pod(name, "n")
        body["metadata"]["annotations"] = annotations
        await create(cluster, body)


async def annotations(cluster: Cluster) -> dict[str, dict[str, str]]:
    pods = [each["metadata"] for each in (await cluster.get(PODS)).ok["items"]]
    return {each["name"]: each.get("annotations", {}) for each in pods}


async def test_a_cost_of_ours_goes_and_one_of_somebody_else_stays(cluster: Cluster) -> None:
    await put(cluster)
    for dry_run, after in ((True, GIVEN), (False, LEFT), (False, LEFT)):
        written = await prune(kubeconfig=cluster.kubeconfig, dry_run=dry_run)
        assert written is not None
        assert (written.failures, await annotations(cluster)) == ((), after)


@pytest.mark.parametrize("verb", ["list", "patch"])
async def test_without_the_right_they_are_left_and_nothing_has_failed(
    tmp_path: Path, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with SimCluster(tmp_path) as cluster:
        await put(cluster)
        stranger(cluster, tmp_path, {(verb, "pods")})
        written = await prune(kubeconfig=cluster.kubeconfig)
        assert written is not None
        assert written.failures == ()
        assert len([text for text in caplog.messages if "deletion costs" in text]) == 1
        cluster.server.forbidden.clear()
        assert await annotations(cluster) == GIVEN
