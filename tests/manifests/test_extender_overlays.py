"""overlays/extender and overlays/real-usage-scheduler: what they contain, and that a real
kube-scheduler and a real API server take it.
"""

from __future__ import annotations

import asyncio
import copy
import re
import sys
from pathlib import Path

import pytest
from cluster import EnvtestCluster
from envtest import Envtest, StartError
from fake_prometheus import FakePrometheus
from manifest_support import (
    BASE,
    OVERLAYS,
    RESTRICTED,
    Doc,
    Kubectl,
    kustomize,
    load_all,
    the,
)
from operator_support import Operator, until, write_rules
from programs import ROOT, run
from scheduling_support import (
    PODS,
    extended,
    make_pod,
    placed,
    rules,
    scheduler,
    scheduler_config,
    set_loads,
)

from dynsched.rules_file import load_rules

OURS = ("extender", "real-usage-scheduler")
SECOND = "real-usage-scheduler"
ACCOUNT = f"system:serviceaccount:{SECOND}:{SECOND}"


@pytest.fixture(scope="module")
def second() -> list[Doc]:
    return kustomize(OVERLAYS / SECOND)


@pytest.fixture
def pod(second: list[Doc]) -> Doc:
    found: Doc = the(second, "Deployment", SECOND)["spec"]["template"]["spec"]
    return copy.deepcopy(found)


@pytest.mark.parametrize("name", OURS)
def test_the_rules_load(name: str) -> None:
    rule_set = load_rules(OVERLAYS / name / "rules.yaml")
    assert all(rule.resource for rule in rule_set.rules), "just-bound pods count by a resource"


@pytest.mark.parametrize("name", OURS)
def test_a_scheduler_asks_for_little_and_waits_for_nothing(name: str) -> None:
    (extender,) = scheduler_config(name)["extenders"]
    assert re.fullmatch(r"http://[\w.-]+:9000", extender.pop("urlPrefix"))
    assert extender == {
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 5,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "2s",
        "enableHTTPS": False,
    }


# --- extender ---


def test_the_extender_is_the_base_that_sees_pods_and_is_reached() -> None:
    def named(docs: list[Doc]) -> dict[tuple[str, str], Doc]:
        return {(doc["kind"], doc["metadata"]["name"]): doc for doc in docs}

    base, docs = named(kustomize(BASE)), named(kustomize(OVERLAYS / "extender"))
    role = docs.pop(("ClusterRole", "dynsched-extender"))
    binding = docs.pop(("ClusterRoleBinding", "dynsched-extender"))
    docs.pop(("NetworkPolicy", "dynsched-extender"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    assert binding["roleRef"]["name"] == "dynsched-extender"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "dynsched", "namespace": "dynsched"}
    ]
    rules = docs["ConfigMap", "dynsched-rules"].pop("data")
    assert rules == {"rules.yaml": (OVERLAYS / "extender/rules.yaml").read_text()}
    base["ConfigMap", "dynsched-rules"].pop("data")
    assert docs == base


def test_the_extender_rejects_as_documented() -> None:
    rule_set = load_rules(OVERLAYS / "extender/rules.yaml")
    (rule,) = (rule for rule in rule_set.rules if rule.name == "node-mem")
    assert rule_set.extender.reject == ("node-mem",)
    assert (rule.op, rule.threshold) == (">", 85)
    assert rule_set.extender.require_label is None


def test_the_label_that_is_required_can_be_uncommented(tmp_path: Path) -> None:
    text = (OVERLAYS / "extender/rules.yaml").read_text()
    file = tmp_path / "rules.yaml"
    file.write_text(text.replace("# require_label:", "require_label:"))
    assert load_rules(file).extender.require_label == "filter.xy.com"


# --- real-usage-scheduler ---


def test_the_second_scheduler_gets_the_schedulers_roles_metrics_and_one_lease(
    second: list[Doc],
) -> None:
    subject = {"kind": "ServiceAccount", "name": SECOND, "namespace": SECOND}
    bindings = [doc for doc in second if doc["kind"].endswith("RoleBinding")]
    assert all(doc["subjects"] == [subject] for doc in bindings)
    assert {
        (doc["metadata"].get("namespace"), doc["roleRef"]["kind"], doc["roleRef"]["name"])
        for doc in bindings
    } == {
        (None, "ClusterRole", "system:kube-scheduler"),
        (None, "ClusterRole", "system:volume-scheduler"),
        (None, "ClusterRole", f"{SECOND}-metrics"),
        ("kube-system", "Role", "extension-apiserver-authentication-reader"),
        (SECOND, "Role", SECOND),
    }
    (metrics,) = (doc for doc in second if doc["kind"] == "ClusterRole")
    assert metrics["rules"] == [
        {"apiGroups": ["metrics.k8s.io"], "resources": ["nodes"], "verbs": ["list"]}
    ]
    (role,) = (doc for doc in second if doc["kind"] == "Role")
    group = ["coordination.k8s.io"]
    assert role["metadata"]["namespace"] == SECOND
    assert role["rules"] == [
        {"apiGroups": group, "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": group,
            "resources": ["leases"],
            "resourceNames": [SECOND],
            "verbs": ["get", "update"],
        },
    ]


