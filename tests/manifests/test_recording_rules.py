"""manifests/prometheus/rules.yaml: Prometheus takes it, and it records what its names promise."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from programs import ROOT, need, run

RULES = ROOT / "manifests/prometheus/rules.yaml"
CASES = ROOT / "tests/promtool/recording-rules.yaml"


def test_prometheus_takes_them() -> None:
    done = run(need("promtool", "prometheus"), "check", "rules", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_names_that_others_read_are_recorded() -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    names = {rule["record"] for rule in group["rules"]}
    assert {"HostMemoryUsagePercent", "node_mem_usage_avg_5m", "node_cpu_usage_avg_5m"} <= names


def test_they_record_what_is_expected() -> None:
    done = run(need("promtool", "prometheus"), "test", "rules", CASES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("MemAvailable_bytes /", "MemFree_bytes /"),
        ("max by (node)", "min by (node)"),
        ('"$1$2", "key"', '"$2", "key"'),
        (" and node:memory_usage:percent", ""),
        ("\n                and\n", "\n                or\n"),
        ("[5m]", "[1m]"),
    ],
)
def test_the_cases_would_find_a_mistake(right: str, wrong: str, tmp_path: Path) -> None:
    text = RULES.read_text()
    assert right in text
    (tmp_path / "rules.yaml").write_text(text.replace(right, wrong))
    cases = CASES.read_text().replace("../../manifests/prometheus/rules.yaml", "rules.yaml")
    (tmp_path / "cases.yaml").write_text(cases)
    done = run(need("promtool", "prometheus"), "test", "rules", tmp_path / "cases.yaml")
    assert done.returncode == 1, done.stdout + done.stderr
