"""charts/dynsched: it renders the same objects as kustomize, and what each value changes."""

import base64
import json
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_support import (
    CHART,
    PARTS,
    TAINT,
    Chart,
    HelmError,
    by_identity,
    everything,
    helm,
    lint,
    notes,
    sdk,
    switched_on,
    value_of,
)
from manifest_support import (
    BASE,
    COMPONENTS,
    OPERATOR_KINDS,
    OVERLAYS,
    Doc,
    beside,
    kustomize,
    overlay,
    templates,
    the,
)
from programs import ROOT, run

from dynsched import __version__
from dynsched.rules import rule_set, sections
from dynsched.rules.file import load_rules
from dynsched.rules.parse import parse_rules
from dynsched_sim.apiserver.objects import merge_patch
from tools.chart_docs import leaves, render

pytestmark = pytest.mark.thorough

INJECTION = "MutatingAdmissionPolicy/dynsched-avoid-pressure/spec"
INJECTED, _ = yaml.safe_load_all((COMPONENTS / "inject/policy.yaml").read_text())
EXAMPLES = ROOT / "manifests/examples/managed-prometheus"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def composed(folder: Path, parts: tuple[str, ...]) -> list[Doc]:
    """What kustomize renders from the base and these parts."""
    components = [COMPONENTS / part for part in parts if part != "collector"]
    base = OVERLAYS / "descheduler" if "descheduler" in parts else BASE  # with the taint
    components = [each for each in components if each.name != base.name]
    content: Doc = {"resources": beside(folder, base), "components": beside(folder, *components)}
    if "collector" in parts:
        content["resources"] += beside(folder, OVERLAYS / "collector")
    return kustomize(overlay(folder, **content))


def test_the_chart_by_default_is_the_base(tmp_path: Path) -> None:
    ours = by_identity(helm())
    assert ours == by_identity(composed(tmp_path / "k", ()))
    rules = ours["ConfigMap", "dynsched", "dynsched-rules"]["data"]["rules.yaml"]
    assert rules == yaml.safe_load((ROOT / "rules.yaml").read_text())
    everything_else = helm(everything())
    assert len(everything_else) > 30
    composed_too = composed(tmp_path / "all", PARTS)
    # Validated by test_schemas.py.
    assert by_identity(everything_else) == by_identity(composed_too)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_the_component_of_this_name(part: str, tmp_path: Path) -> None:
    assert by_identity(helm(switched_on(part))) == by_identity(composed(tmp_path / "k", (part,)))


WEBHOOK = "dynsched-order-webhook"


def by_webhook(**webhook: Any) -> Doc:
    return {"order": {"by": "webhook", "webhook": webhook}}


def test_order_by_webhook_equals_the_component_and_the_chart_makes_its_certificate(
    tmp_path: Path,
) -> None:
    given = by_webhook(secret=WEBHOOK, injectCaFrom=f"dynsched/{WEBHOOK}")
    wanted = by_identity(composed(tmp_path / "k", ("order-webhook",)))
    assert by_identity(helm(given)) == wanted
    own = by_identity(helm(by_webhook(), namespace="scheduling"))
    (webhook,) = own["MutatingWebhookConfiguration", "", "dynsched-order"]["webhooks"]
    assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == [
        *("kube-system", "scheduling"),
    ]
    assert webhook["clientConfig"]["service"]["namespace"] == "scheduling"
    secret = own["Secret", "scheduling", WEBHOOK]
    assert webhook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
    for name, content in secret["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(content))
    check = ("verify", "-verify_hostname", "dynsched.scheduling.svc", "-purpose", "sslserver")
    done = run("openssl", *check, "-CAfile", tmp_path / "ca.crt", tmp_path / "tls.crt")
    assert done.returncode == 0, done.stderr
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
        tmp_path / "tls.crt", tmp_path / "tls.key"
    )
    assert "by a webhook" in notes(by_webhook())
    assert "by a webhook" not in notes(everything())


