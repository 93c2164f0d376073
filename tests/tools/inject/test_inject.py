"""`dynsched inject` without a cluster, the files that it prints, and `dynsched order`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from canned_cluster import HELD_POLICY, NAMESPACES, ORDER_IN_FORCE, ORDER_POLICY, CannedCluster
from click.testing import CliRunner
from command_line import shown
from manifest_support import COMPONENTS
from programs import ROOT

from dynsched.cli.commands import cli
from dynsched.kube.client import open_client
from dynsched.rules.file import load_rules
from dynsched.rules.keys import AVOID_POLICY
from dynsched.rules.labels import parse_label
from dynsched.tools.inject.installed import check_policies, pod_told, render_told
from dynsched.tools.inject.policy import differences, policy_objects, policy_text

SHIPPED = parse_label("status=presure")


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["inject", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_component_is_what_the_command_prints_for_the_shipped_rules() -> None:
    code, out, _ = invoke("-o", "yaml", "-r", str(ROOT / "rules.yaml"))
    assert (code, out) == (0, (COMPONENTS / "inject/policy.yaml").read_text())
    code, out, _ = invoke("-o", "json", "-r", str(ROOT / "rules.yaml"))
    assert (code, json.loads(out)["items"]) == (0, policy_objects(SHIPPED))


def test_with_an_order_both_are_printed_and_the_order_alone_where_no_label_is(
    tmp_path: Path,
) -> None:
    files = [COMPONENTS / "order" / f"{name}.yaml" for name in ("crd", "policy", "held", "rbac")]
    shipped = "---\n".join(path.read_text() for path in files)
    rules = tmp_path / "rules.yaml"
    order = "order: {score: {a: 1}}\nrules: [{name: a, expr: up, threshold: 1}]\n"
    rules.write_text(order)
    both = f"{policy_text(SHIPPED)}---\n{shipped}"
    assert invoke("-r", str(rules)) == (0, both, "")
    taint = "mark: {label: null, taint: dynsched.io/hot=true:PreferNoSchedule}\n"
    rules.write_text(taint + order)
    assert invoke("-r", str(rules)) == (0, shipped, "")
    code, out, _ = invoke("-r", str(rules), "--lease-namespace", "ops")
    assert (code, out) == (0, shipped.replace("namespace: dynsched", "namespace: ops"))
    assert out.count("namespace: ops") == 5  # of two bindings, the Role, its binding, the account
    assert {each["kind"] for each in yaml.safe_load_all(out)} == {
        *("CustomResourceDefinition", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
        *("Role", "RoleBinding"),
    }


def test_every_place_follows_the_label_and_the_weight() -> None:
    text = policy_text(parse_label("example.com/heat=high"), 7)
    assert "status" not in text
    assert "presure" not in text.replace("avoid-pressure", "")
    assert text.count("'example.com/heat'") == 2
    assert "dyn(7)" in text


def test_without_a_label_and_an_order_there_is_nothing_to_inject(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "mark: {label: null, taint: dynsched.io/pressure=true:PreferNoSchedule}\n"
        "rules: [{name: cpu, expr: cpu, threshold: 80}]\n"
    )
    code, _, err = invoke("-r", str(rules))
    assert code == 1
    assert err.startswith("Error: nodes are marked by no label (taint dynsched.io/")


def test_wrong_usage_is_told() -> None:
    for flags in ("--weight 0", "--weight 101", "--check -o yaml", "-o table"):
        code, _, err = invoke(*flags.split(), "-r", str(ROOT / "rules.yaml"))
        assert (code, bool(err)) == (2, True), flags


def test_a_policy_that_differs_in_a_part_or_has_no_binding_is_told() -> None:
    policy, binding = policy_objects(SHIPPED)
    assert differences([policy], AVOID_POLICY, policy, binding) == []
    (told,) = differences([policy], AVOID_POLICY, policy, None)
    assert told.what == (
        "the policy dynsched-avoid-pressure has no binding, so it applies to nothing"
    )
    for part in ("matchConditions", "variables", "mutations"):
        changed = policy | {"spec": policy["spec"] | {part: []}}
        (told,) = differences([policy], AVOID_POLICY, changed, binding)
        assert told.what.endswith(f"; it differs in {part}")
    heavier, _ = policy_objects(SHIPPED, 7)
    assert (
        differences([policy], AVOID_POLICY, heavier, binding) == []
    )  # the weight is the operator's own choice


async def test_where_the_server_has_no_such_policies_nothing_is_said_to_be_installed(
    tmp_path: Path,
) -> None:
    rule_set = load_rules(ROOT / "rules.yaml")
    async with CannedCluster(tmp_path, {NAMESPACES: []}) as cluster:
        found = await check_policies(rule_set, cluster.kubeconfig, None)
    (problem,) = found["policy"]["problems"]
    assert "does not serve" in problem
    assert "use Kubernetes 1.36" in problem


OPTED_OUT = {"dynsched.io/avoid-pressure": "false"}
LABELLED = {"labels": {"dynsched.io/avoid-pressure": "true"}}
HAD_NONE = [
    ({"labels": OPTED_OUT}, {}, "it opted out by dynsched.io/avoid-pressure=false"),
    ({"annotations": OPTED_OUT}, {}, "it opted out by"),
    ({"ownerReferences": [{"kind": "DaemonSet", "name": "d"}]}, {}, "it belongs to a DaemonSet"),
    ({"annotations": {"kubernetes.io/config.mirror": "x"}}, {}, "it is a static pod"),
    (
        {},
        {f"{NAMESPACES}/shop": {"metadata": {}}},
        "kubectl label namespace shop dynsched.io/avoid",
    ),
    ({}, {HELD_POLICY: None}, "when it was created (2026-11-23T05:00:00Z), or its last scheduling"),
    ({}, {ORDER_POLICY: None}, "the policy dynsched-order is not installed: dynsched inject"),
]


async def order_of(
    folder: Path, metadata: Mapping[str, Any], spec: Mapping[str, Any], changed: Mapping[str, Any]
) -> dict[str, Any]:
    """What `dynsched order` says of the pod shop/web."""
    metadata = {"name": "web", "namespace": "shop", **metadata}
    metadata |= {"creationTimestamp": "2026-11-23T05:00:00Z"}
    objects = {**ORDER_IN_FORCE, f"{NAMESPACES}/shop": {"metadata": LABELLED}, **changed}
    objects[f"{NAMESPACES}/shop/pods/web"] = {"metadata": metadata, "spec": spec}
    async with (
        CannedCluster(folder, objects) as cluster,
        open_client(cluster.kubeconfig, None) as api,
    ):
        return await pod_told(api, "shop", "web")


@pytest.mark.parametrize(("metadata", "changed", "why"), HAD_NONE, ids=[w for *_, w in HAD_NONE])
async def test_a_pod_without_the_order_says_why(tmp_path, metadata, changed, why) -> None:
    told = await order_of(tmp_path, metadata, {"nodeName": "c"}, changed)
    assert why in told["why_not"]
    assert (told["node"], told["until"], told["levels"]) == ("c", None, [])
    (line,) = shown(render_told, told, width=200)
    assert line.startswith("shop/web did not get the order: ")


async def test_a_pod_with_the_order_says_its_levels_and_which_one_it_went_to(tmp_path) -> None:
    def term(weight: int, key: str, *values: str) -> dict[str, Any]:
        wanted = {"key": key, "operator": "In", "values": list(values)}
        return {"weight": weight, "preference": {"matchExpressions": [wanted]}}

    host = "kubernetes.io/hostname"
    terms = [term(7, host, "own"), term(100, host, "a", "b"), term(3, "zone", "z")]
    terms.append(term(50, host, "c"))
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    metadata = {"annotations": {"dynsched.io/order": "2026-11-23T05:00:28Z"}}
    for node, level, words in (
        ("c", 2, "it went to c, of level 2."),
        ("own", None, "it went to own, which is in no level."),
        (None, None, "it has no node yet."),
    ):
        told = await order_of(tmp_path, metadata, {"affinity": affinity, "nodeName": node}, {})
        assert told["levels"] == [
            {"weight": 100, "nodes": ["a", "b"]},
            {"weight": 50, "nodes": ["c"]},
        ]
        assert (told["node"], told["level"], told["why_not"]) == (node, level, None)
        head, _, *rows = shown(render_told, told, width=200)
        assert head.endswith(words)
        assert [row.split() for row in rows] == [["1", "100", "a,", "b"], ["2", "50", "c"]]


def test_the_page_shows_what_it_prints() -> None:
    weights = {"worker-1": 100, "worker-2": 99, "worker-4": 80, "worker-5": 43}
    levels = [{"weight": weight, "nodes": [node]} for node, weight in weights.items()]
    told = {"namespace": "shop", "pod": "web-7d4b9c-x2x5z", "until": "2026-11-23T06:05:28Z"}
    told |= {"levels": levels, "node": "worker-2", "level": 2, "why_not": None}
    printed = "\n".join(shown(render_told, told, width=200))
    assert f"```text\n{printed}\n```" in (ROOT / "docs/order.md").read_text()
