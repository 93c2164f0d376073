"""manifests/: what they render to, minimal permissions, and whether the parts fit together."""

import json
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from manifest_support import (
    BASE,
    COMPONENTS,
    OVERLAYS,
    RESTRICTED,
    Doc,
    beside,
    commands,
    kustomize,
    load_all,
    overlay,
    shipped,
    templates,
    the,
)
from programs import ROOT, need, run
from scheduling_support import scheduler_config

from dynsched import __version__
from dynsched.cli.commands import cli
from dynsched.rules.file import load_rules
from dynsched.rules.parse import parse_rules
from dynsched.web.app import ENDPOINTS
from dynsched.web.responses import PROBES

EXAMPLES = ROOT / "manifests/examples"
SECOND = "real-usage-scheduler"

ORDER_KINDS = (
    "CustomResourceDefinition MutatingAdmissionPolicy MutatingAdmissionPolicy "
    "MutatingAdmissionPolicyBinding MutatingAdmissionPolicyBinding Role RoleBinding"
)
WITHOUT_ORDER = (
    "ClusterRole ClusterRoleBinding ConfigMap ConfigMap Deployment Namespace NetworkPolicy Role "
    "Role RoleBinding RoleBinding Service ServiceAccount"
)
BASE_KINDS = f"{WITHOUT_ORDER} {ORDER_KINDS}"
RIGHTS = "ClusterRole ClusterRoleBinding"
JOB = f"{RIGHTS} NetworkPolicy Role RoleBinding ServiceAccount"
ADDED = {
    "example": "",
    "guardrail": "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    "ha": "PodDisruptionBudget",
    "janitor": f"CronJob {JOB}",
    "monitoring": "ConfigMap PodMonitor PrometheusRule",
    "inject": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding",
    "kubectl": "ClusterRole ClusterRole NetworkPolicy Role",
    "order-webhook": "MutatingWebhookConfiguration NetworkPolicy",
    "openshift": "",
    "extender": f"{RIGHTS} NetworkPolicy",
    "web-auth": f"{RIGHTS} ClusterRole {RIGHTS}",
    "descheduler": f"ConfigMap Deployment Namespace Secret {JOB}",
}
FULL = ("guardrail", "ha", "janitor", "monitoring")
"""Components in the overlay `full`. The others change or move pods, lock out previous readers, or
admit more callers.
"""
EVERYTHING = (*ADDED, "collector", SECOND)


@cache
def text_of(name: str) -> str:
    return yaml.safe_dump_all(kustomize(shipped(name)))


def rendered(name: str) -> list[Doc]:
    return list(yaml.safe_load_all(text_of(name)))


def kinds(docs: list[Doc]) -> list[str]:
    return sorted(doc["kind"] for doc in docs)


def named(docs: list[Doc]) -> dict[tuple[str, str], Doc]:
    return {(doc["kind"], doc["metadata"]["name"]): doc for doc in docs}


def container(docs: list[Doc]) -> Doc:
    found: Doc = templates(docs)["dynsched"]["spec"]["containers"][0]
    return found


def composed(folder: Path, *parts: str, resource: Path = BASE, **content: object) -> list[Doc]:
    """An overlay in a new folder: the base with these components."""
    content |= {"resources": beside(folder, resource)}
    content |= {"components": beside(folder, *(COMPONENTS / part for part in parts))}
    return kustomize(overlay(folder, **content))


@pytest.mark.parametrize("name", ADDED)
def test_each_component_adds_its_objects_to_the_base(name: str) -> None:
    before = WITHOUT_ORDER if name == "order-webhook" else BASE_KINDS
    assert kinds(rendered(name)) == sorted(f"{before} {ADDED[name]}".split())