@pytest.mark.parametrize("values", [{}, everything()], ids=["default", "everything"])
def test_helm_lint_passes_and_the_notes_explain_use_and_removal(values: Doc) -> None:
    report = lint(CHART, values, strict=True, kube_version="v1.37.0")
    found = [each["error"] for each in report["messages"] if each["error"] != "icon is recommended"]
    assert (found, report["errors"]) == ([], [])
    text = notes(values)
    for words in ("dynsched nodes", "uninstall dynsched   # removes the marks from nodes first"):
        assert words in text
        assert words in notes({"mark": {"label": "", "taint": TAINT}})
    assert "kubectl label namespace NAME dynsched.io/avoid-pressure=true" in text
    assert "dynsched prune --take-lease" in notes({"pruneOnUninstall": False})
    assert "\n\n\n" not in text
    assert ("kubectl get nodes -L status" in text) is True
    assert ("scale deployment dynsched-descheduler --replicas 0" in text) is bool(values)
    assert ("--clusterrole=dynsched-reader" in text) is bool(values)


def test_another_namespace_is_used_everywhere_and_network_policies_can_be_left_out() -> None:
    own = {"scheduling", "default", "dynsched-collector", "dynsched-descheduler"}
    without = helm(everything(networkPolicy={"enabled": False}), namespace="scheduling")
    assert "NetworkPolicy" not in {doc["kind"] for doc in without}
    docs = helm(everything(), namespace="scheduling")
    assert {doc["metadata"].get("namespace", "scheduling") for doc in docs} == own
    in_default = [doc["kind"] for doc in docs if doc["metadata"].get("namespace") == "default"]
    assert sorted(in_default) == ["Role", "RoleBinding"]  # for Events about nodes
    named = [doc for doc in docs if doc["metadata"]["name"] != "dynsched-dashboard"]
    text = yaml.safe_dump_all(named)
    assert not re.search(r"namespace: dynsched$", text, re.MULTILINE)
    assert "serviceaccount:dynsched:" not in text
    assert "system:serviceaccount:scheduling:dynsched-janitor" in text


def at(docs: list[Doc], where: str) -> Any:
    """The part of an object at `Kind/name/path.to.a.part`."""
    kind, name, path = where.split("/", 2)
    found: Any = the(docs, kind, name)
    for key in path.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key.replace("~", ".")]
        if key.endswith("~yaml"):
            found = yaml.safe_load(found)
    return found


POD = "Deployment/dynsched/spec.template.spec"
PREFERENCE = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution.0.preference"
SETTINGS = "ConfigMap/dynsched-settings/data"
JANITOR = "CronJob/dynsched-janitor/spec.jobTemplate.spec.template.spec"
COLLECTOR = "DaemonSet/dynsched-collector/spec.template.spec"
DESCHEDULER = "Deployment/dynsched-descheduler/spec.template.spec.containers.0"
SECRET = "/etc/dynsched/prometheus/"
POLICY = "ConfigMap/dynsched-descheduler-policy/data.policy~yaml"
EVICTOR = f"{POLICY}.profiles.0.pluginConfig.0.args"

PROMETHEUS = f"{SETTINGS}.DYNSCHED_PROM"