def test_its_lease_is_the_one_that_it_may_write() -> None:
    assert scheduler_config(SECOND)["leaderElection"] == {
        "leaderElect": True,
        "resourceNamespace": SECOND,
        "resourceName": SECOND,
    }


def test_no_container_of_it_has_privileges(second: list[Doc], pod: Doc) -> None:
    base: Doc = the(kustomize(BASE), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"] == base["securityContext"]
    assert [container["securityContext"] for container in pod["containers"]] == [RESTRICTED] * 2
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
    assert all("hostPath" not in volume for volume in pod["volumes"])
    assert pod["serviceAccountName"] == SECOND
    assert pod["enableServiceLinks"] is False
    labels = the(second, "Namespace", SECOND)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_images_are_pinned(pod: Doc) -> None:
    its, ours = (container["image"] for container in pod["containers"])
    assert re.fullmatch(r"registry\.k8s\.io/kube-scheduler:v1\.36\.\d+", its)
    assert ours == "dynsched:0.1.0"


def test_dynsched_in_it_marks_nothing_and_is_otherwise_as_in_the_base(pod: Doc) -> None:
    (base,) = the(kustomize(BASE), "Deployment")["spec"]["template"]["spec"]["containers"]
    _, ours = pod["containers"]
    assert ours.pop("args") == [base["args"][0], "--dry-run", *base["args"][1:]]
    assert ours.pop("envFrom")[0]["configMapRef"]["name"].startswith(f"{SECOND}-settings-")
    # A dry run takes part in no election: whose Lease it was before does not matter (env).
    other = ("args", "env", "envFrom")
    assert ours == {key: value for key, value in base.items() if key not in other}
    known = run(sys.executable, "-m", "dynsched", "run", "--help").stdout
    assert "--dry-run" in known


def test_all_that_is_mounted_is_there(second: list[Doc], pod: Doc) -> None:
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {m["name"]: m["mountPath"] for c in pod["containers"] for m in c["volumeMounts"]}
    assert volumes.keys() == mounts.keys()
    files = {
        f"{mounts[name]}/{file}"
        for name, volume in volumes.items()
        if "configMap" in volume
        for file in the(second, "ConfigMap", volume["configMap"]["name"])["data"]
    }
    words = [w for c in pod["containers"] for w in [*c.get("command", []), *c.get("args", [])]]
    named = {word.partition("=")[2] for word in words if word.startswith(("--config", "--rules"))}
    assert files == named


def test_probes_ports_and_policy_agree(second: list[Doc], pod: Doc) -> None:
    ports = {p["name"]: p["containerPort"] for c in pod["containers"] for p in c["ports"]}
    assert ports == {"https": 10259, "http": 9000}
    for container in pod["containers"]:
        (port,) = container["ports"]
        for kind in ("liveness", "readiness", "startup"):
            asked = container[f"{kind}Probe"]["httpGet"]
            assert asked["port"] == port["name"]
            assert asked.get("scheme", "HTTP") == port["name"].upper()
    policy = the(second, "NetworkPolicy", SECOND)["spec"]
    (rule,) = policy["ingress"]
    assert [port["port"] for port in rule["ports"]] == [9000, 10259]
    assert rule["from"] == the(kustomize(BASE), "NetworkPolicy")["spec"]["ingress"][0]["from"]
    labels = the(second, "Deployment", SECOND)["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert the(second, "PodDisruptionBudget", SECOND)["spec"]["selector"]["matchLabels"] == labels


def test_the_scheduler_is_let_in_only_where_it_asks() -> None:
    docs = kustomize(OVERLAYS / "extender")
    labels = the(docs, "Deployment")["spec"]["template"]["metadata"]["labels"]
    policy = the(docs, "NetworkPolicy", "dynsched-extender")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [9000]
    assert not [doc for doc in kustomize(BASE) if doc["metadata"]["name"] == "dynsched-extender"]


def test_no_manifest_binds_pods_for_whoever_asks() -> None:
    for name in OURS:
        for doc in kustomize(OVERLAYS / name):
            assert "--bind" not in str(doc)
            assert "DYNSCHED_BIND" not in str(doc)


def test_every_profile_has_its_load() -> None:
    config = scheduler_config(SECOND)
    names = {profile["schedulerName"] for profile in config["profiles"]}
    assert names == {"mem-real-usage-scheduler", "cpu-real-usage-scheduler"}
    rule_set = load_rules(OVERLAYS / SECOND / "rules.yaml")
    assert rule_set.extender.profiles.keys() == names
    rules = {rule.name: rule.resource for rule in rule_set.rules}
    for name, profile in rule_set.extender.profiles.items():
        (rule,) = profile.score
        assert (rules[rule] or "")[:3] == name[:3]


def test_the_example_workload_names_the_second_scheduler() -> None:
    (nginx,) = load_all(ROOT / "manifests/examples/nginx-mem-real-usage.yaml")
    assert nginx["spec"]["replicas"] == 30
    its = nginx["spec"]["template"]["spec"]["schedulerName"]
    assert its in {profile["schedulerName"] for profile in scheduler_config(SECOND)["profiles"]}


# --- on real servers ---


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
async def test_a_real_scheduler_takes_the_configuration(
    name: str, envtest: Envtest, tmp_path: Path
) -> None:
    """It decodes strictly; only what is particular to a control plane is another one's here."""
    config = extended(name, "127.0.0.1:1")
    async with EnvtestCluster(envtest, tmp_path):
        stop = await asyncio.to_thread(envtest.start_scheduler, config)
        stop()
        config["extenders"][0]["enableHttps"] = config["extenders"][0].pop("enableHTTPS")
        with pytest.raises(StartError, match="enableHttps"):
            await asyncio.to_thread(envtest.start_scheduler, config)


@pytest.mark.slow
async def test_the_commented_tls_part_is_taken_too(envtest: Envtest, tmp_path: Path) -> None:
    config = extended("extender", "127.0.0.1:1")
    text = (OVERLAYS / "extender/kubescheduler-config.yaml").read_text()
    named = dict(re.findall(r"#   (serverName|caFile|certFile|keyFile): (\S+)", text))
    assert named.keys() == {"serverName", "caFile", "certFile", "keyFile"}
    ca = str(envtest.ca_file)
    key = str(envtest.ca_file.with_suffix(".key"))
    tls = named | {"caFile": ca, "certFile": ca, "keyFile": key}
    config["extenders"][0] |= {
        "enableHTTPS": True,
        "urlPrefix": "https://127.0.0.1:1",
        "tlsConfig": tls,
    }
    async with EnvtestCluster(envtest, tmp_path):
        (await asyncio.to_thread(envtest.start_scheduler, config))()


@pytest.mark.slow
async def test_with_its_account_alone_it_is_elected_and_schedules(
    envtest: Envtest, tmp_path: Path
) -> None:
    async with EnvtestCluster(envtest, tmp_path) as cluster, FakePrometheus() as prometheus:
        kubectl = Kubectl(cluster.kubeconfig)
        await asyncio.to_thread(kubectl, "apply", "-k", OVERLAYS / SECOND)
        token = await asyncio.to_thread(kubectl, "-n", SECOND, "create", "token", SECOND)
        kubeconfig = envtest.kubeconfig(tmp_path / "kubeconfig-second", token.strip())
        await set_loads(cluster, prometheus, {"hot": 95.0, "cool": 25.0})
        profile = {"score": {"load": 1}, "method": "relative"}
        profiles = {"mem-real-usage-scheduler": profile}
        rules_file = write_rules(tmp_path, rules(extender={"profiles": profiles}))
        flags = ("--kubeconfig", str(kubeconfig), "--dry-run", "--interval", "0.5")
        flags += ("--prom", prometheus.url, "-r", str(rules_file))
        async with Operator(tmp_path, "run", *flags) as operator:
            await operator.until_ready()
            config = extended(SECOND, operator.address)
            config["leaderElection"] = scheduler_config(SECOND)["leaderElection"]
            config["clientConnection"] = {"kubeconfig": str(kubeconfig)}
            with scheduler(envtest, config):
                lease = await until(lambda: cluster.get_lease(SECOND, SECOND), "its Lease")
                assert lease["spec"]["holderIdentity"]
                pod = make_pod("app", schedulerName="mem-real-usage-scheduler")
                _ = (await cluster.post(PODS, pod)).ok
                assert await placed(cluster, ["app"]) == {"cool": 1}
            assert "answered 403" not in operator.log
            assert "forbidden" not in operator.log
        assert {write.verb for write in await cluster.writes("nodes")} == {"create"}
        assert await cluster.get_lease("dynsched", SECOND) is None
        yes = [
            ("-A", "list", "nodes"),
            ("-A", "watch", "pods"),
            ("-A", "create", "pods", "--subresource=binding"),
            ("-n", SECOND, "update", f"leases/{SECOND}"),
            ("-n", "kube-system", "get", "configmaps/extension-apiserver-authentication"),
        ]
        no = [
            ("-A", "patch", "nodes"),
            ("-A", "list", "secrets"),
            ("-n", SECOND, "get", "leases/another"),
            ("-n", "kube-system", "get", "configmaps/another"),
        ]
        asked = await asyncio.gather(
            *(asyncio.to_thread(kubectl.may, ACCOUNT, *question) for question in [*yes, *no])
        )
        assert dict(zip([*yes, *no], asked, strict=True)) == {
            **dict.fromkeys(yes, True),
            **dict.fromkeys(no, False),
        }
        template = the(kustomize(OVERLAYS / SECOND), "Deployment", SECOND)["spec"]["template"]
        probe = {"metadata": {"name": "probe"}, "spec": template["spec"]}
        path = f"/api/v1/namespaces/{SECOND}/pods"
        assert (await cluster.post(path, probe, dryRun="All")).status == 201