def test_components_can_be_combined(tmp_path: Path) -> None:
    parts = [part.name for part in COMPONENTS.iterdir()]
    assert {*parts, "example"} == {*ADDED, "extender-port"}
    docs = composed(tmp_path / "all", *parts)
    assert kinds(docs) == sorted(f"{WITHOUT_ORDER} {' '.join(ADDED.values())}".split())
    alone = {key: doc for name in FULL for key, doc in named(rendered(name)).items()}
    alone["Deployment", "dynsched"] = the(rendered("ha"), "Deployment")
    assert named(rendered("full")) == alone


def without_kubectl(script: str) -> str:
    """The script without its kubectl lines, so nothing is applied."""
    return "\n".join(line for line in script.splitlines() if "kubectl" not in line)


def test_the_pages_commands_turn_a_copy_of_the_example_into_order_only(tmp_path) -> None:
    mine = shutil.copytree(OVERLAYS / "example", tmp_path / "my-dynsched")
    script = without_kubectl(commands("docs/order.md", "no-node-writes.yaml"))
    run("bash", "-euo", "pipefail", "-c", script, cwd=tmp_path, check=True)
    found, example = named(kustomize(mine)), named(rendered("example"))
    assert container([*found.values()])["image"] == container([*example.values()])["image"]
    for key, doc in named(rendered("order-only")).items():
        if key[0] != "Deployment" and "settings" not in key[1]:
            assert found[key] == doc


def test_the_pages_commands_add_the_webhook_to_a_copy_of_the_example(tmp_path: Path) -> None:
    mine = shutil.copytree(OVERLAYS / "example", tmp_path / "my-dynsched")
    script = commands("docs/order.md", "components/order-webhook")
    run("bash", "-euo", "pipefail", "-c", script, cwd=tmp_path, check=True)
    kind, found = ("MutatingWebhookConfiguration", "dynsched-order"), named(kustomize(mine))
    assert found[kind] == named(rendered("order-webhook"))[kind]
    assert kinds([*found.values()]) == kinds(rendered("order-webhook"))


def test_the_pages_patch_removes_every_object_of_the_order(tmp_path: Path) -> None:
    page = (ROOT / "docs/order.md").read_text().partition("## How do I take it back")[2]
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    docs = composed(tmp_path / "without", **yaml.safe_load(block))
    assert kinds(docs) == sorted(WITHOUT_ORDER.split())


def deleted(command: str) -> set[tuple[str, str]]:
    """Kind and name of each object in a `kubectl delete` command."""
    words = command.partition(" delete ")[2].split()
    first, *rest = (word for word in words if not word.startswith("-"))
    if "/" in first:
        return {(each.partition("/")[0], each.partition("/")[2]) for each in (first, *rest)}
    return {(kind, name) for kind in first.split(",") for name in rest}


@pytest.mark.parametrize("part", sorted({*ADDED} - {"example", "openshift", "order-webhook"}))
def test_the_pages_commands_remove_every_object_of_a_component(part: str) -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    blocks = re.findall(rf"<!-- remove {part} -->\n```sh\n(.*?)```", text, re.DOTALL)
    before = named(rendered("base"))
    added = [doc for key, doc in named(rendered(part)).items() if key not in before]
    there = {(doc["kind"].lower(), doc["metadata"]["name"]) for doc in added}
    gone = {each: deleted(each) for each in "".join(blocks).splitlines()}
    for command, objects in gone.items():
        assert objects <= there or "--ignore-not-found" in command
    named_there = set().union(*gone.values())
    for doc in added:
        if ("namespace", doc["metadata"].get("namespace")) not in named_there:
            assert (doc["kind"].lower(), doc["metadata"]["name"]) in named_there