SET: list[tuple[str, str, Any]] = [
    # the argument of --set, the place that it changes, and its content (``...``: text after "=")
    ("image.repository=example.com/d", f"{POD}.containers.0.image", f"example.com/d:{__version__}"),
    ("image.tag=7", f"{JANITOR}.containers.0.image", "dynsched:7"),
    ("image.pullPolicy=Always", f"{COLLECTOR}.containers.0.imagePullPolicy", ...),
    ("image.pullSecrets={a,b}", f"{POD}.imagePullSecrets", [{"name": "a"}, {"name": "b"}]),
    ("prometheus.secret=mine", f"{POD}.volumes.1.secret.secretName", ...),
    ("prometheus.url=http://p:1/x", PROMETHEUS, ...),
    ("prometheus.tokenKey=token", f"{PROMETHEUS}_BEARER_TOKEN_FILE", SECRET + "token"),
    ("prometheus.serviceAccountToken=true", f"{PROMETHEUS}_BEARER_TOKEN_FILE",
     "/var/run/secrets/kubernetes.io/serviceaccount/token"),
    ("prometheus.username=ann", f"{PROMETHEUS}_USERNAME", ...),
    ("prometheus.passwordKey=p", f"{PROMETHEUS}_PASSWORD_FILE", SECRET + "p"),
    ("prometheus.caKey=ca", f"{PROMETHEUS}_CA_FILE", SECRET + "ca"),
    ("prometheus.certKey=c", f"{PROMETHEUS}_CERT_FILE", SECRET + "c"),
    ("prometheus.keyKey=k", f"{PROMETHEUS}_KEY_FILE", SECRET + "k"),
    ("prometheus.insecureSkipVerify=true", f"{PROMETHEUS}_INSECURE_SKIP_VERIFY", ...),
    ("prometheus.headers.X-Scope-OrgID=a", f"{PROMETHEUS}_HEADER", "X-Scope-OrgID: a"),
    ("prometheus.externalUrl=https://prom.example.com", f"{PROMETHEUS}_EXTERNAL_URL", ...),
    ("mark.label=example.com/heat=high", f"{POD}.{PREFERENCE}.matchExpressions.0",
     {"key": "example.com/heat", "operator": "NotIn", "values": ["high"]}),
    ("replicas=3", "Deployment/dynsched/spec.replicas", 3),
    ("runAsUser=7", f"{JANITOR}.securityContext.fsGroup", 7),
    ("serviceAccountAnnotations.a=b", "ServiceAccount/dynsched/metadata.annotations", {"a": "b"}),
    ("sidecars[0].name=a,sidecars[0].image=b", f"{POD}.initContainers",
     [{"name": "a", "image": "b"}]),
    ("interval=30s", f"{SETTINGS}.DYNSCHED_INTERVAL", ...),
    ("logFormat=text", f"{SETTINGS}.DYNSCHED_LOG_FORMAT", ...),
    ("settings.DYNSCHED_LOG_LEVEL=debug", f"{SETTINGS}.DYNSCHED_LOG_LEVEL", ...),
    ("resources.limits.memory=1Gi", f"{POD}.containers.0.resources", {"limits": {"memory": "1Gi"}}),
    ("nodeSelector.pool=infra", f"{POD}.nodeSelector", {"pool": "infra"}),
    ("tolerations[0].key=a", f"{POD}.tolerations", [{"key": "a"}]),
    ("priorityClassName=p", f"{POD}.priorityClassName", ...),
    ("monitoring.labels.release=kps", "PrometheusRule/dynsched/metadata.labels.release", ...),
    ("inject.weight=7", f"{INJECTION}.variables.0.expression",
     INJECTED["spec"]["variables"][0]["expression"].replace("dyn(100)", "dyn(7)")),
    ("order.score.node-cpu=2", "ConfigMap/dynsched-rules/data.rules~yaml.order",
     {"score": {"node-cpu": 2}}),
    ("order.by=webhook", "Service/dynsched/spec.ports.0",
     {"name": "webhook", "port": 9443, "targetPort": "webhook"}),
    ("order.webhook.secret=mine,order.webhook.caBundle=YWJj,order.by=webhook",
     f"{POD}.volumes.0.secret.secretName", "mine"),
    ("order.webhook.caBundle=YWJj,order.webhook.secret=mine,order.by=webhook",
     "MutatingWebhookConfiguration/dynsched-order/webhooks.0.clientConfig.caBundle", "YWJj"),
    ("order.webhook.injectCaFrom=a/b,order.webhook.secret=mine,order.by=webhook",
     "MutatingWebhookConfiguration/dynsched-order/metadata.annotations",
     {"cert-manager.io/inject-ca-from": "a/b"}),
    ("order.webhook.cidrs={10.0.0.1/32},order.by=webhook",
     "NetworkPolicy/dynsched-order-webhook/spec.ingress.0.from",
     [{"ipBlock": {"cidr": "10.0.0.1/32"}}]),
    ("extender.cidrs={10.0.0.1/32}", "NetworkPolicy/dynsched-extender/spec.ingress.0.from",
     [{"ipBlock": {"cidr": "10.0.0.1/32"}}]),
    ("kubectl.cidrs={10.0.0.1/32}", "NetworkPolicy/dynsched-kubectl/spec.ingress.0.from",
     [{"ipBlock": {"cidr": "10.0.0.1/32"}}]),
    ("collector.pushgateway=http://g",
     "ConfigMap/dynsched-collector-settings/data.DYNSCHED_PUSHGATEWAY", ...),
    ("networkPolicy.from=observability",
     "NetworkPolicy/dynsched/spec.ingress.0.from.0.namespaceSelector.matchLabels",
     {"kubernetes.io/metadata.name": "observability"}),
    ("networkPolicy.prometheusPorts={9091,8080}",
     "NetworkPolicy/dynsched-descheduler/spec.egress.2.ports",
     [{"port": 9091, "protocol": "TCP"}, {"port": 8080, "protocol": "TCP"}]),
    ("networkPolicy.apiServerPorts={443,16443}",
     "NetworkPolicy/dynsched-janitor/spec.egress.1.ports",
     [{"port": 443, "protocol": "TCP"}, {"port": 16443, "protocol": "TCP"}]),
    ("descheduler.image=d:1", f"{DESCHEDULER}.image", ...),
    ("descheduler.interval=10m", f"{DESCHEDULER}.args.1", "--descheduling-interval=10m"),
    ("descheduler.prometheusUrl=http://q", f"{POLICY}.metricsProviders.0.prometheus.url", ...),
    ("descheduler.secret=mine",
     f"{POLICY}.metricsProviders.0.prometheus.authToken.secretReference.name", ...),
    ("descheduler.maxPerNode=2", f"{POLICY}.maxNoOfPodsToEvictPerNode", 2),
    ("descheduler.maxTotal=9", f"{POLICY}.maxNoOfPodsToEvictTotal", 9),
    ("descheduler.minPodAge=1h", f"{EVICTOR}.minPodAge", ...),
    ("descheduler.minReplicas=3", f"{EVICTOR}.minReplicas", 3),
    ("descheduler.priorityThreshold=2000000000", f"{EVICTOR}.priorityThreshold.value", 2 * 10**9),
    ("descheduler.excludeNamespaces={a,b}",
     f"{POLICY}.profiles.0.pluginConfig.1.args.evictableNamespaces", {"exclude": ["a", "b"]}),
]  # fmt: skip

