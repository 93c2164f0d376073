"""A running installation: changed rules, a rollout, its absence."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from site_support import (
    NAMESPACE,
    RUNNING,
    Site,
    hot,
    restarts,
    until,
    without_a_writer,
)

LOG = logging.getLogger("e2e")


@pytest.fixture(scope="module")
def one(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install one replica and the janitor; yield the applied folder."""
    rules = hot(site.node(0))
    folder = tmp_path_factory.mktemp("one") / "mine"
    site.example(folder, ("order", "guardrail", "janitor"), rules)
    with site.installed("-k", folder):
        until("the first mark", lambda: site.marked() == {site.node(0)})
        yield folder


def test_changed_rules_reach_the_pod_without_a_restart(one: Path, site: Site):
    (before,) = site.pods()
    apply_rules(site, one, yaml.safe_dump(hot(site.node(1))))
    # The kubelet updates a ConfigMap when it next syncs the pod, about once a minute by default.
    until("the other node is marked", lambda: site.marked() == {site.node(1)})
    (pod,) = site.pods()
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert restarts(pod) == 0


def test_a_rollout_keeps_marks_and_the_gap_without_a_writer_is_short(one: Path, site: Site):
    gap = without_a_writer(site, lambda: site.ours("rollout", "restart", "deploy/dynsched"))
    assert gap < 60
    site.rolled_out()


def test_its_memory_limit_is_in_force_and_it_uses_less_than_its_request(one: Path, site: Site):
    assert value(site, "min(container_spec_memory_limit_bytes{})") == 256 * 2**20
    used = value(site, "max(max_over_time(container_memory_working_set_bytes{}[1h]))")
    LOG.info("memory: %.0f MiB at most", used / 2**20)
    assert used < 128 * 2**20  # its memory request
    assert sum(restarts(pod) for pod in site.pods()) == 0


def value(site: Site, expr: str) -> float:
    """The value of ``expr``, in which {} selects dynsched's containers."""
    expr = expr.replace("{}", f'{{namespace="{NAMESPACE}",container="dynsched"}}')
    site.prometheus.wait_for(expr)
    (found,) = site.prometheus.result(expr)
    return float(found["value"][1])


def test_the_janitor_removes_marks_after_dynsched_has_long_been_gone(one: Path, site: Site):
    janitor = one / "janitor/cronjob.yaml"
    every_five, each = 'schedule: "*/5 * * * *"', 'schedule: "* * * * *"'
    janitor.write_text(janitor.read_text().replace(every_five, each))
    site.kubectl("apply", "-k", one)
    until("a Job of it has looked at the Lease", lambda: any("renewed" in t for t in logs(site)))
    assert site.marked() == {site.node(1)}
    site.ours("scale", "deploy/dynsched", "--replicas=0")
    site.ours("wait", "--for=delete", "pod", "-l", RUNNING, "--timeout=230s")
    long_ago = '{"spec":{"renewTime":"2020-01-01T00:00:00.000000Z"}}'
    site.ours("patch", "lease", "dynsched", "--type=merge", "-p", long_ago)
    until("the next Job has removed the mark", lambda: site.marked() == set())
    site.ours("scale", "deploy/dynsched", "--replicas=1")
    site.rolled_out()


def logs(site: Site) -> list[str]:
    """The logs of the janitor's completed Jobs."""
    jobs = site.get("jobs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=dynsched-janitor")
    done = [each["metadata"]["name"] for each in jobs if each["status"].get("succeeded")]
    return [site.ours("logs", f"job/{name}") for name in done]


def apply_rules(site: Site, folder: Path, text: str) -> None:
    (folder / "rules.yaml").write_text(text)
    site.kubectl("apply", "-k", folder)
