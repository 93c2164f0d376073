"""`dynsched nodes` and `why` while no dynsched is running, on both clusters."""

import asyncio
import contextlib
import json
from functools import partial

import pytest
from command_line import Call, call_of
from service_support import service

from dynsched_sim.examples import make_node


@pytest.fixture
def call(monkeypatch, capsys, cluster) -> Call:
    """`dynsched ...` in a thread."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    return partial(asyncio.to_thread, call_of, capsys)


EVIDENCE = {
    "dynsched.io/pressure": '{"label":"status=presure","taint":null,"since":"2026-11-24T16:54:28Z",'
    '"rules":[{"rule":"node-cpu","value":91.2,"threshold":80,"since":"2026-11-24T16:54:28Z"}]}'
}


@pytest.mark.parametrize("leads_nowhere", [True, False], ids=["no pod", "no Service"])
async def test_where_none_is_running_the_marks_are_told_by_the_evidence_on_the_nodes(
    call, cluster, leads_nowhere
) -> None:
    """`kubectl get nodes -L status` showed a mark whose writer was gone."""
    await cluster.create_nodes("a", "clean")
    mark = {"metadata": {"labels": {"status": "presure"}, "annotations": EVIDENCE}}
    await cluster.patch_node("a", mark, field_manager="dynsched")
    await cluster.create_node(make_node("b", 1, labels={"status": "presure"}))
    async with service(cluster, None) if leads_nowhere else contextlib.nullcontext():
        code, out, errors = await call("nodes", "-o", "json")
        source, error = errors.splitlines()
        assert (code, source) == (1, f"From cluster {cluster.form} ({cluster.url})")
        assert error.startswith("Error: no pod of" if leads_nowhere else "Error: no Service with")
        a, b = json.loads(out)["nodes"]
        assert (a["name"], a["by"], a["since"]) == ("a", "dynsched", "2026-11-24T16:54:28Z")
        assert (a["carries"], b["carries"]) == (["label status=presure"], ["label status=presure"])
        (rule,) = a["rules"]
        assert (rule["rule"], rule["value"], rule["threshold"]) == ("node-cpu", 91.2, 80)
        assert (b["name"], b["by"], b["since"], b["rules"]) == ("b", None, None, [])
        _, told, _ = await call("why", "a", "-o", "json")
        assert json.loads(told)["nodes"] == [a]
        _, told, _ = await call("why", "clean", "-o", "json")
        assert json.loads(told)["nodes"] == []
        code, out, errors = await call("why", "nobody")
        assert (code, out) == (1, "")
        assert errors.endswith("; and of the nodes: no node 'nobody' in the cluster\n")
        code, out, errors = await call("nodes")
        assert (code, [line.split()[0] for line in out.splitlines()[1:4]]) == (
            1,
            ["NODE", "a", "b"],
        )