ELSEWHERE = {f"{value_of(part)}.enabled" for part in (*PARTS, "networkPolicy", "order")}
ELSEWHERE |= {"mark.taint", "mark.force", "rules", "pruneOnUninstall"}
"""Values with tests of their own."""


@pytest.mark.parametrize(("text", "where", "expected"), SET, ids=[text for text, *_ in SET])
def test_each_value_changes_the_right_place(text: str, where: str, expected: Any) -> None:
    docs = helm(merge_patch(everything(), sdk.parse_set_string(text)))
    assert at(docs, where) == (text.partition("=")[2] if expected is ... else expected)
    # A given Secret replaces the chart's.
    assert any(doc["kind"] == "Secret" for doc in docs) is (text != "descheduler.secret=mine")


def test_every_value_is_tested_described_and_in_the_readme() -> None:
    found = leaves((CHART / "values.yaml").read_text())
    for leaf in found:
        tried = [text for text, *_ in SET if re.match(rf"{re.escape(leaf.path)}[.=\[]", text)]
        assert len(tried) == (leaf.path not in ELSEWHERE), leaf.path
    assert {leaf.path for leaf in found} >= ELSEWHERE
    assert all(leaf.comment for leaf in found)
    assert (CHART / "README.md").read_text() == render(CHART)


def test_the_schema_knows_each_value_and_no_other() -> None:
    def paths(schema: Doc, above: str = "") -> set[str]:
        found = set()
        for name, each in schema["properties"].items():
            if "properties" in each:
                assert each["additionalProperties"] is False
                found |= paths(each, f"{above}{name}.")
            elif each:  # {}: it was removed
                found.add(above + name)
        return found

    assert paths(SCHEMA) - {"global"} == {
        leaf.path for leaf in leaves((CHART / "values.yaml").read_text())
    }


@pytest.mark.parametrize(
    "removed", [{"scaleDown": {"enabled": True}}, {"mutatingPolicies": "v1beta1"}], ids=list
)
def test_a_removed_value_changes_nothing_and_the_notes_name_it(removed: Doc) -> None:
    assert by_identity(helm(removed)) == by_identity(helm())
    assert f"{next(iter(removed))} was removed in 0.3.0; instead: " in notes(removed)