def test_openshift_assigns_user_and_group(tmp_path: Path) -> None:
    docs = composed(tmp_path / "openshift", "janitor", "descheduler", "openshift")
    for template in templates(docs).values():
        context = template["spec"]["securityContext"]
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_the_upgrade_commands_replace_the_base_and_keep_your_changes(tmp_path: Path) -> None:
    mine = shutil.copytree(OVERLAYS / "example", tmp_path / "my-dynsched")
    (mine / "base/rbac.yaml").write_text("# of an older version\n")
    yours = {"rules": [{"name": "mine", "expr": "load", "threshold": 1}]}
    (mine / "rules.yaml").write_text(yaml.safe_dump(yours))
    script = without_kubectl(commands("docs/install.md", "rm -r my-dynsched/base"))
    run("bash", "-euo", "pipefail", "-c", script, cwd=tmp_path, check=True)
    found, example = named(kustomize(mine)), named(rendered("example"))
    rules = found["ConfigMap", "dynsched-rules"]
    assert yaml.safe_load(rules["data"]["rules.yaml"]) == yours
    assert found == example | {("ConfigMap", "dynsched-rules"): rules}


OURS = "dynsched/dynsched"
MUTATING = "mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations"
PROMETHEUS = (
    "http:kube-prometheus-stack-prometheus:9090",
    "http:prometheus-k8s:9090",
    "http:prometheus-operated:9090",
    "http:prometheus-server:80",
)
GRANTED = {
    OURS: {
        "nodes: get list patch watch",
        "pods: list watch",
        "metrics.k8s.io/nodes: list",
        "dynsched coordination.k8s.io/leases: create",
        "dynsched coordination.k8s.io/leases dynsched: get update",
        "dynsched events: create patch",
        "default events: create patch",
        "dynsched dynsched.io/nodeorders dynsched: create delete patch",
        # of web-auth: it reviews callers' tokens, and reads its own pages
        "authentication.k8s.io/tokenreviews: create",
        "authorization.k8s.io/subjectaccessreviews: create",
        "/ /metrics /nodes /nodes/* /order /page/* /rules /status: get",
    },
    "dynsched/dynsched-janitor": {
        "nodes: get list patch",
        "dynsched coordination.k8s.io/leases dynsched: get",
    },
    "dynsched-descheduler/dynsched-descheduler": {
        "namespaces nodes persistentvolumeclaims pods: get list watch",
        "pods/eviction: create",
        "scheduling.k8s.io/priorityclasses: get list watch",
        "policy/poddisruptionbudgets: get list watch",
        "events.k8s.io/events: create update",
        "dynsched-descheduler secrets: get list watch",
    },
    f"{SECOND}/{SECOND}": {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "kube-system extension-apiserver-authentication-reader",
        "metrics.k8s.io/nodes: list",
        f"{SECOND} coordination.k8s.io/leases: create",
        f"{SECOND} coordination.k8s.io/leases {SECOND}: get update",
    },
    # roles that the owner of the cluster binds to readers or operators
    "nobody": {
        "/metrics: get",
        "dynsched services: get list",
        "dynsched services/proxy http:dynsched:9000: get",
        "namespaces nodes pods: get list",
        "services: list",
        f"services/proxy {' '.join(PROMETHEUS)}: get",
        "coordination.k8s.io/leases: list",
        "dynsched.io/nodeorders: get",
        f"admissionregistration.k8s.io/{MUTATING}: get",
        # to prune
        "nodes: get list patch",
        "dynsched.io/nodeorders: delete list",
    },
}


def rules_of(role: Doc) -> Iterator[str]:
    namespace = role["metadata"].get("namespace", "")
    for rule in role["rules"]:
        group = rule.get("apiGroups", [""])[0]
        what = " ".join(sorted(rule.get("resources") or rule["nonResourceURLs"]))
        words = (namespace, f"{group}/{what}" if group else what, *rule.get("resourceNames", ()))
        yield f"{' '.join(filter(None, words))}: {' '.join(sorted(rule['verbs']))}"


