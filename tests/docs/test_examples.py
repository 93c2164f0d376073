"""Every published rules file loads, its expressions are PromQL, and they measure what they claim.

Prometheus itself evaluates the expressions on test series.
"""

import re
from pathlib import Path

import pytest
import yaml
from programs import ROOT, need, run
from promql_support import check_values

from dynsched.rules.file import load_rules
from dynsched.rules.parse import parse_rules

FILES = [
    ROOT / "rules.yaml",
    *sorted((ROOT / "manifests/overlays").rglob("rules.yaml")),
    *sorted((ROOT / "docs/examples").glob("*.yaml")),
    *sorted((ROOT / "dynsched").rglob("*rules.yaml")),
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(page: Path) -> list[str]:
    """The YAML blocks of a page that are complete rules files."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if re.search(r"^(rules|Rulename):", block, re.MULTILINE)]


def commented_out() -> str:
    """rules.yaml with its commented-out rules activated."""
    text = (ROOT / "rules.yaml").read_text()
    return re.sub(r"^  # ((?:- name|  )[^\n]*)$", r"  \1", text, flags=re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_rules_file_loads(path: Path) -> None:
    assert load_rules(path).rules


def test_rules_files_in_pages_load() -> None:
    for page in PAGES:
        for block in shown(page):
            assert parse_rules(yaml.safe_load(block)).rules, (page, block)


def test_commented_out_rules_load_too() -> None:
    names = [rule.name for rule in parse_rules(yaml.safe_load(commented_out())).rules]
    assert names == ["node-cpu", "node-mem-usage", "node-mem-available", "node-mem-allocatable"]


def test_every_expression_is_promql(tmp_path: Path) -> None:
    texts = [path.read_text() for path in FILES]
    texts += [commented_out(), *(block for page in PAGES for block in shown(page))]
    rules = [rule for text in texts for rule in parse_rules(yaml.safe_load(text)).rules]
    expressions = sorted({rule.expr for rule in rules if rule.expr is not None})
    records = [{"record": f"example:{n}", "expr": expr} for n, expr in enumerate(expressions)]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "examples", "rules": records}]}))
    done = run(need("promtool", "prometheus"), "check", "rules", path)
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(expressions)} rules found" in done.stdout


CPU = 'node_cpu_seconds_total{{instance="{node}", cpu="{cpu}", mode="{mode}", job="{job}"}}'
NODES = {"10.0.0.7:9100": 45, "worker-2": 12}  # busy seconds per minute on each of two CPUs
JOBS = ("node-exporter", "twice")  # the same exporter scraped by two jobs


def series_of_two_nodes() -> dict[str, str]:
    series = {}
    for node, busy in NODES.items():
        for job in JOBS:
            for cpu in ("0", "1"):
                for mode, seconds in (("user", busy), ("idle", 60 - busy)):
                    name = CPU.format(node=node, cpu=cpu, mode=mode, job=job)
                    series[name] = f"0+{seconds / 4}x40"
            for name, value in (
                ("node_memory_MemTotal_bytes", 16e9),
                ("node_memory_MemAvailable_bytes", 4e9 if busy > 30 else 12e9),
                ("machine_memory_bytes", 16e9),
            ):
                series[f'{name}{{instance="{node}", job="{job}"}}'] = f"{value:.0f}x40"
        for group in ("/", "/system.slice"):
            name = f'container_memory_working_set_bytes{{instance="{node}", id="{group}"}}'
            series[name] = f"{14e9:.0f}x40"
    return series


def test_the_working_example_measures_what_it_claims(tmp_path: Path) -> None:
    rules = {rule.name: rule.expr for rule in parse_rules(yaml.safe_load(commented_out())).rules}
    hot, cool = NODES
    expected = {
        "node-cpu": {hot: 75, cool: 20},
        "node-mem-usage": {hot: 75, cool: 25},
        "node-mem-available": {hot: 1907.349, cool: 1907.349},
    }
    expected = {
        rules[name]: {f'{{instance="{node}"}}': value for node, value in values.items()}
        for name, values in expected.items()
    }
    check_values(tmp_path, series_of_two_nodes(), expected, "5m", "15s")


KUBELETS = ('instance="10.0.0.7:10250",node="worker-1"', 'instance="worker-2"')
"""Labels of a node in kube-prometheus, and in the Helm chart of Prometheus."""


def series_of_cadvisor() -> dict[str, str]:
    """Series of nodes of 4 cores and 16 GB: the node, its cgroups, and a container."""
    groups = {
        'id="/"': (3, 12),
        'id="/kubepods.slice"': (2.5, 10),
        'id="/kubepods.slice/pod1",namespace="shop",pod="web"': (2.5, 10),
        'id="/kubepods.slice/pod1/a",namespace="shop",pod="web",container="app"': (2, 8),
    }
    found = {}
    for number, node in enumerate(KUBELETS, 1):
        for job in ("kubelet", "twice") if number == 1 else ("kubernetes-nodes-cadvisor",):
            about = f'{node},job="{job}"'
            for group, (cores, gigabytes) in groups.items():
                cpu, memory = (
                    f"container_{name}{{{about},{group}}}"
                    for name in ("cpu_usage_seconds_total", "memory_working_set_bytes")
                )
                found[cpu] = f"0+{15 * cores / number}x40"
                found[memory] = f"{gigabytes * 1e9 / number:.0f}x40"
            found[f'machine_cpu_cores{{{about},boot_id="b{number}"}}'] = "4x40"
            found[f'machine_memory_bytes{{{about},boot_id="b{number}"}}'] = "16000000000x40"
    return found


def test_without_node_exporter_the_kubelets_metrics_measure_the_same(tmp_path: Path) -> None:
    path = ROOT / "docs/examples/cadvisor.yaml"
    shipped, rules = load_rules(ROOT / "rules.yaml"), load_rules(path)
    assert (rules.mark, rules.order, rules.guard) == (shipped.mark, shipped.order, shipped.guard)
    assert [rule.model_copy(update={"expr": ""}) for rule in rules.rules] == [
        rule.model_copy(update={"expr": ""}) for rule in shipped.rules
    ]
    nodes = [f"{{{node}}}" for node in KUBELETS]
    whole = dict(zip(nodes, (75, 37.5), strict=True))
    expected = {rule.expr: whole for rule in rules.rules}
    # The commented-out expressions measure the containers only.
    other = re.sub(r"^    # ", "    ", re.sub(r"    expr: >-\n( {6}.*\n)+", "", path.read_text()),
                   flags=re.MULTILINE)  # fmt: skip
    containers = dict(zip(nodes, (50, 25), strict=True))
    expected |= {rule.expr: containers for rule in parse_rules(yaml.safe_load(other)).rules}
    assert len(expected) == 4
    check_values(tmp_path, series_of_cadvisor(), expected, "5m", "15s")


def series(name: str, each: float, *, rises: bool = False, **labels: str) -> dict[str, str]:
    """A gauge, or a counter that ``rises`` by ``each`` per second; one value per minute."""
    inner = ", ".join(f'{key}="{label}"' for key, label in labels.items())
    return {f"{name}{{{inner}}}": f"0+{60 * each:g}x20" if rises else f"{each:g}x20"}


def busy(instance: str, share: float) -> dict[str, str]:
    """CPU time of one core of which ``share`` is not idle."""
    name, own = "node_cpu_seconds_total", {"instance": instance, "cpu": "0"}
    idle = series(name, 1 - share, rises=True, mode="idle", **own)
    return idle | series(name, share, rises=True, mode="user", **own)


def stalled(instance: str, share: float) -> dict[str, str]:
    return series("node_pressure_cpu_waiting_seconds_total", share, rises=True, instance=instance)


def disk(free: float, **labels: str) -> dict[str, str]:
    size = series("node_filesystem_size_bytes", 1e10, instance="a", **labels)
    return size | series("node_filesystem_avail_bytes", free, instance="a", **labels)


def alert(node: str, state: str, name: str = "KubeletTooManyPods") -> dict[str, str]:
    return series("ALERTS", 1, alertname=name, alertstate=state, node=node)


def gpu(what: str, value: float, number: int = 0, host: str = "a") -> dict[str, str]:
    return series(f"DCGM_FI_DEV_{what}", value, Hostname=host, gpu=str(number), pod="train-0")


def gpus_of(*nodes: str) -> dict[str, str]:
    """Nodes a, b and c, each with two pods, one of them dcgm-exporter's; ``nodes`` have GPUs."""
    found = info(*"abc")
    for name in "abc":
        count = 8 if name in nodes else 0
        labels = {"node": name, "resource": "nvidia_com_gpu", "unit": "integer"}
        found |= series("kube_node_status_allocatable", count, **labels)
        pod = {"namespace": "gpu", "pod": f"dcgm-{name}", "created_by_kind": "DaemonSet"}
        found |= series("kube_pod_info", 1, node=name, **pod)
        of_a_set = {"namespace": f"ns-{name}", "created_by_kind": "StatefulSet", "pod": "train-0"}
        found |= series("kube_pod_info", 1, node=name, **of_a_set)
    return found


def info(*nodes: str) -> dict[str, str]:
    return {
        key: found
        for node in nodes
        for key, found in series("kube_node_info", 1, node=node).items()
    }


A, B = '{instance="a"}', '{instance="b"}'
RULES = {
    rule.name: rule.expr or ""
    for text in (
        *shown(ROOT / "docs/rules.md"),
        (ROOT / "docs/examples/gpu.yaml").read_text(),
    )
    for rule in parse_rules(yaml.safe_load(text)).rules
}


@pytest.mark.parametrize(
    ("rule", "given", "expected"),
    [
        # Node a is idle with one throttled pod; node b is really overloaded.
        (
            "cpu-stall",
            busy("a", 0.05) | stalled("a", 0.58) | busy("b", 0.9) | stalled("b", 0.58),
            {A: 0, B: 58},
        ),
        ("cpu-above-the-others", busy("a", 0.9) | busy("b", 0.5), {A: 20, B: -20}),
        # The mean counts as 40.
        ("cpu-above-the-others", busy("a", 0.3) | busy("b", 0.1), {A: -10, B: -30}),
        (
            "disk-usage",
            disk(1e9, mountpoint="/", fstype="ext4") | disk(9e9, mountpoint="/var", fstype="xfs"),
            {A: 90},
        ),
        (
            "alerts",
            alert("a", "firing")
            | alert("b", "pending")
            | alert("c", "firing", "Watchdog")
            | info(*"abc"),
            {'{node="a"}': 1, '{node="b"}': 0, '{node="c"}': 0},
        ),
        # Hostname is the name of the node or of the exporter's pod; b's GPUs are not measured.
        *(
            (rule, measured | gpus_of("a", "b"), {'{node="a"}': 75, '{node="c"}': 0})
            for host in ("a", "dcgm-a")
            for rule, measured in (
                ("gpu-usage", gpu("GPU_UTIL", 100, 0, host) | gpu("GPU_UTIL", 50, 1, host)),
                ("gpu-memory", gpu("FB_USED", 15, 0, host) | gpu("FB_FREE", 5, 0, host)),
            )
        ),
    ],
)
def test_an_example_measures_what_it_claims(rule, given, expected, tmp_path: Path) -> None:
    check_values(tmp_path, given, {RULES[rule]: expected}, "10m")