def test_the_schema_knows_each_key_of_the_rules_and_accepts_every_example() -> None:
    known = {name: each for name, each in SCHEMA["definitions"].items() if "properties" in each}
    assert known.keys() > {"RuleSet", "Rule"}  # each has the name of its model
    for name, schema in known.items():
        fields = (vars(sections) | vars(rule_set))[name].model_fields.items()
        keys = {key for key, each in schema["properties"].items() if each}  # {}: it was removed
        assert keys == {f.alias or key for key, f in fields} - {"mark"}
        assert schema["additionalProperties"] is False
    for path in [*(ROOT / "docs/examples").glob("*.yaml"), *OVERLAYS.rglob("rules.yaml")]:
        if "rules" in (content := yaml.safe_load(path.read_text())):
            content.pop("mark", None)
            values = {"rules": content, "order": {"enabled": "order" in content}}
            assert rules_of(values).rules == load_rules(path).rules, path
    *_, release = yaml.safe_load_all((ROOT / "docs/examples/gitops/flux-helm.yaml").read_text())
    assert [rule.name for rule in rules_of(release["spec"]["values"]).rules] == ["node-cpu"]


WRONG = [
    *("mark.lable=a=b", "mark.label=presure", "mark.taint=a=b:NoSchedule", "nodeselector.a=b"),
    *("inject.weight=101", "inject.weight=0", "ha.enabled=maybe", "descheduler.maxTotal=-1"),
    *("order.score.node-cpu=-1", "order.by=kyverno", "order.webhook.injectCaFrom=a"),
    *("networkPolicy.prometheusPorts={http}", "prometheus.url=prometheus:9090"),
    *("rules.mark.label=a=b", "rules.rules=none", "logFormat=xml"),
]
MISSPELT = {"rules": [{"name": "a", "expr": "up", "threshold": 1, "treshold": 2}]}
IMPOSSIBLE: list[tuple[Doc, str]] = [
    ({"inject": {"enabled": True}, "mark": {"label": "", "taint": TAINT}}, "inject.enabled"),
    ({"descheduler": {"enabled": True}, "mark": {"taint": ""}}, "descheduler.enabled"),
    ({"descheduler": {"enabled": True}, "mark": {"label": "", "taint": TAINT}},
     "descheduler.enabled"),
    ({"mark": {"label": ""}, "order": {"enabled": False}}, "mark.label and mark.taint are both e"),
    ({"rules": MISSPELT}, "treshold"),
    ({"rules": {"rules": [{"name": "a", "expr": "up", "threshold": 1}]}}, "name node-cpu"),
    ({"order": {"score": {"other": 1}}}, "name other"),
    (by_webhook(secret="mine"), "order.webhook.secret needs order.webhook.caBundle"),
]  # fmt: skip


def test_invalid_and_impossible_values_are_refused_before_installation() -> None:
    wrong = [(sdk.parse_set_string(text), re.split("[.=]", text)[0]) for text in WRONG]
    with Chart.load(CHART) as chart:
        for values, reason in (*wrong, *IMPOSSIBLE):
            with pytest.raises(HelmError, match=reason):
                chart.render(values, name="d", namespace="d")


def rules_of(values: Doc) -> Any:
    text = the(helm(values), "ConfigMap", "dynsched-rules")["data"]["rules.yaml"]
    return parse_rules(yaml.safe_load(text))


def test_the_rules_are_the_shipped_or_the_given_ones_with_the_mark_of_the_values() -> None:
    rules = rules_of({"mark": {"label": "a=b", "taint": TAINT}})
    assert str(rules.mark) == f"label a=b and taint {TAINT}"
    assert rules.rules == load_rules(ROOT / "rules.yaml").rules
    alone = rules_of({"mark": {"label": "", "taint": TAINT}})
    assert str(alone.mark) == f"taint {TAINT}"
    mine = {"stale_after": "7m", "rules": [{"name": "a", "expr": "up", "threshold": 1}]}
    own = rules_of({"rules": mine, "order": {"score": {"a": 2}}})
    assert [rule.name for rule in own.rules] == ["a"]
    assert (str(own.mark), own.stale_after) == ("label status=presure", 420)
    assert rules_of({"rules": mine, "order": {"enabled": False}}).order is None
    packed = {"score": {"a": 1}, "pack": True}
    for order, found in (
        (own.order, (2, False)),
        (rules_of({"rules": mine | {"order": packed}}).order, (1, True)),
        (rules_of({"rules": mine | {"rules": [{**mine["rules"][0], "name": "node-cpu"}]}}).order,
         (1, False)),
    ):  # fmt: skip
        assert order is not None
        assert (*order.score.values(), order.pack) == found