def test_each_account_has_exactly_the_permissions_that_it_needs() -> None:
    docs = [doc for name in EVERYTHING for doc in rendered(name)]
    roles = {
        (doc["kind"], doc["metadata"].get("namespace"), doc["metadata"]["name"]): set(rules_of(doc))
        for doc in docs
        if doc["kind"].endswith("Role")
    }
    granted: dict[str, set[str]] = {}
    bound = set()
    for doc in docs:
        if doc["kind"].endswith("RoleBinding"):
            ref, (subject,) = doc["roleRef"], doc["subjects"]
            namespace = doc["metadata"].get("namespace")
            key = (ref["kind"], namespace, ref["name"])
            bound.add(key)
            foreign = {" ".join(filter(None, key[1:]))}
            account = f"{subject['namespace']}/{subject['name']}"
            granted.setdefault(account, set()).update(roles.get(key, foreign))
    granted["nobody"] = set().union(*(rules for key, rules in roles.items() if key not in bound))
    granted["nobody"] -= granted[OURS]
    assert granted == GRANTED


def test_order_only_equals_the_base_except_for_rules_and_node_writes() -> None:
    alone, both = named(rendered("order-only")), named(rendered("base"))
    rules, role = ("ConfigMap", "dynsched-rules"), ("ClusterRole", "dynsched")
    own = load_rules(OVERLAYS / "order-only/rules.yaml")
    assert alone[rules]["data"] == {"rules.yaml": (OVERLAYS / "order-only/rules.yaml").read_text()}
    alone[rules] = both[rules]
    assert alone[role]["rules"][0].pop("verbs") == ["get", "list", "watch"]
    assert both[role]["rules"][0].pop("verbs") == ["get", "list", "watch", "patch"]
    assert alone == both
    assert own.mark.is_none
    assert own.rules == load_rules(BASE / "rules.yaml").rules


def test_the_reader_role_has_every_path_that_needs_a_token() -> None:
    (rule,) = the(rendered("web-auth"), "ClusterRole", "dynsched-reader")["rules"]
    urls = rule["nonResourceURLs"]
    needed = [path.replace("{name}", "worker-1") for path in ENDPOINTS if path not in PROBES]

    def granted(path: str) -> bool:
        return any(path == url or url == path[: len(url) - 1] + "*" for url in urls)

    assert [path for path in [*needed, "/page/page.js"] if not granted(path)] == []
    assert [url for url in urls if not any(p.startswith(url.rstrip("*")) for p in needed)] == []


