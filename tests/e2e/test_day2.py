"""What happens to one that runs: other rules, bad rules, a roll-out, an absence."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from site_support import NAMESPACE, RUNNING, Site, hot, restarts, until, without_a_writer

LOG = logging.getLogger("e2e")


@pytest.fixture(scope="module")
def one(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One replica, and the janitor; the folder that was applied."""
    rules = hot(site.node(0))
    folder = tmp_path_factory.mktemp("one") / "mine"
    site.example(folder, ("order", "guardrail", "janitor"), rules)
    with site.installed("-k", folder):
        until("the first mark", lambda: site.marked() == {site.node(0)})
        yield folder


def test_other_rules_reach_the_pod_and_it_does_not_restart(one: Path, site: Site):
    (before,) = site.pods()
    apply_rules(site, one, yaml.safe_dump(hot(site.node(1))))
    # The kubelet writes a changed ConfigMap when it next looks at the pod: once a minute or so.
    until("the other node is marked", lambda: site.marked() == {site.node(1)})
    (pod,) = site.pods()
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert restarts(pod) == 0


def test_bad_rules_change_nothing_and_do_not_keep_it_from_starting(one: Path, site: Site):
    good = (one / "rules.yaml").read_text()
    apply_rules(site, one, good.replace("threshold: 50", "threshold: high"))
    refused = "dynsched_rules_reload_success 0.0"
    until("the rules are refused", lambda: refused in site.ask("/metrics"))
    until("an Event tells it", lambda: any("'high' is not" in text for text in site.warnings()))
    site.ours("rollout", "restart", "deploy/dynsched")
    site.rolled_out()
    assert refused in site.ask("/metrics")
    assert site.marked() == {site.node(1)}
    apply_rules(site, one, good)
    until("they are accepted", lambda: "dynsched_rules_reload_success 1.0" in site.ask("/metrics"))


def test_a_roll_out_keeps_marks_and_is_short(one: Path, site: Site):
    gap = without_a_writer(site, lambda: site.ours("rollout", "restart", "deploy/dynsched"))
    assert gap < 60
    site.rolled_out()


def test_it_keeps_within_its_memory(one: Path, site: Site):
    of_it = f'namespace="{NAMESPACE}",container="dynsched"'
    expr = f"max(container_memory_working_set_bytes{{{of_it}}})"
    site.prometheus.wait_for(expr)
    (found,) = site.prometheus.result(expr)
    LOG.info("memory: %.0f MiB", float(found["value"][1]) / 2**20)
    assert float(found["value"][1]) < 128 * 2**20  # what it requests


def test_the_janitor_takes_marks_away_when_dynsched_has_long_been_gone(one: Path, site: Site):
    assert "renewed" in janitor(site, "early")
    assert site.marked() == {site.node(1)}
    site.ours("scale", "deploy/dynsched", "--replicas=0")
    site.ours("wait", "--for=delete", "pod", "-l", RUNNING, "--timeout=230s")
    long_ago = '{"spec":{"renewTime":"2020-01-01T00:00:00.000000Z"}}'
    site.ours("patch", "lease", "dynsched", "--type=merge", "-p", long_ago)
    janitor(site, "late")
    assert site.marked() == set()
    site.ours("scale", "deploy/dynsched", "--replicas=1")
    site.rolled_out()


def janitor(site: Site, name: str) -> str:
    """Run it now; its log."""
    site.ours("create", "job", name, "--from=cronjob/dynsched-janitor")
    site.ours("wait", "--for=condition=complete", f"job/{name}", "--timeout=120s")
    return site.ours("logs", f"job/{name}")


def apply_rules(site: Site, folder: Path, text: str) -> None:
    (folder / "rules.yaml").write_text(text)
    site.kubectl("apply", "-k", folder)