def test_without_a_mark_there_is_an_order_and_no_permission_to_write_nodes() -> None:
    alone: Doc = {"mark": {"label": ""}}
    assert rules_of(alone).mark.is_none
    role, base = (the(docs, "ClusterRole") for docs in (helm(alone), helm()))
    assert role == the(kustomize(OVERLAYS / "order-only"), "ClusterRole") != base
    assert " writes no node." in notes(alone)


def test_another_label_is_used_in_every_object() -> None:
    label = {"label": "example.com/heat=high"}
    docs = helm(everything(mark=label | {"taint": TAINT}))
    text = (COMPONENTS / "inject/policy.yaml").read_text()
    text = text.replace("'status'", "'example.com/heat'").replace("'presure'", "'high'")
    for each in yaml.safe_load_all(text):
        assert the(docs, each["kind"], "dynsched-avoid-pressure")["spec"] == each["spec"]
    assert marks_of(docs) == "['example.com/heat=high']"
    policy = the(docs, "ConfigMap", "dynsched-descheduler-policy")["data"]["policy.yaml"]
    assert "nodeSelector: example.com/heat!=high" in policy
    rest = [doc for doc in docs if doc["metadata"]["name"] != "dynsched-rules"]
    assert "status=presure" not in yaml.safe_dump_all(rest)


def marks_of(docs: list[Doc]) -> Any:
    """The marks that the guardrail allows dynsched to write."""
    policy = the(docs, "ValidatingAdmissionPolicy", "dynsched-guardrail")
    return policy["spec"]["variables"][0]["expression"]


def test_the_values_for_kube_prometheus_stack_name_it_everywhere() -> None:
    values = yaml.safe_load((CHART / "values-kube-prometheus-stack.yaml").read_text())
    docs = helm(values)
    for kind in OPERATOR_KINDS:
        assert the(docs, kind)["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    (caller,) = the(docs, "NetworkPolicy")["spec"]["ingress"][0]["from"]
    (namespace,) = caller["namespaceSelector"]["matchLabels"].values()
    assert at(docs, PROMETHEUS) == f"http://prometheus-operated.{namespace}.svc:9090"
    assert at(docs, PROMETHEUS) == at(helm(), PROMETHEUS)


@pytest.mark.parametrize("name", ["amazon", "azure", "google"])
def test_the_values_for_a_managed_prometheus_have_its_examples_proxy(name: str) -> None:
    docs = helm(yaml.safe_load((CHART / f"values-{name}.yaml").read_text()))
    example = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"]["template"]["spec"]
    assert at(docs, f"{POD}.initContainers") == example["initContainers"]
    port = re.escape(at(docs, PROMETHEUS).split(":")[2].partition("/")[0])
    assert re.search(rf"\b{port}\b", yaml.safe_dump(example))
    account = the(docs, "ServiceAccount")["metadata"].get("annotations", {})
    assert len(account) == (name != "azure")


def test_without_run_as_user_the_cluster_assigns_one() -> None:
    docs = helm(everything(runAsUser=None))
    contexts = [each["spec"]["securityContext"] for each in templates(docs).values()]
    assert len(contexts) == 4
    for each in contexts:
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & each.keys()
        assert each["runAsNonRoot"] is True


def test_a_taint_alone_needs_no_affinity() -> None:
    docs = helm({"mark": {"label": "", "taint": TAINT}, "guardrail": {"enabled": True}})
    assert "affinity" not in the(docs, "Deployment")["spec"]["template"]["spec"]
    assert marks_of(docs) == "[]"


def test_changed_settings_restart_the_pods_and_changed_rules_do_not() -> None:
    def annotations(values: Doc) -> Any:
        return the(helm(values), "Deployment")["spec"]["template"]["metadata"]["annotations"]

    assert annotations({}) != annotations({"interval": 20})
    mine = {"rules": [{"name": "node-cpu", "expr": "up", "threshold": 1}]}
    assert annotations({}) == annotations({"rules": mine})
    assert annotations({}) == annotations({"mark": {"taint": TAINT}})