PODS = [
    *((name, "dynsched") for name in ("ha", "janitor", "web-auth", "extender", "descheduler")),
    *((name, f"dynsched-{name}") for name in ("janitor", "descheduler", "collector")),
    (SECOND, SECOND),
]
CGROUPS = {"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}}


@pytest.mark.parametrize(("name", "pod"), PODS)
def test_a_pod_has_a_memory_limit_and_writes_only_to_tmp(name: str, pod: str) -> None:
    """test_applied.py shows that its namespace admits no privileges."""
    spec = templates(rendered(name))[pod]["spec"]
    context, dockerfile = spec["securityContext"], (ROOT / "Dockerfile").read_text()
    assert f"\nUSER {context['runAsUser']}:{context['runAsGroup']}\n" in dockerfile
    on_host = [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert on_host == ([CGROUPS] if pod == "dynsched-collector" else [])
    for each in spec["containers"]:
        assert each["securityContext"] == RESTRICTED
        assert "memory" in each["resources"]["limits"]
        # A limit would throttle the reading of all nodes.
        assert "cpu" not in each["resources"]["limits"]
        writable = {mount["name"] for mount in each["volumeMounts"] if not mount.get("readOnly")}
        assert writable <= {"tmp"}
    # A Service `dynsched` would set DYNSCHED_PORT, which looks like a setting.
    assert spec["enableServiceLinks"] is False
    assert spec.get("automountServiceAccountToken", True) is (pod != "dynsched-collector")


@pytest.mark.parametrize(("name", "pod"), PODS)
def test_every_file_and_setting_of_a_pod_exists_and_is_known(name: str, pod: str) -> None:
    docs = rendered(name)
    spec = templates(docs)[pod]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = [mount for each in spec["containers"] for mount in each["volumeMounts"]]
    assert volumes.keys() == {mount["name"] for mount in mounts}
    # A subPath mount would not see a changed file.
    assert not [mount for mount in mounts if "subPath" in mount]
    files = {
        f"{mount['mountPath']}/{file}"
        for mount in mounts
        if "configMap" in (volume := volumes[mount["name"]])
        for file in the(docs, "ConfigMap", volume["configMap"]["name"])["data"]
    }
    words = [w for c in spec["containers"] for w in [*c.get("command", []), *c.get("args", [])]]
    read = ("--config", "--rules", "--policy-config-file")
    assert files == {word.partition("=")[2] for word in words if word.startswith(read)}
    for each in spec["containers"]:
        if not each["image"].startswith("dynsched"):
            assert re.fullmatch(r"registry\.k8s\.io/[\w./-]+:v\d\.\d+\.\d+", each["image"])
            continue
        assert "command" not in each  # the image's entry point is dynsched
        command, *flags = each["args"]
        section = CliRunner().invoke(cli, [command, "--help"], terminal_width=1000).output
        named = {flag.partition("=")[0] for flag in flags}
        of_commands = {"DYNSCHED_SERVER", "DYNSCHED_SERVER_TOKEN_FILE"}  # read by `dynsched nodes`
        named |= {e["name"] for e in each.get("env", ())} - of_commands
        for source in each.get("envFrom", ()):
            named |= the(docs, "ConfigMap", source["configMapRef"]["name"])["data"].keys()
        assert {word for word in named if not re.search(rf"{word}\b", section)} == set()


@pytest.mark.parametrize(("name", "pod"), PODS)
def test_probes_use_named_ports_and_the_right_paths(name: str, pod: str) -> None:
    for each in templates(rendered(name))[pod]["spec"]["containers"]:
        ports = {port["name"] for port in each.get("ports", ())}
        asked = {
            kind: each[f"{kind}Probe"]["httpGet"]
            for kind in ("liveness", "readiness", "startup")
            if f"{kind}Probe" in each
        }
        assert {get["port"] for get in asked.values()} <= ports
        assert {get.get("scheme", "HTTP").lower() for get in asked.values()} <= ports
        if "http" in ports:
            paths = {kind: get["path"] for kind, get in asked.items()}
            assert paths == {"liveness": "/healthz", "readiness": "/readyz", "startup": "/healthz"}
        if "startupProbe" in each:  # each failure is a Warning Event, and a start takes 2 s
            assert each["startupProbe"]["initialDelaySeconds"] == 5


DNS, API = {53, 5353}, {443, 6443}
POLICIES = {
    ("ha", "dynsched"): ({9000}, DNS | API | {9090}),
    ("janitor", "dynsched-janitor"): (set(), DNS | API),
    ("kubectl", "dynsched-kubectl"): ({9000}, set()),
    ("extender", "dynsched-extender"): ({9000}, set()),
    ("descheduler", "dynsched-descheduler"): (set(), DNS | API | {9090}),
    (SECOND, SECOND): ({9000, 10259}, DNS | API | {9090}),
    ("collector", "dynsched-collector"): (set(), DNS | {9091}),
}


@pytest.mark.parametrize(("name", "policy"), POLICIES)
def test_a_network_policy_allows_exactly_the_needed_ports(name: str, policy: str) -> None:
    docs = rendered(name)
    spec = the(docs, "NetworkPolicy", policy)["spec"]
    reached = tuple(
        {port["port"] for rule in spec.get(way, ()) for port in rule["ports"]}
        for way in ("ingress", "egress")
    )
    assert reached == POLICIES[name, policy]
    chosen = spec["podSelector"]["matchLabels"].items()
    pods = {pod: each["metadata"]["labels"] for pod, each in templates(docs).items()}
    own = policy if policy in pods else "dynsched"
    # The janitor's pod must not have dynsched's labels, or the Service would route to it.
    assert [pod for pod, labels in pods.items() if chosen <= labels.items()] == [own]
    if name in ("ha", SECOND):
        assert the(docs, "PodDisruptionBudget", own)["spec"]["selector"] == spec["podSelector"]
        # Only the namespace of Prometheus in the settings may call: the port has no authentication.
        (callers,) = spec["ingress"][0]["from"]
        (namespace,) = callers["namespaceSelector"]["matchLabels"].values()
        (settings,) = (d["data"] for d in docs if "DYNSCHED_PROM" in d.get("data", ()))
        assert f".{namespace}.svc" in settings["DYNSCHED_PROM"]


@pytest.mark.parametrize("more", [[], ["extender"]], ids=["alone", "with extender"])
def test_the_extender_gets_a_port_that_only_the_control_plane_reaches(more, tmp_path) -> None:
    docs = composed(tmp_path / "k", *more, "extender-port")
    assert {"name": "DYNSCHED_EXTENDER_ADDR", "value": ":9001"} in container(docs)["env"]
    ports = {each["name"]: each["containerPort"] for each in container(docs)["ports"]}
    assert ports == {"http": 9000, "extender": 9001}
    service = the(docs, "Service")["spec"]["ports"]
    assert {each["targetPort"]: each["port"] for each in service} == ports
    reached = {
        doc["metadata"]["name"]: [p["port"] for r in doc["spec"]["ingress"] for p in r["ports"]]
        for doc in docs
        if doc["kind"] == "NetworkPolicy"
    }
    assert reached == {"dynsched": [9000], **{f"dynsched-{name}": [9001] for name in more}}


def test_all_shipped_manifests_have_the_rules_of_the_working_example() -> None:
    """test_chart.py shows the same for the chart."""
    shipped = load_rules(ROOT / "rules.yaml")
    assert str(shipped.mark) == "label status=presure"
    assert shipped.order is not None
    assert shipped.order.score == {"node-cpu": 1}
    mounted = {
        name: the(rendered(name), "ConfigMap", "dynsched-rules")["data"]["rules.yaml"]
        for name in ("base", "example", "descheduler", "extender")
    }
    assert mounted.pop("extender") == (OVERLAYS / "extender/rules.yaml").read_text()
    for name, text in mounted.items():
        rules = parse_rules(yaml.safe_load(text))
        # The descheduler needs label and taint, and its rules have both.
        taint = " and taint dynsched.io/pressure=true:PreferNoSchedule"
        assert str(rules.mark) == f"{shipped.mark}{taint * (name == 'descheduler')}"
        assert rules.order == shipped.order
        assert (rules.rules, rules.guard) == (shipped.rules, shipped.guard), name


def test_changed_settings_restart_the_pod_and_changed_rules_do_not(tmp_path) -> None:
    """The name of the settings' ConfigMap has a hash of its content."""
    other = {"name": "dynsched-settings", "namespace": "dynsched", "behavior": "merge"}
    other["literals"] = ["DYNSCHED_PROM=http://mine.monitoring.svc:9090"]
    changed = composed(tmp_path / "changed", configMapGenerator=[other])
    names = []
    for docs, service in ((rendered("base"), "prometheus-operated"), (changed, "mine")):
        names.append(container(docs)["envFrom"][0]["configMapRef"]["name"])
        url = the(docs, "ConfigMap", names[-1])["data"]["DYNSCHED_PROM"]
        assert url == f"http://{service}.monitoring.svc:9090"
        volumes = templates(docs)["dynsched"]["spec"]["volumes"]
        (rules,) = (volume for volume in volumes if volume["name"] == "rules")
        assert rules["configMap"]["name"] == "dynsched-rules"
    assert names[0] != names[1]


def test_a_custom_image_applies_to_the_janitor_too(tmp_path: Path) -> None:
    """It is set in the overlay to which the component is added, or together with the component."""
    mine = OVERLAYS / "example"
    images = yaml.safe_load((mine / "kustomization.yaml").read_text())["images"]
    for docs in (
        composed(tmp_path / "below", "janitor", resource=mine),
        composed(tmp_path / "here", "janitor", images=images),
    ):
        for name in ("dynsched", "dynsched-janitor"):
            image = templates(docs)[name]["spec"]["containers"][0]["image"]
            assert image == f"registry.example.com/platform/dynsched:{__version__}"


@pytest.mark.parametrize("name", ["extender", SECOND])
def test_extender_calls_are_ignorable_and_every_rule_names_a_resource(name: str) -> None:
    (extender,) = scheduler_config(name)["extenders"]
    assert re.fullmatch(r"http://[\w.-]+:9000", extender.pop("urlPrefix"))
    verbs = {f"{verb}Verb": verb for verb in ("filter", "prioritize", "preempt")}
    fixed = {"nodeCacheCapable": True, "ignorable": True, "enableHTTPS": False}
    assert extender == {**verbs, **fixed, "weight": 5, "httpTimeout": "2s"}
    assert all(rule.resource for rule in load_rules(OVERLAYS / name / "rules.yaml").rules)


def test_the_second_scheduler_has_its_own_lease_and_a_dynsched_in_dry_run() -> None:
    docs = rendered(SECOND)
    config = scheduler_config(SECOND)
    lease = {"resourceNamespace": SECOND, "resourceName": SECOND}
    assert config["leaderElection"] == {"leaderElect": True, **lease}
    names = {profile["schedulerName"] for profile in config["profiles"]}
    assert names == {"mem-real-usage-scheduler", "cpu-real-usage-scheduler"}
    rule_set = load_rules(OVERLAYS / SECOND / "rules.yaml")
    assert rule_set.extender.profiles.keys() == names
    resources = {rule.name: rule.resource for rule in rule_set.rules}
    for name, profile in rule_set.extender.profiles.items():
        assert [(resources[rule] or "")[:3] for rule in profile.score] == [name[:3]]
    (nginx,) = load_all(EXAMPLES / "nginx-mem-real-usage.yaml")
    assert nginx["spec"]["template"]["spec"]["schedulerName"] in names
    _, ours = templates(docs)[SECOND]["spec"]["containers"]
    base = container(rendered("base"))
    assert ours["args"] == [base["args"][0], "--dry-run", *base["args"][1:]]


def test_the_scrape_example_sets_the_node_label(tmp_path: Path) -> None:
    """Some builds of Prometheus (Debian's) have no Kubernetes discovery, so its labels are written
    into a static target.
    """
    text = (EXAMPLES / "prometheus-scrape.yaml").read_text()
    config = yaml.safe_load(text.replace("/var/run/secrets", str(tmp_path)))
    discovered = [s for s in config["scrape_configs"] if s.pop("kubernetes_sd_configs", None)]
    meta = "__meta_kubernetes_node"
    found = {f"{meta}_address_InternalIP": "10.0.0.7", f"{meta}_name": "worker-3"}
    target = {"targets": ["10.0.0.7:10250"], "labels": found | {"instance": "worker-3"}}
    for scrape in discovered:
        scrape["static_configs"] = [target]
    path, account = tmp_path / "prometheus.yml", tmp_path / "kubernetes.io/serviceaccount"
    path.write_text(yaml.safe_dump(config))
    account.mkdir(parents=True)
    for name in ("token", "ca.crt"):
        (account / name).touch()
    promtool = need("promtool", "prometheus")
    checked = run(promtool, "check", "config", path)
    assert checked.returncode == 0, checked.stderr
    scraped = {}
    for job in (scrape["job_name"] for scrape in discovered):
        done = run(promtool, "check", "service-discovery", "--timeout=1s", path, job)
        ((labels,),) = ([each["labels"]] for each in json.loads(done.stdout))
        assert (labels["node"], labels["instance"]) == ("worker-3", "worker-3")
        scraped[job] = "{__scheme__}://{__address__}{__metrics_path__}".format_map(labels)
    assert scraped == {
        "node-exporter": "http://10.0.0.7:9100/metrics",
        "kubernetes-cadvisor": "https://10.0.0.7:10250/metrics/cadvisor",
    }
